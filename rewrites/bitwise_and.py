"""Bitwise and by addition and exclusive or.

Before: `a & b` on 32-bit integers.

After: `a` where the other operand has all bits set, and `a mod 2**k` where it is the mask of the low k bits.
Otherwise `((a + b) - (a ^ b)) >> 1`, a logical shift, plus the sign bit where both are negative: `a + b` is
`(a ^ b) + 2 * (a & b)`, and doubling loses only the top bit of `a & b`.

Why: LiteRT has an exclusive or, but no and.

Exactness: bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

_MIN = np.int32(-(2**31))


def int32_and(a: Array, b: Array) -> Array:
    """a & b for int32 arrays of one shape, in terms of add, sub, xor, arithmetic shift and select."""
    doubled = lax.sub(lax.add(a, b), lax.bitwise_xor(a, b))
    half = lax.shift_right_arithmetic(doubled, lax.full_like(a, 1))
    # The arithmetic shift copies the bit below the sign upwards: take it out, then put in the true sign bit.
    without_sign = lax.select(lax.lt(doubled, lax.full_like(a, 0)), lax.sub(half, lax.full_like(a, _MIN)), half)
    zero = lax.full_like(a, 0)
    both = lax.bitwise_and(lax.lt(a, zero), lax.lt(b, zero))
    return lax.add(without_sign, lax.select(both, lax.full_like(a, _MIN), zero))


def on_int32(function: Callable[..., Array], dtype: np.dtype) -> Callable[..., Array]:
    """`function` of int32 arrays as one of `dtype` (int32 or uint32) with the same bits."""

    def run(*xs: Array) -> Array:
        return lax.bitcast_convert_type(function(*(lax.bitcast_convert_type(x, np.int32) for x in xs)), dtype)

    return run


def _low_bits(count: int) -> Callable[[Array], Array]:
    def mask(a: Array) -> Array:
        high = lax.shift_right_arithmetic(a, lax.full_like(a, count))
        return lax.sub(a, lax.mul(high, lax.full_like(a, 1 << count)))

    return mask


def apply(site: Site) -> Replacement | Declined | None:
    dtype = site.result.dtype
    if dtype == np.bool_:
        return None
    if dtype not in (np.dtype(np.int32), np.dtype(np.uint32)):
        return Declined(f"only for 32-bit integers, not {dtype}")
    for value, other in (site.operands, site.operands[::-1]):
        mask = site.splat(other)
        word = None if mask is None else int(mask) & 0xFFFFFFFF
        if value.aval.shape != site.result.shape or word is None:
            continue
        if word == 0xFFFFFFFF:
            return site.replace(lambda a: a, (value,), key="all")
        if word & (word + 1) == 0 and word < 2**30:
            count = word.bit_length()
            return site.replace(on_int32(_low_bits(count), dtype), (value,), key=count)
    return site.replace(on_int32(int32_and, dtype))


_A = np.array([0, 1, -1, 0x7FFFFFFF, -0x80000000, 0x5A5A5A5A, -0x40000000], np.int32)
_B = np.array([-1, 3, -1, 0x40000000, -0x80000000, 0x3C3C3C3C, -0x7FFFFFFF], np.int32)

RULE = Rule(
    id="OC203",
    stage="legalize",
    primitives=frozenset({"and"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("int32", lax.bitwise_and, (_A, _B)),
        Example("uint32", lax.bitwise_and, (_A.view(np.uint32), _B.view(np.uint32))),
        Example("all bits", lambda a: a & np.uint32(0xFFFFFFFF), (_A.view(np.uint32),)),
        Example("low bits", lambda a: a & np.int32(255), (_A,)),
    ),
    declines=(Example("bool", lax.bitwise_and, (_A > 0, _B > 0)),),
)
