"""Annotations for GitHub: workflow commands, one a line, which a step's log turns into remarks on lines of the diff.

GitHub shows at most ten of each kind for a step, so the last of ten says how many are left.
"""

from __future__ import annotations

from collections.abc import Iterator

from opcompat.checking.data import CheckReport, Issue, Level
from opcompat.report import Report

from . import gathered, wording

MOST = 10
"""Annotations of one kind in one step."""

_KINDS: dict[Level, str] = {"error": "error", "warning": "warning", "note": "notice"}
_LONGEST = 3000


def render(report: Report | CheckReport, *, color: bool = False, width: int | None = None) -> str:
    """The report as workflow commands, then its verdict as a plain line. `color` and `width` have no effect."""
    issues = wording.shown_issues(gathered.all_issues(report))
    lines = [line for level in _KINDS for line in _of_level(level, [i for i in issues if _level(i) == level])]
    return "\n".join([*lines, wording.printable(gathered.verdict(report))]) + "\n"


def _level(issue: Issue) -> Level:
    return "note" if not issue.active else issue.level


def _of_level(level: Level, issues: list[Issue]) -> Iterator[str]:
    shown = issues if len(issues) <= MOST else issues[: MOST - 1]
    for issue in shown:
        text = "\n".join(gathered.texts(issue))[:_LONGEST]
        place = {"file": issue.file, "line": str(issue.line)} if gathered.is_place(issue.file) and issue.line else {}
        title = wording.shortened(f"opcompat {issue.id}: {issue.title}", 200)
        yield _command(_KINDS[level], {**place, "title": title}, text)
    left = len(issues) - len(shown)
    if left:
        text = f"and {left:,} more of this kind; see the report"
        yield _command(_KINDS[level], {"title": "opcompat"}, text)


def _command(kind: str, properties: dict[str, str], message: str) -> str:
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {shown}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(wording.printable(text)).replace(":", "%3A").replace(",", "%2C")
