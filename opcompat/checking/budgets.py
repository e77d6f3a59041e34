"""Limits per metric of one model. Times are never compared with limits, only their ratio to the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from opcompat.checking.data import BudgetVerdict, Issue
from opcompat.checking.issues import KINDS, fingerprint
from opcompat.checking.settings import Budget
from opcompat.report import Report

Values = Iterator[tuple[str, float]]
"""(what it is of, value) pairs."""

COUNTED = ("step", "closed-loop")
"""The checks whose errors are those of the policy at work. At boundary values errors scale with the values."""


def verdicts(report: Report, key: str, budgets: Sequence[Budget], latency: Mapping[str, float]) -> list[BudgetVerdict]:
    """Every value that a budget limits, against its limit."""
    found = []
    for budget in budgets:
        values = iter(sorted(latency.items())) if budget.metric == "latency" else _METRICS[budget.metric](report)
        for entry, value in values:
            shown = None if budget.metric == "latency" else value
            # NaN is within no limit.
            passed = value <= budget.limit
            found.append(BudgetVerdict(key, budget.metric, budget.level, budget.limit, entry, shown, passed))
    return found


def issues(found: Sequence[BudgetVerdict]) -> Iterator[Issue]:
    """An issue for each budget that is exceeded."""
    for one in found:
        if one.passed:
            continue
        value = "is over (the ratio is in run.latency)" if one.value is None else f"is {one.value:g}"
        yield Issue(
            id="budget",
            level=one.level,
            model=one.model,
            target=one.entry.partition(" ")[0],
            title=KINDS["budget"].title,
            message=f"{one.metric} of {one.entry} {value}, its budget is {one.limit:g}",
            next_step="make it smaller, or raise the budget in opcompat.toml",
            fingerprint=fingerprint("budget", one.metric, one.entry),
            before=f"at most {one.limit:g}",
            after="" if one.value is None else f"{one.value:g}",
        )


def _errors(report: Report) -> Values:
    for check in report.checks:
        for output in check.outputs if check.kind in COUNTED and check.binding else ():
            if output.reference_error is not None:
                yield f"{check.format} {check.entry_point} {output.name}, {check.kind}", output.error


def _disagreement(report: Report) -> Values:
    for check in report.checks:
        if check.draws and check.kind in COUNTED and check.format != "jax":
            yield f"{check.format} {check.entry_point}, {check.kind}", check.mismatched / check.draws


def _bytes(report: Report) -> Values:
    yield from ((artifact.format, float(artifact.bytes)) for artifact in report.artifacts)


def _ops(report: Report) -> Values:
    yield from ((artifact.format, float(artifact.ops)) for artifact in report.artifacts)


def _rewritten(report: Report) -> Values:
    yield from ((target.target, float(target.counts.get("rewritten", 0))) for target in report.targets)


_METRICS: Mapping[str, Callable[[Report], Values]] = {
    "max_abs_error": _errors,
    "draw_disagreement": _disagreement,
    "artifact_bytes": _bytes,
    "op_count": _ops,
    "rewritten_ops": _rewritten,
}
