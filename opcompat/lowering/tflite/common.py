"""What the lowering modules share: questions about an equation, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from opcompat.lowering.builder import Lowering, Unsupported
from opcompat.lowering.graph import Shape, Tensor
from opcompat.lowering.tflite.builder import TfliteBuilder

FLOATS = frozenset({"float32", "float16", "bfloat16", "float64"})
UNSIGNED = frozenset({"uint8", "uint16", "uint32", "uint64"})


def dtype(eqn: Any, operand: int = 0) -> str:
    """The logical dtype of an operand (in graphs uint32 is int32 bits)."""
    return str(eqn.invars[operand].aval.dtype.name)


def out_dtype(eqn: Any, position: int = 0) -> str:
    return str(eqn.outvars[position].aval.dtype.name)


def out_shape(eqn: Any, position: int = 0) -> Shape:
    return tuple(int(n) for n in eqn.outvars[position].aval.shape)


def refuse(reason: str) -> NoReturn:
    raise Unsupported(reason)


def refuse_uint32(eqn: Any, operand: int = 0) -> None:
    """For ops that see the sign: uint32 is kept as int32 bits, so half of its values would look negative."""
    if dtype(eqn, operand) == "uint32":
        refuse(f"{eqn.primitive.name} on uint32: TFLite's kernel would take large values for negative ones")


_WRAPPING = frozenset({"int32", "int64", "uint32"})


def refuse_narrow(eqn: Any, operand: int = 0) -> None:
    """For arithmetic: on narrow integers TFLite's kernels are made for quantized values, and clip or rescale.

    On half floats only sums, products and quotients of two are rounded once, as JAX rounds them.
    """
    name = dtype(eqn, operand)
    if name not in FLOATS and name not in _WRAPPING:
        refuse(f"{eqn.primitive.name} on {name}: TFLite's kernel takes narrow integers as quantized values")


def need_float32(eqn: Any, operand: int = 0) -> None:
    """For functions and long sums, whose half precision kernels round otherwise than JAX."""
    if dtype(eqn, operand) in FLOATS - {"float32"}:
        refuse(f"{eqn.primitive.name} on {dtype(eqn, operand)}: only float32 is computed as JAX does")


def no_form(reason: str) -> Lowering:
    """The lowering of a primitive that has no exact form in TFLite; rules or JAX's own formulas take over."""

    def lower(b: TfliteBuilder, eqn: Any, *operands: Tensor) -> Tensor:
        refuse(reason)

    return lower


def by_dtype(
    boolean: Lowering | None = None,
    floating: Lowering | None = None,
    integer: Lowering | None = None,
    uint32: Lowering | None = None,
) -> Lowering:
    """Picks a lowering by the first operand's dtype; `uint32` is refused where it is not named."""

    def lower(b: TfliteBuilder, eqn: Any, *operands: Tensor) -> Tensor | Sequence[Tensor]:
        name = dtype(eqn)
        if name == "uint32" and uint32 is None and integer is not None:
            refuse_uint32(eqn)
        kinds = {"bool": boolean, "uint32": uint32}
        chosen = kinds.get(name, floating if name in FLOATS else integer)
        if chosen is None:
            refuse(f"TFLite has no op for {eqn.primitive.name} on {name}")
        return chosen(b, eqn, *operands)

    return lower
