"""Ops on elements: arithmetic, comparisons, conversions, bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from opcompat.stablehlo import wide
from opcompat.stablehlo.ops.call import Call, Handler
from opcompat.stablehlo.program import Splat
from opcompat.stablehlo.values import (
    Value,
    array,
    constant_scalar,
    is_float,
    is_integer,
    scalar_or_array,
    type_of,
)
from opcompat.stablehlo.wide import Small, Words, x64_enabled


def _elementwise(fn: Callable[..., jax.Array], on_bool: Callable[..., jax.Array] | None = None) -> Handler:
    """`fn` on all operands; `on_bool` where StableHLO's arithmetic on i1 is logic and lax refuses it."""

    def handle(call: Call) -> Sequence[Value]:
        chosen = on_bool if on_bool is not None and call.dtype == np.bool_ else fn
        return (chosen(*_operands(call)),)

    return handle


def _operands(call: Call) -> tuple[Any, ...]:
    """Splats as scalars, which lax broadcasts, as long as one operand has the full shape."""
    if all(isinstance(a, Splat) for a in call.args):
        return call.arrays
    return tuple(scalar_or_array(a) for a in call.args)


def _on_small(function: Callable[[Value, Value], Small], otherwise: Handler) -> Handler:
    """`function` if an operand is a uint64 that JAX cannot hold."""

    def handle(call: Call) -> Sequence[Value]:
        if not any(isinstance(a, Small) for a in call.args):
            return otherwise(call)
        return (function(*call.args),)

    return handle


def _round(method: lax.RoundingMethod) -> Callable[[jax.Array], jax.Array]:
    return lambda x: lax.round(x, method)


