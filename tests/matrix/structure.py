"""Rows of primitives that move data: shapes, slices, gathers and scatters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .harness import ROUNDED, SUMS, Case, Closeness, calls, case, vmapped
from .values import F32, I32, NAMES, U32, data

I = np.int32  # noqa: E741
ANY = "fiubg"

SHAPED: dict[str, list[tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]]]] = {
    "broadcast_in_dim": [
        ("axes", lambda x: (lax.broadcast_in_dim(x, (2, 3, 4), (1, 2)), lax.broadcast(x, (2, 1))), ((3, 1),)),
        ("scalar", lambda x: (jnp.full((3, 40), x), jnp.full((0, 2), x), jnp.full((1,) * 8, x)), ((),)),
        ("large", lambda x: (lax.broadcast_in_dim(x, (300, 4), (1,)),), ((4,),)),
    ],
    "concatenate": [
        ("axis", lambda x, y: (lax.concatenate([x, y, x], 1), lax.concatenate([x, y], 1)), ((2, 3), (2, 0))),
        ("rank8", lambda x: lax.concatenate([x, x], 4), ((1, 2, 1, 1, 2, 1, 1, 2),)),
        ("one", lambda x: lax.concatenate([x], 0), ((3,),)),
    ],
    "pad": [
        ("edges", lambda x: lax.pad(x, _one(x), ((1, 2, 0), (0, 3, 0))), ((2, 3),)),
        ("negative", lambda x: lax.pad(x, _one(x), ((-1, 2, 0), (1, -2, 0))), ((3, 4),)),
        ("interior", lambda x: lax.pad(x, _one(x), ((1, -1, 2), (-2, 1, 1))), ((3, 4),)),
        ("empty", lambda x: lax.pad(x, _one(x), ((1, 2, 1), (0, 0, 0))), ((0, 2),)),
        ("away", lambda x: lax.pad(x, _one(x), ((-4, 3, 0),)), ((3,),)),
    ],
    "reshape": [
        ("shape", lambda x: [lax.reshape(x, s) for s in ((6, 2), (12,), (1, 3, 1, 4, 1))], ((3, 4),)),
        ("order", lambda x: lax.reshape(x, (6, 2), (1, 0)), ((3, 4),)),
        ("empty", lambda x: (lax.reshape(x, (2, 0)), lax.reshape(x, (0, 5, 1))), ((0, 4),)),
        ("rank8", lambda x: lax.reshape(x, (2, 1, 2, 1, 1, 2, 1, 1)), ((8,),)),
        ("scalar", lambda x: lax.reshape(x, ()), ((1, 1),)),
    ],
    "rev": [
        ("axes", lambda x: (lax.rev(x, (0, 2)), lax.rev(x, (1,)), lax.rev(x, ())), ((2, 3, 4),)),
        ("rank8", lambda x: lax.rev(x, (1, 7)), ((1, 2, 1, 1, 2, 1, 1, 2),)),
        ("empty", lambda x: lax.rev(x, (0, 1)), ((0, 3),)),
    ],
    "slice": [
        ("strides", lambda x: (lax.slice(x, (1, 0), (6, 4), (2, 3)), lax.slice(x, (0, 2), (7, 3))), ((7, 5),)),
        ("empty", lambda x: (lax.slice(x, (1, 2), (1, 4)), x[5:2], x[::-2]), ((7, 5),)),
        ("rank8", lambda x: x[..., ::2, :, 1:, :, 1:], ((1, 2, 1, 2, 2, 2, 1, 3),)),
    ],
    "split": [
        ("axis", lambda x: lax.split(x, (1, 3, 2), 1), ((2, 6),)),
        ("one", lambda x: lax.split(x, (6,), 1), ((2, 6),)),
        ("empty", lambda x: lax.split(x, (0, 2), 0), ((2, 6),)),
    ],
    "squeeze": [
        ("axes", lambda x: (lax.squeeze(x, (0, 2)), lax.squeeze(x, (2,))), ((1, 4, 1),)),
        ("rank8", lambda x: lax.squeeze(x, (0, 2, 3, 5, 6)), ((1, 2, 1, 1, 2, 1, 1, 2),)),
    ],
    "stack": [
        ("axes", lambda x, y: [jnp.stack([x, y], k) for k in (0, 1, 2, -1)], ((2, 3), (2, 3))),
        ("scalars", lambda x, y: jnp.stack([x, y]), ((), ())),
    ],
    "transpose": [
        ("axes", lambda x: (lax.transpose(x, (2, 0, 1)), lax.transpose(x, (0, 2, 1))), ((2, 3, 4),)),
        ("rank8", lambda x: lax.transpose(x, (7, 6, 5, 4, 3, 2, 1, 0)), ((1, 2, 3, 1, 2, 1, 2, 2),)),
        ("empty", lambda x: lax.transpose(x, (1, 0)), ((0, 4),)),
    ],
    "unstack": [
        ("axes", lambda x: [*jnp.unstack(x), *jnp.unstack(x, axis=2), *jnp.unstack(x, axis=-2)], ((2, 3, 2),)),
    ],
}
"""Primitive -> (name, function, shapes of its arguments), for every dtype."""


def _one(x: Any) -> Any:
    return np.ones((), x.dtype)


def _shaped(name: str) -> Iterator[Case]:
    for kind, function, shapes in SHAPED[name]:
        for letter in ANY if kind in ("axes", "axis", "shape", "strides", "edges") else "fu":
            arrays = [data(letter, *shape, seed=k) for k, shape in enumerate(shapes)]
            one = case(f"{kind}-{NAMES[letter]}", function, *arrays)
            yield one
            if letter == "f" and kind not in ("rank8", "empty", "scalar"):
                yield vmapped(one)


# -- iota


def _iota() -> Iterator[Case]:
    shapes = ((5,), (100, 3), (0, 2), (1, 2, 1, 1, 2, 1, 1, 2))
    for dtype in (F32, I32, U32):
        yield case(
            f"axes-{np.dtype(dtype).name}",
            lambda x, dtype=dtype: [lax.broadcasted_iota(dtype, s, len(s) - 1) + x for s in shapes],
            np.asarray(0, dtype),
        )
    yield case("first-int32", lambda x: lax.broadcasted_iota(I32, (4, 3), 0) + x, I(1))


# -- windows at positions that are computed

EDGES = (I(0), I(1), I(2), I(-1), I(-9), I(9), I(2**31 - 1), I(-(2**31)))


def _dynamic_slice() -> Iterator[Case]:
    for letter in ANY:
        x = data(letter, 4, 7)
        inputs = [(x, i, j) for i, j in zip(EDGES, EDGES[::-1], strict=True)]
        one = calls(f"clamped-{NAMES[letter]}", lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 3)), *inputs)
        yield one
        if letter in "fu":
            yield vmapped(one)
    x = data("f", 4, 7)
    starts = [(x, U32(k)) for k in (0, 2, 6, 2**31, 2**32 - 1)]
    yield calls("unsigned", lambda x, i: lax.dynamic_slice(x, (i, i), (1, 3)), *starts)
    yield calls("whole", lambda x, i: lax.dynamic_slice(x, (i, i), (4, 7)), *[(x, i) for i in EDGES])
    yield calls("negative-index", lambda x, i: lax.dynamic_index_in_dim(x, i, 0), *[(x, i) for i in EDGES])
    deep = data("f", 1, 2, 1, 3, 2, 1, 1, 2)
    yield calls("rank8", lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, 3), *[(deep, i) for i in EDGES[:4]])
    yield case("empty", lambda x, i: lax.dynamic_slice(x, (i, i), (0, 3)), x, I(1))


def _dynamic_update_slice() -> Iterator[Case]:
    for letter in ANY:
        x, u = data(letter, 5, 6), data(letter, 2, 3, seed=1)
        inputs = [(x, u, i, j) for i, j in zip(EDGES, EDGES[::-1], strict=True)]
        one = calls(f"clamped-{NAMES[letter]}", lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)), *inputs)
        yield one
        if letter in "fu":
            yield vmapped(one)
    x, row = data("f", 5, 6), data("f", 1, 6, seed=1)
    yield calls("row", lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)), *[(x, row, i) for i in EDGES])
    yield case("whole", lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), x, data("f", 5, 6, seed=1), I(2))
    yield case("empty", lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), x, data("f", 0, 6), I(2))
    deep, part = data("f", 1, 2, 1, 3, 2, 1, 1, 2), data("f", 1, 2, 1, 2, 2, 1, 1, 2)
    at = [(deep, part, i) for i in EDGES[:4]]
    yield calls("rank8", lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i, 3), *at)


INDEX = np.array([0, 3, -1, 2, 4, -4, -5, 9, -9, 2**31 - 1, -(2**31)], I32)
GRID = np.array([[0, 9], [-9, 2]], I32)
WINDOWS = lax.GatherDimensionNumbers((1,), (), (0,))


def _gather() -> Iterator[Case]:
    for letter in ANY:
        x = data(letter, 4, 3)
        for mode in ("fill", "clip", "promise_in_bounds", None):
            index = np.array([0, 3, 2], I32) if mode == "promise_in_bounds" else INDEX
            one = case(f"{mode}-{NAMES[letter]}", lambda x, i, m=mode: x.at[i].get(mode=m), x, index)
            yield one
        yield vmapped(one)
    x, cube = data("f", 4, 3), data("f", 4, 3, 5)
    yield case("column", lambda x, i: x.at[:, i].get(mode="clip"), x, GRID)
    yield case("take", lambda x, i: [jnp.take(x, i, 1, mode=m) for m in ("clip", "fill", "wrap")], x, GRID)
    yield case("along", lambda x, i: jnp.take_along_axis(x, i, 1), x, np.array([[0], [2], [1], [5]], I32))
    i, j = np.array([0, 9, 2, 1], I32), np.array([4, 1, -99, 2], I32)
    for mode in ("clip", "fill"):
        yield case(f"two-{mode}", lambda x, i, j, m=mode: x.at[i, :, j].get(mode=m), cube, i, j)
    yield case("fill-value", lambda x, i: x.at[i].get(mode="fill", fill_value=7), data("i", 4), INDEX)
    yield case("unsigned", lambda x, i: x.at[i].get(mode="clip"), x, np.array([0, 2, 2**31, 2**32 - 1], U32))
    yield case("unsigned-fill", lambda x, i: x.at[i].get(mode="fill"), x, np.array([0, 2, 2**31, 2**32 - 1], U32))
    yield case("bytes", lambda x, i: x.at[i].get(mode="clip"), x, np.array([0, 2, 200], np.uint8))
    yield case("constant", lambda x: x[np.array([2, 0, 2])], x)
    starts = np.array([0, 2, 4, -1], I32)
    yield case("windows", jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 1), (3, 2))), data("f", 4, 5, 6), starts)
    yield case("shared", lambda x, i: jax.vmap(lambda i: lax.dynamic_slice(x, (i, i), (2, 1)))(i), x, starts)
    yield case(
        "windows-fill",
        lambda x, i: lax.gather(x, i[:, None], WINDOWS, (3,), mode="fill"),
        data("f", 7),
        np.array([0, 2, 4, 5, -1], I32),
    )
    yield case("embedding", lambda x, i: x[i], data("f", 100, 8), np.array([[0, 99], [100, -1]], I32))
    yield case("empty", lambda x, i: x[i], x, np.zeros((0,), I32))
    yield case("scalar", lambda x, i: x[i, 1], x, I(-2))
    yield case("mask-index", lambda x, i: x[:, i][i], data("f", 4, 4), np.array([1, 3], I32))
    yield case("rank8", lambda x, i: x[:, :, :, i], data("f", 1, 2, 1, 3, 2, 1, 2), GRID)


def _scatter(kind: str) -> Iterator[Case]:
    unique = np.array([0, 9, -1, 2, -9], I32)
    repeated = np.array([0, 0, 9, 2, -1, 2], I32)
    index = unique if kind == "set" else repeated
    letters = {"set": ANY, "add": "fiug", "subtract": "fiu", "mul": "fiu", "max": "fiu", "min": "fiu"}[kind]
    near = ROUNDED if kind in ("set", "max", "min") else SUMS

    def write(x: Any, i: Any, u: Any, mode: str | None = None) -> Any:
        return getattr(x.at[i], kind)(u, mode=mode)

    for letter in letters:
        # XLA rounds every sum of halves that repeated indices lead to.
        close = Closeness(rtol=2**-6, atol=2**-6) if letter == "g" and near == SUMS else near
        x, u = data(letter, 4, 3), data(letter, len(index), 3, seed=1)
        one = case(f"rows-{NAMES[letter]}", write, x, index, u, near=close)
        yield one
        if letter == "f":
            yield vmapped(one)
        # Clipped writes of "set" meet at the edges, and which one stays is not defined.
        clipped = np.array([0, 9, 2], I32) if kind == "set" else index
        yield case(
            f"clip-{NAMES[letter]}", lambda x, i, u: write(x, i, u, "clip"), x, clipped, u[: len(clipped)], near=close
        )
    x, u = data("f", 4, 3), data("f", 4, seed=1)
    yield case("column", lambda x, i, u: getattr(x.at[:, i], kind)(u), x, I(2), u, near=near)
    i, j = np.array([0, 9, 2, 1], I32), np.array([1, 1, -9, 2], I32)
    yield case("two", lambda x, i, j, u: getattr(x.at[i, j], kind)(u), x, i, j, u, near=near)
    yield case("scalar", lambda x, i, u: getattr(x.at[i], kind)(u), u, I(-1), F32(2), near=near)
    yield case("one", lambda x, i, u: jax.vmap(lambda x, i, u: getattr(x.at[i], kind)(u))(x, i, u), x, i, u, near=near)
    yield case("empty", write, x, np.zeros(0, I32), data("f", 0, 3), near=near)
    yield case("fixed", lambda x, u: getattr(x.at[1:3], kind)(u), x, data("f", 2, 3, seed=2), near=near)
    if kind == "set":
        yield case("mask", lambda x, m: jnp.where(m, x.at[0].set(1), x), x, data("b", 4, 3))
        wide = data("f", 4, 5, 6), data("f", 4, 2, 1, seed=1), np.array([0, 9, 2, -1], I32)
        yield case("windows", jax.vmap(lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1))), *wide)
        yield case("promised", lambda x, i, u: write(x, i, u, "promise_in_bounds"), u, np.array([0, 3], I32), u[:2])


def rows() -> dict[str, list[Case]]:
    found = {name: list(_shaped(name)) for name in SHAPED}
    found |= {
        "dynamic_slice": list(_dynamic_slice()),
        "dynamic_update_slice": list(_dynamic_update_slice()),
        "gather": list(_gather()),
        "iota": list(_iota()),
        "scatter": list(_scatter("set")),
        "scatter-add": list(_scatter("add")),
        "scatter-max": list(_scatter("max")),
        "scatter-min": list(_scatter("min")),
        "scatter-mul": list(_scatter("mul")),
        "scatter-sub": list(_scatter("subtract")),
    }
    return found
