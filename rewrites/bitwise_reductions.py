"""Reductions by and, or and exclusive or, halving the elements.

Before: `reduce_and`, `reduce_or` on integers, `reduce_xor` on integers or bools.

After: the first half of the elements combined with the second, again and again, and an odd element at the end.

Why: runtimes reduce bools this way, but not the bits of integers, and have no reduction by exclusive or.

Exactness: bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

_COMBINE = {"reduce_and": lax.bitwise_and, "reduce_or": lax.bitwise_or, "reduce_xor": lax.bitwise_xor}


def _neutral(name: str, dtype: np.dtype) -> np.ndarray:
    zeros = np.zeros((), dtype)
    return np.invert(zeros) if name == "reduce_and" else zeros


def _by_halves(name: str, axes: tuple[int, ...]) -> Callable[[Array], Array]:
    combine = _COMBINE[name]

    def reduce(x: Array) -> Array:
        kept = [a for a in range(x.ndim) if a not in axes]
        shape = tuple(x.shape[a] for a in kept)
        count = math.prod(x.shape[a] for a in axes)
        rows = lax.reshape(lax.transpose(x, (*axes, *kept)), (count, *shape))
        if count == 0:
            return lax.full(shape, _neutral(name, x.dtype)[()], x.dtype)
        while count > 1:
            half = count // 2
            first, second = (lax.slice_in_dim(rows, i * half, (i + 1) * half) for i in range(2))
            combined = combine(first, second)
            if count % 2:
                combined = lax.concatenate([combined, lax.slice_in_dim(rows, count - 1, count)], 0)
            rows, count = combined, half + count % 2
        return lax.reshape(rows, shape)

    return reduce


def apply(site: Site) -> Replacement | Declined | None:
    if site.aval(0).dtype == np.bool_ and site.name != "reduce_xor":
        return Declined("bools have reductions of their own")
    return site.replace(_by_halves(site.name, tuple(int(a) for a in site.params["axes"])))


_X = np.random.default_rng(0).integers(0, 2**32, (3, 5, 2), dtype=np.uint32)

RULE = Rule(
    id="OC253",
    stage="legalize",
    primitives=frozenset(_COMBINE),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("and", lambda x: lax.reduce_and(x, (1,)), (_X,)),
        Example("or", lambda x: lax.reduce_or(x, (0, 2)), (_X.view(np.int32),)),
        Example("xor", lambda x: lax.reduce_xor(x, (0, 1, 2)), (_X,)),
        Example("bools", lambda x: lax.reduce_xor(x, (0,)), (_X > 2**31,)),
        Example("nothing", lambda x: lax.reduce_and(x, (0,)), (_X[:0],)),
    ),
    declines=(Example("any", lambda x: lax.reduce_or(x, (0,)), (_X > 2**31,)),),
)
