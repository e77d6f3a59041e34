"""Between which numbers the values of a jaxpr lie, as far as its operations say.

A range is sure: no value is outside of it, NaN apart. What is not known has the range of its dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from opcompat import jaxcompat
from opcompat.inline import bodies


class Range(NamedTuple):
    """From `low` to `high`, both included."""

    low: float
    high: float

    def __or__(self, other: Any) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))

    def __and__(self, other: Range) -> Range:
        return Range(max(self.low, other.low), min(self.high, other.high))

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"


_INTEGERS: Any = jnp.iinfo  # untyped in JAX


def of_dtype(dtype: Any) -> Range:
    if dtype == np.bool_:
        return Range(0, 1)
    if jnp.issubdtype(dtype, jnp.integer):
        limits: Any = _INTEGERS(dtype)
        return Range(int(limits.min), int(limits.max))
    return Range(-math.inf, math.inf)


def of_array(value: Any) -> Range:
    """That of an array's values; NaN is left out."""
    array = np.asarray(value, np.float64)
    known = array[~np.isnan(array)]
    return Range(float(known.min()), float(known.max())) if known.size else Range(-math.inf, math.inf)


def ranges(closed: Any, given: Sequence[Range] | None = None) -> list[Range]:
    """The ranges of a jaxpr's results, where its inputs have the ranges `given` (by default those of their dtypes)."""
    p = jaxcompat.parts(closed)
    known = [of_dtype(v.aval.dtype) for v in p.invars] if given is None else given
    env: dict[Any, Range] = dict(zip(p.invars, known, strict=True))
    env.update((v, _constant(v, x)) for v, x in zip(p.constvars, p.consts, strict=True))

    def read(atom: Any) -> Range:
        return _constant(atom, atom.val) if jaxcompat.is_literal(atom) else env[atom]

    for eqn in p.eqns:
        outs = _results(eqn, [read(v) for v in eqn.invars])
        for v, found in zip(eqn.outvars, outs, strict=True):
            env[v] = found if _is_number(v.aval) else Range(-math.inf, math.inf)
    return [read(v) for v in p.outvars]


def _is_number(aval: Any) -> bool:
    return not jaxcompat.is_key(aval.dtype) and not jnp.issubdtype(aval.dtype, jnp.complexfloating)


def _constant(atom: Any, value: Any) -> Range:
    return of_array(value) if _is_number(atom.aval) else Range(-math.inf, math.inf)


def _results(eqn: Any, operands: Sequence[Range]) -> list[Range]:
    limits = [of_dtype(v.aval.dtype) if _is_number(v.aval) else Range(-math.inf, math.inf) for v in eqn.outvars]
    if eqn.primitive.name == "cond":
        each = [ranges(body, operands[1:]) for _, body in bodies(eqn)]
        return [_joined(outs) for outs in zip(*each, strict=True)]
    rule = _RULES.get(eqn.primitive.name)
    found = None if rule is None else rule(eqn, operands)
    if found is None or any(map(math.isnan, found)):
        return limits
    return [_bounded(found, v.aval, limit) for v, limit in zip(eqn.outvars, limits, strict=True)]


def _bounded(found: Range, aval: Any, limit: Range) -> Range:
    """An integer beyond its dtype wraps around, to anywhere."""
    inside = found & limit
    return limit if _is_int(aval) and inside != found else inside


def _is_int(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jnp.integer))


def _joined(found: Sequence[Range]) -> Range:
    return Range(min(r.low for r in found), max(r.high for r in found))


Rule = Callable[[Any, Sequence[Range]], Range | None]


def _same(eqn: Any, x: Sequence[Range]) -> Range:
    return x[0]


def _union(eqn: Any, x: Sequence[Range]) -> Range:
    return _joined(x)


def _cases(eqn: Any, x: Sequence[Range]) -> Range:
    return _joined(x[1:])


def _two(eqn: Any, x: Sequence[Range]) -> Range:
    """An array, and what is written into it; indices behind."""
    return x[0] | x[1]


