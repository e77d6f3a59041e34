"""Which of the values that an artifact shows is the first to be wrong by itself, and how its error grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opcompat import jaxcompat
from opcompat.bisecting.probe import Probe, Values, is_float
from opcompat.comparison import Tolerance, error
from opcompat.decisions import ERROR_FACTOR
from opcompat.jaxcompat import NOWHERE
from opcompat.provenance import provenance
from opcompat.report import Culprit, Growth, relative
from opcompat.trace import Leaf, Trace
from opcompat.walk import Original, describe

RELATIVE = 1e-5
"""Of a computation's largest value: what one equation may differ by. Elementary functions differ by a hundredth of it
between runtimes (docs/accuracy.md), and the reference's own rounding, measured, may allow more."""

TRIED = 64
"""The most suspects whose effect on the outputs is tried."""

GROWTH = 10
"""The most values shown on the way from a culprit to the outputs."""


@dataclass(frozen=True)
class Case:
    """One call: the program in JAX, its arguments, and the values that were seen in its place."""

    trace: Trace
    probe: Probe
    arguments: Sequence[Any]
    given: Values
    tolerances: Mapping[str, Tolerance]

    def differing(self, got: Sequence[Any], want: Sequence[Any]) -> tuple[str, ...]:
        """The outputs that differ beyond their tolerance."""
        return tuple(
            leaf.name
            for leaf, a, b in zip(self.trace.outputs, got, want, strict=True)
            if error(a, b) > self.tolerances[leaf.name].allowed
        )


@dataclass(frozen=True)
class Suspect:
    """A seen variable, how far it is from what its own operands give, and what rounding allows."""

    var: Any
    error: float
    allowed: float
    sufficient: bool = False


def find(case: Case) -> Suspect | None:
    """The first value whose own error changes the outputs; else the first with an error of its own; else None."""
    everything = frozenset(case.probe.seen)
    local, _ = case.probe.run(case.arguments, case.given, everything)
    rounding = case.probe.rounding(case.arguments, case.given)
    suspects = []
    for var in case.probe.seen:
        wrong, allowed = error(case.given[var], local[var]), _allowed(local[var], rounding.get(var))
        if wrong > allowed:
            suspects.append(Suspect(var, wrong, allowed))
    _, right = case.probe.run(case.arguments, case.given, frozenset())
    for suspect in suspects[:TRIED]:
        _, outs = case.probe.run(case.arguments, case.given, frozenset({suspect.var}))
        if case.differing(outs, right):
            return replace(suspect, sufficient=True)
    return suspects[0] if suspects else None


def _allowed(value: np.ndarray, rounding: float | None) -> float:
    if rounding is None:
        return 0.0
    size = _size(value)
    return max(RELATIVE * size, ERROR_FACTOR * rounding, float(np.finfo(np.float32).tiny))


def _size(value: np.ndarray) -> float:
    """The largest finite magnitude."""
    plain = np.abs(value.astype(np.float64))
    return float(np.max(plain[np.isfinite(plain)], initial=0.0))


def describe_culprit(case: Case, suspect: Suspect, cause: Any, outputs: Sequence[np.ndarray]) -> Culprit:
    """Everything there is to say of a suspect; `outputs` are those that were seen."""
    local, _ = case.probe.run(case.arguments, case.given, frozenset(case.probe.seen))
    right, right_outputs = case.probe.run(case.arguments, case.given, frozenset())
    original, rules = origin(case.trace, case.probe, suspect.var)
    index = _worst(case.given[suspect.var], local[suspect.var])
    growth, largest = _growth(case, suspect.var, right, outputs, right_outputs)
    start = error(case.given[suspect.var], right[suspect.var]) if is_float(suspect.var.aval) else 0.0
    return Culprit(
        cause=cause,
        primitive=original.primitive,
        operands=original.operands,
        file=relative(original.place.file),
        line=original.place.line,
        function=original.place.function,
        rules=rules,
        value=describe(suspect.var.aval),
        error=suspect.error,
        allowed=suspect.allowed,
        index=index,
        got=str(case.given[suspect.var][index]),
        want=str(local[suspect.var][index]),
        together=_together(case, suspect.var),
        sufficient=suspect.sufficient,
        amplification=largest / start if start and np.isfinite(start) and np.isfinite(largest) else None,
        growth=growth,
    )


def origin(trace: Trace, probe: Probe, var: Any) -> tuple[Original, tuple[str, ...]]:
    """The original equation that makes a variable, and the rules in between; an input is an equation of its own."""
    leaves: Sequence[Leaf] = (*trace.params, *trace.inputs)
    for leaf, given in zip(leaves, probe.parts.invars, strict=True):
        if given is var:
            return Original("", "input", leaf.name, NOWHERE), ()
    mark = provenance(_maker(probe, var))
    found = trace.originals.get(mark.source)
    return found or Original("", _maker(probe, var).primitive.name, "", NOWHERE), mark.rules


def _maker(probe: Probe, var: Any) -> Any:
    return next(e for e in probe.parts.eqns if any(v is var for v in e.outvars))


def _worst(got: np.ndarray, want: np.ndarray) -> tuple[int, ...]:
    """The index of the element that differs most; NaN against a number counts as most."""
    if got.shape != want.shape or not got.size:
        return ()
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(a - b))
    distance = np.where(np.isnan(distance), np.inf, distance)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(distance)), got.shape))


def _together(case: Case, var: Any) -> tuple[str, ...]:
    """What is computed between the nearest values that can be seen and `var`, as "file.py:12 mul"."""
    seen, makers = set(case.probe.seen), {v: e for e in case.probe.parts.eqns for v in e.outvars}
    left, found, done = [var], [], set()
    while left:
        eqn = makers.get(left.pop())
        if eqn is None or id(eqn) in done:
            continue
        done.add(id(eqn))
        found.append(provenance(eqn).source)
        left.extend(v for v in eqn.invars if not jaxcompat.is_literal(v) and v not in seen)
    own = provenance(makers[var]).source if var in makers else ""
    shown = [case.trace.originals[s] for s in found if s in case.trace.originals and s != own]
    return tuple(dict.fromkeys(f"{relative(str(o.place))} {o.primitive}" for o in shown))[:GROWTH]


def _growth(
    case: Case, var: Any, right: Values, outputs: Sequence[np.ndarray], wanted: Sequence[np.ndarray]
) -> tuple[tuple[Growth, ...], float]:
    """The values that depend on `var` at which the error exceeds all before, the outputs last; and the largest."""
    reached, seen = {var}, set(case.probe.seen)
    grown: list[Growth] = []
    for eqn in case.probe.parts.eqns:
        if not any(v in reached for v in eqn.invars if not jaxcompat.is_literal(v)):
            continue
        reached.update(eqn.outvars)
        for out in (v for v in eqn.outvars if v in seen and is_float(v.aval)):
            wrong = error(case.given[out], right[out])
            if wrong > 2 * max((g.error for g in grown), default=0.0):
                made, _ = origin(case.trace, case.probe, out)
                place = relative(made.place.file), made.place.line
                grown.append(Growth(f"{made.primitive} {describe(out.aval)}", *place, wrong, _size(right[out])))
    ends, largest = [], 0.0
    for leaf, got, want in zip(case.trace.outputs, outputs, wanted, strict=True):
        wrong = error(got, want)
        if leaf.is_float:
            largest = max(largest, wrong)
        if wrong > case.tolerances[leaf.name].allowed:
            ends.append(Growth(f"output {leaf.name}", "", 0, wrong, _size(np.asarray(want))))
    return (*grown[:GROWTH], *ends[:GROWTH]), largest
