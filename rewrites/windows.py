"""Reductions over windows by shifted copies.

Before: `reduce_window` with any function of two elements, and its forms for sums, maxima and minima, on dtypes and
with options that the target does not reduce.

After: the padded operand sliced once for each place in the window, and the slices combined; maxima, minima and sums
axis by axis.

Why: runtimes pool floats, without dilation of their input, and know sums, maxima and minima only.

Exactness: bit for bit on integers and for maxima and minima; float sums and products are taken in another order. More
than 512 slices are declined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.extend import core as jexc

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

LIMIT = 512

Combine = Callable[[Array, Array], Array]


def _combine(site: Site) -> Combine:
    if site.name == "reduce_window_sum":
        return lax.add
    if site.name != "reduce_window":
        larger = site.name == "reduce_window_max"
        if site.aval(0).dtype == np.bool_:
            return lax.bitwise_or if larger else lax.bitwise_and
        return lax.max if larger else lax.min
    body = site.params["jaxpr"]
    closed = body if hasattr(body, "consts") else jexc.ClosedJaxpr(body, site.params["consts"])
    single = jexc.jaxpr_as_fun(closed)

    def run(a: Array, b: Array) -> Array:
        flat = jax.vmap(lambda x, y: single(x, y)[0])(lax.reshape(a, (a.size,)), lax.reshape(b, (b.size,)))
        return lax.reshape(flat, a.shape)

    return run


def _neutral(name: str, dtype: np.dtype) -> Any:
    if name == "reduce_window_sum":
        return np.zeros((), dtype)
    low = name == "reduce_window_max"
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.asarray(-np.inf if low else np.inf).astype(dtype)
    if dtype == np.bool_:
        return np.asarray(not low)
    return np.asarray(np.iinfo(dtype).min if low else np.iinfo(dtype).max, dtype)


def _folded(
    x: Array, combine: Combine, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Each window of `x` combined, its elements in order; no padding."""
    spans = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    counts = [(n - s) // t + 1 for n, s, t in zip(x.shape, spans, strides, strict=True)]

    def copies() -> Iterator[Array]:
        for corner in product(*[range(n) for n in window]):
            low = [c * d for c, d in zip(corner, dilation, strict=True)]
            high = [a + (n - 1) * t + 1 for a, n, t in zip(low, counts, strides, strict=True)]
            yield lax.slice(x, low, high, strides)

    rest = copies()
    result = next(rest)
    for copy in rest:
        result = combine(result, copy)
    return result


def _windowed(site: Site) -> Callable[..., Any]:
    p, combine, general = site.params, _combine(site), site.name == "reduce_window"
    shape = site.result.shape

    def reduce(x: Array, *given: Array) -> Any:
        start = given[0] if general else jnp.asarray(_neutral(site.name, x.dtype))
        config = [(low, high, d - 1) for (low, high), d in zip(p["padding"], p["base_dilation"], strict=True)]
        if 0 in shape:
            return lax.full(shape, 0, x.dtype)
        x = lax.pad(x, start, config)
        window, strides, dilation = p["window_dimensions"], p["window_strides"], p["window_dilation"]
        if general:
            result = _folded(x, combine, window, strides, dilation)
            return combine(lax.broadcast(start, shape), result)
        for axis, size in enumerate(window):
            ones = [1] * x.ndim
            choice = [[n if a == axis else 1 for a, n in enumerate(v)] for v in (window, strides, dilation)]
            x = x if size == 1 and choice[1] == ones else _folded(x, combine, *choice)
        return x

    def run(*xs: Array) -> Any:
        result = reduce(*xs)
        return (result,) if general else result

    return run


def apply(site: Site) -> Replacement | Declined | None:
    if len(site.eqn.outvars) != 1:
        return Declined("several operands are reduced together")
    window = site.params["window_dimensions"]
    slices = int(np.prod(window)) if site.name == "reduce_window" else sum(window)
    if slices > LIMIT:
        return Declined(f"more than {LIMIT} slices")
    return site.replace(_windowed(site))


_X = np.random.default_rng(0).integers(0, 2**32, (2, 6, 7), dtype=np.uint32)
_F = np.linspace(0.5, 2, 84, dtype=np.float32).reshape(2, 6, 7)


def _example(function: Any, start: Any, **options: Any) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        arguments = {"window_dimensions": (1, 2, 3), "window_strides": (1, 2, 1), "padding": "SAME", **options}
        found: Array = lax.reduce_window(x, np.asarray(start).astype(x.dtype)[()], function, **arguments)
        return found

    return run


RULE = Rule(
    id="OC351",
    stage="legalize",
    primitives=frozenset({"reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum"}),
    apply=apply,
    exactness=Exactness("ulp", 4),
    page=__doc__,
    module=__name__,
    examples=(
        Example("max", _example(lax.max, np.uint32(0)), (_X,)),
        Example("min of bools", _example(lax.min, True), (_X > 2**31,)),
        Example("sum", _example(lax.add, np.uint32(0), window_dilation=(1, 2, 2)), (_X,)),
        Example("dilated", _example(lax.max, -np.inf, base_dilation=(1, 2, 3)), (_F,)),
        Example("product", _example(lax.mul, np.float32(1)), (_F,)),
        Example("any function", _example(lambda a, b: a * b + a + b, np.float32(0)), (_F,)),
        Example("nothing", _example(lax.max, -np.inf), (_F[:0],)),
    ),
    declines=(Example("large", _example(lax.max, -np.inf, window_dimensions=(1, 600, 1)), (_F,)),),
)
