"""Plain text for people, at 80 columns or wider, in colors if asked."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from opcompat.checking.data import CheckReport
from opcompat.report import VERDICTS, Advice, Check, Finding, Report, TargetReport

from . import terminal_bisect, terminal_check, wording
from .wording import printable

WIDTH = 100
_LEAST = 72  # a table with less room would lose columns; the terminal wraps its lines instead
_FEW = 2  # so many targets have a section each; more share one table, in which equal findings stand once
_MOST = 20  # so many obstacles stand in the table of many targets
_NARROW = 100  # below this many columns, cells that would not fit are stacked
_STYLES = {
    "unsupported": "bold red",
    "unknown": "bold yellow",
    "rewritten": "green",
    "FAILED": "bold red",
    "differs": "yellow",
    "passed": "green",
}


def render(report: Report | CheckReport, *, color: bool = False, width: int | None = None) -> str:
    """The report as text of at most `width` columns, by default 100, at least 72; in ANSI colors if `color`.

    Names from the model reach the terminal as text only: control characters are shown as escapes.
    """
    console = Console(
        file=io.StringIO(),
        width=max(width or WIDTH, _LEAST),
        height=100,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        blocks = terminal_check.blocks(report) if isinstance(report, CheckReport) else _blocks(report, console.width)
        for block in blocks:
            console.print(block)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    return re.sub("\n{3,}", "\n\n", text).strip("\n") + "\n"


def _blocks(report: Report, width: int) -> Iterator[RenderableType]:
    yield Text(f"opcompat {printable(report.command)}: {printable(report.model)}", "bold")
    yield _facts(report)
    if len(report.targets) > _FEW:
        yield from _matrix(report)
    for target in report.targets if len(report.targets) <= _FEW else ():
        yield Text()
        yield from _target(report, target, width)
    if report.advice:
        yield Text()
        yield _advice(report.advice, narrow=width < _NARROW)
    if report.checks:
        yield from _checks(report, narrow=width < _NARROW)
    if report.divergences:
        yield from terminal_bisect.blocks(report)
    if report.files:
        yield from _files(report)
    yield Text()
    yield Text(wording.verdict(report), "bold green" if report.ok else "bold red")
    if report.next_step:
        yield Text(f"Next: {printable(report.next_step)}")


def _facts(report: Report) -> RenderableType:
    parameters = f"{report.parameters:,} ({wording.size(report.parameter_bytes)})"
    facts = {
        "source": report.source,
        "entry points": ", ".join(report.entry_points),
        "parameters": parameters if report.parameters else "",
        "bundle": report.bundle,
        **report.facts,
    }
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value:
            grid.add_row(Text(printable(name), "dim"), Text(printable(value), overflow="fold"))
    return Padding(grid, (0, 0, 0, 2))


def _target(report: Report, target: TargetReport, width: int) -> Iterator[RenderableType]:
    yield Text(_runtime(target.target, target.runtime, target.version), "bold")
    yield Padding(Text(wording.counts(target, wording.thing(report))), (0, 0, 0, 2))
    findings = wording.shown_findings(report, target)
    if findings:
        yield _findings(findings, narrow=width < _NARROW)
    if target.rules:
        yield _rules(target)


def _matrix(report: Report) -> Iterator[RenderableType]:
    """Many targets: one row each, then each thing in the way once, with all the targets that it stops."""
    summary = _table()
    summary.add_column("Target", overflow="fold", ratio=1)
    for verdict in VERDICTS:
        summary.add_column(verdict.capitalize(), justify="right", no_wrap=True)
    summary.add_column("Runs", no_wrap=True)
    for target in report.targets:
        counts = [Text(f"{target.counts.get(v, 0):,}" if target.counts.get(v) else "") for v in VERDICTS]
        runs = Text("yes", "bold green") if target.ok else Text("no", "bold red")
        summary.add_row(Text(_runtime(target.target, target.runtime, target.version)), *counts, runs)
    yield Text()
    yield Padding(summary, (0, 0, 0, 1))
    obstacles = wording.obstacles(report)
    if obstacles:
        yield Text("In the way", "bold")
        yield _obstacles(obstacles[:_MOST])
        if len(obstacles) > _MOST:
            rest = f"and {len(obstacles) - _MOST:,} more: scan for one target alone, or print --format json"
            yield Padding(Text(rest, "dim"), (0, 0, 0, 2))


def _obstacles(obstacles: Sequence[wording.Obstacle]) -> RenderableType:
    table = _table()
    table.add_column("Equation", overflow="fold", ratio=1)
    table.add_column("Count", justify="right", no_wrap=True)
    for obstacle in obstacles:
        equation = Text(wording.equation(obstacle.finding))
        equation.append(f"  {wording.place(obstacle.finding)}", "cyan")
        for names, reason in obstacle.reasons:
            equation.append(f"\n{printable(', '.join(names))}: ", "yellow")
            equation.append(printable(reason), "dim")
        table.add_row(equation, Text(f"{obstacle.finding.count:,}"))
    return Padding(table, (0, 0, 0, 1))


def _runtime(name: str, runtime: str, version: str) -> str:
    """'litert 2.3', and the runtime's own name where it is another."""
    own = runtime if runtime.lower().replace(" ", "") != name.lower() else ""
    return printable(f"{name} {version}" + (f" ({own})" if own else ""))


