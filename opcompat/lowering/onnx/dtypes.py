"""Facts about dtypes, by numpy name, that lowering functions ask for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

HALF = frozenset({"float16", "bfloat16"})
FLOATS = frozenset({"float32", "float64"}) | HALF
SIGNED = frozenset({"int8", "int16", "int32", "int64"})
UNSIGNED = frozenset({"uint8", "uint16", "uint32", "uint64"})
INTS = SIGNED | UNSIGNED

_EXTRA: dict[str, np.dtype[Any]] = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a name, bfloat16 included."""
    return _EXTRA.get(name) or np.dtype(name)


def bits(name: str) -> int:
    """The width of a dtype in bits."""
    return numpy_dtype(name).itemsize * 8


def unsigned(name: str) -> str:
    """The unsigned integer dtype of the same width."""
    return f"uint{bits(name)}"


def signed(name: str) -> str:
    """The signed integer dtype of the same width."""
    return f"int{bits(name)}"


def storage(dtype: str) -> str:
    """Tensors inside an ONNX graph have the logical dtype."""
    return dtype


def interface(dtype: str) -> str:
    """Half-precision inputs and outputs are float32 in files: numpy and most runtimes cannot pass them."""
    return "float32" if dtype in HALF else dtype
