"""The ONNX backend: primitive name -> lowering function, one table from one module for each theme.

To add a primitive, write a function in the module of its theme and list it in that module's dict. A function
takes the builder, the equation and one tensor for each operand, and returns one tensor for each result. It
accepts only what it lowers exactly, and raises `Unsupported` otherwise: rules and the decomposition through
StableHLO then take the equation apart. What a runtime has kernels for is not its business but the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opcompat.inline import OUTSIDE
from opcompat.lowering.builder import Backend, Lowering, Unsupported
from opcompat.lowering.onnx.builder import BROADCASTING, OPSET, OnnxBuilder
from opcompat.lowering.onnx.control import CONTROL
from opcompat.lowering.onnx.dot import DOT
from opcompat.lowering.onnx.dtypes import interface, storage
from opcompat.lowering.onnx.elementwise import ELEMENTWISE
from opcompat.lowering.onnx.fuse import fuse_gemm, guard_reciprocals
from opcompat.lowering.onnx.indexing import INDEXING
from opcompat.lowering.onnx.reductions import REDUCTIONS
from opcompat.lowering.onnx.structure import STRUCTURE
from opcompat.lowering.passes import drop_dead, merge_equal, skip_broadcasts

REASONS = {
    "atan2": "ONNX has no two-argument arctangent",
    "cbrt": "ONNX has no cube root, and Pow gives NaN for negative numbers",
    "cummax": "ONNX has no running maximum",
    "cummin": "ONNX has no running minimum",
    "cumprod": "CumProd is new in opset 26",
    "erfc": "1 - Erf(x) loses the tail",
    "expm1": "Exp(x) - 1 loses small x",
    "log1p": "Log(1 + x) loses small x",
    "nextafter": "needs the bits of floats",
}
"""Primitives with a tempting form that is wrong, or none: why they are refused."""


def _refusal(reason: str) -> Lowering:
    def lower(b: OnnxBuilder, eqn: Any, *operands: Any) -> Any:
        raise Unsupported(reason)

    return lower


REFUSED: dict[str, Callable[..., Any]] = {name: _refusal(reason) for name, reason in {**REASONS, **OUTSIDE}.items()}

TABLE: dict[str, Callable[..., Any]] = {
    **ELEMENTWISE,
    **REDUCTIONS,
    **STRUCTURE,
    **INDEXING,
    **DOT,
    **CONTROL,
    **REFUSED,
}


PASSES = (skip_broadcasts("Expand", BROADCASTING), merge_equal, fuse_gemm, drop_dead, guard_reciprocals)


def backend(opset: int = OPSET) -> Backend:
    """The ONNX backend that writes operators of `opset`."""
    builder = OnnxBuilder if opset == OPSET else type(f"OnnxBuilder{opset}", (OnnxBuilder,), {"opset": opset})
    return Backend("onnx", TABLE, storage, interface, builder, PASSES)


__all__ = ["BROADCASTING", "OPSET", "REASONS", "TABLE", "backend"]
