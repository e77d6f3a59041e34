"""Left shift as multiplication by a power of two.

Before: `x << k` on 32-bit integers.

After: `x * 2**k`, wrapping around; 0 where k is not in 0..31. A power that is not known beforehand is the
product of one factor per bit of k.

Why: LiteRT has no left shift.

Exactness: bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def _factor(by: int) -> np.int32:
    return np.uint32((1 << by) & 0xFFFFFFFF if 0 <= by < 32 else 0).view(np.int32)


def _by_constant(by: int, dtype: np.dtype) -> Callable[[Array], Array]:
    def shift(x: Array) -> Array:
        bits = lax.bitcast_convert_type(x, np.int32)
        return lax.bitcast_convert_type(lax.mul(bits, lax.full_like(bits, _factor(by))), dtype)

    return shift


def _by_value(x: Array, by: Array) -> Array:
    bits, count = lax.bitcast_convert_type(x, np.int32), lax.bitcast_convert_type(by, np.int32)
    power = lax.full_like(count, 1)
    for bit in range(5):
        here = lax.shift_right_arithmetic(count, lax.full_like(count, bit))
        above = lax.shift_right_arithmetic(count, lax.full_like(count, bit + 1))
        is_set = lax.ne(here, lax.mul(above, lax.full_like(count, 2)))
        factor = lax.select(is_set, lax.full_like(count, _factor(1 << bit)), lax.full_like(count, 1))
        power = lax.mul(power, factor)
    inside = lax.bitwise_and(lax.ge(count, lax.full_like(count, 0)), lax.lt(count, lax.full_like(count, 32)))
    power = lax.select(inside, power, lax.full_like(count, 0))
    return lax.bitcast_convert_type(lax.mul(bits, power), x.dtype)


def apply(site: Site) -> Replacement | Declined:
    dtype = site.result.dtype
    if dtype not in (np.dtype(np.int32), np.dtype(np.uint32)):
        return Declined(f"only for 32-bit integers, not {dtype}")
    by = site.splat(site.operands[1])
    if by is None:
        return site.replace(_by_value)
    return site.replace(_by_constant(int(by), dtype), site.operands[:1], key=int(by))


_X = np.array([0, 1, -1, 0x7FFFFFFF, -0x80000000, 12345], np.int32)

RULE = Rule(
    id="OC202",
    stage="legalize",
    primitives=frozenset({"shift_left"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("int32", lambda x: x << np.int32(5), (_X,)),
        Example("uint32", lambda x: x << np.uint32(31), (_X.view(np.uint32),)),
        Example("beyond the width", lambda x: x << np.int32(32), (_X,)),
        Example("by values", lax.shift_left, (_X, np.array([0, 31, 32, -1, 7, 1], np.int32))),
    ),
    declines=(Example("int16", lambda x: x << np.int16(5), (_X.astype(np.int16),)),),
)
