"""The numbers that probes feed: ordinary ones, and special ones at the ends of each dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opcompat.targets.probes.case import FLOATS

Values = Callable[[int, str, int], np.ndarray]
"""(rank, dtype, start) -> an array of that rank; `start` makes another one of the same shape."""

LAST = 14


def dtype_of(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def shape(rank: int) -> tuple[int, ...]:
    return (2, 1, 3, 2, 1, 2, 1, 2, 1, 2)[:rank]


def plain(rank: int, dtype: str, start: int = 1) -> np.ndarray:
    """Small positive numbers, all exact in every dtype."""
    size = int(np.prod(shape(rank), dtype=int))
    counts = start + np.arange(size) % 7
    values = counts % 2 == 0 if dtype == "bool" else counts / 2 if dtype in FLOATS else counts
    typed: np.ndarray = np.asarray(values).astype(dtype_of(dtype)).reshape(shape(rank))
    return typed


def special(rank: int, dtype: str, start: int = 1) -> np.ndarray:
    """Zeros of both signs, ties, infinities, NaN, large numbers; for integers the ends and 2**24 + 1."""
    values = np.roll(_specials(dtype), start)
    sizes = (*(2 if i == 0 else 1 for i in range(rank - 1)), LAST) if rank else ()
    return np.resize(values, sizes)


def finite(rank: int, dtype: str, start: int = 1) -> np.ndarray:
    """`special` without infinities and NaN."""
    x = special(rank, dtype, start)
    return np.where(np.isfinite(x), x, np.asarray(3, x.dtype)) if dtype in FLOATS else x


def numbers(rank: int, dtype: str, start: int = 1) -> np.ndarray:
    """`special` without NaN."""
    x = special(rank, dtype, start)
    return np.where(np.isnan(x), np.asarray(3, x.dtype), x) if dtype in FLOATS else x


def _specials(dtype: str) -> np.ndarray:
    kind = dtype_of(dtype)
    if dtype == "bool":
        return np.resize(np.asarray([True, False, False]), LAST)
    if dtype in FLOATS:
        large = 3e4 if dtype == "float16" else 1e30
        found = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, large, -large, np.inf, -np.inf, np.nan, 6.25]
        return np.asarray(found).astype(kind)
    ends = np.iinfo(kind)
    wished = [0, 1, 2, 7, 100, 2**24 + 1, 2**31 - 1, 2**31 + 1, ends.max, ends.max - 1, ends.min, ends.min + 1, -1, -7]
    return np.asarray([w if ends.min <= w <= ends.max else w % 11 for w in wished], kind)
