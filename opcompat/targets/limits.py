"""What a target asks of a whole model, beside its ops: findings, and advice that makes a report no worse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from opcompat.analyze import Analysis
from opcompat.contract import Contract
from opcompat.report import Advice, Finding, TargetReport
from opcompat.targets.base import Limits, Target

End = tuple[str, str, str, str]
"""(entry point, "input" or "output", name, dtype in the file)"""


def findings(analyses: Sequence[Analysis]) -> Iterator[Finding]:
    """What keeps the whole model from running on the target."""
    target, names = analyses[0].target, tuple(a.trace.entry_point for a in analyses)
    opset = getattr(target.backend.builder, "opset", 0)
    ends = [(a.trace.entry_point, *end) for a in analyses for end in _interface(a)]
    yield from broken(target, names, opset, len(names), ends)


def broken(
    target: Target, names: tuple[str, ...], opset: int, signatures: int, ends: Iterable[End], file: str = ""
) -> Iterator[Finding]:
    """What keeps a model or file from running on the target. `opset` is 0 for a format that has none."""
    bounds = target.limits
    if bounds.opset and opset > bounds.opset:
        reason = f"{target.name} loads ONNX opsets up to {bounds.opset}, and the file has opset {opset}"
        yield _finding(target, names, "opset", reason, file)
    if bounds.signatures and signatures > bounds.signatures and target.backend.name == "tflite":
        count = "one" if bounds.signatures == 1 else str(bounds.signatures)
        reason = f"{target.name} reads {count} signature per file, and the model has {signatures} entry points"
        yield _finding(target, names, "signatures", f"{reason}; convert each as a model of its own", file)
    for entry, role, name, dtype in ends if bounds.interface else ():
        if dtype not in bounds.interface:
            reason = f"{role} {name} is {dtype}, and {target.name} passes {', '.join(bounds.interface)} only"
            yield _finding(target, (entry,), role, reason, file, f"{dtype}")


def _interface(analysis: Analysis) -> Iterator[tuple[str, str, str]]:
    """(input or output, name, dtype in the file)"""
    graph = analysis.lowered.graph
    for x in graph.inputs:
        yield "input", x.name, x.dtype
    for name, x in zip(analysis.lowered.output_names, graph.outputs, strict=True):
        yield "output", name, x.dtype


def _finding(target: Target, names: tuple[str, ...], what: str, reason: str, file: str, operands: str = "") -> Finding:
    return Finding(
        verdict="unsupported",
        primitive=what,
        operands=operands,
        file=file,
        line=0,
        function="",
        count=1,
        entry_points=names,
        reason=reason,
        evidence=target.evidence,
    )


def added(report: TargetReport, analyses: Sequence[Analysis]) -> TargetReport:
    """The report with what the whole model breaks, first and counted as unsupported."""
    found = tuple(findings(analyses))
    counts = {**report.counts, "unsupported": report.counts.get("unsupported", 0) + len(found)}
    return replace(report, counts=counts, findings=(*found, *report.findings)) if found else report


def advice(target: Target, analyses: Sequence[Analysis], contracts: Mapping[str, Contract]) -> Iterator[Advice]:
    """What a user has to know about how the target computes."""
    fed_back = tuple(dict.fromkeys(leaf for c in contracts.values() for leaf in c.feedback.values()))
    return remarks(target, tuple(a.trace.entry_point for a in analyses), fed_back)


def remarks(target: Target, names: tuple[str, ...], fed_back: Sequence[str] = ()) -> Iterator[Advice]:
    """The same, for the entry points of a model or file; `fed_back` are the inputs that outputs become."""
    for message, step in _remarks(target.name, target.limits, fed_back):
        yield Advice(
            id=target.name,
            title=f"how {target.name} computes",
            message=message,
            file="",
            line=0,
            function="",
            entry_points=names,
            next_step=step,
        )


def _remarks(name: str, bounds: Limits, fed_back: Sequence[str]) -> Iterator[tuple[str, str]]:
    if bounds.precision:
        yield (
            f"floats are rounded to {bounds.precision} while the model runs: actions and draws differ from JAX's",
            "compare on the device, with the recorded reference of the bundle; keep values well inside "
            f"{bounds.precision}'s range",
        )
    if bounds.quantized:
        yield (
            f"the accelerator computes in {bounds.quantized} alone: every weight and every value between ops needs a "
            f"scale and a zero point, from quantization with recorded inputs; floats run on {bounds.fallback}",
            f"quantize to {bounds.quantized} with recorded inputs, then compile and compare on the device",
        )
    elif bounds.fallback:
        yield f"what {name} does not run, {bounds.fallback} runs, at the cost of copies", "measure on the device"
    if bounds.state and fed_back:
        yield f"{bounds.state}: {', '.join(fed_back)}", "give both ends of each feedback the same parameters"
    for note in bounds.notes:
        yield note, f"`opcompat targets {name}` prints what is known"
