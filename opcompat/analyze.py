"""Trace x Target -> Analysis: a verdict on every original equation, from the very nodes that convert writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opcompat.driver import Rewritten, legalize
from opcompat.jaxcompat import NOWHERE
from opcompat.lowering.graph import Node
from opcompat.lowering.lower import PLACEHOLDER, Lowered, contested, lower
from opcompat.pictures import pictures
from opcompat.report import VERDICTS, Finding, RuleUse, TargetReport, Verdict, relative
from opcompat.rule import Rule
from opcompat.targets.base import Support, Target
from opcompat.trace import Trace
from opcompat.walk import Original

_SEVERITY: tuple[Verdict, ...] = ("folded", "native", "rewritten", "unknown", "unsupported")
"""From harmless to worst: an equation's verdict is the worst of its nodes'."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on one original equation. `reason` and `evidence` where it is unsupported or unknown."""

    verdict: Verdict
    rules: tuple[str, ...] = ()
    reason: str = ""
    evidence: str = ""


@dataclass(frozen=True)
class Analysis:
    """One entry point on one target: its rewritten and lowered form and what that says of each equation."""

    trace: Trace
    target: Target
    rewritten: Rewritten
    lowered: Lowered
    judgements: Mapping[str, Judgement]

    @property
    def ok(self) -> bool:
        return all(j.verdict not in ("unsupported", "unknown") for j in self.judgements.values())


def analyze(trace: Trace, target: Target, rules: Sequence[Rule], *, narrowing: bool = False) -> Analysis:
    """Rewrites and lowers an entry point for a target, as convert does, and judges every op of the result.

    `narrowing`: see `driver.legalize`.
    """
    rewritten = legalize(trace.closed, target, rules, narrowing=narrowing)
    return _judged(trace, target, rewritten, frozenset())


def analyze_all(
    traces: Sequence[Trace], target: Target, rules: Sequence[Rule], *, narrowing: bool = False
) -> tuple[Analysis, ...]:
    """`analyze` for entry points that share one store of weights.

    A leaf that is wanted in several forms is pinned to its own: each form would cost its bytes again.
    """
    analyses = tuple(analyze(trace, target, rules, narrowing=narrowing) for trace in traces)
    pinned = contested(a.lowered.graph for a in analyses)
    if not pinned:
        return analyses
    return tuple(_judged(a.trace, target, a.rewritten, pinned) for a in analyses)


def analyze_best(
    traces: Sequence[Trace], targets: Sequence[Target], rules: Sequence[Rule], *, narrowing: bool = False
) -> tuple[Analysis, ...]:
    """`analyze_all` for the first of a target's forms that runs everything; else for the one that lacks least."""
    least: tuple[Analysis, ...] = ()
    for target in targets:
        found = analyze_all(traces, target, rules, narrowing=narrowing)
        if all(a.ok for a in found):
            return found
        if not least or _lacking(found) < _lacking(least):
            least = found
    return least


def _lacking(analyses: Sequence[Analysis]) -> int:
    return sum(j.verdict in ("unsupported", "unknown") for a in analyses for j in a.judgements.values())


def _judged(trace: Trace, target: Target, rewritten: Rewritten, pinned: frozenset[str]) -> Analysis:
    lowered = lower(trace, rewritten.closed, target.backend, pinned)
    judgements = {ident: Judgement("folded") for ident in trace.originals}
    for node in lowered.graph.walk():
        for source, judged in judge(node, target):
            # Nodes of the interface (casts of inputs and outputs) serve no equation; they count under no id,
            # unless they cannot run.
            if source in judgements or judged.verdict in ("unsupported", "unknown"):
                judgements[source] = _worse(judgements.get(source, Judgement("folded")), judged)
    return Analysis(trace, target, rewritten, lowered, judgements)


def judge(node: Node, target: Target) -> Iterator[tuple[str, Judgement]]:
    """What the target says of one node, for each original equation that the node serves."""
    if node.op == PLACEHOLDER:
        support = Support("no", "documented", f"{node.attrs['primitive']}: {node.problem}")
    else:
        support = target.check(node)
    for source, rules in node.served:
        if support.status == "yes":
            yield source, Judgement("rewritten" if rules else "native", rules)
        else:
            verdict: Verdict = "unsupported" if support.status == "no" else "unknown"
            reason = support.reason or f"{node.op}: not known to run"
            if support.status == "conditional":
                reason = f"only if: {reason}"
            yield source, Judgement(verdict, rules, reason, support.evidence)


