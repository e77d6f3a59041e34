"""Triangular systems, row by row.

Before: `triangular_solve` with any side, triangle and transposition, of one system or a batch.

After: systems on the right become systems on the left by transposing. A loop over the rows divides each by its
diagonal element (unless that is taken for 1) and subtracts it, times its column, from the rows that follow. The other
triangle is never read, so that NaN in it stays there.

Why: JAX calls BLAS, which no runtime has.

Exactness: see below, for well conditioned matrices. Matrices of more than 128 rows are declined, as OC510 does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

from .cholesky import LIMIT, over_batch, refusal

System = Callable[[Array, Array], Array]


def turned(x: Array) -> Array:
    return lax.transpose(x, (1, 0))


def on_the_left(params: Mapping[str, Any], solve: Callable[[Array, Array, bool, bool], Array]) -> System:
    """A function of one system, of any kind, by `solve(matrix, right side, lower, unit)`, which is for A x = b."""
    # x A = b is A^T x^T = b^T.
    left, unit = bool(params["left_side"]), bool(params["unit_diagonal"])
    transposed = bool(params["transpose_a"]) == left
    lower = bool(params["lower"]) != transposed

    def run(a: Array, b: Array) -> Array:
        found = solve(turned(a) if transposed else a, b if left else turned(b), lower, unit)
        return found if left else turned(found)

    return run


def _solve(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    places = lax.iota(np.int32, a.shape[0])

    def step(x: Array, k: Array) -> tuple[Array, None]:
        row = lax.dynamic_index_in_dim(x, k, 0, keepdims=False)
        column = lax.dynamic_index_in_dim(a, k, 1, keepdims=False)
        if not unit:
            row = lax.div(row, lax.broadcast(lax.dynamic_index_in_dim(column, k, 0, keepdims=False), row.shape))
            x = lax.dynamic_update_index_in_dim(x, row, k, 0)
        here = lax.broadcast(k, places.shape)
        follows = lax.gt(places, here) if lower else lax.lt(places, here)
        part = lax.mul(lax.broadcast_in_dim(column, x.shape, (0,)), lax.broadcast_in_dim(row, x.shape, (1,)))
        return lax.select(lax.broadcast_in_dim(follows, x.shape, (0,)), lax.sub(x, part), x), None

    return lax.scan(step, b, places, reverse=not lower)[0]


def apply(site: Site) -> Replacement | Declined:
    if site.result.size == 0:
        return site.replace(lambda a, b: b)
    rows = site.aval(0).shape[-1]
    return refusal(site.result, rows) or site.replace(over_batch(on_the_left(site.params, _solve), 2, 2))


_RNG = np.random.default_rng(0)


def matrix(*shape: int) -> np.ndarray:
    """Either triangle is well conditioned."""
    made = _RNG.normal(size=shape) / shape[-1] + 2 * np.eye(shape[-1])
    return made.astype(np.float32)


def right_side(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape).astype(np.float32)


def system(**options: Any) -> System:
    solve: Any = lax.linalg.triangular_solve
    return lambda a, b: solve(a, b, **options)


def kinds() -> list[tuple[str, System]]:
    """Of square systems."""
    choices = [(s, low, t) for s in (True, False) for low in (True, False) for t in (True, False)]
    return [
        (
            f"{'left' if s else 'right'}{' lower' * low}{' transposed' * t}",
            system(left_side=s, lower=low, transpose_a=t, unit_diagonal=low != t),
        )
        for s, low, t in choices
    ]


_A, _B = matrix(4, 4), right_side(4, 4)
_ODD = np.array([[np.inf, 7, 1, 0], [2, 0, np.nan, 1], [0, 1, np.inf, 1], [np.nan, 2, 3, 4]], np.float32)

RULE = Rule(
    id="OC511",
    stage="legalize",
    primitives=frozenset({"triangular_solve"}),
    apply=apply,
    exactness=Exactness("ulp", 16, absolute=1e-6),
    page=__doc__,
    module=__name__,
    examples=(
        *(Example(name, function, (_A, _B)) for name, function in kinds()),
        Example("larger", system(left_side=True, lower=True), (matrix(33, 33), right_side(33, 2))),
        Example("batch on the right", system(lower=True), (matrix(2, 3, 4, 4), right_side(2, 3, 5, 4))),
        Example("one", system(left_side=True), (_A[:1, :1], _B[:1])),
        Example("nothing", system(left_side=True), (_A, _B[:, :0])),
        Example("not finite", system(left_side=True, lower=True), (_ODD, _B)),
        Example("not finite above", system(left_side=True), (_ODD, _B)),
    ),
    declines=(
        Example(
            "large", system(left_side=True), (np.eye(LIMIT + 1, dtype=np.float32), np.ones((LIMIT + 1, 1), np.float32))
        ),
    ),
)
