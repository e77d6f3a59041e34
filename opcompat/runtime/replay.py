"""Replays a recorded reference on this machine's runtime, step by step from JAX's own states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from opcompat.errors import VerificationError
from opcompat.manifest import EntryPointInfo, Leaf
from opcompat.report import Check, OutputCheck
from opcompat.runtime.inputs import Array
from opcompat.runtime.reference import Reference
from opcompat.runtime.session import Session


@dataclass(frozen=True)
class ReplayResult:
    """One check per entry point that has a recording."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        return "\n".join(map(_line, self.checks))

    def raise_if_failed(self) -> None:
        """Raises VerificationError that names each entry point and output that differs."""
        if not self.passed:
            raise VerificationError("the recorded reference is not reproduced:\n" + str(self))


def replay_entry_point(
    name: str, info: EntryPointInfo, session: Session, reference: Reference, format: str, runtime: str
) -> Check:
    """Runs every recorded step and compares all outputs.

    Integers and bools must be equal and floats within their tolerance, except where the reference marks an output
    as depending on a near tie: there a draw may fall otherwise. Such steps are counted in `mismatched`, by differing
    integers and bools (keys left out), or 1 if only floats differ, and only one is allowed for each
    `draws_per_mismatch` draws, rounded up.
    """
    steps = [_at(reference.inputs, step) for step in range(reference.steps)]
    results = [session(inputs) for inputs in steps]
    checks, excused = [], np.zeros((2, reference.steps), np.int64)
    for leaf in info.outputs:
        got = np.stack([result[leaf.name] for result in results])
        error = errors(got, reference.outputs[leaf.name])
        tolerance = reference.tolerance.get(leaf.name, 0.0)
        ties = reference.near_tie.get(leaf.name, np.zeros(reference.steps, bool))
        checks.append(_output_check(leaf, error, ties, tolerance))
        differs = ties & (error > tolerance)
        excused[0] = np.maximum(excused[0], np.where(differs & _is_draw(leaf), error, 0).astype(np.int64))
        excused[1] |= differs
    draws = sum(reference.outputs[x.name].size for x in info.outputs if _is_draw(x))
    mismatched = int(np.maximum(excused[0], excused[1]).sum())
    return Check(
        format=format,
        runtime=runtime,
        entry_point=name,
        kind="replay",
        steps=reference.steps,
        seeds=1,
        passed=all(check.passed for check in checks)
        and mismatched <= max(1, math.ceil(draws / reference.draws_per_mismatch)),
        outputs=tuple(checks),
        draws=draws,
        mismatched=mismatched,
    )


def _at(arrays: Mapping[str, Array], step: int) -> dict[str, Array]:
    return {name: np.asarray(array[step]) for name, array in arrays.items()}


def _is_draw(leaf: Leaf) -> bool:
    return np.dtype(leaf.file_dtype).kind != "f" and not leaf.key


def errors(got: Array, want: Array) -> Array:
    """Per step, float64: the largest absolute error of floats, the number of differing other elements.

    Equal infinities and NaN against NaN are no error; NaN or infinity against anything else is infinite.
    """
    got, want = got.reshape(len(got), -1), want.reshape(len(want), -1)
    if want.dtype.kind != "f":
        return np.asarray((got != want).sum(axis=1), np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
    error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    return np.asarray(np.max(error, axis=1, initial=0.0))


def _output_check(leaf: Leaf, error: Array, ties: Array, tolerance: float) -> OutputCheck:
    counted = np.where(ties, 0.0, error)
    worst = int(np.argmax(counted))
    return OutputCheck(
        name=leaf.name,
        dtype=leaf.dtype,
        error=float(counted[worst] if np.dtype(leaf.file_dtype).kind == "f" else counted.sum()),
        tolerance=tolerance,
        reference_error=None,
        worst_step=worst,
        passed=bool(counted[worst] <= tolerance),
    )


def _line(check: Check) -> str:
    head = f"{check.entry_point} ({check.format}, {check.runtime}): {check.steps} steps"
    if check.passed:
        return f"{head} reproduced, {check.draws} draws, {check.mismatched} mismatched within JAX's margin"
    wrong = [
        f"{o.name} {o.dtype}: error {o.error:.3g}, allowed {o.tolerance:.3g}, worst at step {o.worst_step}"
        for o in check.outputs
        if not o.passed
    ]
    return f"{head}, FAILED: {'; '.join(wrong)}"
