"""Inputs: random values and the boundaries of each dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

F32, I32, U32, BOOL = np.float32, np.int32, np.uint32, np.bool_
F16, BF16 = np.float16, ml_dtypes.bfloat16
nan, inf = np.nan, np.inf

FLOATS = np.array(
    [
        0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999997, -0.49999997, 0.3, -7.25, inf, -inf, nan,
        1e-30, -1e-30, 3e38, -3e38, 88, -88, 20, -100, 1e10, 8388609, 2147483648, -2147483648, 4294967296, 1e-7,
        16777217,
    ],
    F32,
)  # fmt: skip
DENORMALS = np.array([1e-40, -1e-40, 1.4e-45, 1.1754944e-38], F32)
INTS = np.array([0, 1, -1, 2, -2, 3, 5, -5, 7, 31, 32, 33, 65537, 16777217, 2**31 - 1, -(2**31), -(2**31) + 1], I32)
UNSIGNED = INTS.view(U32)
BOOLS = np.array([True, False])
SPAN = np.concatenate(
    [
        np.logspace(-15, 15, 121),
        -np.logspace(-15, 15, 121),
        np.linspace(-4, 4, 121),
        np.linspace(-100, 100, 61),
    ]
).astype(F32)

DTYPES: dict[str, Any] = {"f": F32, "i": I32, "u": U32, "b": BOOL, "h": F16, "g": BF16}
"""Letters for dtypes: float32, int32, uint32, bool, float16, bfloat16."""

NAMES = {letter: np.dtype(dtype).name for letter, dtype in DTYPES.items()}


def boundary(letter: str) -> np.ndarray:
    """A vector of the dtype's special values."""
    if letter in "hg":
        halves = np.where(np.abs(FLOATS) > 6e4, np.copysign(6e4, FLOATS), FLOATS)
        finite = np.where(np.isinf(FLOATS) | np.isnan(FLOATS), FLOATS, halves)
        return finite.astype(DTYPES[letter])
    return {"f": FLOATS, "i": INTS, "u": UNSIGNED, "b": BOOLS}[letter]


def elements(letter: str) -> np.ndarray:
    """Special values and a span of ordinary ones."""
    if letter == "f":
        return np.concatenate([FLOATS, SPAN])
    if letter in "hg":
        return np.concatenate([boundary(letter), np.linspace(-4, 4, 121).astype(DTYPES[letter])])
    return boundary(letter)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every value with every other."""
    x, y = np.meshgrid(values, values)
    return x.ravel().copy(), y.ravel().copy()


def data(letter: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Random values: normal floats, integers over the whole range, bools."""
    rng = np.random.default_rng([seed, *shape])
    if letter == "b":
        return rng.random(shape) < 0.5
    if letter in "iu":
        words = rng.integers(0, 2**32, size=shape, dtype=np.uint64).astype(U32)
        return words if letter == "u" else words.view(I32)
    return rng.normal(size=shape).astype(DTYPES[letter])


def small(letter: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Random values with many ties and, among floats, NaN, infinities and both zeros."""
    rng = np.random.default_rng([seed, *shape])
    picks = rng.integers(-3, 4, size=shape)
    if letter == "b":
        return picks > 0
    if letter in "iu":
        return picks.astype(I32).view(DTYPES[letter])
    table = np.array([-inf, -1, -0.0, 0, 1, inf, nan], F32)
    return table[picks + 3].astype(DTYPES[letter])


SHAPES: tuple[tuple[int, ...], ...] = (
    (), (3,), (2, 1), (2, 1, 3), (1, 2, 1, 3), (2, 1, 2, 1, 2), (1, 2, 1, 2, 1, 2), (2, 1, 1, 2, 1, 1, 2),
    (1, 2, 1, 1, 2, 1, 1, 2), (0,), (2, 0, 3),
)  # fmt: skip
"""Ranks 0 to 8, and shapes without elements."""
