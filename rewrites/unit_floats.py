"""Random bits to floats in [0, 1) without reinterpreting bits.

Before: `bitcast_convert_type[float32](bits >> 9 | 0x3f800000) - 1.0`, the mantissa filled with random bits.

After: `convert(bits >> 9) * 2**-23`.

Why: ONNX has no bit-casts between integers and floats before opset 26, LiteRT no or. Both forms give k * 2**-23
for the same k, exactly: the difference of two numbers in [1, 2), and a 23-bit integer times a power of two.

Exactness: bit for bit.
"""

from __future__ import annotations

import jax
import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site


def _unit(bits: Array) -> Array:
    mantissa = lax.shift_right_logical(bits, lax.full_like(bits, np.uint32(9)))
    signed = lax.bitcast_convert_type(mantissa, np.int32)
    return lax.mul(lax.convert_element_type(signed, np.float32), lax.full_like(signed, 2.0**-23, np.float32))


def apply(site: Site) -> Replacement | None:
    if site.result.dtype != np.float32 or site.splat(site.operands[1]) != np.float32(1):
        return None
    cast = site.producer(site.operands[0], "bitcast_convert_type")
    either = cast and site.producer(cast.operands[0], "or")
    if not cast or not either:
        return None
    for shifted, exponent in (either.operands, either.operands[::-1]):
        shift = site.producer(shifted, "shift_right_logical")
        if (
            shift
            and shift.result.dtype == np.uint32
            and site.splat(exponent) == np.uint32(0x3F800000)
            and site.splat(shift.operands[1]) == np.uint32(9)
            and shift.aval(0).shape == site.result.shape
        ):
            return site.replace(_unit, shift.operands[:1], key="unit", covers=(cast, either, shift))
    return None


def _from_bits(bits: Array) -> Array:
    filled = lax.bitwise_or(bits >> np.uint32(9), np.uint32(0x3F800000))
    return lax.bitcast_convert_type(filled, np.float32) - np.float32(1)


_BITS = np.array([0, 1, 511, 512, 2**31, 2**32 - 1], np.uint32)

RULE = Rule(
    id="OC103",
    stage="pattern",
    primitives=frozenset({"sub"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("by hand", _from_bits, (_BITS,)),
        Example(
            "uniform",
            lambda words: jax.random.uniform(jax.random.wrap_key_data(words), (64,), np.float32),
            (np.array([3, 4], np.uint32),),
        ),
    ),
    declines=(
        Example(
            "other exponent",
            lambda bits: (
                lax.bitcast_convert_type(bits >> np.uint32(9) | np.uint32(0x40000000), np.float32) - np.float32(1)
            ),
            (_BITS,),
        ),
        Example(
            "other shift",
            lambda bits: (
                lax.bitcast_convert_type(bits >> np.uint32(8) | np.uint32(0x3F800000), np.float32) - np.float32(1)
            ),
            (_BITS,),
        ),
    ),
)
