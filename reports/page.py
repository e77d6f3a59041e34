"""What the HTML page shows, gathered from a report: matrix, heat map, findings with their source, changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opcompat.checking.data import CheckReport, Issue
from opcompat.report import VERDICTS, Advice, Excerpt, Finding, Report, TargetReport

from . import gathered, wording

OPEN_ROWS = 100
"""Rows of a table that are shown at once; the rest unfold."""

MOST_OPS = 400
"""Rows of a heat map."""


@dataclass(frozen=True)
class Cell:
    """One field of a matrix: its text, its color (good, soft, warn, bad or nothing), and what it says in words."""

    text: str
    tone: str
    words: str = ""


@dataclass(frozen=True)
class Row:
    name: str
    cells: tuple[Cell, ...]
    anchor: str = ""


@dataclass(frozen=True)
class Grid:
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    left_out: int = 0


def matrix(report: Report | CheckReport) -> Grid:
    """Model by target: how many equations each target cannot run, then the checks, then the result."""
    models = gathered.models(report)
    targets = tuple(dict.fromkeys(t.target for m in models for t in m.report.targets))
    checked = any(m.report.checks for m in models)
    rows = []
    for number, model in enumerate(models):
        by_name = {t.target: t for t in model.report.targets}
        cells = [_target_cell(by_name.get(name)) for name in targets]
        if checked:
            checks = model.report.checks
            passed = sum(c.passed or not c.binding for c in checks)
            tone = "soft" if not checks else "good" if passed == len(checks) else "bad"
            cells.append(Cell(f"{passed:,}/{len(checks):,}" if checks else "–", tone, "checks that passed"))
        bad = any(i.fails(gathered.fail_on(report)) for i in model.issues) or not _whole(report, model.report)
        cells.append(Cell("FAILED" if bad else "passed", "bad" if bad else "good"))
        rows.append(Row(model.key, tuple(cells), f"m{number}"))
    return Grid((*targets, *(["checks"] if checked else []), "result"), tuple(rows))


def _whole(report: Report | CheckReport, own: Report) -> bool:
    """A report of one model fails by itself; in a check the issues decide."""
    return isinstance(report, CheckReport) or own.ok


def _target_cell(target: TargetReport | None) -> Cell:
    if target is None:
        return Cell("–", "soft", "not judged")
    stuck = target.counts.get("unsupported", 0) + target.counts.get("unknown", 0)
    words = wording.counts(target)
    if stuck:
        return Cell(f"✗ {stuck:,}", "bad" if target.counts.get("unsupported") else "warn", words)
    return Cell("✓", "good", words)


_TONES = {"native": "native", "folded": "folded", "rewritten": "rewritten", "unknown": "warn", "unsupported": "bad"}
_MARKS = {"native": "", "folded": "", "rewritten": "↻ ", "unknown": "? ", "unsupported": "✗ "}


def heat_map(report: Report) -> Grid | None:
    """Primitive by target: the worst verdict of each, those in the way first, then by number."""
    targets = [t for t in report.targets if t.primitives]
    if not targets:
        return None
    names = dict.fromkeys(name for t in targets for name in t.primitives)

    def rank(name: str) -> tuple[int, int, str]:
        worst = max(_severity(t.primitives.get(name, {})) for t in targets)
        return -worst, -max(sum(t.primitives.get(name, {}).values()) for t in targets), name

    ordered = sorted(names, key=rank)
    rows = tuple(Row(name, tuple(_heat(t.primitives.get(name, {})) for t in targets)) for name in ordered[:MOST_OPS])
    return Grid(tuple(t.target for t in targets), rows, max(0, len(ordered) - MOST_OPS))


_ORDER = ("folded", "native", "rewritten", "unknown", "unsupported")
"""From harmless to worst."""


def _severity(counts: Mapping[str, int]) -> int:
    return max((_ORDER.index(v) for v, n in counts.items() if n and v in _ORDER), default=-1)


def _heat(counts: Mapping[str, int]) -> Cell:
    found = {v: int(n) for v, n in counts.items() if n}
    if not found:
        return Cell("", "")
    worst = _ORDER[_severity(found)]
    words = ", ".join(f"{found[v]:,} {v}" for v in VERDICTS if v in found)
    return Cell(f"{_MARKS[worst]}{sum(found.values()):,}", _TONES[worst], words)


def excerpt(report: Report, at: Finding | Advice | Issue) -> Excerpt | None:
    """The source around a place, where the report has it."""
    return report.excerpts.get(f"{at.file}:{at.line}") if at.file else None


def issues(report: CheckReport) -> list[Issue]:
    """What counts against the run or was only noted, worst first; what is gone or was changed is in `changes`."""
    return [i for i in gathered.all_issues(report) if i.status in ("", "new", "known")]


def changes(report: CheckReport) -> list[Issue]:
    """What is not as the baseline has it: new, fixed, stale, or with a value before and now."""
    shown = (i for i in gathered.all_issues(report) if i.status in ("new", "fixed", "stale") or i.before or i.after)
    return sorted(shown, key=lambda i: not i.cause)


def split(rows: Sequence[object]) -> tuple[Sequence[object], Sequence[object]]:
    """What is shown at once, and what unfolds."""
    return rows[:OPEN_ROWS], rows[OPEN_ROWS:]
