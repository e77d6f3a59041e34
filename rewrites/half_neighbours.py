"""Neighbours of half-precision floats by their bits.

Before: `nextafter` on float16 or bfloat16.

After: the bits as int32, one more where the magnitude grows and one less where it shrinks; operands are compared as
float32. From zero the neighbour is the smallest denormal with the other operand's sign.

Why: JAX's own formula compares half-precision floats and works on 16-bit integers, and runtimes do neither.

Exactness: bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site


def _bits(x: Array) -> Array:
    return lax.convert_element_type(lax.bitcast_convert_type(x, np.int16), np.int32)


def _neighbour(dtype: np.dtype) -> Callable[[Array, Array], Array]:
    def run(x: Array, y: Array) -> Array:
        def full(value: int) -> Array:
            return lax.full(x.shape, value, np.int32)

        here, there = (lax.convert_element_type(v, np.float32) for v in (x, y))
        zero = lax.full_like(here, 0)
        grows = lax.eq(lax.lt(here, there), lax.gt(here, zero))
        moved = lax.add(_bits(x), lax.select(grows, full(1), full(-1)))
        least = lax.select(lax.lt(there, zero), full(-0x7FFF), full(1))
        moved = lax.select(lax.eq(here, zero), least, moved)
        moved = lax.select(lax.eq(here, there), _bits(y), moved)
        missing = lax.bitwise_or(lax.ne(here, here), lax.ne(there, there))
        nan = int(np.asarray(np.nan).astype(dtype).view(np.int16))
        moved = lax.select(missing, full(nan), moved)
        return lax.bitcast_convert_type(lax.convert_element_type(moved, np.int16), dtype)

    return run


def apply(site: Site) -> Replacement | None:
    dtype = site.result.dtype
    if dtype not in (np.float16, jnp.bfloat16):
        return None
    return site.replace(_neighbour(dtype))


_X = np.array([0, -0.0, 1, -2, 65504, np.inf, -np.inf, np.nan, 6e-8], np.float32)
_A, _B = np.repeat(_X, _X.size), np.tile(_X, _X.size)

RULE = Rule(
    id="OC251",
    stage="legalize",
    primitives=frozenset({"nextafter"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("float16", lax.nextafter, (_A.astype(np.float16), _B.astype(np.float16))),
        Example("bfloat16", lax.nextafter, (_A.astype(jnp.bfloat16), _B.astype(jnp.bfloat16))),
    ),
    declines=(Example("float32", lax.nextafter, (_A, _B)),),
)
