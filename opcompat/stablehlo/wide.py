"""uint64 values where JAX has none (jax_enable_x64 off): JAX's own lowering uses them in two places.

rng_bit_generator keeps its state in two uint64: `Words` carries them as uint32 pairs, untouched. Threefry
counts its draws in uint64 (iota_2x32_shape): `Small` computes with them in uint32, while that is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from opcompat.stablehlo.program import Splat

LIMIT = 2**32


@dataclass(frozen=True)
class Words:
    """A uint64 tensor of shape `words.shape[:-1]`, as pairs of uint32 in the last dimension."""

    words: Any


@dataclass(frozen=True)
class Small:
    """A uint64 tensor as the uint32 array `low`: no element is above `maximum`, which is below 2**32."""

    low: Any
    maximum: int


def x64_enabled() -> bool:
    """Whether JAX has 64-bit values under the current configuration and context."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined, unused-ignore]


def iota(shape: tuple[int, ...], dimension: int) -> Small:
    low = lax.broadcasted_iota(np.dtype(np.uint32), shape, dimension)
    return Small(low, _bounded(max(shape[dimension] - 1, 0)))


def add(x: Any, y: Any) -> Small:
    if not isinstance(x, Small):
        x, y = y, x
    return Small(lax.add(x.low, _low(y)), _bounded(x.maximum + _maximum(y)))


def multiply(x: Any, y: Any) -> Small:
    if not isinstance(x, Small):
        x, y = y, x
    if _scalar(y) == 1:  # a stride of JAX's counter
        return Small(x.low, x.maximum)
    return Small(lax.mul(x.low, _low(y)), _bounded(x.maximum * _maximum(y)))


def shift_right_logical(x: Any, by: Any) -> Small:
    """By a constant. A shift beyond 32 bits is not left to the target: they differ in what it gives."""
    places = _scalar(by)
    if places is None or not isinstance(x, Small):
        raise TypeError("a shift of uint64 values by other than a constant needs jax_enable_x64")
    if places >= 32:
        return Small(lax.full_like(x.low, 0), 0)
    return Small(lax.shift_right_logical(x.low, np.array(places, np.uint32)), x.maximum >> places)


def _scalar(value: Any) -> int | None:
    """The number that a constant equals everywhere, or None."""
    if isinstance(value, Splat):
        return int(value.value)
    return int(value) if isinstance(value, np.ndarray) and value.ndim == 0 else None


def _maximum(value: Any) -> int:
    if isinstance(value, Small):
        return value.maximum
    scalar = _scalar(value)
    if scalar is None:
        raise TypeError("uint64 values that are not known to be below 2**32 need jax_enable_x64")
    return _bounded(scalar)


def _low(value: Any) -> Any:
    return value.low if isinstance(value, Small) else np.array(_maximum(value), np.uint32)


def _bounded(maximum: int) -> int:
    if maximum >= LIMIT:
        raise TypeError("uint64 values of 2**32 and above need jax_enable_x64")
    return maximum
