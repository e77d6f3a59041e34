"""Shapes by hypothesis: broadcasting, data movement, reductions and products, ranks 0 to 8 and empty ones."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from jax import lax

from .harness import BACKENDS, SUMS, Case, case, expected, outcomes
from .values import data, small

FEW = settings(max_examples=8, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
both = pytest.mark.parametrize("backend", BACKENDS)
SIDES = st.integers(0, 3)
SHAPES = st.lists(SIDES, max_size=8).filter(lambda s: math.prod(s) <= 300).map(tuple)
SOME = st.lists(SIDES, min_size=1, max_size=8).filter(lambda s: math.prod(s) <= 300).map(tuple)


def agree(backend: str, *cases: Case) -> None:
    """Asserts that all cases are accepted and right. Signs of zeros are the business of the rows."""
    with TemporaryDirectory() as folder:
        found = outcomes(backend, cases, expected(cases), Path(folder), signs=False)
    bad = [f"{c.name}: {f.refused or f.problem}" for c, f in zip(cases, found, strict=True) if f.refused or f.problem]
    assert not bad, "\n".join(bad)


@both
@FEW
@given(drawn=mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3, max_dims=8))
def test_broadcasting(backend: str, drawn: Any) -> None:
    a, b = drawn.input_shapes
    agree(
        backend,
        case("float32", lambda x, y: (x + y, jnp.maximum(x, y), x < y), small("f", *a), small("f", *b, seed=1)),
        case("int32", lambda x, y: (x * y, jnp.minimum(x, y), x == y), data("i", *a), data("i", *b, seed=1)),
        case("uint32", lambda x, y: (x - y, x ^ y, x >= y), data("u", *a), data("u", *b, seed=1)),
        case("bool", lambda x, y: (x | y, jnp.where(x, y, ~y)), data("b", *a), data("b", *b, seed=1)),
    )


@both
@FEW
@given(shape=SHAPES, rng=st.randoms(use_true_random=False))
def test_movement(backend: str, shape: tuple[int, ...], rng: Any) -> None:
    order = rng.sample(range(len(shape)), len(shape))
    axes = tuple(i for i in range(len(shape)) if rng.random() < 0.5)
    flat = (math.prod(shape[:2]), *shape[2:])
    spread = (2, *shape)

    def move(x: Any) -> Any:
        return lax.transpose(x, order), lax.reshape(x, flat), lax.rev(x, axes), jnp.broadcast_to(x, spread)

    agree(backend, *(case(letter, move, data(letter, *shape)) for letter in "fub"))


@both
@FEW
@given(shape=SOME, sizes=st.lists(SIDES, min_size=1, max_size=3), rng=st.randoms(use_true_random=False))
def test_concatenate(backend: str, shape: tuple[int, ...], sizes: list[int], rng: Any) -> None:
    axis = rng.randrange(len(shape))
    shapes = [(*shape[:axis], n, *shape[axis + 1 :]) for n in sizes]
    arrays = [data("f", *s, seed=k) for k, s in enumerate(shapes)]
    agree(backend, case("float32", lambda *xs: lax.concatenate(xs, axis), *arrays))


@both
@FEW
@given(shape=SHAPES, rng=st.randoms(use_true_random=False))
def test_slice(backend: str, shape: tuple[int, ...], rng: Any) -> None:
    starts = [rng.randint(0, n) for n in shape]
    ends = [rng.randint(s, n) for s, n in zip(starts, shape, strict=True)]
    steps = [rng.randint(1, 3) for _ in shape]
    pads = [(rng.randint(-1, 2) if n > 1 else 0, rng.randint(0, 2), rng.randint(0, 1)) for n in shape]

    def cut(x: Any) -> Any:
        return lax.slice(x, starts, ends, steps), lax.pad(x, np.ones((), x.dtype), pads)

    agree(backend, *(case(letter, cut, data(letter, *shape)) for letter in "fi"))


@both
@FEW
@given(shape=SOME, rng=st.randoms(use_true_random=False))
def test_reduce(backend: str, shape: tuple[int, ...], rng: Any) -> None:
    axes = tuple(i for i in range(len(shape)) if rng.random() < 0.5)
    axis = rng.randrange(len(shape))

    def sums(x: Any) -> Any:
        return lax.reduce_sum(x, axes), lax.cumsum(x, axis)

    def extremes(x: Any) -> Any:
        return lax.reduce_max(x, axes), lax.reduce_min(x, axes)

    def logic(x: Any) -> Any:
        return lax.reduce_and(x, axes), lax.reduce_or(x, axes)

    def places(x: Any) -> Any:
        return lax.argmax(x, axis, np.int32), lax.argmin(x, axis, np.int32)

    found = [case("float32", sums, data("f", *shape), near=SUMS), case("bool", logic, data("b", *shape))]
    found += [case(f"extremes-{letter}", extremes, small(letter, *shape)) for letter in "fiu"]
    if shape[axis]:
        found.append(case("places", places, small("f", *shape)))
    agree(backend, *found)


@both
@FEW
@given(
    batch=st.lists(SIDES, max_size=2),
    left=st.lists(SIDES, max_size=2),
    right=st.lists(SIDES, max_size=2),
    over=st.lists(st.integers(1, 3), max_size=2),
    rng=st.randoms(use_true_random=False),
)
def test_dot_general(
    backend: str, batch: list[int], left: list[int], right: list[int], over: list[int], rng: Any
) -> None:
    x, xb, xc = _shuffled(batch, left, over, rng)
    y, yb, yc = _shuffled(batch, right, over, rng)
    numbers = ((xc, yc), (xb, yb))
    agree(
        backend,
        *(
            case(k, lambda x, y: lax.dot_general(x, y, numbers), data(k, *x), data(k, *y, seed=1), near=SUMS)
            for k in "fi"
        ),
    )


def _shuffled(batch: list[int], free: list[int], over: list[int], rng: Any) -> tuple[tuple[int, ...], ...]:
    """(shape, batch axes, contracted axes) with the axes in any order."""
    sizes = [*batch, *free, *over]
    order = rng.sample(range(len(sizes)), len(sizes))
    place = {old: new for new, old in enumerate(order)}
    batch_axes = tuple(place[i] for i in range(len(batch)))
    over_axes = tuple(place[len(batch) + len(free) + i] for i in range(len(over)))
    return tuple(sizes[i] for i in order), batch_axes, over_axes
