"""Report -> Issues: everything in it that a reader may have to act on, in words that every format shows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from opcompat.checking.data import Issue
from opcompat.report import Advice, Check, Finding, Report, TargetReport


class Kind(NamedTuple):
    """What an issue without a rule's id is: its title, and a sentence of help."""

    title: str
    help: str


KINDS = {
    "unsupported": Kind(
        "An operation that the target cannot run",
        "The runtime has no kernel for it and no rule rewrites it. Compute it outside the exported function, or "
        "express it by other operations.",
    ),
    "unknown": Kind(
        "An operation that nothing is known about",
        "No evidence says that the target runs it, and unknown is not supported. Probe the runtime, or express it by "
        "other operations.",
    ),
    "rewritten": Kind(
        "An operation that a rule rewrites",
        "The target lacks it; a rule expresses it by what the target has. Nothing needs to be done.",
    ),
    "mismatch": Kind(
        "An artifact that does not act like the reference",
        "The artifact's outputs differ from JAX's by more than is allowed. Find the first value that differs, and "
        "report it as a defect of the converter or the runtime.",
    ),
    "failure": Kind(
        "A model without a result",
        "Its source cannot be loaded or converted, or its process died. The message says why.",
    ),
    "interface": Kind(
        "A changed interface",
        "Callers pass inputs and read outputs by name, dtype and shape, and feed state back as the manifest says. "
        "Adapt the callers, then accept the change with `opcompat baseline update`.",
    ),
    "dtype": Kind(
        "A dtype that was not there",
        "Equations compute with another dtype than before: look for a cast, or for a constant of another type.",
    ),
    "key": Kind(
        "A PRNG key that is no longer used",
        "The policy no longer draws from a key that it used to draw from: its actions are not sampled any more.",
    ),
    "rule": Kind(
        "A rule that no longer acts",
        "Another rule, or none, handles what it used to rewrite. See whether it is still installed, and why it "
        "declines.",
    ),
    "error": Kind(
        "A larger error",
        "The artifact is further from JAX than it was, though within its tolerance.",
    ),
    "bytes": Kind("Larger files", "The artifacts have grown."),
    "opset": Kind(
        "Another ONNX opset",
        "A runtime that is already deployed may not know it. Set `opset` in opcompat.toml to keep it.",
    ),
    "sampling": Kind("Another way of sampling", "Draws are exported in another way than before."),
    "budget": Kind("A budget that is exceeded", "A metric is beyond the limit that opcompat.toml sets."),
    "stale": Kind(
        "An entry that matches nothing",
        "The baseline or the configuration names what was not checked or not found. Update it, or allow it with "
        "--allow-stale.",
    ),
    "versions": Kind("Versions that moved", "Packages that can change a result have other versions than before."),
    "verdict": Kind("What else changed", "It fails nothing by itself."),
}

_PLACE = re.compile(r"(?: at)? [^\s:]+\.py:\d+(?= |:|;|,|$)")

LONGEST = 160
"""Of one part of a fingerprint, in characters."""


def fingerprint(*parts: str) -> str:
    """The parts in one line, without lines of source. A long part is cut and ends in a hash of the whole."""
    return " | ".join(_short(" ".join(_PLACE.sub("", part).replace("|", "/").split())) for part in parts)


def _short(part: str) -> str:
    if len(part) <= LONGEST:
        return part
    return f"{part[:LONGEST]}~{hashlib.sha256(part.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def issues_of(report: Report, key: str = "") -> tuple[Issue, ...]:
    """Every finding, failed check and advice of a report. `key` names the model, by default by its own name."""
    return tuple(_issues(report, key or report.model))


def failure_issue(key: str, why: str) -> Issue:
    """What stands for a model without a result."""
    return Issue(
        id="failure",
        level="error",
        model=key,
        target="",
        title=KINDS["failure"].title,
        message=why,
        next_step="see what opcompat scan says of it",
        fingerprint=fingerprint("failure", key),
    )


def _issues(report: Report, key: str) -> Iterator[Issue]:
    for target in report.targets:
        titles = {rule.id: rule.title for rule in target.rules}
        for finding in target.findings:
            yield _of_finding(finding, target, titles, key)
    for check in report.checks:
        if not check.passed and check.binding:
            yield from _of_check(check, key)
    for advice in report.advice:
        yield _of_advice(advice, key)


def _of_finding(finding: Finding, target: TargetReport, titles: dict[str, str], key: str) -> Issue:
    helped = finding.verdict == "rewritten"
    kind: str = finding.verdict
    ident = finding.rules[0] if helped and finding.rules else kind
    equation = f"{finding.primitive} {finding.operands}".rstrip()
    if helped:
        message = f"{target.target}: {equation} is rewritten by {', '.join(finding.rules)}"
        why = ", ".join(finding.rules)
    else:
        why = finding.reason
        message = f"{target.target}: {equation}: " + "; ".join(filter(None, (finding.reason, *finding.declined)))
    return Issue(
        id=ident,
        level="note" if helped else "error",
        model=key,
        target=target.target,
        title=titles.get(ident, KINDS.get(kind, KINDS["verdict"]).title),
        message=message,
        next_step="" if helped else "compute this outside the exported function, or express it by other operations",
        file=finding.file,
        line=finding.line,
        function=finding.function,
        entry_points=finding.entry_points,
        fingerprint=fingerprint(target.target, finding.primitive, finding.scope or finding.function, kind, why),
        count=finding.count,
    )


def _of_check(check: Check, key: str) -> Iterator[Issue]:
    """One issue for each output that differs, or one for the check."""
    where = f"{check.format} {check.entry_point}, {check.kind}"
    bad = [
        (o.name, f"{o.name} differs by {o.error:.3g}, allowed is {o.tolerance:.3g}, worst at step {o.worst_step}")
        for o in check.outputs
        if not o.passed
    ]
    if not bad:
        counted = f"{check.mismatched} mismatched draws of {check.draws}" if check.mismatched else ""
        bad = [("", "; ".join(filter(None, (counted, check.note))) or "it failed")]
    for name, what in bad:
        yield Issue(
            id="mismatch",
            level="error",
            model=key,
            target=check.format,
            title=KINDS["mismatch"].title,
            message=f"{where}: {what}" + (f"; {check.note}" if name and check.note else ""),
            next_step="find the first value that differs with opcompat bisect",
            entry_points=(check.entry_point,),
            fingerprint=fingerprint(check.format, "mismatch", check.entry_point, check.kind, name),
        )


def _of_advice(advice: Advice, key: str) -> Issue:
    return Issue(
        id=advice.id,
        level="warning",
        model=key,
        target="",
        title=advice.title,
        message=f"{', '.join(advice.entry_points)}: {advice.message}",
        next_step=advice.next_step,
        file=advice.file,
        line=advice.line,
        function=advice.function,
        entry_points=advice.entry_points,
        fingerprint=fingerprint(advice.id, advice.function, advice.message),
    )
