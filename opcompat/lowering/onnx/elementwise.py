"""Elementwise primitives. Operands broadcast as in numpy; results have the equation's shape and dtype.

Where ONNX Runtime and JAX were measured to differ, the form here is JAX's: signed zeros of sign, logistic's
lower tail, rounding of ties, integer division by 0 and -1, shifts by the width and beyond. Three differences
stay: denormals (XLA flushes them in places); max/min of -0 and +0, which may give either zero; and ONNX
Runtime's Where, which turns a chosen -0 into +0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opcompat.inline import IDENTITIES
from opcompat.lowering.builder import Lowering, Unsupported
from opcompat.lowering.graph import Tensor
from opcompat.lowering.onnx.builder import BITS_OPSET, OnnxBuilder, uniform
from opcompat.lowering.onnx.dtypes import FLOATS, HALF, SIGNED, UNSIGNED, bits, signed, unsigned


def unary(op: str) -> Lowering:
    """A primitive that is one ONNX op of the same dtype."""

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
        return b.elementwise(op, x)

    return lower


def binary(op: str, on_bool: str = "") -> Lowering:
    """A primitive that is one broadcasting op; `on_bool` is the op that means the same for bools."""

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
        return b.elementwise(on_bool if on_bool and x.dtype == "bool" else op, x, y)

    return lower


def ordering(op: str) -> Lowering:
    """An ordering comparison."""

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
        return _ordered(b, op, x, y)

    return lower


def _ordered(b: OnnxBuilder, op: str, x: Tensor, y: Tensor) -> Tensor:
    """ONNX orders no bools: False < True holds for their integers too."""
    if x.dtype == "bool":
        x, y = b.cast(x, "int32"), b.cast(y, "int32")
    return b.elementwise(op, x, y, dtype="bool")


def identity(b: OnnxBuilder, eqn: Any, *operands: Tensor) -> tuple[Tensor, ...]:
    return operands


# -- arithmetic


def add(b: OnnxBuilder, eqn: Any, *xs: Tensor) -> Tensor:
    """Sum of all operands, left to right (add and add_any)."""
    total = xs[0]
    for x in xs[1:]:
        total = b.elementwise("Or" if x.dtype == "bool" else "Add", total, x)
    return total


def neg(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    return _negated(b, x) if x.dtype in UNSIGNED else b.elementwise("Neg", x)


def _negated(b: OnnxBuilder, x: Tensor) -> Tensor:
    """-x modulo 2**bits: as a subtraction it also serves unsigned values and INT_MIN."""
    return b.elementwise("Sub", b.scalar(0, x.dtype), x)


def sign(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """JAX keeps the sign of a zero and NaN, and ONNX's Sign does not.

    Every number times the largest one, twice, is beyond 1, so clamping the product to [-1, 1] is exact.
    """
    if x.dtype not in FLOATS:
        return b.elementwise("Sign", x)
    if x.dtype in HALF:
        raise Unsupported(f"sign of {x.dtype}: ONNX Runtime has no arithmetic of it")
    largest = b.scalar(np.finfo(x.dtype).max, x.dtype)
    return b.clip(b.elementwise("Mul", b.elementwise("Mul", x, largest), largest), -1, 1)


def square(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.elementwise("Mul", x, x)


def integer_pow(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Repeated squaring, then the reciprocal: XLA's own order, so the roundings agree."""
    exponent = int(eqn.params["y"])
    if exponent == 0:
        return b.full(x.shape, 1, x.dtype)
    power, rest, result = x, abs(exponent), None
    while True:
        if rest & 1:
            result = power if result is None else b.elementwise("Mul", result, power)
        rest >>= 1
        if not rest:
            break
        power = b.elementwise("Mul", power, power)
    assert result is not None
    return b.elementwise("Reciprocal", result) if exponent < 0 else result


