"""The words and numbers that every renderer shows the same way."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from opcompat.checking.data import LEVELS, CheckReport, FailOn, Issue, ModelResult
from opcompat.printable import printable as safe
from opcompat.report import VERDICTS, Advice, Check, Finding, OutputCheck, Report, TargetReport

_ORDER = {"unsupported": 0, "unknown": 1, "rewritten": 2, "folded": 3, "native": 4}


def printable(text: object) -> str:
    """One line of text in which control, direction and surrogate characters are visible as escapes.

    So are the beginnings of commands that CI hosts look for in what a step prints, "::" and "##[".
    """
    return safe(str(text).replace("::", ":\\x3a").replace("##[", "#\\x23["))


def plural(count: int, noun: str) -> str:
    """'1 file', '2,000 files'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Bytes in decimal units: '812 B', '40.4 MB'."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def number(value: float) -> str:
    """A small quantity: '0', '3.1e-06', 'nan', 'inf'."""
    return f"{value:.1e}" if math.isfinite(value) and value else f"{value:g}"


def thing(report: Report) -> str:
    """What a report counts: a model's equations, or a file's ops."""
    return "op" if "format" in report.facts else "equation"


def counts(target: TargetReport, noun: str = "equation") -> str:
    """'1,234 equations: 1,000 native, ...'; unknown ones only where there are any."""
    total = sum(target.counts.values())
    shown = [v for v in VERDICTS if v != "unknown" or target.counts.get(v)]
    return f"{plural(total, noun)}: " + ", ".join(f"{target.counts.get(v, 0):,} {v}" for v in shown)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Unsupported first, then unknown, then rewritten, otherwise as they came."""
    return sorted(findings, key=lambda finding: _ORDER[finding.verdict])


def label(finding: Finding) -> str:
    """The rules that helped, or the verdict."""
    helped = finding.verdict == "rewritten" and finding.rules
    return printable(" ".join(finding.rules) if helped else finding.verdict)


def equation(finding: Finding) -> str:
    return printable(f"{finding.primitive}  {finding.operands}".rstrip())


def place(finding: Finding | Advice | Issue) -> str:
    """'file.py:12', which terminals and editors can open; the node's name in a model file, which has no lines."""
    if not finding.file:
        return "(unknown place)"
    shown = f"{finding.file}:{finding.line}" if finding.line else finding.function or finding.file
    return shortened(shown, 1000)


def reasons(finding: Finding) -> list[str]:
    """Why it cannot run, how that is known, and which rules looked and declined."""
    evidence = f" [{finding.evidence}]" if finding.evidence else ""
    lines = [f"{finding.reason}{evidence}"] if finding.reason else []
    return [printable(line) for line in (*lines, *(f"declined: {reason}" for reason in finding.declined))]


def measured(output: OutputCheck) -> str:
    """'3.1e-06 of 1.2e-05' for floats, '0 differ' for integers and bools."""
    if not output.dtype.startswith(("float", "bfloat", "complex")):
        return f"{int(output.error):,} differ" if math.isfinite(output.error) else f"{output.error} differ"
    return f"{number(output.error)} of {number(output.tolerance)}"


def worst(check: Check) -> OutputCheck | None:
    """The output that came closest to its tolerance, or furthest beyond."""
    return max(check.outputs, key=_badness, default=None)


def draws(check: Check) -> str:
    """'32,000', with those that differ within the margin, or nothing if none were compared."""
    if not check.draws:
        return ""
    return f"{check.draws:,}" + (f", {check.mismatched:,} differ" if check.mismatched else "")


def result(check: Check) -> str:
    """'passed', 'FAILED', or 'differs' where a difference is only reported."""
    return "passed" if check.passed else "FAILED" if check.binding else "differs"


def remarks(check: Check) -> list[str]:
    """What the row of a check has no room for: each output that failed, notes, sensitivity."""
    head = f"{check.entry_point} {check.kind}"
    lines = [
        f"{head}: {o.name} ({o.dtype}) {measured(o)}, worst at step {o.worst_step:,}"
        for o in check.outputs
        if not o.passed
    ]
    if check.note:
        lines.append(f"{head}: {check.note}")
    if check.sensitivity is not None and not check.binding:
        lines.append(f"{head}: 1 ulp of state changes JAX's own outputs by {number(check.sensitivity)}")
    return [printable(line) for line in lines]


def shown_findings(report: Report, target: TargetReport) -> list[Finding]:
    """All of them for a scan; what stands in the way for any other command."""
    stuck = ("unsupported", "unknown")
    return [f for f in ordered(target.findings) if report.command == "scan" or f.verdict in stuck]


def shown_issues(issues: Iterable[Issue]) -> list[Issue]:
    """Those that a reader has to know, worst first: what counts, what is new or gone; not what was known before."""
    found = [i for i in issues if (i.level != "note" and i.active) or i.status in ("new", "fixed", "stale")]
    return sorted(found, key=lambda i: (not i.active, LEVELS.index(i.level)))


def issue_label(issue: Issue) -> str:
    """'error', 'warning', 'note', or 'fixed'."""
    return issue.status if issue.status == "fixed" else issue.level


def issue_lines(issue: Issue) -> list[str]:
    """The likely cause first, then what was and is, then what to do."""
    lines = [f"likely cause: {issue.cause}"] if issue.cause else []
    if issue.before or issue.after:
        lines.append(f"before: {issue.before or 'none'}; now: {issue.after or 'none'}")
    if issue.reason:
        lines.append(f"suppressed: {issue.reason}")
    if issue.next_step:
        lines.append(f"next: {issue.next_step}")
    return [shortened(line) for line in lines]


