"""Triangular systems in half precision by the matrix's inverse.

Before: `triangular_solve` in float16 or bfloat16.

After: what XLA makes of it on the CPU. The columns are divided by the diagonal, row after row of that matrix's inverse
is made of the rows before it, and the inverse is multiplied by the right side, each step rounded to half precision.
So a zero on the diagonal makes NaN of everything, where a substitution would make an infinity of one row.

Why: no runtime has the primitive, and for these dtypes JAX does not call BLAS. XLA solves batches of more than 8
matrices of fewer than 32 rows by substitution; so does OC511, which gets them and is more exact in float32.

Exactness: XLA's steps; the order within a product is the runtime's. More than 128 rows are declined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

from .cholesky import LIMIT, over_batch
from .triangular_solve import System, system

_EXACTLY = lax.Precision.HIGHEST


def _inverse(a: Array, lower: bool, unit: bool) -> Array:
    rows, columns = (lax.broadcasted_iota(np.int32, a.shape, axis) for axis in (0, 1))
    places, diagonal, zero = lax.iota(np.int32, a.shape[0]), lax.eq(rows, columns), lax.full_like(a, 0)
    a = lax.select(lax.ge(rows, columns) if lower else lax.le(rows, columns), a, zero)
    a = lax.select(diagonal, lax.full_like(a, 1), a) if unit else a
    factor = lax.reduce_sum(lax.select(diagonal, a, zero), (0,))
    factor = lax.div(lax.full_like(factor, 1), factor)
    scaled = lax.mul(a, lax.broadcast_in_dim(factor, a.shape, (1,)))
    # Only the first row to be made is its own inverse; the others are the negative of a product.
    first = 0 if lower else a.shape[0] - 1
    sign = lax.select(lax.eq(rows, lax.full_like(rows, first)), lax.full_like(a, 1), lax.full_like(a, -1))

    def step(found: Array, k: Array) -> tuple[Array, None]:
        row = lax.dot(lax.dynamic_index_in_dim(scaled, k, 0, keepdims=False), found, precision=_EXACTLY)
        return lax.dynamic_update_index_in_dim(found, lax.neg(row), k, 0), None

    others = lax.slice(places, (1,), places.shape) if lower else lax.slice(places, (0,), (first,))
    found, _ = lax.scan(step, lax.select(diagonal, sign, zero), others, reverse=not lower)
    return lax.mul(found, lax.broadcast_in_dim(factor, a.shape, (0,)))


def _solve(params: Mapping[str, Any]) -> System:
    left, transposed = bool(params["left_side"]), bool(params["transpose_a"])

    def run(a: Array, b: Array) -> Array:
        found = _inverse(a, bool(params["lower"]), bool(params["unit_diagonal"]))
        found = lax.transpose(found, (1, 0)) if transposed else found
        return lax.dot(*((found, b) if left else (b, found)), precision=_EXACTLY)

    return run


def apply(site: Site) -> Replacement | Declined | None:
    rows, dtype = site.aval(0).shape[-1], site.result.dtype
    if dtype not in (np.float16, jnp.bfloat16):
        return None
    if site.result.size == 0:
        return site.replace(lambda a, b: b)
    if rows > LIMIT:
        return Declined(f"more than {LIMIT} rows")
    if math.prod(site.aval(0).shape[:-2]) > 8 and rows < 32:
        return Declined("XLA solves many small systems by substitution")
    return site.replace(over_batch(_solve(site.params), 2, 2))


_A = np.array([[2, 1, -1, 4], [1, -4, 2, 1], [-2, 2, 1, 3], [4, -1, 2, 0.5]])
_B = np.arange(16.0).reshape(4, 4)
_HALF, _BRAIN = np.dtype(np.float16), np.dtype(jnp.bfloat16)


def _examples() -> tuple[Example, ...]:
    """Of numbers whose results are exact."""
    choices = [(left, lower, turned) for left in (True, False) for lower in (True, False) for turned in (True, False)]
    return tuple(
        Example(
            f"{dtype.name} {'left' if left else 'right'}{' lower' * lower}{' transposed' * turned}",
            system(left_side=left, lower=lower, transpose_a=turned, unit_diagonal=lower != turned),
            (_A.astype(dtype), _B.astype(dtype)),
        )
        for dtype in (_HALF, _BRAIN)
        for left, lower, turned in choices
    )


_ODD = np.array([[0, 1, -1, 4], [1, -4, 2, 1], [-2, 2, np.inf, 3], [4, -1, 2, 0.5]], np.float16)

RULE = Rule(
    id="OC512",
    stage="pattern",
    primitives=frozenset({"triangular_solve"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        *_examples(),
        Example("zero on the diagonal", system(left_side=True), (_ODD, _B.astype(np.float16))),
        Example("zero first", system(left_side=True, lower=True), (_ODD, _B.astype(np.float16))),
        Example(
            "batch", system(left_side=True), (np.stack([_A, _A]).astype(_BRAIN), np.stack([_B, -_B]).astype(_BRAIN))
        ),
    ),
    declines=(
        Example("float32", system(left_side=True), (_A.astype(np.float32), _B.astype(np.float32))),
        Example("large", system(left_side=True), (np.eye(129, dtype=np.float16), np.ones((129, 1), np.float16))),
        Example("many", system(left_side=True), (np.stack([_A] * 9).astype(_HALF), np.stack([_B] * 9).astype(_HALF))),
    ),
)
