"""Leading zeros by the exponent of a float.

Before: `clz` on 32-bit integers.

After: the exponent of a float32 that holds the upper 16 bits, or if they are zero the lower ones: it is the place
of the highest bit.

Why: neither ONNX nor TFLite counts leading zeros.

Exactness: bit for bit: 16 bits convert to float32 exactly.
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def _count(x: Array) -> Array:
    def full(value: int) -> Array:
        return lax.full(x.shape, value, np.int32)

    words = lax.bitcast_convert_type(x, np.uint32)
    high = lax.bitcast_convert_type(lax.shift_right_logical(words, lax.full_like(words, 16)), np.int32)
    low = lax.sub(lax.bitcast_convert_type(words, np.int32), lax.mul(high, full(65536)))
    upper = lax.gt(high, full(0))
    bits = lax.select(upper, high, low)
    exponent = lax.shift_right_arithmetic(
        lax.bitcast_convert_type(lax.convert_element_type(bits, np.float32), np.int32), full(23)
    )
    # 127 is the exponent of 1.0, the lowest bit: 31 zeros stand before it.
    zeros = lax.sub(lax.select(upper, full(127 + 15), full(127 + 31)), exponent)
    return lax.bitcast_convert_type(lax.select(lax.eq(bits, full(0)), full(32), zeros), x.dtype)


def apply(site: Site) -> Replacement | Declined:
    dtype = site.result.dtype
    if dtype not in (np.dtype(np.int32), np.dtype(np.uint32)):
        return Declined(f"only for 32-bit integers, not {dtype}")
    return site.replace(_count)


_X = np.array([0, 1, 2, 3, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00FFFFFF], np.uint32)

RULE = Rule(
    id="OC252",
    stage="legalize",
    primitives=frozenset({"clz"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(Example("uint32", lax.clz, (_X,)), Example("int32", lax.clz, (_X.view(np.int32),))),
    declines=(Example("uint16", lax.clz, (_X.astype(np.uint16),)),),
)