def _findings(findings: list[Finding], *, narrow: bool) -> RenderableType:
    table = _table()
    table.add_column("Finding", no_wrap=True)
    table.add_column("Equation", overflow="fold", ratio=1)
    if not narrow:
        table.add_column("Where", overflow="fold")
    table.add_column("Count", justify="right", no_wrap=True)
    for finding in findings:
        equation = Text(wording.equation(finding))
        if narrow:
            equation.append(f"\n{wording.place(finding)}", "cyan")
        for line in wording.reasons(finding):
            equation.append(f"\n{line}", "dim")
        row = [Text(wording.label(finding), _STYLES.get(finding.verdict, "")), equation]
        where = [] if narrow else [Text(wording.place(finding), "cyan")]
        table.add_row(*row, *where, Text(f"{finding.count:,}"))
    return Padding(table, (0, 0, 0, 1))


def _advice(advice: Sequence[Advice], *, narrow: bool) -> RenderableType:
    table = _table()
    table.add_column("Lint", no_wrap=True)
    table.add_column("Advice", overflow="fold", ratio=1)
    if not narrow:
        table.add_column("Where", overflow="fold")
    for one in advice:
        text = Text(printable(f"{', '.join(one.entry_points)}: {one.message}"))
        if narrow:
            text.append(f"\n{wording.place(one)}", "cyan")
        text.append(f"\n{printable(one.next_step)}", "dim")
        table.add_row(Text(printable(one.id), "yellow"), text, *([] if narrow else [Text(wording.place(one), "cyan")]))
    return Padding(table, (0, 0, 0, 1))


def _rules(target: TargetReport) -> RenderableType:
    table = _table()
    table.add_column("Rule", no_wrap=True)
    table.add_column("What it does", overflow="fold", ratio=1)
    table.add_column("Exactness", overflow="fold")
    table.add_column("Count", justify="right", no_wrap=True)
    for rule in target.rules:
        cells = (rule.id, rule.title, rule.exactness)
        table.add_row(*(Text(printable(cell)) for cell in cells), Text(f"{rule.count:,}"))
    return Padding(table, (0, 0, 0, 1))


def _checks(report: Report, *, narrow: bool) -> Iterator[RenderableType]:
    for (form, runtime), group in groupby(report.checks, key=lambda check: (check.format, check.runtime)):
        checks = list(group)
        yield Text()
        yield Text(printable(f"{form}, run by {runtime}"), "bold")
        yield _check_table(checks, narrow=narrow)
        for check in checks:
            for line in wording.remarks(check):
                yield Padding(Text(line, _STYLES[wording.result(check)]), (0, 0, 0, 2))


def _check_table(checks: list[Check], *, narrow: bool) -> RenderableType:
    table = _table()
    table.add_column("Entry point", overflow="fold")
    table.add_column("Check", min_width=len("closed-loop"), no_wrap=True)
    table.add_column("Steps", justify="right", no_wrap=True)
    table.add_column("Largest error", overflow="fold", ratio=1)
    table.add_column("Draws", justify="right", overflow="fold")
    table.add_column("Result", min_width=len("differs"), no_wrap=True)
    gap = "\n" if narrow else "  "
    for check in checks:
        output = wording.worst(check)
        error = f"{printable(output.name)}{gap}{wording.measured(output)}" if output else ""
        cells = (
            printable(check.entry_point),
            printable(check.kind),
            f"{check.steps:,} × {check.seeds:,}",
            error,
            wording.draws(check).replace(", ", gap.strip(" ") or ", "),
        )
        result = wording.result(check)
        table.add_row(*(Text(cell) for cell in cells), Text(result, _STYLES[result]))
    return Padding(table, (0, 0, 0, 1))


def _files(report: Report) -> Iterator[RenderableType]:
    total = sum(file.bytes for file in report.files)
    yield Text()
    yield Text(f"{wording.plural(len(report.files), 'file')}, {wording.size(total)}", "bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    grid.add_column(justify="right", no_wrap=True)
    for file in report.files:
        grid.add_row(Text(printable(file.path)), Text(wording.size(file.bytes)))
    yield Padding(grid, (0, 0, 0, 2))


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
