"""The draws of a policy, and which of them are near ties.

Decisions are every argmax and argmin of floats, and each place in the order of a top_k or of a sort that something
else is sorted by. Of floats that depend on random bits they are also comparisons, and steps: rounding, signs and casts
to integers. A decision is a near tie if its two best scores are closer than NEAR or than eight times their own error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax import numpy as jnp

from opcompat.report import MARGIN_EDGES, NEAR

ERROR_FACTOR = 8.0

_COMPARES = frozenset({"lt", "le", "gt", "ge", "le_to", "lt_to"})
_EQUALS = frozenset({"eq", "ne"})
_ORDERS = frozenset({"sort", "top_k"})


class Pair(NamedTuple):
    """A value as the program has it, and its shadow (the same value in float64 if there is no better).

    `random`: whether it depends on random bits. `tied`: whether it depends on a decision that is a near tie, a bool
    scalar, or None where no decision is involved.
    """

    value: Any
    shadow: Any
    random: bool
    tied: Any = None


class Decisions(NamedTuple):
    """How many decisions were made, how many of them are near ties, and how many loops were stopped: int32 scalars.

    `margins` counts them by the margin between the two best scores, in the bins around MARGIN_EDGES: int32.
    """

    total: Any
    near: Any
    margins: Any
    stopped: Any = np.int32(0)

    def plus(self, other: Decisions) -> Decisions:
        return Decisions(*(a + b for a, b in zip(self, other, strict=True)))


NONE = Decisions(np.int32(0), np.int32(0), np.zeros(len(MARGIN_EDGES) + 1, np.int32))


def is_float(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jnp.floating))


def _to_whole(x: Any) -> Any:
    return jnp.abs(x - jnp.round(x))


_JUMPS: Mapping[str, Callable[[Any], Any]] = {
    "ceil": _to_whole,
    "convert_element_type": _to_whole,
    "floor": _to_whole,
    "round": lambda x: jnp.abs(0.5 - _to_whole(x)),
    "sign": jnp.abs,
}
"""How far a value is from where the result of a step jumps."""


def decisions_of(eqn: Any, operands: Sequence[Pair], random: bool, used: set[Any]) -> Decisions:
    """The decisions of one equation. `random`: whether its operands depend on random bits; `used`: the variables that
    something reads."""
    name = eqn.primitive.name
    if not operands or not is_float(eqn.invars[0].aval):
        return NONE
    if name in ("argmax", "argmin"):
        scores, error = operands[0].value, _errors(operands[0])
        axis = eqn.params["axes"][0]
        if scores.shape[axis] < 2:
            return NONE
        ordered = jnp.sort(scores if name == "argmax" else -scores, axis=axis)
        best = lax.index_in_dim(ordered, ordered.shape[axis] - 1, axis, keepdims=False)
        second = lax.index_in_dim(ordered, ordered.shape[axis] - 2, axis, keepdims=False)
        return _near(best - second, jnp.max(error, axis=axis))
    if random and name in _COMPARES:
        a, b = operands
        return _near(jnp.abs(a.value - b.value), _errors(a) + _errors(b))
    if random and name in _EQUALS:
        # What equals the largest is drawn as by argmax; equal values are so everywhere, for one is made of the other.
        a, b = operands
        margin = jnp.abs(a.value - b.value)
        return _near(jnp.where(margin == 0, jnp.inf, margin), _errors(a) + _errors(b))
    if random and name in _JUMPS and not (name == "convert_element_type" and is_float(eqn.outvars[0].aval)):
        return _near(_JUMPS[name](operands[0].value), _errors(operands[0]))
    if name in _ORDERS and not used.isdisjoint(eqn.outvars[1:]):
        return _places(eqn, operands[0])
    return NONE


def _places(eqn: Any, scores: Pair) -> Decisions:
    """Of each two neighbours in an order, those among the first k and the one that was left out, which comes first."""
    axis = eqn.params.get("dimension", eqn.params.get("axis", scores.value.ndim - 1))
    length = scores.value.shape[axis]
    first = max(0, length - eqn.params.get("k", length) - 1)
    ordered = lax.slice_in_dim(jnp.sort(scores.value, axis=axis), first, length, axis=axis)
    margin = jnp.diff(ordered, axis=axis)
    error = jnp.broadcast_to(jnp.max(_errors(scores), axis=axis, keepdims=True, initial=0.0), margin.shape)
    return _near(margin, error)


def _errors(pair: Pair) -> Any:
    """A pair's rounding errors. An infinity that is one in both has none."""
    return jnp.where(pair.value == pair.shadow, 0.0, jnp.abs(pair.value - pair.shadow))


def _near(margin: Any, error: Any) -> Decisions:
    """Scores that are equal without any error of their own are so everywhere, and what then comes first is not free."""
    exact = (margin == 0) & (error == 0)
    near = (margin <= jnp.maximum(NEAR, ERROR_FACTOR * error)) & ~exact
    edges = jnp.asarray(MARGIN_EDGES, jnp.float64)
    bins = jnp.searchsorted(edges, jnp.ravel(margin).astype(jnp.float64), side="right")
    counted = jnp.zeros(len(MARGIN_EDGES) + 1, jnp.int32).at[bins].add(1)
    return Decisions(jnp.int32(near.size), jnp.sum(near, dtype=jnp.int32), counted)