def _abs(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    return (x if jax.numpy.issubdtype(x.dtype, np.unsignedinteger) else lax.abs(x),)


def _real(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    return (lax.real(x) if x.dtype.kind == "c" else x,)


def _imag(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    return (lax.imag(x) if x.dtype.kind == "c" else lax.full_like(x, 0),)


def _clamp(call: Call) -> Sequence[Value]:
    low, x, high = call.args
    return (lax.clamp(scalar_or_array(low), array(x), scalar_or_array(high)),)


def _select(call: Call) -> Sequence[Value]:
    return (lax.select(*call.arrays),)


def _convert(call: Call) -> Sequence[Value]:
    if isinstance(call.args[0], Small):
        return (lax.convert_element_type(call.args[0].low, call.dtype),)
    (x,) = call.arrays
    if x.dtype.kind == "c" and call.dtype.kind != "c":
        x = lax.real(x)
    return (lax.convert_element_type(x, call.dtype),)


def _compare(call: Call) -> Sequence[Value]:
    comparisons = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}
    operands = _operands(call)
    if call.attr("compare_type") == "TOTALORDER":
        operands = tuple(total_order_key(x) for x in call.arrays)
    return (comparisons[call.attr("comparison_direction")](*operands),)


def total_order_key(x: jax.Array) -> jax.Array:
    """Integers that compare like IEEE 754's totalOrder: -NaN < -inf < -0 < +0 < inf < NaN.

    Read as an integer, the bits of a float are in order if it is positive, in reverse if negative.
    """
    if not is_float(x.dtype):
        return x
    width = 8 * x.dtype.itemsize
    dtype = np.dtype(f"int{width}")
    bits = lax.bitcast_convert_type(x, dtype)
    sign = lax.shift_right_arithmetic(bits, lax.full_like(bits, width - 1))
    return lax.bitwise_xor(bits, lax.shift_right_logical(sign, lax.full_like(bits, 1)))


def _reduce_precision(call: Call) -> Sequence[Value]:
    return (lax.reduce_precision(call.arrays[0], call.attr("exponent_bits"), call.attr("mantissa_bits")),)


def _power(call: Call) -> Sequence[Value]:
    base, exponent = call.args
    if is_integer(call.dtype):
        known = constant_scalar(exponent)
        if known is None or int(known) < 0:
            raise call.refuse("an integer power needs a constant exponent of at least 0")
        return (lax.integer_pow(array(base), int(known)),)
    return (lax.pow(*_operands(call)),)


def _bitcast_convert(call: Call) -> Sequence[Value]:
    (x,) = call.args
    if isinstance(x, Words):
        if call.dtype != np.uint32:
            raise call.refuse("uint64 values need jax_enable_x64")
        return (x.words,)
    if call.dtype == np.uint64 and type_of(x).dtype == np.uint32 and not x64_enabled():
        return (Words(array(x)),)
    return (lax.bitcast_convert_type(array(x), call.dtype),)


def _popcnt(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    return (_count_ones(x) if "population_count" in call.avoid else lax.population_count(x),)


def _count_leading_zeros(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    if "clz" not in call.avoid:
        return (lax.clz(x),)
    width = 8 * x.dtype.itemsize
    shift = 1
    while shift < width:
        x = lax.bitwise_or(x, lax.shift_right_logical(x, lax.full_like(x, shift)))
        shift *= 2
    return (_count_ones(lax.bitwise_not(x)),)


def _count_ones(x: jax.Array) -> jax.Array:
    """The number of set bits, added up in ever wider fields (Hacker's Delight, 5-1). Keeps x's dtype."""
    width = 8 * x.dtype.itemsize
    bits = lax.bitcast_convert_type(x, np.dtype(f"uint{width}"))

    def repeat(byte: int) -> jax.Array:
        return lax.full_like(bits, int.from_bytes(bytes([byte]) * x.dtype.itemsize))

    def right(value: jax.Array, by: int) -> jax.Array:
        return lax.shift_right_logical(value, lax.full_like(value, by))

    bits = lax.sub(bits, lax.bitwise_and(right(bits, 1), repeat(0x55)))
    bits = lax.add(lax.bitwise_and(bits, repeat(0x33)), lax.bitwise_and(right(bits, 2), repeat(0x33)))
    bits = lax.bitwise_and(lax.add(bits, right(bits, 4)), repeat(0x0F))
    # The product's highest byte is the sum of all bytes.
    bits = right(lax.mul(bits, repeat(0x01)), width - 8)
    return lax.bitcast_convert_type(bits, x.dtype)


OPS: Mapping[str, Handler] = {
    "stablehlo.abs": _abs,
    "stablehlo.add": _on_small(wide.add, _elementwise(lax.add, on_bool=lax.bitwise_or)),
    "stablehlo.and": _elementwise(lax.bitwise_and),
    "stablehlo.atan2": _elementwise(lax.atan2),
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.cbrt": _elementwise(lax.cbrt),
    "stablehlo.ceil": _elementwise(lax.ceil),
    "stablehlo.clamp": _clamp,
    "stablehlo.compare": _compare,
    "stablehlo.complex": _elementwise(lax.complex),
    "stablehlo.convert": _convert,
    "stablehlo.cosine": _elementwise(lax.cos),
    "stablehlo.count_leading_zeros": _count_leading_zeros,
    "stablehlo.divide": _elementwise(lax.div),
    "stablehlo.exponential": _elementwise(lax.exp),
    "stablehlo.exponential_minus_one": _elementwise(lax.expm1),
    "stablehlo.floor": _elementwise(lax.floor),
    "stablehlo.imag": _imag,
    "stablehlo.is_finite": _elementwise(lax.is_finite),
    "stablehlo.log": _elementwise(lax.log),
    "stablehlo.log_plus_one": _elementwise(lax.log1p),
    "stablehlo.logistic": _elementwise(lax.logistic),
    "stablehlo.maximum": _elementwise(lax.max),
    "stablehlo.minimum": _elementwise(lax.min),
    "stablehlo.multiply": _on_small(wide.multiply, _elementwise(lax.mul, on_bool=lax.bitwise_and)),
    "stablehlo.negate": _elementwise(lax.neg),
    "stablehlo.not": _elementwise(lax.bitwise_not),
    "stablehlo.or": _elementwise(lax.bitwise_or),
    "stablehlo.popcnt": _popcnt,
    "stablehlo.power": _power,
    "stablehlo.real": _real,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.remainder": _elementwise(lax.rem),
    "stablehlo.round_nearest_afz": _elementwise(_round(lax.RoundingMethod.AWAY_FROM_ZERO)),
    "stablehlo.round_nearest_even": _elementwise(_round(lax.RoundingMethod.TO_NEAREST_EVEN)),
    "stablehlo.rsqrt": _elementwise(lax.rsqrt),
    "stablehlo.select": _select,
    "stablehlo.shift_left": _elementwise(lax.shift_left),
    "stablehlo.shift_right_arithmetic": _elementwise(lax.shift_right_arithmetic),
    "stablehlo.shift_right_logical": _on_small(wide.shift_right_logical, _elementwise(lax.shift_right_logical)),
    "stablehlo.sign": _elementwise(lax.sign),
    "stablehlo.sine": _elementwise(lax.sin),
    "stablehlo.sqrt": _elementwise(lax.sqrt),
    "stablehlo.subtract": _elementwise(lax.sub),
    "stablehlo.tan": _elementwise(lax.tan),
    "stablehlo.tanh": _elementwise(lax.tanh),
    "stablehlo.xor": _elementwise(lax.bitwise_xor),
}
