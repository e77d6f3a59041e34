"""Running maxima and minima by doubling.

Before: `cummax`, `cummin`.

After: every element combined with the one 1, then 2, 4, 8, ... before it.

Why: runtimes have running sums only, and JAX's own expansion pads with zeros and adds, where runtimes lose -0.0.

Exactness: bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site


def _doubling(combine: Callable[[Array, Array], Array], axis: int, backwards: bool) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        length, step = x.shape[axis], 1
        while step < length and x.size:
            first, rest = lax.slice_in_dim(x, 0, step, axis=axis), lax.slice_in_dim(x, step, length, axis=axis)
            last, head = (
                lax.slice_in_dim(x, length - step, length, axis=axis),
                lax.slice_in_dim(x, 0, length - step, axis=axis),
            )
            combined = combine(rest, head)
            x = lax.concatenate([combined, last] if backwards else [first, combined], axis)
            step *= 2
        return x

    return run


def apply(site: Site) -> Replacement:
    combine = lax.max if site.name == "cummax" else lax.min
    return site.replace(_doubling(combine, int(site.params["axis"]), bool(site.params["reverse"])))


_X = np.array([[0.0, -0.0, 3, -1], [-0.0, np.nan, 2, 5], [-np.inf, 7, np.inf, -0.0]], np.float32)


def _example(function: Any, axis: int, backwards: bool) -> Callable[[Array], Array]:
    return lambda x: function(x, axis=axis, reverse=backwards)


RULE = Rule(
    id="OC352",
    stage="legalize",
    primitives=frozenset({"cummax", "cummin"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("max", _example(lax.cummax, 1, False), (np.nan_to_num(_X),)),
        Example("min backwards", _example(lax.cummin, 0, True), (np.nan_to_num(_X),)),
        Example("uint32", _example(lax.cummax, 0, False), (_X[[0, 2]].view(np.uint32),)),
        Example("nothing", _example(lax.cummax, 0, False), (_X[:0],)),
    ),
)
