"""One self-contained page: no scripts, nothing loaded, light and dark, readable on a phone."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from opcompat.checking.data import CheckReport
from opcompat.report import Report

from . import charts, gathered, page, wording, wording_bisect

LONGEST = 2000
"""Characters of a name or text; longer ones are cut, so that no model makes a page too large to open."""


def render(report: Report | CheckReport, *, color: bool = False, width: int | None = None) -> str:
    """The report as an HTML page. Every value is escaped. `color` and `width` have no effect."""
    is_check = isinstance(report, CheckReport)
    models = gathered.models(report)
    title = f"opcompat {report.command}" + (f": {models[0].key}" if len(models) == 1 else "")
    text = _template().render(report=report, is_check=is_check, title=wording.shortened(title, 200))
    return re.sub(r"\n\s*\n+", "\n", text.lstrip())


class Plots(NamedTuple):
    errors: list[charts.LinePlot]
    margins: list[charts.Histogram]


def plots_of(report: Report) -> Plots:
    """The plots of a report's checks. All artifacts face the same decisions of JAX's: each entry point's once."""
    errors = [plot for check in report.checks if (plot := charts.error_plot(check)) is not None]
    found: dict[str, charts.Histogram] = {}
    for check in report.checks:
        histogram = charts.margin_histogram(check)
        if histogram is not None:
            found.setdefault(check.entry_point, histogram)
    return Plots(errors, list(found.values()))


def lines(text: str) -> Markup:
    """Text of several lines, each printable."""
    return Markup("\n").join(wording.printable(line) for line in text.splitlines())


def _shown(value: Any) -> Any:
    """What autoescape then escapes; markup that a macro made is left alone."""
    return wording.shortened(value, LONGEST) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals.update(
        w=wording, b=wording_bisect, g=gathered, p=page, c=charts, plots_of=plots_of, lines=lines
    )
    return environment.get_template("report.html")
