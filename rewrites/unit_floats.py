"""Random bits to floats in [0, 1) without reinterpreting bits.

Before: `bitcast_convert_type[float32](bits >> 9 | 0x3f800000) - 1.0`, the mantissa filled with random bits; the
same for the other floats, with their widths.

After: `convert(bits >> 9) * 2**-23`.

Why: ONNX has no bit-casts between integers and floats before opset 26, LiteRT no or. Both forms give k * 2**-23
for the same k, exactly: the difference of two numbers in [1, 2), and a 23-bit integer times a power of two.

Exactness: bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site

_finfo: Any = ml_dtypes.finfo  # untyped


def _unit(dtype: Any, by: int) -> Callable[[Array], Array]:
    info: Any = _finfo(dtype)
    word, signed = (np.uint64, np.int64) if info.bits == 64 else (np.uint32, np.int32)
    exact = np.float64 if info.bits == 64 else np.float32

    def run(bits: Array) -> Array:
        wide = lax.convert_element_type(bits, word)
        mantissa = lax.shift_right_logical(wide, lax.full_like(wide, by))
        value = lax.convert_element_type(lax.convert_element_type(mantissa, signed), exact)
        return lax.convert_element_type(lax.mul(value, lax.full_like(value, 2.0**-info.nmant)), dtype)

    return run


def apply(site: Site) -> Replacement | None:
    dtype = site.result.dtype
    cast = site.producer(site.operands[0], "bitcast_convert_type")
    either = cast and site.producer(cast.operands[0], "or")
    if not cast or not either or site.splat(site.operands[1]) != 1:
        return None
    info: Any = _finfo(dtype)
    unsigned = np.dtype(f"uint{info.bits}")
    one = np.ones((), dtype).view(unsigned)[()]
    for shifted, exponent in (either.operands, either.operands[::-1]):
        shift = site.producer(shifted, "shift_right_logical")
        if not shift or shift.result.dtype != unsigned or shift.aval(0).shape != site.result.shape:
            continue
        by = _random_width(shift) - info.nmant
        if site.splat(exponent) == one and site.splat(shift.operands[1]) == by:
            covers = (cast, either, shift)
            return site.replace(_unit(dtype, by), shift.operands[:1], key=(str(dtype), by), covers=covers)
    return None


def _random_width(shift: Site) -> int:
    """How many bits the shifted value has: JAX fills bfloat16 from 8 of them, widened to 16 before."""
    own = shift.aval(0).dtype
    widened = shift.producer(shift.operands[0], "convert_element_type")
    source = widened.aval(0).dtype if widened else own
    return 8 * min(int(source.itemsize if source.kind == "u" else own.itemsize), int(own.itemsize))


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
        Example(
            "float16",
            lambda words: jax.random.uniform(jax.random.wrap_key_data(words), (64,), np.float16),
            (np.array([3, 4], np.uint32),),
        ),
        Example(
            "bfloat16",
            lambda words: jax.random.uniform(jax.random.wrap_key_data(words), (64,), jax.numpy.bfloat16),
            (np.array([3, 4], np.uint32),),
        ),
    ),
    declines=(
        Example("integers", lambda bits: bits - np.uint32(1), (_BITS,)),
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
