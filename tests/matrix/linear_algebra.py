"""Rows of factorizations and linear systems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .harness import Case, Closeness, calls, case, vmapped
from .values import DTYPES, F32, NAMES, data, inf, nan

NEAR = Closeness(rtol=1e-5, atol=1e-5)
HALF = Closeness(rtol=1e-2, atol=1e-2)


def _regular(*shape: int, seed: int = 0) -> np.ndarray:
    """Well conditioned, as its triangles are."""
    x = np.random.default_rng(seed).normal(size=shape) / shape[-1]
    return (x + 2 * np.eye(shape[-1])).astype(F32)


def _triangles(*shape: int) -> np.ndarray:
    """With triangles that are well conditioned, also in reverse order of the rows."""
    return _regular(*shape) + 2 * np.eye(shape[-1], dtype=F32)[::-1]


def _with(x: np.ndarray, value: float, *place: int) -> np.ndarray:
    y = x.copy()
    y[place] = value
    return y


def _positive(x: Any) -> Any:
    return lax.dot_general(x, x, (((x.ndim - 1,), (x.ndim - 1,)), ((), ()))) if x.ndim == 2 else x @ x.swapaxes(-1, -2)


def _cholesky() -> Iterator[Case]:
    factor: Any = lax.linalg.cholesky
    one = case("matrix", lambda x: factor(_positive(x)), _regular(4, 4), near=NEAR)
    yield one
    yield vmapped(one)
    yield case("large", lambda x: factor(_positive(x)), _regular(40, 40), near=NEAR)
    yield case("batch", lambda x: factor(_positive(x)), _regular(2, 3, 5, 5), near=NEAR)
    yield case("sizes", lambda x: [factor(x[:n, :n]) for n in (0, 1, 2)], _regular(3, 3) * 2, near=NEAR)
    x = np.asarray(_positive(_regular(4, 4)))
    odd = [_with(x, v, *at) for v in (nan, inf, -1, 0) for at in ((0, 0), (2, 2), (2, 1))]

    def lower(x: Any) -> Any:
        return factor(x, symmetrize_input=False)

    # Signs of zeros: what LAPACK divides by infinity has none.
    yield calls("not-positive", lower, *[(y,) for y in odd], near=NEAR, signs=False)
    yield case("not-positive-batch", lower, np.stack(odd), near=NEAR, signs=False)
    yield case("not-symmetric", lower, _with(x, 7, 0, 2), near=NEAR)


def _options() -> Iterator[dict[str, bool]]:
    for number in range(16):
        names = ("left_side", "lower", "transpose_a", "unit_diagonal")
        yield {name: bool(number >> k & 1) for k, name in enumerate(names)}


def _triangular_solve() -> Iterator[Case]:
    solve: Any = lax.linalg.triangular_solve

    def every(a: Any, b: Any) -> list[Any]:
        return [solve(a, b if o["left_side"] else b.swapaxes(-1, -2), **o) for o in _options()]

    for letter in "fhg":
        near = NEAR if letter == "f" else HALF
        a, b = (x.astype(DTYPES[letter]) for x in (_triangles(4, 4), data("f", 4, 3)))
        one = case(f"kinds-{NAMES[letter]}", every, a, b, near=near)
        yield one
        yield vmapped(one)
    yield case("batch", every, _triangles(2, 3, 5, 5), data("f", 2, 3, 5, 2), near=NEAR)
    yield case("large", lambda a, b: solve(a, b, left_side=True), _triangles(40, 40), data("f", 40, 2), near=NEAR)
    yield case("sizes", lambda a, b: [solve(a[:n, :n], b[:n], left_side=True) for n in (0, 1)], a, b, near=HALF)
    yield case("many", lambda a, b: solve(a, b), _triangles(9, 4, 4), data("f", 9, 2, 4), near=NEAR)
    matrices = [_with(_triangles(4, 4), v, *at) for v in (nan, inf, 0) for at in ((0, 0), (1, 2), (2, 1), (3, 3))]
    yield calls("odd", every, *[(x, data("f", 4, 2)) for x in matrices], near=NEAR)


def _tridiagonal_solve() -> Iterator[Case]:
    solve: Any = lax.linalg.tridiagonal_solve

    def on(scale: float) -> tuple[np.ndarray, ...]:
        d = data("f", 5, seed=1)
        return data("f", 5), np.sign(d) * F32(scale) + d, data("f", 5, seed=2), data("f", 5, 2, seed=3)

    one = case("large-diagonal", solve, *on(9), near=NEAR)
    yield one
    yield vmapped(one)
    exchanged = (np.array([9, 2, 3, 4], F32), np.full(4, 0.5, F32), np.array([1, 2, 1, 9], F32), data("f", 4, 2))
    yield case("exchanges", solve, *exchanged, near=NEAR)
    yield case("sizes", lambda *xs: [solve(*(x[:n] for x in xs)) for n in (1, 2)], *on(9), near=NEAR)
    odd = [
        (_with(on(9)[0], v, 2), _with(on(9)[1], w, 1), *on(9)[2:]) for v, w in ((0, nan), (0, 0), (inf, 1), (nan, 1))
    ]
    yield calls("odd", solve, *odd, near=NEAR)
    yield case("singular", solve, np.zeros(3, F32), np.array([1, 0, 1], F32), np.zeros(3, F32), data("f", 3, 1))


def _lu() -> Iterator[Case]:
    factors: Any = lax.linalg.lu
    x = np.random.default_rng(7).normal(size=(6, 6)).astype(F32)
    for name, shape in (("square", (5, 5)), ("wide", (3, 6)), ("tall", (6, 3)), ("one", (1, 1))):
        one = case(name, factors, x[: shape[0], : shape[1]], near=NEAR)
        yield one
        yield vmapped(one)
    yield case("zeros", factors, np.zeros((3, 3), F32))
    yield case("infinite", factors, _with(x, inf, 2, 1), near=NEAR, signs=False)
    yield case("large", factors, _regular(40, 40), near=NEAR)
    yield case("pivots", lambda p: lax.linalg.lu_pivots_to_permutation(p, 5), np.array([3, 1, 4, 3, 4], np.int32))


def _custom_linear_solve() -> Iterator[Case]:
    one = case("solve", jnp.linalg.solve, _regular(4, 4), data("f", 4, 2), near=NEAR)
    yield one
    yield vmapped(one)
    yield case("vector", jnp.linalg.solve, _regular(4, 4), data("f", 4), near=NEAR)
    yield case("inverse", jnp.linalg.inv, _regular(5, 5), near=NEAR)
    yield case("gradient", jax.grad(lambda a, b: jnp.linalg.solve(a, b).sum()), _regular(3, 3), data("f", 3), near=NEAR)

    def by_scale(a: Any, b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: a * x, b, lambda _, y: y / a)

    yield case("own", by_scale, F32(4), data("f", 5))


def rows() -> dict[str, list[Case]]:
    return {
        "cholesky": list(_cholesky()),
        "triangular_solve": list(_triangular_solve()),
        "tridiagonal_solve": list(_tridiagonal_solve()),
        "lu": list(_lu()),
        "lu_pivots_to_permutation": [one for one in _lu() if one.name == "pivots"],
        "custom_linear_solve": list(_custom_linear_solve()),
    }
