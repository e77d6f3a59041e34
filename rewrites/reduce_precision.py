"""Reduced precision by rounding the bits.

Before: `reduce_precision` of float32 to any number of exponent and mantissa bits.

After: the bits as int32, half a unit of the last kept place added (one less if that place is even), the rest cut off;
then infinity where the exponent is too large for the format, and a signed zero where it is too small.

Why: LiteRT has no such operation, and casts to float16 and bfloat16 differ from it on denormals.

Exactness: bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def _rounded(x: Array, dropped: int) -> Array:
    """`x` without its last `dropped` mantissa bits, rounded half to even."""

    def full(value: int) -> Array:
        return lax.full(x.shape, value, np.int32)

    bits = lax.bitcast_convert_type(x, np.int32)
    kept = lax.shift_right_arithmetic(bits, full(dropped))
    odd = lax.sub(kept, lax.mul(lax.shift_right_arithmetic(kept, full(1)), full(2)))
    up = lax.add(lax.add(bits, odd), full((1 << (dropped - 1)) - 1))
    whole = lax.mul(lax.shift_right_arithmetic(up, full(dropped)), full(1 << dropped))
    return lax.bitcast_convert_type(whole, np.float32)


def _reduced(exponent_bits: int, mantissa_bits: int) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        y = _rounded(x, 23 - mantissa_bits) if mantissa_bits < 23 else x
        if exponent_bits < 8:
            bias = 2 ** (exponent_bits - 1) - 1
            size = lax.abs(y)
            zero = lax.mul(y, lax.full_like(y, 0))
            infinity = lax.select(lax.lt(y, lax.full_like(y, 0)), lax.full_like(y, -np.inf), lax.full_like(y, np.inf))
            y = lax.select(lax.lt(size, lax.full_like(y, 2.0 ** (1 - bias))), zero, y)
            y = lax.select(lax.ge(size, lax.full_like(y, 2.0 ** (bias + 1))), infinity, y)
        return lax.select(lax.ne(x, x), x, y)

    return run


def apply(site: Site) -> Replacement | Declined | None:
    if site.aval(0).dtype != np.float32:
        return Declined(f"only for float32, not {site.aval(0).dtype}")
    bits = site.params["exponent_bits"], site.params["mantissa_bits"]
    return site.replace(_reduced(min(int(bits[0]), 8), min(int(bits[1]), 23)))


_X = np.array(
    [
        0,
        -0.0,
        1,
        -1.0009765625,
        1.00048828125,
        65504,
        65519.996,
        65520,
        -1e38,
        6.1e-5,
        6e-8,
        -3e-8,
        np.inf,
        -np.inf,
        np.nan,
    ],
    np.float32,
)


def _example(exponent_bits: int, mantissa_bits: int) -> Callable[[Array], Array]:
    return lambda x: lax.reduce_precision(x, exponent_bits, mantissa_bits)


RULE = Rule(
    id="OC550",
    stage="legalize",
    primitives=frozenset({"reduce_precision"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("float16", _example(5, 10), (_X,)),
        Example("bfloat16", _example(8, 7), (_X,)),
        Example("float8", _example(4, 3), (_X,)),
        Example("exponent only", _example(5, 23), (_X,)),
        Example("no mantissa", _example(8, 0), (_X,)),
    ),
)
