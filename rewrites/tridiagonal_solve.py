"""Tridiagonal systems by elimination, with exchanges of neighbouring rows.

Before: `tridiagonal_solve` of one system or a batch.

After: LAPACK's `gtsv`. A loop over the rows eliminates the element below the diagonal by the larger of two rows, and a
loop back puts the results in. A system with a pivot of 0 becomes NaN altogether.

Why: JAX calls LAPACK, which no runtime has.

Exactness: see below, for well conditioned matrices. More than 128 rows are declined, as OC510 does, and so is
`perturb_singular`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

from .cholesky import LIMIT, over_batch, refusal


def _choose(which: Array, x: Array, y: Array) -> Array:
    return lax.select(lax.broadcast(which, x.shape), x, y)


def _scaled(factor: Array, row: Array) -> Array:
    return lax.mul(lax.broadcast(factor, row.shape), row)


def _eliminated(row: tuple[Array, ...], following: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """The next row to work on, and the finished one. Rows are diagonal, element beside it and right side.

    The row that follows comes with the element below the diagonal first, the finished one has an element two beside
    the diagonal before its right side.
    """
    (d, u, b), (low, d2, u2, b2) = row, following
    zero, keeps = lax.full_like(d, 0), lax.ge(lax.abs(d), lax.abs(low))
    factor = lax.div(low, d)
    plain = (lax.sub(d2, lax.mul(factor, u)), u2, lax.sub(b2, _scaled(factor, b)))
    factor = lax.div(d, low)
    swapped = (lax.sub(u, lax.mul(factor, d2)), lax.neg(lax.mul(factor, u2)), lax.sub(b, _scaled(factor, b2)))
    d3, u3, b3 = (_choose(keeps, x, y) for x, y in zip(plain, swapped, strict=True))
    done = [(d, low), (u, d2), (zero, u2), (b, b2)]
    return (d3, u3, b3), tuple(_choose(keeps, x, y) for x, y in done)


def _solve(low: Array, d: Array, u: Array, b: Array) -> Array:
    """Of one system. The first of `low` and the last of `u` are no elements of the matrix."""
    one = lax.full((1,), 0, d.dtype)
    u = lax.concatenate([lax.slice(u, (0,), (u.shape[0] - 1,)), one], 0)
    first = tuple(lax.index_in_dim(x, 0, keepdims=False) for x in (d, u, b))
    rest = tuple(lax.slice_in_dim(x, 1, None) for x in (low, d, u, b))
    last, rows = lax.scan(_eliminated, first, rest)
    ends = (*last[:2], lax.full_like(last[0], 0), last[2])
    rows = tuple(lax.concatenate([x, lax.expand_dims(y, (0,))], 0) for x, y in zip(rows, ends, strict=True))

    def back(known: tuple[Array, Array], row: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        pivot, beside, beyond, right = row
        right = lax.sub(lax.sub(right, _scaled(beside, known[0])), _scaled(beyond, known[1]))
        x = lax.div(right, lax.broadcast(pivot, right.shape))
        return (x, known[0]), x

    nothing = lax.full_like(first[2], 0)
    _, x = lax.scan(back, (nothing, nothing), rows, reverse=True)
    singular = lax.reduce_or(lax.eq(rows[0], lax.full_like(rows[0], 0)), (0,))
    return _choose(singular, lax.full_like(x, np.nan), x)


def apply(site: Site) -> Replacement | Declined:
    if site.params.get("perturb_singular"):
        return Declined("LAPACK's perturbation of singular systems is not known here")
    if site.result.size == 0:
        return site.replace(lambda low, d, u, b: b)
    return refusal(site.result, site.aval(1).shape[-1]) or site.replace(over_batch(_solve, 1, 1, 1, 2))


_RNG = np.random.default_rng(0)


def _system(*shape: int, on_diagonal: float = 3) -> tuple[np.ndarray, ...]:
    """The last dimension of `shape` counts right sides. A large diagonal needs no exchanges, a small one many."""
    low, d, u = (_RNG.normal(size=shape[:-1]).astype(np.float32) for _ in range(3))
    return low, d + np.float32(on_diagonal) * np.sign(d), u, _RNG.normal(size=shape).astype(np.float32)


_EXCHANGED = (np.array([9, 2, 3, 4], np.float32), np.full(4, 0.5, np.float32), np.array([1, 2, 1, 9], np.float32))
_B = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
_NAN = np.array([1, np.nan, 1, 1], np.float32)
_TRIDIAGONAL: Any = lax.linalg.tridiagonal_solve

RULE = Rule(
    id="OC513",
    stage="legalize",
    primitives=frozenset({"tridiagonal_solve"}),
    apply=apply,
    exactness=Exactness("ulp", 32, absolute=1e-6),
    page=__doc__,
    module=__name__,
    examples=(
        Example("system", _TRIDIAGONAL, _system(6, 2)),
        Example("exchanges", _TRIDIAGONAL, (*_EXCHANGED, _B)),
        Example("batch", _TRIDIAGONAL, _system(2, 3, 5, 1)),
        Example("larger", _TRIDIAGONAL, _system(40, 1)),
        Example("one", _TRIDIAGONAL, _system(1, 2)),
        Example("nothing", _TRIDIAGONAL, _system(4, 0)),
        Example("singular", _TRIDIAGONAL, (_EXCHANGED[0], np.zeros(4, np.float32), np.zeros(4, np.float32), _B)),
        Example("nan on the diagonal", _TRIDIAGONAL, (_EXCHANGED[0], _NAN, _EXCHANGED[2], _B)),
        Example("nan beside it", _TRIDIAGONAL, (_EXCHANGED[0], _EXCHANGED[1], _NAN, _B)),
    ),
    declines=(Example("large", _TRIDIAGONAL, _system(LIMIT + 1, 1)),),
)
