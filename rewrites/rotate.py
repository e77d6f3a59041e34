"""Rotation of a 32-bit integer by multiplication and arithmetic shifts.

Before: `(x << k) | (x >> (32 - k))`, the right shift logical.

After: `(x - s) * 2**k + (x >>> (32 - k))` on the int32 bit pattern, with `s = x >>> 31` and `>>>` arithmetic.

Why: LiteRT has no left shift, no or, and no logical right shift of int32. The arithmetic shift fills with the
sign, which adds `s * 2**k` to the logical one; the left part loses the same, so one subtraction repairs both.

Exactness: bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site


def _rotation(by: int, dtype: np.dtype) -> Callable[[Array], Array]:
    factor = np.uint32(1 << by).view(np.int32)

    def rotate(x: Array) -> Array:
        bits = lax.bitcast_convert_type(x, np.int32)
        sign = lax.shift_right_arithmetic(bits, lax.full_like(bits, 31))
        high = lax.mul(lax.sub(bits, sign), lax.full_like(bits, factor))
        low = lax.shift_right_arithmetic(bits, lax.full_like(bits, 32 - by))
        return lax.bitcast_convert_type(lax.add(high, low), dtype)

    return rotate


def apply(site: Site) -> Replacement | None:
    if site.result.dtype not in (np.dtype(np.int32), np.dtype(np.uint32)):
        return None
    for first, second in (site.operands, site.operands[::-1]):
        left, right = site.producer(first, "shift_left"), site.producer(second, "shift_right_logical")
        if not left or not right or left.operands[0] is not right.operands[0]:
            continue
        by, back = site.splat(left.operands[1]), site.splat(right.operands[1])
        if by is not None and back is not None and 0 < by < 32 and int(by) + int(back) == 32:
            return site.replace(
                _rotation(int(by), site.result.dtype),
                left.operands[:1],
                key=("rotate", int(by)),
                covers=(left, right),
            )
    return None


def _rotate(x: Array, by: int) -> Array:
    one = x.dtype.type
    return lax.bitwise_or(x << one(by), lax.shift_right_logical(x, lax.full_like(x, one(32 - by))))


_WORDS = np.array([0, 1, 0x80000000, 0xFFFFFFFF, 0x12345678], np.uint32)

RULE = Rule(
    id="OC104",
    stage="pattern",
    primitives=frozenset({"or", "xor", "add"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("uint32", lambda x: _rotate(x, 13), (_WORDS,)),
        Example("int32", lambda x: _rotate(x, 31), (_WORDS.view(np.int32),)),
    ),
    declines=(
        Example(
            "shifts that do not add up",
            lambda x: (x << np.uint32(5)) | (x >> np.uint32(26)),
            (_WORDS,),
        ),
        Example(
            "two operands",
            lambda x, y: (x << np.uint32(5)) | (y >> np.uint32(27)),
            (_WORDS, _WORDS[::-1].copy()),
        ),
    ),
)
