"""Running products, maxima and minima by JAX's own tree.

Before: `cumprod`, `cummax`, `cummin`.

After: neighbours combined, the same done to the results, which are every second one of what is wanted, and each of
them combined with the element that follows: in the order in which JAX does it.

Why: runtimes have running sums only. JAX's expansion interleaves by padding with zeros and adding, which loses -0.0.

Exactness: bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site

_COMBINE: dict[str, Callable[[Array, Array], Array]] = {"cumprod": lax.mul, "cummax": lax.max, "cummin": lax.min}


def _every_second(rows: Array, start: int, limit: int) -> Array:
    return lax.slice_in_dim(rows, start, max(limit, start), 2)


def _running(rows: Array, combine: Callable[[Array, Array], Array]) -> Array:
    """Along the first axis."""
    count = rows.shape[0]
    if count < 2:
        return rows
    odd = _running(combine(_every_second(rows, 0, count - 1), _every_second(rows, 1, count)), combine)
    first = lax.slice_in_dim(rows, 0, 1)
    if count == 2:
        return lax.concatenate([first, odd], 0)
    rest = combine(lax.slice_in_dim(odd, 0, (count - 1) // 2), _every_second(rows, 2, count))
    even = lax.concatenate([first, rest], 0)
    pairs = count // 2
    columns = [lax.expand_dims(lax.slice_in_dim(x, 0, pairs), (1,)) for x in (even, odd)]
    mixed = lax.reshape(lax.concatenate(columns, 1), (2 * pairs, *rows.shape[1:]))
    return lax.concatenate([mixed, lax.slice_in_dim(even, pairs, pairs + 1)], 0) if count % 2 else mixed


def _along(name: str, axis: int, backwards: bool) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        order = (axis, *(a for a in range(x.ndim) if a != axis))
        rows = lax.transpose(x, order)
        rows = lax.rev(rows, (0,)) if backwards else rows
        found = _running(rows, _COMBINE[name])
        found = lax.rev(found, (0,)) if backwards else found
        return lax.transpose(found, tuple(order.index(a) for a in range(x.ndim)))

    return run


def apply(site: Site) -> Replacement:
    return site.replace(_along(site.name, int(site.params["axis"]), bool(site.params["reverse"])))


_X = np.array([[0.0, -0.0, 3, -1, 0.3], [-0.0, 1.7, 2, 5, 0.1], [-np.inf, 7, np.inf, -0.0, 1.1]], np.float32)


def _example(function: Any, axis: int, backwards: bool) -> Callable[[Array], Array]:
    return lambda x: function(x, axis=axis, reverse=backwards)


RULE = Rule(
    id="OC352",
    stage="legalize",
    primitives=frozenset(_COMBINE),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("max", _example(lax.cummax, 1, False), (_X,)),
        Example("min backwards", _example(lax.cummin, 0, True), (_X,)),
        Example("product", _example(lax.cumprod, 1, False), (_X[:2],)),
        Example("product backwards", _example(lax.cumprod, 1, True), (_X[:2, :4],)),
        Example("uint32", _example(lax.cummax, 0, False), (_X[[0, 2]].view(np.uint32),)),
        Example("nothing", _example(lax.cummax, 0, False), (_X[:0],)),
    ),
)
