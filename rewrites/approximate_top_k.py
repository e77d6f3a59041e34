"""Approximate top k by the exact one.

Before: `approx_top_k`, as `lax.approx_max_k` and `lax.approx_min_k` give it.

After: `top_k` of the operand, or of its negative for the smallest.

Why: the approximation is made for other hardware, and no runtime has it. On the CPU JAX sorts, too.

Exactness: bit for bit where the values are distinct numbers. JAX's sort is not stable, so of equal values it may give
other places: here the first ones come out. NaN has no certain place in JAX, and moves numbers too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site


def _exact(axis: int, count: int, largest: bool) -> Callable[[Array], tuple[Array, Array]]:
    def run(x: Array) -> tuple[Array, Array]:
        last = x.ndim - 1
        order = [*(a for a in range(x.ndim) if a != axis), axis]
        moved = lax.transpose(x, order)
        found, place = lax.top_k(moved if largest else lax.neg(moved), count)
        back = [*range(axis), last, *range(axis, last)]
        return lax.transpose(found if largest else lax.neg(found), back), lax.transpose(place, back)

    return run


def apply(site: Site) -> Replacement:
    axis = int(site.params["reduction_dimension"]) % len(site.result.shape)
    # Without the last step of the aggregation there are more than k results.
    return site.replace(_exact(axis, site.result.shape[axis], bool(site.params["is_max_k"])))


_X = np.random.default_rng(0).permutation(3 * 40).reshape(3, 40).astype(np.float32) - np.float32(60)

RULE = Rule(
    id="OC362",
    stage="legalize",
    primitives=frozenset({"approx_top_k"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("largest", lambda x: lax.approx_max_k(x, 4), (_X,)),
        Example("smallest", lambda x: lax.approx_min_k(x, 4), (_X,)),
        Example("first axis", lambda x: lax.approx_max_k(x, 2, reduction_dimension=0), (_X,)),
        Example(
            "not aggregated",
            lambda x: lax.approx_max_k(x, 2, aggregate_to_topk=False),
            (np.tile(_X, (1, 60))[0] + np.arange(2400, dtype=np.float32) * np.float32(0.001),),
        ),
    ),
)
