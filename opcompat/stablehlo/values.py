"""What a StableHLO value is while a program is evaluated."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

from opcompat.stablehlo.program import Splat, TensorType
from opcompat.stablehlo.wide import Small, Words

# A traced or concrete array, a constant, or one of the forms that stand for an array.
Value = jax.Array | np.ndarray[Any, Any] | Splat | Small | Words


def array(value: Value) -> jax.Array:
    """The value as an array that every lax function takes."""
    if isinstance(value, Words | Small):
        raise TypeError("uint64 values need jax_enable_x64")
    if isinstance(value, Splat):
        return lax.full(value.shape, value.value, value.value.dtype)
    if isinstance(value, np.ndarray):
        return jax.numpy.asarray(value)
    return value


def scalar_or_array(value: Value) -> Any:
    """A splat as its scalar, which lax broadcasts by itself; all else as it is."""
    if isinstance(value, np.ndarray):
        return value
    return value.value if isinstance(value, Splat) else array(value)


def constant_scalar(value: Value) -> np.ndarray[Any, Any] | None:
    """The rank-0 array that the value is known to equal everywhere, or None."""
    if isinstance(value, Splat):
        return value.value
    return value if isinstance(value, np.ndarray) and value.ndim == 0 else None


def is_float(dtype: Any) -> bool:
    """Whether `dtype` is real floating point; numpy's `kind` does not tell for bf16 and the like."""
    return bool(jax.numpy.issubdtype(dtype, np.floating))


def is_integer(dtype: Any) -> bool:
    """Whether `dtype` is an integer (bool is none), four-bit ones included."""
    return bool(jax.numpy.issubdtype(dtype, np.integer))


def type_of(value: Value) -> TensorType:
    if isinstance(value, Words):
        return TensorType(tuple(value.words.shape[:-1]), np.dtype(np.uint64))
    if isinstance(value, Small):
        return TensorType(tuple(value.low.shape), np.dtype(np.uint64))
    if isinstance(value, Splat):
        return TensorType(value.shape, value.value.dtype)
    return TensorType(tuple(value.shape), np.dtype(value.dtype))