def shortened(text: str, longest: int = 2000) -> str:
    """Printable, and not endless: names in a model may have any length."""
    shown = printable(text[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[:longest]}..."


def check_verdict(report: CheckReport) -> str:
    """The one sentence that a check comes to."""
    bad = [issue for issue in report.all_issues() if issue.fails(report.fail_on)]
    count = plural(len(report.models), "model")
    if not bad:
        loose = sum(i.active and i.level == "error" for i in report.all_issues())
        but = f", but {plural(loose, 'error')} did not fail it, since --fail-on is {report.fail_on}" if loose else ""
        compared = " compared with the baseline" if report.baseline else ""
        return f"{count}{compared}: nothing fails{but}."
    failed = len({issue.model for issue in bad if issue.model})
    where = f" in {failed:,} of {count}" if failed else ""
    return f"FAILED: {plural(len(bad), 'issue')}{where}."


def model_state(result: ModelResult, fail_on: FailOn) -> str:
    """'passed' or 'FAILED'."""
    return "FAILED" if any(issue.fails(fail_on) for issue in result.issues) else "passed"


def model_targets(result: ModelResult) -> str:
    """'onnxruntime 0 of 52, litert 1 of 52': how many equations each target cannot run."""
    if result.failure:
        return shortened(result.failure, 300)
    return ", ".join(
        f"{shortened(t.target, 60)} {_stuck(t):,} of {sum(t.counts.values()):,}" for t in result.report.targets
    )


def model_checks(result: ModelResult) -> str:
    """'10 of 10'."""
    checks = result.report.checks
    return f"{sum(c.passed or not c.binding for c in checks):,} of {len(checks):,}" if checks else "none"


def verdict(report: Report) -> str:
    """The one sentence that the run comes to."""
    bad = [t for t in report.targets if not t.ok]
    if bad:
        parts = [f"{printable(t.target)} ({plural(_stuck(t), thing(report))})" for t in bad]
        how = "" if report.facts else " after rewriting"
        return f"Not supported{how}: {', '.join(parts)}."
    if report.divergences:
        return _verdict_of_bisect(report)
    if report.checks:
        return _verdict_of_checks(report)
    if report.command == "scan" and report.targets:
        names = " and ".join(printable(t.target) for t in report.targets)
        how = " after rewriting" if any(t.counts.get("rewritten") for t in report.targets) else ""
        return f"Runs on {names}{how}: nothing stays unsupported."
    return "Nothing was checked."


def _verdict_of_bisect(report: Report) -> str:
    bad = [found for found in report.divergences if not found.ok]
    if not bad:
        return f"Nothing differs from JAX in {plural(len(report.divergences), 'entry point')} of an artifact."
    places = dict.fromkeys(
        f"{d.culprit.primitive} at {d.culprit.file}:{d.culprit.line}" for d in bad if d.culprit and d.culprit.file
    )
    where = f"; it begins with {', '.join(places)}" if places else ""
    return printable(f"{len(bad):,} of {len(report.divergences):,} differ from JAX{where}.")


def _verdict_of_checks(report: Report) -> str:
    failed = sum(not c.passed and c.binding for c in report.checks)
    loose = sum(not c.passed and not c.binding for c in report.checks)
    total = plural(len(report.checks), "check")
    if failed:
        return f"{failed:,} of {total} FAILED: the artifacts do not act like the reference."
    if loose:
        good = len(report.checks) - loose
        return f"{good:,} of {total} passed; {loose:,} differ where that is only reported."
    return f"{'All ' if len(report.checks) > 1 else ''}{total} passed: the artifacts act like the reference."


def _stuck(target: TargetReport) -> int:
    return target.counts.get("unsupported", 0) + target.counts.get("unknown", 0)


def _badness(output: OutputCheck) -> tuple[bool, float, float]:
    if math.isnan(output.error):
        return (not output.passed, math.inf, math.inf)
    ratio = output.error / output.tolerance if output.tolerance else math.inf if output.error else 0.0
    return (not output.passed, ratio, output.error)


@dataclass(frozen=True)
class Obstacle:
    """An equation at one place that some targets cannot run. `reasons`: (targets, what they have in common)."""

    finding: Finding
    reasons: tuple[tuple[tuple[str, ...], str], ...]


def obstacles(report: Report) -> list[Obstacle]:
    """What stands in the way on any target, equal equations at one place together, most targets first."""
    groups: dict[tuple[str, str, str, int], dict[str, list[str]]] = {}
    shown: dict[tuple[str, str, str, int], Finding] = {}
    for target in report.targets:
        for finding in (f for f in target.findings if f.verdict in ("unsupported", "unknown")):
            key = finding.primitive, finding.operands, finding.file, finding.line
            shown.setdefault(key, finding)
            reason = f"{finding.reason} [{finding.evidence}]" if finding.evidence else finding.reason
            names = groups.setdefault(key, {}).setdefault(reason or finding.verdict, [])
            if target.target not in names:
                names.append(target.target)
    found = [Obstacle(shown[k], tuple((tuple(names), text) for text, names in g.items())) for k, g in groups.items()]
    return sorted(found, key=lambda o: -sum(len(names) for names, _ in o.reasons))
