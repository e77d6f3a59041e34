"""`check` as plain text for people: the models, what fails and why, the budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from opcompat.checking.data import BudgetVerdict, CheckReport, Issue

from . import wording
from .wording import shortened

MOST = 200
"""Issues that are shown one by one; the rest is counted."""

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim", "fixed": "green", "FAILED": "bold red"}


def blocks(report: CheckReport) -> Iterator[RenderableType]:
    """The blocks of the text, to be printed one below the other."""
    yield Text(f"opcompat check: {wording.plural(len(report.models), 'model')}", "bold")
    facts = {"baseline": report.baseline, "shard": report.shard, "run by": report.run.where}
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value:
            grid.add_row(Text(name, "dim"), Text(shortened(value, 200), overflow="fold"))
    yield Padding(grid, (0, 0, 0, 2))
    yield _models(report)
    shown = wording.shown_issues(report.all_issues())
    if shown:
        yield _issues(shown, many=len(report.models) > 1)
    exceeded = [budget for budget in report.budgets if not budget.passed]
    if exceeded:
        yield _budgets(exceeded)
    yield Text()
    yield Text(wording.check_verdict(report), "bold green" if report.ok else "bold red")
    if report.next_step:
        yield Text(f"Next: {shortened(report.next_step)}")


def _models(report: CheckReport) -> RenderableType:
    table = _table()
    table.add_column("Model", overflow="fold")
    table.add_column("Cannot run", overflow="fold", ratio=1)
    table.add_column("Checks passed", justify="right", no_wrap=True)
    table.add_column("Result", no_wrap=True)
    for model in report.models:
        state = wording.model_state(model, report.fail_on)
        cells = (shortened(model.key, 200), wording.model_targets(model), wording.model_checks(model))
        table.add_row(*map(Text, cells), Text(state, _STYLES.get(state, "green")))
    return Padding(table, (0, 0, 0, 1))


def _issues(issues: Sequence[Issue], *, many: bool) -> RenderableType:
    table = _table()
    table.add_column("Level", no_wrap=True)
    table.add_column("Id", no_wrap=True)
    table.add_column("What", overflow="fold", ratio=1)
    for issue in issues[:MOST]:
        model = f"{shortened(issue.model, 200)}: " if many and issue.model else ""
        text = Text(model + shortened(issue.message))
        if issue.file:
            text.append(f"\n{wording.place(issue)}", "cyan")
        for line in wording.issue_lines(issue):
            text.append(f"\n{line}", "dim")
        label = wording.issue_label(issue)
        table.add_row(Text(label, _STYLES[label]), Text(shortened(issue.id, 24)), text)
    if len(issues) > MOST:
        table.add_row(Text(""), Text(""), Text(f"and {len(issues) - MOST:,} more; see --format json"))
    return Padding(table, (0, 0, 0, 1))


def _budgets(budgets: Sequence[BudgetVerdict]) -> RenderableType:
    table = _table()
    for name in ("Budget", "Model", "Of"):
        table.add_column(name, overflow="fold")
    for name in ("Value", "Limit"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in budgets:
        value = "see run" if one.value is None else f"{one.value:g}"
        cells = (one.metric, shortened(one.model, 200), shortened(one.entry, 200), value, f"{one.limit:g}")
        table.add_row(*(Text(shortened(cell, 200)) for cell in cells))
    return Padding(table, (0, 0, 0, 1))


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
