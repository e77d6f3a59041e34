"""Ranges of values: what operations prove, against what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from opcompat.inline import inline
from opcompat.ranges import Range, of_dtype, ranges

INF = float("inf")
X = np.concatenate([np.linspace(-4, 4, 101), [-1e30, 1e30, 0.0, -0.0]]).astype(np.float32)
N = np.arange(-128, 128, dtype=np.int8)


def found(function: Callable[..., Any], x: np.ndarray) -> Range:
    (one,) = ranges(inline(jax.make_jaxpr(function)(x)))
    return one


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (lambda x: x, X, (-INF, INF)),
        (lambda x: 3 * jnp.tanh(x) - 1, X, (-4, 2)),
        (lambda x: jax.nn.sigmoid(x) / 2, X, (0, 0.5)),
        (lambda x: jnp.clip(x, -2, 5), X, (-2, 5)),
        (lambda x: jnp.where(x > 0, jnp.tanh(x), 7.0), X, (-1, 7)),
        (lambda x: jnp.abs(jnp.tanh(x)), X, (0, 1)),
        (lambda x: jnp.square(jnp.tanh(x) + 3), X, (4, 16)),
        (lambda x: jnp.exp(-jnp.abs(x)), X, (0, 1)),
        (lambda x: jnp.tanh(x) / jnp.clip(x, 2, 4), X, (-0.5, 0.5)),
        (lambda x: 1 / jnp.tanh(x), X, (-INF, INF)),
        (lambda x: jnp.sqrt(jnp.clip(x, 4, 9)), X, (2, 3)),
        (lambda x: jnp.argmax(x.reshape(5, 21), 1), X, (0, 20)),
        (lambda x: jnp.round(jnp.tanh(x) * 2.4), X, (-2, 2)),
        (lambda x: (jnp.tanh(x) * 2.6).astype(jnp.int32), X, (-2, 2)),
        (lambda x: jnp.concatenate([jnp.sin(x), jnp.full(2, 5.0)]), X, (-1, 5)),
        (lambda x: jnp.zeros(110).at[3:].set(9.0)[:105] * (x > 0), X, (0, 9)),
        (lambda x: lax.cond(x[0] > 0, jnp.tanh, lambda v: jnp.cos(v) + 2, x), X, (-1, 3)),
        (lambda x: lax.fori_loop(0, 3, lambda i, c: c + 1, jnp.tanh(x)), X, (-INF, INF)),
        (lambda n: n + np.int8(1), N, (-128, 127)),
        (lambda n: n.astype(jnp.int32) + 1, N, (-127, 128)),
        (lambda n: n.astype(jnp.uint8), N, (0, 255)),
        (lambda n: -(n.astype(jnp.float32) / 128), N, (-127 / 128, 1)),
        (lambda n: n > 0, N, (0, 1)),
    ],
)
def test_what_operations_prove(function: Any, x: np.ndarray, expected: tuple[float, float]) -> None:
    one = found(function, x)
    assert tuple(one) == pytest.approx(expected)
    values = np.asarray(jax.jit(function)(x), np.float64)
    assert one.low <= np.nanmin(values)
    assert np.nanmax(values) <= one.high


def test_ranges_of_dtypes() -> None:
    assert of_dtype(np.dtype(np.uint8)) == (0, 255)
    assert of_dtype(np.dtype(bool)) == (0, 1)
    assert of_dtype(jnp.dtype(jnp.bfloat16)) == (-INF, INF)
