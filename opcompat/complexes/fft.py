"""Discrete Fourier transforms as products with matrices of sines and cosines, one axis after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from opcompat.complexes import arithmetic as cx

LONGEST = 1024
"""Elements of an axis: the matrices of a longer one would fill the file."""


def fft(eqn: Any) -> Callable[..., Any] | None:
    """The transform of the equation on pairs, None if an axis is too long.

    The definitions are numpy.fft's: FFT and RFFT sum x[n] exp(-2 pi i k n / N), IFFT and IRFFT the conjugate, over N.
    """
    kind, lengths = lax.FftType(eqn.params["fft_type"]).name, tuple(eqn.params["fft_lengths"])
    if not lengths or max(lengths) > LONGEST or min(lengths) == 0:
        return None
    dtype = np.dtype(np.float64 if eqn.outvars[0].aval.dtype in (np.float64, np.complex128) else np.float32)

    def run(x: Any) -> Any:
        rank = len(lengths)
        if "RFFT" not in kind:
            z = cx.parts(x)
            for place, n in enumerate(lengths):
                z = _along(z, place - rank, _matrix(n, n, kind == "IFFT", dtype))
            return cx.pair(*z)
        if kind == "RFFT":
            cos, sin = _matrix(lengths[-1], lengths[-1], False, dtype)
            kept = lengths[-1] // 2 + 1
            z = _times(x, cos[:, :kept], -1), _times(x, sin[:, :kept], -1)
            for place, n in enumerate(lengths[:-1]):
                z = _along(z, place - rank, _matrix(n, n, False, dtype))
            return cx.pair(*z)
        z = cx.parts(x)
        for place, n in enumerate(lengths[:-1]):
            z = _along(z, place - rank, _matrix(n, n, True, dtype))
        return _real_inverse(z, lengths[-1], dtype)

    return run


def _matrix(rows: int, columns: int, inverse: bool, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines: row n, column k is exp(-+2 pi i k n / N), over N for the inverse."""
    # The angle is reduced in integers, so that no digits are lost for large k n.
    turns = np.outer(np.arange(rows), np.arange(columns)) % rows / rows
    sign, scale = (1, 1 / rows) if inverse else (-1, 1.0)
    return (scale * np.cos(2 * np.pi * turns)).astype(dtype), (sign * scale * np.sin(2 * np.pi * turns)).astype(dtype)


def _times(x: Any, matrix: np.ndarray, axis: int) -> Any:
    """Contracts an axis with the matrix's rows; its columns take the axis's place."""
    axis %= x.ndim
    product = lax.dot_general(x, matrix, (((axis,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)
    order = [d if d < axis else d - 1 for d in range(x.ndim)]
    order[axis] = x.ndim - 1
    return lax.transpose(product, order)


def _along(z: cx.Pair, axis: int, matrix: tuple[np.ndarray, np.ndarray]) -> cx.Pair:
    (re, im), (cos, sin) = z, matrix
    first = lax.sub(_times(re, cos, axis), _times(im, sin, axis))
    return first, lax.add(_times(re, sin, axis), _times(im, cos, axis))


def _real_inverse(z: cx.Pair, n: int, dtype: Any) -> Any:
    """Half a spectrum's real signal: each coefficient that stands for its mirror, too, counts twice.

    The imaginary parts of the first and, for even n, the middle coefficient do not count.
    """
    kept = n // 2 + 1
    cos, sin = (m[:kept].copy() for m in _matrix(n, n, True, dtype))
    twice = np.arange(kept) * 2 % n != 0
    cos[twice] *= 2
    sin[twice] *= 2
    sin[~twice] = 0
    return lax.sub(_times(z[0], cos, -1), _times(z[1], sin, -1))