def pow_(b: OnnxBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    """Float base. JAX converts an integer exponent to the base's dtype."""
    if x.dtype not in FLOATS:
        raise Unsupported("pow of integers")
    return b.elementwise("Pow", x, b.cast(y, x.dtype))


def rsqrt(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.elementwise("Reciprocal", b.elementwise("Sqrt", x))


def exp2(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """XLA computes exp(x * ln 2) too; Pow(2, x) is more accurate and differs from it by up to 66 ulp."""
    return b.elementwise("Exp", b.elementwise("Mul", x, b.scalar(np.log(2.0), x.dtype)))


def logistic(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)). ONNX Runtime's Sigmoid is 0 below -16.3, where JAX has 8e-8."""
    e = b.elementwise("Exp", b.elementwise("Neg", x))
    return b.elementwise("Reciprocal", b.elementwise("Add", e, b.scalar(1, x.dtype)))


def div(b: OnnxBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    """Integers: truncates; x / 0 is -1 (all bits set); INT_MIN / -1 is INT_MIN.

    ONNX Runtime kills the process on the last two, so divisors that are not known are made safe.
    """
    if x.dtype in FLOATS or _harmless(y):
        return b.elementwise("Div", x, y)
    zero, safe = _safe_divisor(b, y)
    q = b.elementwise("Div", x, safe)
    if x.dtype in SIGNED:
        minus_one = b.elementwise("Equal", y, b.scalar(-1, y.dtype), dtype="bool")
        q = b.where(minus_one, _negated(b, x), q)
    all_bits = -1 if x.dtype in SIGNED else np.iinfo(x.dtype).max
    return b.where(zero, b.scalar(all_bits, x.dtype), q)


def rem(b: OnnxBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    """The sign of the dividend. Integers: x rem 0 is x, INT_MIN rem -1 is 0."""
    if x.dtype in FLOATS or _harmless(y):
        return _truncated_rem(b, x, y)
    zero, safe = _safe_divisor(b, y)
    return b.where(zero, x, _truncated_rem(b, x, safe))


def _truncated_rem(b: OnnxBuilder, x: Tensor, y: Tensor) -> Tensor:
    if x.dtype in FLOATS or bits(x.dtype) <= 32:
        return b.elementwise("Mod", x, y, fmod=1)
    # ONNX Runtime computes fmod in float64, which does not hold all 64-bit values.
    return b.elementwise("Sub", x, b.elementwise("Mul", b.elementwise("Div", x, y), y))


def _harmless(divisor: Tensor) -> bool:
    """Whether a divisor is a constant without 0 and without -1."""
    return divisor.data is not None and not np.isin(divisor.data, (0, -1)).any()


def _safe_divisor(b: OnnxBuilder, y: Tensor) -> tuple[Tensor, Tensor]:
    """(where y is 0, y with 1 in place of 0 and -1)."""
    zero = b.elementwise("Equal", y, b.scalar(0, y.dtype), dtype="bool")
    bad = zero
    if y.dtype in SIGNED:
        bad = b.elementwise("Or", zero, b.elementwise("Equal", y, b.scalar(-1, y.dtype), dtype="bool"))
    return zero, b.where(bad, b.scalar(1, y.dtype), y)


def round_(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """To the nearest integer, ties to even or away from zero. Keeps -0, infinities and NaN."""
    r = b.elementwise("Round", x)
    if int(eqn.params["rounding_method"]) == 1:  # TO_NEAREST_EVEN
        return r
    # x - r is exact, so a tie is seen as exactly one half; x +- 0.5 is then exact too.
    half = b.scalar(0.5, x.dtype)
    tie = b.elementwise("Equal", b.elementwise("Abs", b.elementwise("Sub", x, r)), half, dtype="bool")
    away = b.elementwise("Add", x, b.elementwise("Mul", b.elementwise("Sign", x), half))
    return b.where(tie, away, r)


def clamp(b: OnnxBuilder, eqn: Any, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    """min(max(x, low), high), NaN propagating from each operand."""
    bounds = uniform(low), uniform(high)
    if all(v is not None and v == v for v in bounds):
        return b.clip(x, *bounds)
    return b.elementwise("Min", b.elementwise("Max", x, low), high)


# -- comparison and choice


def ne(b: OnnxBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    if x.dtype == "bool":
        return b.elementwise("Xor", x, y)
    return b.elementwise("Not", b.elementwise("Equal", x, y, dtype="bool"))


def eq(b: OnnxBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    return b.elementwise("Equal", x, y, dtype="bool")


def total_order(op: str) -> Lowering:
    """lt_to, le_to. For floats they tell -0 from +0 and order NaN, which takes the bits of floats."""

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype in FLOATS:
            raise Unsupported(f"total order of {x.dtype}")
        return _ordered(b, op, x, y)

    return lower


def is_finite(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """|x| < inf, which NaN does not fulfil."""
    return b.elementwise("Less", b.elementwise("Abs", x), b.scalar(np.inf, x.dtype), dtype="bool")


def select_n(b: OnnxBuilder, eqn: Any, which: Tensor, *cases: Tensor) -> Tensor:
    """case[which]; JAX clamps an integer `which`."""
    if len(cases) == 1:
        return cases[0]
    if which.dtype == "bool":
        return b.where(which, cases[1], cases[0])
    result = cases[-1]
    for k in range(len(cases) - 1, 0, -1):
        below = b.elementwise("Less", which, b.scalar(k, which.dtype), dtype="bool")
        result = b.where(below, cases[k - 1], result)
    return result


# -- bits


def logical(op: str) -> Lowering:
    """and, or, xor of bools or of the bits of integers."""
    return binary("Bitwise" + op, on_bool=op)


def not_(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.elementwise("Not" if x.dtype == "bool" else "BitwiseNot", x)


def shift(direction: str) -> Lowering:
    """Logical shift. Amounts are unsigned; the width and beyond shift everything out, and leave 0."""

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor, amount: Tensor) -> Tensor:
        word, width = unsigned(x.dtype), bits(x.dtype)
        amount = b.cast(amount, word)
        if amount.data is not None and (amount.data >= width).all():
            return b.full(eqn.outvars[0].aval.shape, 0, x.dtype)
        shifted = b.elementwise("BitShift", b.cast(x, word), amount, direction=direction)
        if amount.data is None or (amount.data >= width).any():
            inside = b.elementwise("Less", amount, b.scalar(width, word), dtype="bool")
            shifted = b.where(inside, shifted, b.scalar(0, word))
        return b.cast(shifted, x.dtype)

    return lower


def shift_right_arithmetic(b: OnnxBuilder, eqn: Any, x: Tensor, amount: Tensor) -> Tensor:
    """Shifts copies of the sign in, of unsigned words too.

    With s = -1 where x is negative and 0 elsewhere, x ^ s has a clear sign bit, so that a logical shift does;
    `^ s` afterwards restores it. Amounts beyond width - 1 act like that one.
    """
    number, word, last = signed(x.dtype), unsigned(x.dtype), bits(x.dtype) - 1
    amount = b.cast(amount, word)
    if amount.data is not None:
        value = uniform(amount)
        capped = np.minimum(amount.data if value is None else value, np.asarray(last, word))
        amount = b.expand(b.const(capped), amount.shape)
    else:
        amount = b.elementwise("Min", amount, b.scalar(last, word))
    x_signed = b.cast(x, number)
    negative = b.elementwise("Less", x_signed, b.scalar(0, number), dtype="bool")
    s = b.elementwise("Neg", b.cast(negative, number))
    magnitude = b.cast(b.elementwise("BitwiseXor", x_signed, s), word)
    shifted = b.cast(b.elementwise("BitShift", magnitude, amount, direction="RIGHT"), number)
    return b.cast(b.elementwise("BitwiseXor", shifted, s), x.dtype)


# -- dtypes


def convert_element_type(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Float to integer truncates and saturates, NaN gives 0; integers wrap; to bool is != 0."""
    to = np.dtype(eqn.params["new_dtype"]).name
    if x.dtype in FLOATS and to in SIGNED | UNSIGNED:
        return _float_to_int(b, x, to)
    return b.cast(x, to)


def _float_to_int(b: OnnxBuilder, x: Tensor, to: str) -> Tensor:
    """A cast that is only ever given values in range: what it does to others depends on the machine."""
    if bits(x.dtype) < 32:
        x = b.cast(x, "float32")
    limits, kind = np.iinfo(to), np.dtype(x.dtype).type
    top = kind(limits.max)
    exact = int(top) <= limits.max
    highest = top if exact else np.nextafter(top, kind(0))
    finite = b.where(b.elementwise("IsNaN", x, dtype="bool"), b.scalar(0, x.dtype), x)
    result = b.cast(b.clip(finite, kind(limits.min), highest), to)
    if exact:
        return result
    above = b.elementwise("GreaterOrEqual", finite, b.scalar(top, x.dtype), dtype="bool")
    return b.where(above, b.scalar(limits.max, to), result)


def bitcast_convert_type(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Reinterprets bits. Between integers of one width a Cast does; floats need opset 26's BitCast."""
    to = np.dtype(eqn.params["new_dtype"]).name
    if to == x.dtype:
        return x
    if bits(to) != bits(x.dtype) or "bool" in (to, x.dtype):
        raise Unsupported(f"bitcast from {x.dtype} to {to}: the width changes")
    if to not in FLOATS and x.dtype not in FLOATS:
        return b.cast(x, to)
    if b.opset < BITS_OPSET:
        raise Unsupported(f"bitcast from {x.dtype} to {to}: BitCast is new in opset {BITS_OPSET}")
    return b.op1("BitCast", [x], x.shape, to, to=to)


def reduce_precision(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Rounds to fewer bits, through a cast there and back where a dtype of that format exists.

    Not float16: JAX's reduce_precision(5, 10) flushes what that dtype keeps as denormals.
    """
    wanted = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    if wanted == _FORMATS.get(x.dtype):
        return x
    if wanted == _FORMATS["bfloat16"] and x.dtype == "float32":
        return b.cast(b.cast(x, "bfloat16"), x.dtype)
    raise Unsupported(f"reduce_precision to {wanted[0]} exponent and {wanted[1]} mantissa bits of {x.dtype}")


_FORMATS = {"float64": (11, 52), "float32": (8, 23), "bfloat16": (8, 7), "float16": (5, 10)}

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(IDENTITIES, identity),
    "abs": unary("Abs"),
    "acos": unary("Acos"),
    "acosh": unary("Acosh"),
    "add": add,
    "add_any": add,
    "and": logical("And"),
    "asin": unary("Asin"),
    "asinh": unary("Asinh"),
    "atan": unary("Atan"),
    "atanh": unary("Atanh"),
    "bitcast_convert_type": bitcast_convert_type,
    "ceil": unary("Ceil"),
    "clamp": clamp,
    "convert_element_type": convert_element_type,
    "cos": unary("Cos"),
    "div": div,
    "eq": eq,
    "erf": unary("Erf"),
    "exp": unary("Exp"),
    "exp2": exp2,
    "floor": unary("Floor"),
    "ge": ordering("GreaterOrEqual"),
    "gt": ordering("Greater"),
    "integer_pow": integer_pow,
    "is_finite": is_finite,
    "le": ordering("LessOrEqual"),
    "le_to": total_order("LessOrEqual"),
    "log": unary("Log"),
    "logistic": logistic,
    "lt": ordering("Less"),
    "lt_to": total_order("Less"),
    "max": binary("Max", on_bool="Or"),
    "min": binary("Min", on_bool="And"),
    "mul": binary("Mul"),
    "ne": ne,
    "neg": neg,
    "not": not_,
    "or": logical("Or"),
    "pow": pow_,
    "reduce_precision": reduce_precision,
    "rem": rem,
    "round": round_,
    "rsqrt": rsqrt,
    "select_n": select_n,
    "shift_left": shift("LEFT"),
    "shift_right_arithmetic": shift_right_arithmetic,
    "shift_right_logical": shift("RIGHT"),
    "sign": sign,
    "sin": unary("Sin"),
    "sqrt": unary("Sqrt"),
    "square": square,
    "sub": binary("Sub"),
    "tan": unary("Tan"),
    "tanh": unary("Tanh"),
    "xor": logical("Xor"),
}
