"""Arithmetic, comparisons, selection and conversions, element by element.

Exactness: integers and bools are exact, wrap-around and division by zero included. Float sums, products
and quotients are correctly rounded (the default delegate flushes denormals to zero); functions stay within
a few ulp of the exact value, and NaN travels as in JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opcompat.lowering.builder import Lowering
from opcompat.lowering.graph import Tensor
from opcompat.lowering.tflite.builder import INT32_MIN, TfliteBuilder
from opcompat.lowering.tflite.common import (
    FLOATS,
    by_dtype,
    dtype,
    need_float32,
    out_dtype,
    out_shape,
    refuse,
    refuse_narrow,
    refuse_uint32,
)

# --- one op each ---------------------------------------------------------------------------------------


def unary(op: str) -> Lowering:
    def lower(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
        return b.unary(op, x)

    return lower


def precise(op: str) -> Lowering:
    """A float function through the runtime's own kernel; see TfliteBuilder.precise."""

    def lower(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
        _plain_accuracy(eqn)
        return b.precise(op, x)

    return lower


def delegated(op: str) -> Lowering:
    """A float function that the default delegate computes well (measured: 5 ulp at most)."""

    def lower(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
        _plain_accuracy(eqn)
        return b.unary(op, x)

    return lower


def logistic(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    """The delegate's kernel gives NaN for 1e30 (measured), so x stays where the result is 0 or 1 anyway. NaN stays."""
    _plain_accuracy(eqn)
    low, high = (b.const(np.float32(v)) for v in (-1e3, 1e3))
    return b.unary("LOGISTIC", extreme(b, "MINIMUM", extreme(b, "MAXIMUM", x, low), high))


def _plain_accuracy(eqn: Any) -> None:
    need_float32(eqn)
    if eqn.params.get("accuracy") is not None:
        refuse(f"{eqn.primitive.name} with an explicit accuracy")


def binary(op: str) -> Lowering:
    def lower(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
        return b.binary(op, x, y)

    return lower


def compare(op: str) -> Lowering:
    def lower(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
        return b.compare(op, x, y)

    return lower


def identity(b: TfliteBuilder, eqn: Any, *operands: Tensor) -> tuple[Tensor, ...]:
    return operands


def arithmetic(op: str) -> Lowering:
    """ADD, SUB, MUL: exact on int32 bits whatever the sign."""
    return by_dtype(floating=binary(op), integer=wrapping(binary(op)), uint32=binary(op))


def wrapping(lowering: Lowering) -> Lowering:
    """The lowering, refused on integers too narrow for the kernels to wrap around."""

    def lower(b: TfliteBuilder, eqn: Any, *operands: Tensor) -> Tensor | Sequence[Tensor]:
        refuse_narrow(eqn)
        return lowering(b, eqn, *operands)

    return lower


# --- order ---------------------------------------------------------------------------------------------


def ordered(op: str) -> Lowering:
    """LESS and its kin. uint32 compares as int32 once the top bits are flipped; False < True on bools."""

    def flipped(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
        top = b.int32(INT32_MIN)
        return b.compare(op, b.binary("BITWISE_XOR", x, top), b.binary("BITWISE_XOR", y, top))

    def as_ints(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
        return b.compare(op, b.cast(x, "int32"), b.cast(y, "int32"))

    return by_dtype(boolean=as_ints, floating=compare(op), integer=compare(op), uint32=flipped)


def extremum(op: str) -> Lowering:
    """max and min. On floats NaN wins, wherever it stands."""

    def floats(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
        return extreme(b, op, x, y)

    boolean = binary("LOGICAL_OR" if op == "MAXIMUM" else "LOGICAL_AND")
    return by_dtype(boolean=boolean, floating=floats, integer=binary(op))


def extreme(b: TfliteBuilder, op: str, x: Tensor, y: Tensor) -> Tensor:
    """max or min of floats with JAX's NaN and zeros (-0.0 below 0.0), which MAXIMUM and MINIMUM lose.

    The kernels return their second operand when a comparison fails, and the default delegate swaps operands
    to broadcast. With one number as the first operand, and not NaN, both give the other's NaN (measured), and
    the other's zero: only a maximum with 0.0 has to be made positive. The delegate takes a constant -0.0 for 0.0.
    """
    for number, other in ((x, y), (y, x)):
        if _is_number(number) and other.rank >= number.rank and not _is_zero(number, negative=True):
            held = b.binary(op, number, other)
            return b.add(held, number) if op == "MAXIMUM" and _is_zero(number, negative=False) else held
    better = "GREATER" if op == "MAXIMUM" else "LESS"
    keep = b.binary("LOGICAL_OR", b.compare(better, x, y), b.is_nan(x))
    # Equal floats have equal bits, except for zeros, whose bits are in their order.
    equal = b.bitcast(b.binary(op, b.bitcast(x, "int32"), b.bitcast(y, "int32")), x.dtype)
    return b.select(b.compare("EQUAL", x, y), equal, b.select(keep, x, y))


def _is_number(x: Tensor) -> bool:
    return x.data is not None and x.size == 1 and not np.isnan(x.data).any()


def _is_zero(x: Tensor, negative: bool) -> bool:
    return x.data is not None and bool((x.data == 0).all() and (np.signbit(x.data) == negative).all())


def clamp(b: TfliteBuilder, eqn: Any, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    """min(max(x, low), high): high wins where the bounds cross, NaN stays.

    Where constant bounds cross, a zero may have the other sign: the delegate makes one op of the two.
    """
    refuse_uint32(eqn, 1)
    if x.dtype == "bool":
        return b.binary("LOGICAL_AND", b.binary("LOGICAL_OR", x, low), high)
    if x.dtype not in FLOATS:
        return b.binary("MINIMUM", b.binary("MAXIMUM", x, low), high)
    return extreme(b, "MINIMUM", extreme(b, "MAXIMUM", x, low), high)


# --- floats --------------------------------------------------------------------------------------------


def _negative_float(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    # The delegate's NEG loses the sign of -0.0; a product keeps it.
    return b.mul(x, b.scalar(-1, x.dtype))


def _same(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    return x


def _multiplied(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.mul(x, x)


def _sign_uint32(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.cast(b.compare("NOT_EQUAL", x, b.int32(0)), "int32")


def _sign_float(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    # SIGN makes -0.0 positive.
    return b.select(b.compare("EQUAL", x, b.scalar(0, x.dtype)), x, b.unary("SIGN", x))


neg = by_dtype(floating=_negative_float, integer=wrapping(unary("NEG")), uint32=unary("NEG"))
absolute = by_dtype(floating=unary("ABS"), integer=wrapping(unary("ABS")), uint32=_same)
sign = by_dtype(floating=_sign_float, integer=unary("SIGN"), uint32=_sign_uint32)
square = by_dtype(floating=unary("SQUARE"), integer=wrapping(_multiplied), uint32=_multiplied)


def integer_pow(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    """x**y by repeated squaring, in the order in which JAX multiplies."""
    need_float32(eqn)
    refuse_narrow(eqn)
    exponent = int(eqn.params["y"])
    if exponent == 0:
        return b.broadcast_to(b.scalar(1, x.dtype), x.shape)
    if exponent < 0 and x.dtype not in FLOATS:
        refuse("integer_pow of an integer to a negative power")
    product: Tensor | None = None
    rest = abs(exponent)
    while rest:
        if rest & 1:
            product = x if product is None else b.mul(product, x)
        rest >>= 1
        if rest:
            x = b.mul(x, x)
    assert product is not None
    return b.binary("DIV", b.scalar(1, x.dtype), product) if exponent < 0 else product


def power(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    """float ** float. An integer exponent is converted first, as JAX does."""
    if x.dtype not in FLOATS:
        refuse("pow of integers")
    need_float32(eqn)
    if y.dtype not in FLOATS:
        refuse_uint32(eqn, 1)
        y = b.cast(y, x.dtype)
    return _libm_power(b, x, y)


def _libm_power(b: TfliteBuilder, x: Tensor, y: Tensor) -> Tensor:
    """POW without broadcasting: for one whole exponent the kernel multiplies, and clips at 3.4e38."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    return b.op1("POW", [b.broadcast_to(x, shape), b.broadcast_to(y, shape)], shape, x.dtype)


def atan2(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    need_float32(eqn)  # the kernel takes others too, but does not broadcast
    shape = out_shape(eqn)
    return b.op1("ATAN2", [b.broadcast_to(x, shape), b.broadcast_to(y, shape)], shape, x.dtype)


def exp2(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    """exp(x * log(2)), as XLA has it: 2**100 comes out 2e-6 too large."""
    _plain_accuracy(eqn)
    return b.precise("EXP", b.mul(x, b.scalar(float(np.log(2)), x.dtype)))


def round_(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Half to even is the kernel's way. Half away from zero: the fraction of a float is exact, and so is its test."""
    if int(eqn.params["rounding_method"]) == 1:  # RoundingMethod.TO_NEAREST_EVEN
        return b.unary("ROUND", x)
    need_float32(eqn)
    whole = b.unary("FLOOR", b.unary("ABS", x))
    up = b.compare("GREATER_EQUAL", b.sub(b.unary("ABS", x), whole), b.scalar(0.5, x.dtype))
    return _with_sign_of(b, b.add(whole, b.cast(up, x.dtype)), x)


def _with_sign_of(b: TfliteBuilder, magnitude: Tensor, x: Tensor) -> Tensor:
    """A float32 that is not negative, with the sign of `x`, zeros included."""
    negative = b.binary("RIGHT_SHIFT", b.bitcast(x, "int32"), b.int32(31))
    top = b.mul(negative, b.int32(INT32_MIN))
    return b.bitcast(b.binary("BITWISE_XOR", b.bitcast(magnitude, "int32"), top), x.dtype)


def tan(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    _plain_accuracy(eqn)
    return b.binary("DIV", b.precise("SIN", x), b.precise("COS", x))


def is_finite(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.compare("LESS", b.unary("ABS", x), b.scalar(np.inf, x.dtype))


def _float_remainder(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    """C's fmod: FLOOR_MOD of the magnitudes, with x's sign. A zero or infinite part gives NaN as in C."""
    need_float32(eqn)
    rest = b.binary("FLOOR_MOD", b.unary("ABS", x), b.unary("ABS", y))
    return _with_sign_of(b, rest, b.broadcast_to(x, rest.shape))


# --- integer division ----------------------------------------------------------------------------------


def _quotient(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    """int32 x / y towards zero, with JAX's x / 0 = -1 and INT_MIN / -1 = INT_MIN.

    The kernel stops the program at 0 and saturates at -1, so neither divisor reaches it.
    """
    if x.dtype != "int32":
        refuse(f"division of {x.dtype}")
    if y.data is not None and not np.isin(y.data, (0, -1)).any():
        return b.binary("DIV", x, y)
    zero, one, minus = b.int32(0), b.int32(1), b.int32(-1)
    by_zero, by_minus = b.compare("EQUAL", y, zero), b.compare("EQUAL", y, minus)
    divisor = b.select(b.binary("LOGICAL_OR", by_zero, by_minus), one, y)
    quotient = b.select(by_minus, b.sub(zero, x), b.binary("DIV", x, divisor))
    return b.select(by_zero, minus, quotient)


def _int_remainder(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    """x - (x / y) * y; for y = 0 that is x, as in JAX."""
    return b.sub(x, b.mul(_quotient(b, eqn, x, y), y))


div = by_dtype(floating=binary("DIV"), integer=_quotient)
rem = by_dtype(floating=_float_remainder, integer=_int_remainder)

# --- bits ----------------------------------------------------------------------------------------------


def _no_kernel(b: TfliteBuilder, eqn: Any, *operands: Tensor) -> Tensor:
    refuse(f"LiteRT has no kernel for {eqn.primitive.name} on integers")


def _xor_all(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.binary("BITWISE_XOR", x, b.scalar(-1, x.dtype))


def _unequal(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    return b.compare("NOT_EQUAL", x, y)


_xor = binary("BITWISE_XOR")
and_ = by_dtype(boolean=binary("LOGICAL_AND"), integer=_no_kernel, uint32=_no_kernel)
or_ = by_dtype(boolean=binary("LOGICAL_OR"), integer=_no_kernel, uint32=_no_kernel)
xor = by_dtype(boolean=_unequal, integer=_xor, uint32=_xor)
not_ = by_dtype(boolean=unary("LOGICAL_NOT"), integer=_xor_all, uint32=_xor_all)


def shift_right_arithmetic(b: TfliteBuilder, eqn: Any, x: Tensor, shift: Tensor) -> Tensor:
    """A shift by 32 or more, or by a negative number, leaves only the sign, as in JAX."""
    if x.dtype != "int32":
        refuse(f"shift_right_arithmetic on {x.dtype}")
    return b.binary("RIGHT_SHIFT", x, _held(b, shift, 31))


def shift_right_logical(b: TfliteBuilder, eqn: Any, x: Tensor, shift: Tensor) -> Tensor:
    """By RIGHT_SHIFT on uint32. A shift by 32 or more, or by a negative number, gives 0."""
    if x.dtype != "int32":
        refuse(f"shift_right_logical on {x.dtype}")
    held = b.bitcast(_held(b, shift, 31), "uint32")
    shifted = b.bitcast(b.binary("RIGHT_SHIFT", b.bitcast(x, "uint32"), held), "int32")
    if shift.data is not None and _in_range(shift.data).all():
        return shifted
    return b.select(_outside(b, shift), b.int32(0), shifted)


def _in_range(shift: np.ndarray) -> np.ndarray:
    return (shift >= 0) & (shift < 32)


def _outside(b: TfliteBuilder, shift: Tensor) -> Tensor:
    if shift.data is not None:
        return b.const(~_in_range(shift.data))
    below, above = b.compare("LESS", shift, b.int32(0)), b.compare("GREATER", shift, b.int32(31))
    return b.binary("LOGICAL_OR", below, above)


def _held(b: TfliteBuilder, shift: Tensor, instead: int) -> Tensor:
    """The shift where it is within 0..31, else `instead`."""
    if shift.data is not None:
        return b.const(np.where(_in_range(shift.data), shift.data, instead).astype(np.int32))
    return b.select(_outside(b, shift), b.int32(instead), shift)


# --- choice --------------------------------------------------------------------------------------------


def select_n(b: TfliteBuilder, eqn: Any, which: Tensor, *cases: Tensor) -> Tensor:
    """cases[which], elementwise; an integer outside the range takes the nearest case."""
    if len(cases) == 1:
        return cases[0]
    if which.dtype == "bool":
        return b.select(which, cases[1], cases[0])
    result = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        result = b.select(b.compare("LESS", which, b.int32(number + 1)), cases[number], result)
    return result


# --- conversions ---------------------------------------------------------------------------------------


def convert_element_type(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Between any two dtypes whose values CAST, or a short form around it, converts as JAX does."""
    old, new = dtype(eqn), out_dtype(eqn)
    if old == new or {old, new} == {"int32", "uint32"}:
        return x
    if "complex" in old or "complex" in new:
        refuse(f"{old} to {new}: hardly any kernel takes complex numbers")
    if old in FLOATS and new not in FLOATS and new != "bool":
        return _truncate(b, x, new)
    if old == "uint32" and (new in FLOATS or new in ("int64", "uint64")):
        refuse(f"uint32 to {new}: TFLite's CAST would take large values for negative ones")
    return b.cast(x, "int32" if new == "uint32" else new)


_LIMITS = {"int8": (-128, 127), "int16": (-(2**15), 2**15 - 1), "uint8": (0, 255), "uint16": (0, 2**16 - 1)}


def _truncate(b: TfliteBuilder, x: Tensor, new: str) -> Tensor:
    """Floats towards zero, held at the limits, NaN to 0. CAST holds int32 only, and makes NaN its maximum."""
    if x.dtype == "float64" or new not in (*_LIMITS, "int32", "uint32"):
        refuse(f"{x.dtype} to {new}: TFLite's CAST differs from JAX outside the range of {new}")
    x = b.cast(x, "float32")
    whole = _truncate_unsigned(b, x) if new == "uint32" else b.cast(x, "int32")
    if new in _LIMITS:
        whole = b.clip_int(whole, *_LIMITS[new])
    return b.cast(b.select(b.is_nan(x), b.int32(0), whole), "int32" if new == "uint32" else new)


def _truncate_unsigned(b: TfliteBuilder, x: Tensor) -> Tensor:
    """float32 -> the bits of a uint32: what is 2**31 or more is cast without its top bit."""
    half = b.scalar(2.0**31, "float32")
    low = b.clip_int(b.cast(x, "int32"), 0, 2**31 - 1)
    high = b.binary("BITWISE_XOR", b.cast(b.sub(x, half), "int32"), b.int32(INT32_MIN))
    return b.select(b.compare("GREATER_EQUAL", x, half), high, low)


def bitcast_convert_type(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    old, new = dtype(eqn), out_dtype(eqn)
    if eqn.invars[0].aval.dtype.itemsize != eqn.outvars[0].aval.dtype.itemsize:
        refuse(f"bitcast_convert_type from {old} to {new}: TFLite's BITCAST keeps the width")
    return b.bitcast(x, "int32" if new == "uint32" else new)
