"""What would make a model run on a target: one step for each kind of thing in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opcompat.report import Finding, Report, TargetReport
from opcompat.targets import catalog
from opcompat.targets.base import Limits


@dataclass(frozen=True)
class Need:
    """Equations (or ends of the interface) that are in the way for one reason, and the step that helps."""

    count: int
    what: str
    step: str


_WHOLE = {
    "opset": "take a target that loads this opset: the project writes no older one",
    "signatures": "give each entry point a Model of its own, and convert each",
    "input": "cast it outside the model, and give the model the dtype that passes",
    "output": "return it in a dtype that passes",
}
"""Findings about whole models, by their name."""


def needs(report: Report, name: str, elsewhere: Callable[[Sequence[str]], Report]) -> Iterator[Need]:
    """What stands in the way on the target `name` in a scan's report, most equations first.

    `elsewhere` scans the model for other targets: those of the same runtime in other versions, if ops are missing.
    """
    (found,) = [t for t in report.targets if t.target == name]
    stuck = [f for f in found.findings if f.verdict in ("unsupported", "unknown")]
    missing = [f for f in stuck if f.primitive not in _WHOLE]
    for finding in stuck:
        if finding.primitive in _WHOLE:
            yield Need(finding.count, finding.reason, _WHOLE[finding.primitive])
    if not missing:
        return
    other = _others(name, elsewhere)
    bounds = catalog.target(name).limits
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in missing:
        groups.setdefault((finding.primitive, _step(finding, bounds, other)), []).append(finding)
    for (primitive, step), group in sorted(groups.items(), key=lambda item: -sum(f.count for f in item[1])):
        yield Need(sum(f.count for f in group), f"{primitive}: {group[0].reason}", step)


def _others(name: str, elsewhere: Callable[[Sequence[str]], Report]) -> tuple[str, ...]:
    """Versions of the target's runtime on which the whole model runs."""
    runtime = name.partition("@")[0]
    versions = [n for n in catalog.TARGETS if n != name and n.partition("@")[0] == runtime]
    if not versions:
        return ()
    return tuple(t.target for t in elsewhere(versions).targets if t.ok)


def _step(finding: Finding, bounds: Limits, others: Sequence[str]) -> str:
    if others:
        return f"use {', '.join(others)}, where the whole model runs"
    if bounds.quantized and "quantized to" in finding.reason:
        return f"quantize to {bounds.quantized}: weights and values between ops, from recorded inputs"
    if finding.reason.startswith("only if: "):
        return "see that it holds for your inputs, and compare on the device"
    if any(wide in finding.operands for wide in ("int64", "float64")):
        return "keep values in 32 bits (jax_enable_x64 off, or --allow-narrowing)"
    if bounds.fallback:
        return f"leave it to {bounds.fallback}, and measure what the copies cost"
    if finding.verdict == "unknown":
        return "probe it on your machine (`opcompat probe`), or try it on the device"
    return "write this part in other operations, or move it out of the model"


def summary(found: TargetReport) -> str:
    """One line on what a scan says."""
    stuck = sum(found.counts.get(v, 0) for v in ("unsupported", "unknown"))
    total = sum(found.counts.values())
    return f"{total - stuck:,} of {total:,} equations run on {found.target} ({found.runtime} {found.version})"
