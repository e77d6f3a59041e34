"""Floats from their bits, by arithmetic.

Before: `bitcast_convert_type` from an integer to float32, float16 or bfloat16.

After: `(1 + fraction) * 2**exponent`, the power from a table. Denormals, infinities and signed zeros by cases of their
own.

Why: ONNX has no BitCast before opset 26. The other way, from floats to their bits, is declined: arithmetic cannot see
the sign and the payload of a NaN. Such models are written with opset 26.

Exactness: bit for bit, denormals included where the runtime keeps them. Every NaN becomes the positive quiet one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


class Format(NamedTuple):
    """The number of bits of a float's exponent and of its mantissa."""

    exponent: int
    mantissa: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def least(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias


FORMATS = {"float32": Format(8, 23), "bfloat16": Format(8, 7), "float16": Format(5, 10)}


def _full(like: Array, value: float, dtype: type = np.float32) -> Array:
    return lax.full(like.shape, np.asarray(value, dtype)[()], dtype)


def _looked_up(table: np.ndarray, index: Array) -> Array:
    """table[index], for indices that are in bounds."""
    numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    place = lax.reshape(index, (*index.shape, 1))
    return lax.gather(jnp.asarray(table), place, numbers, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def _from_bits(target: str) -> Callable[[Array], Array]:
    f = FORMATS[target]
    largest = 2**f.exponent - 1
    exponents = np.clip(np.arange(largest + 1) - f.bias, f.least, None)
    powers = np.ldexp(np.float32(1), exponents[:-1]).astype(np.float32)
    powers = np.append(powers, np.float32(np.inf))

    def run(bits: Array) -> Array:
        words = lax.convert_element_type(bits, np.int32)
        shifted = lax.shift_right_arithmetic(words, _full(bits, f.mantissa, np.int32))
        exponent = lax.bitwise_and(shifted, _full(bits, largest, np.int32))
        fraction = lax.bitwise_and(words, _full(bits, (1 << f.mantissa) - 1, np.int32))
        part = lax.mul(lax.convert_element_type(fraction, np.float32), _full(bits, 2.0**-f.mantissa))
        denormal = lax.eq(exponent, _full(bits, 0, np.int32))
        lead = lax.select(denormal, _full(bits, 0), _full(bits, 1))
        value = lax.mul(lax.add(part, lead), _looked_up(powers, exponent))
        special = lax.eq(exponent, _full(bits, largest, np.int32))
        nan = lax.bitwise_and(special, lax.gt(fraction, _full(bits, 0, np.int32)))
        value = lax.select(nan, _full(bits, np.nan), value)
        top = lax.shift_right_arithmetic(words, _full(bits, f.exponent + f.mantissa, np.int32))
        minus = lax.ne(lax.bitwise_and(top, _full(bits, 1, np.int32)), _full(bits, 0, np.int32))
        sign = lax.select(minus, _full(bits, -1), _full(bits, 1))
        return lax.convert_element_type(lax.mul(value, sign), jnp.dtype(target))

    return run


def apply(site: Site) -> Replacement | Declined | None:
    source, target = site.aval(0).dtype, site.result.dtype
    is_float = [jnp.issubdtype(d, jnp.floating) for d in (source, target)]
    if is_float[0] == is_float[1] or source.itemsize != target.itemsize:
        return None
    name = str(source if is_float[0] else target)
    if name not in FORMATS:
        return Declined(f"no arithmetic of {name} is that exact")
    if is_float[0]:
        return Declined("arithmetic cannot see the sign and the payload of a NaN")
    return site.replace(_from_bits(name))


_FLOATS = np.concatenate(
    [
        np.array(
            [0, -0.0, 1, -1, 1.5, np.inf, -np.inf, np.nan, 3.4028235e38, 1.1754944e-38, -1.1754944e-38], np.float32
        ),
        np.array([0.99999994, 1.9999999, 2, 3.9999998, 6e4, 1e-7, 1e30], np.float32),
        np.ldexp(np.float32(1), np.arange(-126, 128)).astype(np.float32),
        np.random.default_rng(0).normal(size=300).astype(np.float32),
    ]
)
_WORDS = np.concatenate(
    [_FLOATS.view(np.uint32), np.random.default_rng(1).integers(1 << 23, 0x7F800000, 300).astype(np.uint32)]
)
_HALVES = np.arange(2**16, dtype=np.uint16)
_NUMBERS = _HALVES[(_HALVES & 0x7C00 != 0x7C00) & (_HALVES & 0x7C00 != 0)]
"""Halves that are numbers. XLA takes denormals as zeros in places."""


def _cast(dtype: Any) -> Callable[[Array], Array]:
    return lambda x: lax.bitcast_convert_type(x, dtype)


RULE = Rule(
    id="OC230",
    stage="legalize",
    primitives=frozenset({"bitcast_convert_type"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("from uint32", _cast(np.float32), (_WORDS,)),
        Example("from int32", _cast(np.float32), (_WORDS.view(np.int32),)),
        Example("uint16 to float16", _cast(np.float16), (_NUMBERS,)),
        Example("uint16 to bfloat16", _cast(jnp.bfloat16), ((_WORDS >> 16).astype(np.uint16),)),
    ),
    declines=(
        Example("between integers", _cast(np.uint32), (_WORDS.view(np.int32),)),
        Example("to bits", _cast(np.uint32), (_FLOATS,)),
        Example("narrower", _cast(np.uint8), (_FLOATS,)),
    ),
)
