"""Unsigned division by signed division of halves.

Before: `div` or `rem` on uint32.

After: on the int32 bit patterns, with q = 2 * ((x >> 1) / y), the shift logical, and r = x - q * y: q + 1 and
r - y where r is not below y as unsigned numbers, else q and r. A divisor with its top bit set goes at most once
into anything, so there q = 0. A power of two that is known is a shift, and the low bits.

Why: LiteRT divides signed integers only.

Exactness: bit for bit, division by zero included: x / 0 has all bits set, and x rem 0 is x.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

_SIGN = np.int32(-(2**31))


def _below(a: Array, b: Array) -> Array:
    """a < b of int32 bit patterns as unsigned numbers."""
    sign = lax.full_like(a, _SIGN)
    return lax.lt(lax.bitwise_xor(a, sign), lax.bitwise_xor(b, sign))


def _divided(x: Array, y: Array) -> tuple[Array, Array]:
    """(quotient, remainder) of int32 bit patterns of unsigned numbers.

    For y = 0, lax.div gives -1, so q is -2, r is x, which is not below 0: the results are -1 and x.
    """
    words = lax.bitcast_convert_type(x, np.uint32)
    half = lax.bitcast_convert_type(lax.shift_right_logical(words, lax.full_like(words, np.uint32(1))), np.int32)
    zero, one = lax.full_like(x, 0), lax.full_like(x, 1)
    quotient = lax.mul(lax.div(half, y), lax.full_like(x, 2))
    quotient = lax.select(lax.lt(y, zero), zero, quotient)
    rest = lax.sub(x, lax.mul(quotient, y))
    fits = lax.bitwise_not(_below(rest, y))
    return lax.add(quotient, lax.select(fits, one, zero)), lax.sub(rest, lax.select(fits, y, zero))


def _general(which: int, shape: tuple[int, ...]) -> Callable[[Array, Array], Array]:
    def run(x: Array, y: Array) -> Array:
        # An equation may divide an array by a scalar, or along a dimension of size one.
        spread = [lax.broadcast_in_dim(v, shape, range(len(shape) - v.ndim, len(shape))) for v in (x, y)]
        parts = _divided(*(lax.bitcast_convert_type(v, np.int32) for v in spread))
        return lax.bitcast_convert_type(parts[which], np.uint32)

    return run


def _by_power(name: str, exponent: int) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        quotient = lax.shift_right_logical(x, lax.full_like(x, np.uint32(exponent)))
        if name == "div":
            return quotient
        return lax.sub(x, lax.mul(quotient, lax.full_like(x, np.uint32(1 << exponent))))

    return run


def apply(site: Site) -> Replacement | Declined | None:
    dtype = site.result.dtype
    if dtype != np.uint32:
        return Declined(f"only for uint32, not {dtype}") if np.issubdtype(dtype, np.unsignedinteger) else None
    by = site.splat(site.operands[1])
    if by is not None and by != 0 and int(by) & (int(by) - 1) == 0 and site.aval(0).shape == site.result.shape:
        exponent = int(by).bit_length() - 1
        return site.replace(_by_power(site.name, exponent), site.operands[:1], key=exponent)
    return site.replace(_general(("div", "rem").index(site.name), site.result.shape))


_VALUES = np.array([0, 1, 2, 3, 7, 10, 65537, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1], np.uint32)
_X, _Y = np.repeat(_VALUES, _VALUES.size), np.tile(_VALUES, _VALUES.size)

RULE = Rule(
    id="OC215",
    stage="legalize",
    primitives=frozenset({"div", "rem"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("div", lax.div, (_X, _Y)),
        Example("rem", lax.rem, (_X, _Y)),
        Example("by a power of two", lambda x: lax.div(x, np.uint32(2**31)), (_VALUES,)),
        Example("low bits", lambda x: lax.rem(x, np.uint32(64)), (_VALUES,)),
        Example("by one", lambda x: lax.rem(x, np.uint32(1)), (_VALUES,)),
    ),
    declines=(
        Example("int32", lax.div, (_X.view(np.int32), _Y.view(np.int32))),
        Example("uint16", lax.div, (_X.astype(np.uint16), _Y.astype(np.uint16))),
    ),
)
