"""One model's result against its settings and its entry in the baseline: which of its issues count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from opcompat.checking import budgets, compare, explain
from opcompat.checking.baseline import Entry, entry_of, is_finding
from opcompat.checking.data import BudgetVerdict, Issue, ModelResult
from opcompat.checking.issues import KINDS, failure_issue, fingerprint, issues_of
from opcompat.checking.rules import sift
from opcompat.checking.settings import Settings, Suppression


def judge(
    result: ModelResult,
    settings: Settings,
    latency: Mapping[str, float],
    baseline: Entry | None,
) -> tuple[ModelResult, list[BudgetVerdict], frozenset[Suppression]]:
    """The result with its issues, the budgets that were checked, and the suppressions that matched.

    `baseline` is the whole file's contents, None without one.
    """
    if result.failure:
        return replace(result, issues=(failure_issue(result.key, result.failure),)), [], frozenset()
    found = list(issues_of(result.report, result.key))
    if baseline is not None:
        result = replace(result, issues=tuple(found))
        found = list(_compared(result, baseline, settings))
    limited = budgets.verdicts(result.report, result.key, settings.budgets, latency)
    found += budgets.issues(limited)
    kept, used = sift(found, settings)
    return replace(result, issues=tuple(kept)), limited, used


def _compared(result: ModelResult, baseline: Entry, settings: Settings) -> Iterator[Issue]:
    """The result's issues and what changed, each with its status and the likely cause."""
    key, old = result.key, baseline["models"].get(result.key)
    if old is None:
        yield from (replace(issue, status="new") for issue in result.issues)
        yield _not_there(key)
        return
    versions = explain.moved(baseline["versions"], result.report.versions)
    new = entry_of(result)
    delta = compare.findings(old, new)
    for issue in result.issues:
        if not is_finding(issue.fingerprint):
            yield issue
        elif issue.fingerprint in delta.new:
            yield explain.with_cause(_new(issue, delta), versions)
        else:
            yield replace(issue, status="known")
    judged = {target.target for target in result.report.targets} | {a.format for a in result.report.artifacts}
    replaced = {delta.replaced(name) for name in delta.new}
    for name in delta.gone:
        if name not in replaced:
            yield _gone(key, name, judged)
    limits = compare.Limits(settings.error_growth, settings.bytes_growth)
    for issue in compare.changes(key, old, new, limits):
        yield explain.with_cause(issue, versions)


def _new(issue: Issue, delta: compare.Findings) -> Issue:
    """A finding that the baseline has not, or not as often. It fails whatever it is, unless it is an advice."""
    was, (before, now) = delta.replaced(issue.fingerprint), delta.new[issue.fingerprint]
    level = "error" if issue.level == "note" else issue.level
    if was:
        old = " ".join(was.split(" | ")[3:])
        issue = replace(issue, before=old, after=" ".join(issue.fingerprint.split(" | ")[3:]))
        rules = compare.rules_of(was)
        if rules:
            what = f"{', '.join(rules)} no longer acts here: {issue.message}"
            return replace(issue, id="rule", level=level, status="new", title=KINDS["rule"].title, message=what)
    more = f"; {now} times, before {before} times" if before else ""
    step = issue.next_step or compare.ACCEPT
    return replace(issue, level=level, status="new", message=f"new: {issue.message}{more}", next_step=step)


def _gone(key: str, name: str, judged: set[str]) -> Issue:
    """A finding of the baseline that is gone: fixed, or stale if its target was not judged."""
    first = name.partition(" | ")[0]
    known = first in judged or first.startswith("OC")
    return explain.gone_issue(key, name) if known else stale(key, f"the baseline has a finding of {first}: {name}")


def _not_there(key: str) -> Issue:
    return Issue(
        id="verdict",
        level="warning",
        model=key,
        target="",
        title="A model that the baseline has not",
        message="the baseline has no entry for this model",
        next_step="add it with opcompat baseline update",
        fingerprint=fingerprint("change", "verdict", key),
        status="new",
    )


def stale(key: str, what: str) -> Issue:
    """An entry that matches nothing that was checked."""
    return Issue(
        id="stale",
        level="error",
        model=key,
        target="",
        title=KINDS["stale"].title,
        message=f"{what}, which was not checked",
        next_step="take it out with opcompat baseline update, or allow it with --allow-stale",
        fingerprint=fingerprint("stale", key, what),
        status="stale",
    )


def stale_models(baseline: Entry, keys: Sequence[str]) -> list[Issue]:
    """An issue for each model of the baseline that is none of `keys`."""
    return [stale("", f"the baseline has the model {key}") for key in baseline["models"] if key not in keys]
