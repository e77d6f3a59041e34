"""The gradient of a pooling by shifted copies.

Before: `select_and_scatter_add`: each window picks one of its elements and adds a value to its place.

After: the padded operand sliced once for each place in the window, and the picked place found in order; then, for
each place, the values whose windows picked it, padded back to where it lies, and all of them added.

Why: no runtime has it.

Exactness: bit for bit, sums included, which are taken in JAX's order and rounded after each addition. More than 512
slices are declined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.extend.core import primitives

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

from .windows import LIMIT, Windows, least_or_greatest, taken


def _scattered(site: Site) -> Callable[[Array, Array], Array]:
    p = site.params
    select, ones = p["select_prim"], (1,) * len(p["window_dimensions"])
    windows = Windows(p["window_dimensions"], p["window_strides"], ones)

    def run(source: Array, operand: Array) -> Array:
        add = lax.bitwise_or if operand.dtype == np.bool_ else lax.add
        zero = np.zeros((), operand.dtype)[()]
        edge = least_or_greatest(operand.dtype, least=select is primitives.ge_p)
        padded = lax.pad(operand, jnp.asarray(edge), [(low, high, 0) for low, high in p["padding"]])
        parts = list(windows.slices(padded.shape))
        best, place = taken(padded, parts[0]), lax.full(source.shape, 0, np.int32)
        for number, part in enumerate(parts[1:], 1):
            new = taken(padded, part)
            stays = select.bind(best, new)
            best = lax.select(stays, best, new)
            place = lax.select(stays, place, lax.full(source.shape, number, np.int32))
        result = lax.full(padded.shape, 0, operand.dtype)
        # What reaches an element comes from the earlier window by the later place.
        for number, part in reversed(list(enumerate(parts))):
            picked = lax.eq(place, lax.full(source.shape, number, np.int32))
            own = lax.select(picked, source, lax.full(source.shape, 0, source.dtype))
            edges = [(s.start, n - s.stop, s.step - 1) for s, n in zip(part, padded.shape, strict=True)]
            result = add(result, lax.pad(own, zero, edges))
        lows = [low for low, _ in p["padding"]]
        return lax.slice(result, lows, [low + n for low, n in zip(lows, operand.shape, strict=True)])

    return run


def apply(site: Site) -> Replacement | Declined | None:
    if np.prod(site.params["window_dimensions"]) > LIMIT:
        return Declined(f"more than {LIMIT} slices")
    if 0 in (*site.aval(0).shape, *site.result.shape):
        return site.replace(lambda _, operand: lax.full(operand.shape, 0, operand.dtype))
    return site.replace(_scattered(site))


_SHAPE = (2, 5, 6)
_F = np.resize(np.array([1, 2, 2, -1, 0.0, -0.0, 3, np.inf, -np.inf, 1, np.nan], np.float32), _SHAPE)
_N = np.resize(np.arange(7, dtype=np.int32) % 5, _SHAPE)


def _example(select: Any, window: Any, strides: Any, padding: Any) -> Callable[..., Any]:
    """The window's values are as many as the windows: made from the operand, so that their number is right."""

    def run(x: Array) -> Any:
        counts = [
            (n + low + high - w) // s + 1
            for n, w, s, (low, high) in zip(x.shape, window, strides, padding, strict=True)
        ]
        numbers = lax.iota(np.int32, int(np.prod(counts)))
        source = lax.convert_element_type(lax.reshape(numbers, counts), np.float32)
        values = lax.convert_element_type(lax.mul(source, lax.full(source.shape, 0.37, np.float32)), x.dtype)
        return primitives.select_and_scatter_add_p.bind(
            values, x, select_prim=select, window_dimensions=window, window_strides=strides, padding=padding
        )

    return run


_NONE, _ONE = ((0, 0), (0, 0), (0, 0)), ((1, 1), (0, 2), (1, 0))

RULE = Rule(
    id="OC361",
    stage="pattern",  # before halves are widened: JAX rounds after each addition
    primitives=frozenset({"select_and_scatter_add"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("largest", _example(primitives.ge_p, (1, 2, 3), (1, 1, 1), _NONE), (_F,)),
        Example("smallest", _example(primitives.le_p, (2, 2, 2), (1, 1, 1), _NONE), (_F,)),
        Example("strides", _example(primitives.ge_p, (2, 2, 2), (1, 2, 3), _NONE), (_F,)),
        Example("padding", _example(primitives.ge_p, (2, 3, 2), (1, 2, 1), _ONE), (_F,)),
        Example("int32", _example(primitives.ge_p, (2, 3, 2), (1, 2, 1), _ONE), (_N,)),
        Example("uint32", _example(primitives.le_p, (2, 3, 2), (1, 1, 1), _ONE), (_N.astype(np.uint32),)),
        Example("bool", _example(primitives.ge_p, (2, 2, 2), (1, 1, 1), _NONE), (_N > 2,)),
        Example("nothing", _example(primitives.ge_p, (1, 2, 2), (1, 1, 1), _NONE), (_F[:0],)),
    ),
    declines=(
        Example("large", _example(primitives.ge_p, (1, 600, 1), (1, 1, 1), ((0, 0), (300, 300), (0, 0))), (_F,)),
    ),
)
