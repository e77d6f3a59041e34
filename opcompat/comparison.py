"""One artifact's results against JAX's, step by step: errors, tolerances, and draws that fell otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from opcompat.decisions import ERROR_FACTOR
from opcompat.reference import Arrays, Precision
from opcompat.report import SERIES, OutputCheck
from opcompat.runtime.replay import errors
from opcompat.trace import Leaf, Trace

DRAWS_PER_MISMATCH = 100_000
DRAWS_PER_MISMATCH_IN_HALF = 1_000
"""One mismatched draw is allowed for each so many, rounded up, and only where JAX itself is near a tie. Half
precision has a thousand times fewer scores, so ties are common there."""


@dataclass(frozen=True)
class Tolerance:
    """The largest absolute error allowed, and the reference's own (None for integers and bools).

    `relative_error`: the reference's own, by the size of the values where it was measured.
    """

    allowed: float
    reference_error: float | None
    relative_error: float = 0.0


def size(array: np.ndarray) -> float:
    """The largest finite magnitude, at least one."""
    finite = np.abs(array.astype(np.float64))
    return float(np.max(finite[np.isfinite(finite)], initial=1.0))


def is_float(array: np.ndarray) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating))


def error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest absolute difference of floats (NaN equals NaN, an infinity itself); else how many differ."""
    if got.shape != want.shape:
        return math.inf
    if is_float(want):
        got, want = got.astype(np.float64), want.astype(np.float64)
    return float(errors(got[None], want[None])[0])


def draws_per_mismatch(trace: Trace) -> int:
    """For how many draws of this entry point one may differ."""
    return DRAWS_PER_MISMATCH_IN_HALF if trace.computes_in_half else DRAWS_PER_MISMATCH


@dataclass
class Comparison:
    """Collects the errors of one check, step by step.

    `tolerances` are for all steps, `widest` has what single steps were allowed beyond them, `failed` the outputs that
    differ more than that.
    """

    trace: Trace
    tolerances: Mapping[str, Tolerance]
    worst: dict[str, tuple[float, int]] = field(default_factory=dict)
    steps: int = 0
    mismatched: int = 0
    series: dict[str, list[float]] = field(default_factory=dict)
    widest: dict[str, Tolerance] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def add(self, got: Arrays, want: Arrays, precision: Callable[[], Precision]) -> bool:
        """Compares one step; True if it agrees, mismatched draws apart.

        Only if an output differs is this step's own `precision` asked for. The output may differ by eight times the
        reference's own error here, or that of values of this size, where they are larger than where the tolerance was
        measured. Beyond that it is excused if it depends on a decision in which JAX itself is near a tie; then its
        differing integers count as mismatched draws, or one draw if only floats differ.
        """
        errors = {leaf.name: error(got[leaf.name], want[leaf.name]) for leaf in self.trace.outputs}
        self.steps += 1
        differing = {n for n, e in errors.items() if e > self.tolerances[n].allowed}
        own = precision() if differing else None
        if own is not None:
            for name in sorted(differing & set(own.errors)):
                by_size = self.tolerances[name].relative_error * size(want[name])
                here = Tolerance(ERROR_FACTOR * max(own.errors[name], by_size), own.errors[name])
                if errors[name] <= here.allowed:
                    differing.remove(name)
                    self.widest[name] = max(self.widest.get(name, here), here, key=lambda t: t.allowed)
        excused = differing & own.tied if own is not None else frozenset()
        draws = [errors[n] for n in excused if self.tolerances[n].reference_error is None and not is_float(want[n])]
        self.mismatched += int(max(draws, default=1)) if excused else 0
        self.failed |= differing - excused
        for name, value in errors.items():
            self.series.setdefault(name, []).append(value)
            if name not in excused and (name not in self.worst or value > self.worst[name][0]):
                self.worst[name] = (value, self.steps - 1)
        return differing <= excused

    def include(self, other: Comparison) -> None:
        """Takes over what another comparison of the same outputs found."""
        for name, (value, step) in other.worst.items():
            if name not in self.worst or value > self.worst[name][0]:
                self.worst[name] = (value, self.steps + step)
        self.steps += other.steps
        self.mismatched += other.mismatched
        self.failed |= other.failed

    def outputs(self, *, series: bool = False) -> tuple[OutputCheck, ...]:
        """The outputs' errors; with `series`, those of each step, too."""
        return tuple(self._output(leaf, series) for leaf in self.trace.outputs)

    def _output(self, leaf: Leaf, series: bool) -> OutputCheck:
        value, step = self.worst.get(leaf.name, (0.0, 0))
        allowed = self.tolerances[leaf.name]
        if leaf.name in self.widest and leaf.name not in self.failed:
            allowed = max(allowed, self.widest[leaf.name], key=lambda t: t.allowed)
        return OutputCheck(
            name=leaf.name,
            dtype=leaf.dtype,
            error=value,
            tolerance=allowed.allowed,
            reference_error=allowed.reference_error,
            worst_step=step,
            passed=leaf.name not in self.failed,
            series=_bounded(self.series.get(leaf.name, [])) if series else (),
        )

    def passed(self, draws: int) -> bool:
        within = self.mismatched <= math.ceil(draws / draws_per_mismatch(self.trace))
        return within and all(o.passed for o in self.outputs())


def _bounded(values: Sequence[float]) -> tuple[float, ...]:
    """`values`, or the largest of each of SERIES equal stretches if there are more; NaN counts as largest."""
    if len(values) <= SERIES:
        return tuple(values)
    ends = [len(values) * n // SERIES for n in range(SERIES + 1)]
    return tuple(max(values[a:b], key=_nan_last) for a, b in pairwise(ends))


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value
