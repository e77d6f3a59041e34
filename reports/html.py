"""One self-contained page: no scripts, nothing loaded, light and dark, readable on a phone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from opcompat.report import Report

from . import wording


def render(report: Report, *, color: bool = False, width: int | None = None) -> str:
    """The report as an HTML page. Every value is escaped. `color` and `width` have no effect."""
    return _template().render(report=report, w=wording)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: wording.printable(value) if isinstance(value, str) else value,
    )
    return environment.get_template("report.html")
