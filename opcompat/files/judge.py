"""What one target says of the ops of a file: each is asked of `Target.check`, like the ops that convert writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opcompat.files.program import Op, Program, Value
from opcompat.report import Verdict
from opcompat.targets.base import Target

RANKS = range(7)
"""What is tried for a value whose rank nothing tells."""


@dataclass(frozen=True)
class Judged:
    """The verdict on one op. `open`: no table has words for it, so that the runtime itself may know better."""

    op: Op
    entries: tuple[str, ...]
    verdict: Verdict
    reason: str = ""
    evidence: str = ""
    open: bool = False


def judged(program: Program, target: Target) -> Iterator[Judged]:
    """Every op that an entry needs, each once, however often its graph is used."""
    for number, entries in sorted(program.reached.items()):
        for op in program.parts[number].ops:
            yield _judge(op, entries, target)


def _judge(op: Op, entries: tuple[str, ...], target: Target) -> Judged:
    known = _leftover(op, target)
    if known:
        return Judged(op, entries, "unsupported", known, "documented", open=True)
    domain, dot, _ = op.op.rpartition(".")
    if dot:
        return Judged(op, entries, "unknown", f"an op of the domain {domain}, which no table covers", open=True)
    lost = _untyped(op)
    if lost:
        return Judged(op, entries, "unknown", lost, open=True)
    quantized = next((x for x in op.touched if x.quantized), None)
    if quantized is not None and target.evidence == "probed":
        reason = f"{quantized.name} is quantized {quantized.dtype}, and what was probed are plain values"
        return Judged(op, entries, "unknown", reason, open=True)
    return _asked(op, entries, target)


def _leftover(op: Op, target: Target) -> str:
    """Why an op that a converter left over cannot run, "" if it is none."""
    if op.op.startswith("CUSTOM Flex"):
        return "a TensorFlow op that the converter kept: it runs only where the Flex delegate is linked in"
    if op.op.startswith("CUSTOM "):
        return f"a custom op: {target.runtime} has no kernel of it unless the application registers one"
    if op.op.startswith("BUILTIN_"):
        return "an op that is newer than the installed ai-edge-litert knows"
    return ""


def _untyped(op: Op) -> str:
    for x in op.touched:
        if not x.dtype:
            return f"the type of {x.name} follows from nothing in the file"
        if x.dtype.startswith("a "):
            return f"{x.name} is {x.dtype.replace('_', ' ')}, and the tables cover tensors only"
    return ""


def _asked(op: Op, entries: tuple[str, ...], target: Target) -> Judged:
    """The target's own answer; where a rank is not known, the one that it gives for every rank."""
    ranks: list[int | None] = [None]
    if any(x.shape is None for x in op.touched):
        ranks = [*RANKS]
    answers = [target.check(op.node(rank)) for rank in ranks]
    if len({answer.status for answer in answers}) > 1:
        lost = next(x for x in op.touched if x.shape is None)
        reason = f"the rank of {lost.name} follows from nothing in the file, and not all run"
        return Judged(op, entries, "unknown", reason, answers[0].evidence, open=True)
    answer = answers[0]
    if answer.status == "yes":
        return Judged(op, entries, "native", evidence=answer.evidence)
    reason = answer.reason or f"{op.op}: not known to run"
    if op.op.startswith("STABLEHLO_"):
        reason = f"a StableHLO op that the converter left over; {reason}"
    verdict: Verdict = "unsupported" if answer.status == "no" else "unknown"
    return Judged(op, entries, verdict, reason, answer.evidence, open=answer.status == "unknown")


def operands(op: Op) -> str:
    """As in "float32[1,32] int32[?]"."""
    return " ".join(_shown(x) for x in op.operands)


def _shown(x: Value) -> str:
    return f"{x}{'q' if x.quantized else ''}"
