"""Cholesky factors, column by column.

Before: `cholesky` of a matrix, or of a batch of them.

After: a loop over the columns. From each, what the columns before it explain is subtracted; what is left is divided by
the root of its first element, the pivot. Like LAPACK, it reads the lower triangle and leaves the upper one as it is
(`jnp.linalg.cholesky` blanks it out afterwards). A matrix with a pivot of 0 or below becomes NaN altogether; a pivot
of NaN makes NaN only what depends on it.

Why: JAX calls LAPACK, which no runtime has.

Exactness: see below, for well conditioned matrices. Errors grow with the condition number, LAPACK's too, until the two
can no longer be compared: matrices of more than 128 rows are declined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

LIMIT = 128
"""Rows up to which matrices are taken apart by loops."""


def _factor(x: Array) -> Array:
    """Of one matrix."""
    size = x.shape[0]
    places = lax.iota(np.int32, size)

    def step(state: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], None]:
        factor, good = state
        done = lax.dot(factor, lax.dynamic_index_in_dim(factor, k, 0, keepdims=False), precision=lax.Precision.HIGHEST)
        rest = lax.sub(lax.dynamic_index_in_dim(x, k, 1, keepdims=False), done)
        pivot = lax.dynamic_index_in_dim(rest, k, 0, keepdims=False)
        root, here = lax.broadcast(lax.sqrt(pivot), (size,)), lax.broadcast(k, (size,))
        new = lax.select(lax.gt(places, here), lax.div(rest, root), lax.full_like(rest, 0))
        new = lax.select(lax.eq(places, here), root, new)
        fails = lax.le(pivot, lax.full_like(pivot, 0))
        factor = lax.dynamic_update_index_in_dim(factor, new, k, 1)
        return (factor, lax.bitwise_and(good, lax.bitwise_not(fails))), None

    (found, good), _ = lax.scan(step, (lax.full_like(x, 0), lax.full((), True)), places)
    rows, columns = (lax.broadcasted_iota(np.int32, x.shape, axis) for axis in (0, 1))
    found = lax.select(lax.ge(rows, columns), found, x)
    return lax.select(lax.broadcast(good, x.shape), found, lax.full_like(x, np.nan))


def over_batch(function: Callable[..., Any], *ranks: int) -> Callable[..., Any]:
    """`function` of arrays of these ranks, over the leading dimensions that all operands have in common."""

    def run(*xs: Array) -> Any:
        lead = xs[0].shape[: xs[0].ndim - ranks[0]]
        if not lead:
            return function(*xs)
        flat = [lax.reshape(x, (math.prod(lead), *x.shape[x.ndim - r :])) for x, r in zip(xs, ranks, strict=True)]
        return jax.tree.map(lambda y: lax.reshape(y, (*lead, *y.shape[1:])), jax.vmap(function)(*flat))

    return run


def refusal(aval: Any, rows: int) -> Declined | None:
    """Why a loop is no way to do it."""
    if aval.dtype not in (np.float32, np.float64):
        return Declined(f"only for float32 and float64, not {aval.dtype}")
    return Declined(f"more than {LIMIT} rows") if rows > LIMIT else None


def apply(site: Site) -> Replacement | Declined:
    if site.result.size == 0:
        return site.replace(lambda x: x)
    return refusal(site.result, site.result.shape[-1]) or site.replace(over_batch(_factor, 2))


_RNG = np.random.default_rng(0)


def _positive(*shape: int) -> np.ndarray:
    """Well conditioned."""
    x = _RNG.normal(size=shape)
    made: np.ndarray = (x @ np.swapaxes(x, -1, -2) / shape[-1] + np.eye(shape[-1])).astype(np.float32)
    return made


def _with(value: float, *place: int) -> np.ndarray:
    x = _positive(4, 4)
    x[place] = value
    return x


_CHOLESKY: Any = lax.linalg.cholesky

RULE = Rule(
    id="OC510",
    stage="legalize",
    primitives=frozenset({"cholesky"}),
    apply=apply,
    exactness=Exactness("ulp", 32, absolute=1e-6),
    page=__doc__,
    module=__name__,
    examples=(
        Example("matrix", lambda x: _CHOLESKY(x, symmetrize_input=False), (_positive(4, 4),)),
        Example("lower triangle alone", lambda x: _CHOLESKY(x, symmetrize_input=False), (_with(7, 0, 3),)),
        Example("larger", _CHOLESKY, (_positive(33, 33),)),
        Example("batch", _CHOLESKY, (_positive(2, 3, 5, 5),)),
        Example("one", _CHOLESKY, (_positive(1, 1),)),
        Example("nothing", lambda x: _CHOLESKY(x, symmetrize_input=False), (_positive(3, 3)[:0, :0],)),
        Example("negative pivot", _CHOLESKY, (_with(-1, 2, 2),)),
        Example("nan pivot", _CHOLESKY, (_with(np.nan, 2, 2),)),
        Example("nan below", _CHOLESKY, (_with(np.nan, 3, 1),)),
        Example("infinite pivot", _CHOLESKY, (_with(np.inf, 1, 1),)),
        Example("infinite below", _CHOLESKY, (_with(np.inf, 3, 1),)),
    ),
    declines=(Example("large", _CHOLESKY, (np.eye(LIMIT + 1, dtype=np.float32),)),),
)
