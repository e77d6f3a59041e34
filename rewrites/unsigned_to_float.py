"""Unsigned integers to float32 by halves.

Before: `convert_element_type[float32]` of uint32.

After: the high and the low 16 bits as int32, each converted exactly, put together as `high * 65536 + low`.

Why: LiteRT keeps uint32 as int32 bit patterns and has no conversion for the upper half of the range.

Exactness: bit for bit: the product is exact, so the sum rounds once.
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def _convert(x: Array) -> Array:
    high = lax.shift_right_logical(x, lax.full_like(x, np.uint32(16)))
    low = lax.sub(x, lax.mul(high, lax.full_like(x, np.uint32(65536))))
    parts = [lax.convert_element_type(lax.bitcast_convert_type(p, np.int32), np.float32) for p in (high, low)]
    return lax.add(lax.mul(parts[0], lax.full_like(parts[0], 65536.0)), parts[1])


def apply(site: Site) -> Replacement | Declined | None:
    if site.aval(0).dtype != np.uint32:
        return None
    if site.result.dtype != np.float32:
        return Declined(f"only to float32, not {site.result.dtype}")
    return site.replace(_convert)


_X = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0x80000080, 0x800000C0, 0xFFFFFF7F, 0xFFFFFFFF], np.uint32)

RULE = Rule(
    id="OC207",
    stage="legalize",
    primitives=frozenset({"convert_element_type"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(Example("float32", lambda x: lax.convert_element_type(x, np.float32), (_X,)),),
    declines=(Example("int32", lambda x: lax.convert_element_type(x, np.float32), (_X.view(np.int32),)),),
)
