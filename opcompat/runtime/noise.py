"""Noise for the inputs of a bundle whose draws are inputs (`--sampling noise`)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from opcompat.manifest import Noise
from opcompat.runtime.inputs import Array, InputError

_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""The binary digits of each float type."""


class NoiseInput(Protocol):
    """What there is to know of an input: an `opcompat.manifest.Leaf`, for one."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def file_dtype(self) -> str: ...
    @property
    def noise(self) -> Noise | None: ...


def draw(leaf: NoiseInput, rng: np.random.Generator) -> Array:
    """Noise for one input: an array of its shape and file dtype, of independent draws from its distribution.

    Raises InputError if the input is no noise.
    """
    if leaf.noise is None:
        raise InputError(f"{leaf.name}: is no noise, but an input of its own")
    dtype = np.dtype(leaf.file_dtype)
    if leaf.noise.distribution == "bits":
        wide = rng.integers(0, 2 ** (8 * dtype.itemsize), leaf.shape, np.uint64, endpoint=False)
        return np.asarray(wide, dtype)
    if leaf.noise.distribution == "normal":
        return np.asarray(rng.standard_normal(leaf.shape), dtype)
    if leaf.noise.distribution == "gumbel":
        return np.asarray(rng.gumbel(size=leaf.shape), dtype)
    # Rounded down to the digits of the policy's own type: to the nearest, it would sometimes be 1.
    digits = _DIGITS[leaf.dtype]
    return np.asarray(np.floor(rng.random(leaf.shape) * 2.0**digits) * 2.0**-digits, dtype)
