"""What bisect found, as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from opcompat.report import Divergence, Report

from . import wording_bisect as wording
from .wording import printable


def blocks(report: Report) -> Iterator[RenderableType]:
    """Each artifact's entry points, one paragraph each."""
    for found in report.divergences:
        yield Text()
        style = "bold green" if wording.agrees(found) else "bold red" if not found.ok else "bold yellow"
        yield Text(wording.divergence_title(found), style)
        for line in _lines(found):
            yield Padding(line, (0, 0, 0, 2))


def _lines(found: Divergence) -> Iterator[Text]:
    for line in wording.divergence_lines(found):
        yield Text(line)
    if found.culprit is not None:
        yield Text(wording.culprit_line(found.culprit), "bold")
        for line in wording.culprit_details(found.culprit):
            yield Text(line)
        for step in found.culprit.growth:
            yield Text(f"  {wording.growth_line(step)}", "dim")
    for note in found.notes:
        yield Text(f"note: {printable(note)}", "yellow")