def _written(eqn: Any, x: Sequence[Range]) -> Range:
    """A scatter: the array, indices, and what is written into it."""
    return x[0] | x[2]


def _corners(f: Callable[[float, float], float]) -> Rule:
    def rule(eqn: Any, x: Sequence[Range]) -> Range:
        values = [f(a, b) for a, b in product(x[0], x[1])]
        return Range(min(values), max(values))

    return rule


def _rising(f: Callable[[Any], Any]) -> Rule:
    def rule(eqn: Any, x: Sequence[Range]) -> Range:
        with np.errstate(all="ignore"):
            return Range(float(f(np.float64(x[0].low))), float(f(np.float64(x[0].high))))

    return rule


def _within(low: float, high: float) -> Rule:
    return lambda eqn, x: Range(low, high)


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _divided(eqn: Any, x: Sequence[Range]) -> Range | None:
    if x[1].low <= 0 <= x[1].high or _is_int(eqn.outvars[0].aval):
        return None
    return _corners(lambda a, b: 0.0 if math.isinf(b) else a / b)(eqn, x)


def _magnitude(eqn: Any, x: Sequence[Range]) -> Range:
    low, high = x[0]
    return Range(0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high)))


def _square(eqn: Any, x: Sequence[Range]) -> Range:
    low, high = _magnitude(eqn, x)
    return Range(low * low, high * high)


def _clamp(eqn: Any, x: Sequence[Range]) -> Range:
    """min(max(x, low), high)"""
    low, value, high = x
    return Range(min(max(value.low, low.low), high.low), min(max(value.high, low.high), high.high))


def _index(eqn: Any, x: Sequence[Range]) -> Range:
    return Range(0, max(eqn.invars[0].aval.shape[axis] for axis in eqn.params["axes"]) - 1)


def _iota(eqn: Any, x: Sequence[Range]) -> Range:
    return Range(0, max(eqn.params["shape"][eqn.params["dimension"]] - 1, 0))


def _cast(eqn: Any, x: Sequence[Range]) -> Range:
    is_int = _is_int(eqn.outvars[0].aval)
    whole = [v if math.isinf(v) else math.trunc(v) for v in x[0]] if is_int else x[0]
    return Range(0, 1) if eqn.outvars[0].aval.dtype == np.bool_ else Range(*whole)


_RULES: Mapping[str, Rule] = {
    "abs": _magnitude,
    "add": _corners(lambda a, b: a + b),
    "argmax": _index,
    "argmin": _index,
    "broadcast_in_dim": _same,
    "clamp": _clamp,
    "concatenate": _union,
    "convert_element_type": _cast,
    "copy": _same,
    "copy_p": _same,
    "cos": _within(-1, 1),
    "div": _divided,
    "dynamic_slice": _same,
    "dynamic_update_slice": _two,
    "erf": _within(-1, 1),
    "exp": _rising(np.exp),
    "floor": _rising(np.floor),
    "ceil": _rising(np.ceil),
    "iota": _iota,
    "log1p": lambda eqn, x: _rising(np.log1p)(eqn, x) if x[0].low >= -1 else None,
    "logistic": _within(0, 1),
    "max": _corners(max),
    "min": _corners(min),
    "mul": _corners(_times),
    "neg": lambda eqn, x: Range(-x[0].high, -x[0].low),
    "pad": _union,
    "reduce_max": _same,
    "reduce_min": _same,
    "reshape": _same,
    "rev": _same,
    "round": _rising(np.round),
    "scatter": _written,
    "select_n": _cases,
    "sign": _within(-1, 1),
    "sin": _within(-1, 1),
    "slice": _same,
    "split": _same,
    "sqrt": lambda eqn, x: _rising(np.sqrt)(eqn, x) if x[0].low >= 0 else None,
    "square": _square,
    "squeeze": _same,
    "stop_gradient": _same,
    "sub": _corners(lambda a, b: a - b),
    "tanh": _rising(np.tanh),
    "transpose": _same,
}

__all__ = ["Range", "of_array", "of_dtype", "ranges"]