def _worse(a: Judgement, b: Judgement) -> Judgement:
    worst, other = (b, a) if _SEVERITY.index(b.verdict) > _SEVERITY.index(a.verdict) else (a, b)
    rules = tuple(dict.fromkeys((*worst.rules, *other.rules)))
    return Judgement(worst.verdict, rules, worst.reason, worst.evidence)


def target_report(analyses: Sequence[Analysis], rules: Sequence[Rule]) -> TargetReport:
    """One target's report over all entry points (at least one)."""
    target = analyses[0].target
    counts: dict[str, int] = dict.fromkeys(VERDICTS, 0)
    for judgement in (j for a in analyses for j in a.judgements.values()):
        counts[judgement.verdict] += 1
    fired = [r for a in analyses for j in a.judgements.values() for r in j.rules]
    shown = pictures(analyses)
    uses = [
        RuleUse(r.id, r.title, str(r.exactness), fired.count(r.id), *shown.get(r.id, ("", "")))
        for r in rules
        if r.id in fired
    ]
    ops = [(a.trace.entry_point, node.op) for a in analyses for node in a.lowered.graph.walk()]
    nodes = {a.trace.entry_point: 0 for a in analyses} | Counter(entry for entry, _ in ops)
    return TargetReport(
        target=target.name,
        runtime=target.runtime,
        version=target.version,
        counts=counts,
        findings=findings(analyses),
        rules=tuple(uses),
        nodes=nodes,
        ops=dict(sorted(Counter(op for _, op in ops).items())),
        primitives=_primitives(analyses),
    )


def _primitives(analyses: Iterable[Analysis]) -> dict[str, dict[str, int]]:
    """How many original equations of each primitive have each verdict."""
    found: dict[str, Counter[str]] = {}
    for analysis in analyses:
        for ident, judgement in analysis.judgements.items():
            original = analysis.trace.originals.get(ident) or _INTERFACE
            found.setdefault(original.primitive, Counter())[judgement.verdict] += 1
    return {name: {v: by[v] for v in VERDICTS if by[v]} for name, by in sorted(found.items())}


def findings(analyses: Iterable[Analysis]) -> tuple[Finding, ...]:
    """Equations that do not run as they stand, equal ones at one line together, worst first."""
    groups: dict[tuple[object, ...], list[tuple[Analysis, Original, Judgement]]] = {}
    for analysis in analyses:
        for ident, judgement in analysis.judgements.items():
            if judgement.verdict in ("native", "folded"):
                continue
            original = analysis.trace.originals.get(ident) or _INTERFACE
            key = (
                judgement.verdict,
                judgement.rules,
                judgement.reason,
                original.primitive,
                original.operands,
                original.place,
            )
            groups.setdefault(key, []).append((analysis, original, judgement))
    found = [_finding(group) for group in groups.values()]
    return tuple(sorted(found, key=lambda f: (-_SEVERITY.index(f.verdict), f.file, f.line, f.primitive)))


_INTERFACE = Original("", "interface", "", NOWHERE)


def _finding(group: Sequence[tuple[Analysis, Original, Judgement]]) -> Finding:
    _, original, judgement = group[0]
    declined = (
        [reason for a, o, _ in group for reason in a.rewritten.declined.get(o.id, ())]
        if judgement.verdict != "rewritten"
        else []
    )
    place = original.place
    return Finding(
        verdict=judgement.verdict,
        primitive=original.primitive,
        operands=original.operands,
        file=relative(place.file),
        line=place.line,
        function=place.function,
        count=len(group),
        entry_points=tuple(dict.fromkeys(a.trace.entry_point for a, _, _ in group)),
        rules=judgement.rules,
        reason=judgement.reason,
        evidence=judgement.evidence,
        declined=tuple(dict.fromkeys(declined)),
        scope=original.scope,
    )
