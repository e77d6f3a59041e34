"""LU factors by elimination with pivots.

Before: `lu` of a matrix, of any shape, or of a batch.

After: a loop over the columns. It brings the row with the largest element of the column up, divides what is below by
it and subtracts the rank-one product from the rest. Pivots and the permutation of the rows come with it.

Why: JAX calls LAPACK, which no runtime has.

Exactness: see below, for well conditioned matrices. Where two candidates for a pivot are as large as each other up to
rounding, the other one may be taken; where one is NaN, LAPACK promises no choice, and NaN is taken here. More than 128
rows or columns are declined, as OC510 does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

from .cholesky import LIMIT, over_batch, refusal


def _factors(x: Array) -> tuple[Array, Array, Array]:
    """Of one matrix: the factors in one matrix, the row that each was exchanged with, and where rows came from."""
    places = lax.iota(np.int32, x.shape[0])
    rows, columns = (lax.broadcasted_iota(np.int32, x.shape, axis) for axis in (0, 1))

    def step(state: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        x, order = state
        here = lax.broadcast(k, places.shape)
        sizes = lax.abs(lax.dynamic_index_in_dim(x, k, 1, keepdims=False))
        sizes = lax.select(lax.ge(places, here), sizes, lax.full_like(sizes, -1))
        best = lax.argmax(sizes, 0, np.int32)
        there = lax.broadcast(best, places.shape)

        def exchanged(y: Array) -> Array:
            upper, lower = (lax.dynamic_index_in_dim(y, i, 0) for i in (k, best))
            at_k, at_best = (lax.broadcast_in_dim(lax.eq(places, i), y.shape, (0,)) for i in (here, there))
            every = tuple(range(y.ndim))
            upper, lower = (lax.broadcast_in_dim(z, y.shape, every) for z in (upper, lower))
            return lax.select(at_k, lower, lax.select(at_best, upper, y))

        x, order = exchanged(x), exchanged(order)
        row, column = (lax.dynamic_index_in_dim(x, k, axis, keepdims=False) for axis in (0, 1))
        pivot = lax.broadcast(lax.dynamic_index_in_dim(row, k, 0, keepdims=False), column.shape)
        divides = lax.bitwise_and(lax.gt(places, here), lax.ne(pivot, lax.full_like(pivot, 0)))
        column = lax.select(divides, lax.div(column, pivot), column)
        x = lax.dynamic_update_index_in_dim(x, column, k, 1)
        product = lax.mul(lax.broadcast_in_dim(column, x.shape, (0,)), lax.broadcast_in_dim(row, x.shape, (1,)))
        corner = lax.broadcast(k, x.shape)
        is_left = lax.bitwise_and(lax.gt(rows, corner), lax.gt(columns, corner))
        return (lax.select(is_left, lax.sub(x, product), x), order), best

    steps = lax.iota(np.int32, min(x.shape))
    (found, order), pivots = lax.scan(step, (x, places), steps)
    return found, pivots, order


def apply(site: Site) -> Replacement | Declined:
    shape = site.result.shape
    if site.result.size == 0:
        return Declined("a matrix without elements")
    return refusal(site.result, max(shape[-2:])) or site.replace(over_batch(_factors, 2))


_RNG = np.random.default_rng(0)


def _matrix(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape).astype(np.float32)


_LU: Any = lax.linalg.lu

RULE = Rule(
    id="OC514",
    stage="legalize",
    primitives=frozenset({"lu"}),
    apply=apply,
    exactness=Exactness("ulp", 32, absolute=1e-6),
    page=__doc__,
    module=__name__,
    examples=(
        Example("square", _LU, (_matrix(5, 5),)),
        Example("wide", _LU, (_matrix(3, 5),)),
        Example("tall", _LU, (_matrix(5, 3),)),
        Example("batch", _LU, (_matrix(2, 3, 4, 4),)),
        Example("larger", _LU, (_matrix(20, 20) + 9 * np.eye(20, dtype=np.float32),)),
        Example("zeros", _LU, (np.zeros((3, 3), np.float32),)),
        Example("ties", _LU, (np.array([[1, 2], [-1, 3]], np.float32),)),
    ),
    declines=(Example("large", _LU, (np.eye(LIMIT + 1, dtype=np.float32),)),),
)
