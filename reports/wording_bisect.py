"""The phrases of bisect, shared by the terminal and the page."""

from __future__ import annotations

from opcompat.report import Culprit, Divergence, Growth

from .wording import number, printable


def agrees(found: Divergence) -> bool:
    """Whether no step differs at all."""
    return found.step is None and found.loop_step is None


def divergence_title(found: Divergence) -> str:
    """'onnx policy (onnxruntime 1.32.0): differs from JAX'."""
    state = "acts like JAX" if agrees(found) else "DIFFERS from JAX" if not found.ok else "parts from JAX, chaotically"
    return printable(f"{found.format} {found.entry_point} ({found.runtime}): {state}")


def divergence_lines(found: Divergence) -> list[str]:
    """Which steps and outputs differ, and how much could be looked at."""
    if agrees(found):
        return [f"{found.steps:,} steps compared"]
    step = "none" if found.step is None else f"{found.step:,}"
    loop = "none" if found.loop_step is None else f"{found.loop_step:,}"
    lines = [f"first step that differs, from JAX's state: {step}; in the closed loop: {loop}; of {found.steps:,}"]
    if found.outputs:
        lines.append(printable(f"outputs that differ there: {', '.join(found.outputs)}"))
    if found.observed:
        lines.append(f"{found.observed:,} of {found.values:,} inner values seen")
    return lines


def culprit_line(culprit: Culprit) -> str:
    """'first wrong value: tanh float32[1,8] at policy.py:12, in step'."""
    place = f"{culprit.file}:{culprit.line}" if culprit.file else "(unknown place)"
    where = f" at {place}" + (f", in {culprit.function}" if culprit.function else "")
    through = f", rewritten by {', '.join(culprit.rules)}" if culprit.rules else ""
    return printable(f"first wrong value: {culprit.primitive} {culprit.operands}{where}{through}")


def culprit_details(culprit: Culprit) -> list[str]:
    """The element that differs most, what else is computed in one piece with it, and what becomes of the error."""
    index = f"[{', '.join(map(str, culprit.index))}]" if culprit.index else ""
    made_by = "the rewritten program" if culprit.cause == "rule" else "the artifact"
    lines = [
        f"{culprit.value}{index}: {culprit.got} in {made_by}, {culprit.want} in JAX from the same operands; "
        f"largest error {number(culprit.error)}, allowed {number(culprit.allowed)}"
    ]
    if culprit.together:
        lines.append(f"computed in one piece with: {', '.join(culprit.together)}")
    alone = "this value alone makes the outputs differ" if culprit.sufficient else ""
    grows = ""
    if culprit.amplification is not None:
        times = culprit.amplification
        word = "amplified later" if times > 2 else "not amplified later"
        grows = f"{word}: the largest error of an output is {number(times)} times as large"
    lines += filter(None, (alone, grows))
    return [printable(line) for line in lines]


def growth_line(step: Growth) -> str:
    """'mul float32[1,8] at policy.py:14: error 0.1 of values up to 2.3'."""
    where = f" at {step.file}:{step.line}" if step.file else ""
    return printable(f"{step.what}{where}: error {number(step.error)}, values up to {number(step.size)}")
