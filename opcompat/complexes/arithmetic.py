"""Arithmetic of complex numbers as (real part, imaginary part), by real operations.

Elementary functions follow the textbook (Abramowitz and Stegun, chapter 4), in forms whose squares do not overflow.
Every function takes and gives pairs of arrays of one shape and float dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

Pair = tuple[Any, Any]


def parts(x: Any) -> Pair:
    return lax.index_in_dim(x, 0, -1, keepdims=False), lax.index_in_dim(x, 1, -1, keepdims=False)


def pair(re: Any, im: Any) -> Any:
    return lax.concatenate([lax.expand_dims(re, (re.ndim,)), lax.expand_dims(im, (im.ndim,))], re.ndim)


def product(a: Pair, b: Pair, times: Callable[[Any, Any], Any] = lax.mul) -> Pair:
    re = lax.sub(times(a[0], b[0]), times(a[1], b[1]))
    return re, lax.add(times(a[0], b[1]), times(a[1], b[0]))


def magnitude(z: Pair) -> Any:
    """|z|, by the ratio of its parts: no square overflows or vanishes."""
    re, im = lax.abs(z[0]), lax.abs(z[1])
    large, small = lax.max(re, im), lax.min(re, im)
    zero, one, infinite = lax.full_like(re, 0), lax.full_like(re, 1), lax.full_like(re, np.inf)
    plain = lax.bitwise_or(lax.eq(large, zero), lax.eq(small, infinite))
    ratio = lax.div(small, lax.select(plain, one, large))
    size = lax.mul(large, lax.sqrt(lax.add(one, lax.mul(ratio, ratio))))
    unbounded = lax.bitwise_or(lax.eq(re, infinite), lax.eq(im, infinite))
    return lax.select(unbounded, infinite, lax.select(plain, large, size))


def quotient(a: Pair, b: Pair) -> Pair:
    """Smith, Algorithm 116 (1962): divides by the larger part first. A zero divisor divides each part."""
    (x, y), (c, d) = a, b
    one = lax.full_like(c, 1)
    zero = lax.full_like(c, 0)
    flat = lax.ge(lax.abs(c), lax.abs(d))
    large, small = lax.select(flat, c, d), lax.select(flat, d, c)
    nothing = lax.bitwise_and(lax.eq(c, zero), lax.eq(d, zero))
    ratio = lax.select(nothing, zero, lax.div(small, lax.select(nothing, one, large)))
    scale = lax.add(large, lax.mul(small, ratio))
    first, second = lax.select(flat, x, y), lax.select(flat, y, x)
    re = lax.div(lax.add(first, lax.mul(second, ratio)), scale)
    im = lax.div(lax.sub(second, lax.mul(first, ratio)), scale)
    # Whatever the other part of an infinite divisor is, nothing is left of a finite dividend.
    infinite = lax.full_like(c, np.inf)
    vast = lax.bitwise_or(lax.eq(lax.abs(c), infinite), lax.eq(lax.abs(d), infinite))
    gone = lax.bitwise_and(vast, lax.bitwise_and(lax.is_finite(x), lax.is_finite(y)))
    return lax.select(gone, zero, re), lax.select(gone, zero, lax.select(flat, im, lax.neg(im)))


def power(z: Pair, exponent: int) -> Pair:
    """z ** exponent by squaring."""
    one = lax.full_like(z[0], 1), lax.full_like(z[0], 0)
    result, base, left = None, z, abs(exponent)
    while left:
        if left & 1:
            result = base if result is None else product(result, base)
        left >>= 1
        if left:
            base = product(base, base)
    if result is None:
        return one
    return quotient(one, result) if exponent < 0 else result


def scaled(size: Any, angle: Any) -> Pair:
    """size * exp(i angle)."""
    return lax.mul(size, lax.cos(angle)), _within(lax.sin(angle), size)


def exp(z: Pair) -> Pair:
    return scaled(lax.exp(z[0]), z[1])


def expm1(z: Pair) -> Pair:
    """expm1(re) cos(im) + cos(im) - 1, the last two as -2 sin(im / 2)^2: neither cancels."""
    half = lax.sin(lax.mul(lax.full_like(z[1], 0.5), z[1]))
    re = lax.sub(lax.mul(lax.expm1(z[0]), lax.cos(z[1])), lax.mul(lax.full_like(half, 2), lax.mul(half, half)))
    return re, exp(z)[1]


def log(z: Pair) -> Pair:
    """log|z| by log1p where |z| is near 1, for there the logarithm cancels."""
    size = magnitude(z)
    re, im = lax.abs(z[0]), lax.abs(z[1])
    large, small = lax.max(re, im), lax.min(re, im)
    one, half = lax.full_like(size, 1), lax.full_like(size, 0.5)
    near = lax.bitwise_and(lax.gt(size, half), lax.lt(size, lax.full_like(size, 2)))
    excess = lax.add(lax.mul(lax.sub(large, one), lax.add(large, one)), lax.mul(small, small))
    close = lax.mul(half, lax.log1p(lax.select(near, excess, lax.full_like(size, 0))))
    return lax.select(near, close, lax.log(size)), lax.atan2(z[1], z[0])


def sqrt(z: Pair) -> Pair:
    """sqrt((|z| + |re|) / 2) is one part, and im over twice that the other: neither cancels."""
    half, zero, one = lax.full_like(z[0], 0.5), lax.full_like(z[0], 0), lax.full_like(z[0], 1)
    size = lax.add(lax.mul(half, lax.abs(z[0])), lax.mul(half, magnitude(z)))
    large = lax.sqrt(size)
    none = lax.eq(large, zero)
    small = lax.div(lax.mul(half, lax.abs(z[1])), lax.select(none, one, large))
    right = lax.ge(z[0], zero)
    re, im = lax.select(right, large, small), lax.select(right, small, large)
    down = lax.lt(lax.div(one, z[1]), zero)  # also for -0
    return re, lax.select(lax.bitwise_or(lax.lt(z[1], zero), down), lax.neg(im), im)


def reciprocal(z: Pair) -> Pair:
    return quotient((lax.full_like(z[0], 1), lax.full_like(z[0], 0)), z)


def tanh(z: Pair) -> Pair:
    """(sinh 2x + i sin 2y) / (cosh 2x + cos 2y), in terms of tanh x and tan y, which do not overflow."""
    t, c, s = lax.tanh(z[0]), lax.cos(z[1]), lax.sin(z[1])
    one = lax.full_like(t, 1)
    # cosh^2 x = 1 / (1 - t^2); multiplied out, so that nothing is infinite.
    below = lax.add(lax.mul(c, c), lax.mul(lax.mul(t, t), lax.mul(s, s)))
    return lax.div(t, below), lax.div(lax.mul(lax.mul(lax.sub(one, lax.mul(t, t)), s), c), below)


def tan(z: Pair) -> Pair:
    """-i tanh(i z)."""
    re, im = tanh((lax.neg(z[1]), z[0]))
    return im, lax.neg(re)


def sinh(z: Pair) -> Pair:
    return _within(lax.cos(z[1]), lax.sinh(z[0])), _within(lax.sin(z[1]), lax.cosh(z[0]))


def cosh(z: Pair) -> Pair:
    return _within(lax.cos(z[1]), lax.cosh(z[0])), _within(lax.sin(z[1]), lax.sinh(z[0]))


def sin(z: Pair) -> Pair:
    return _within(lax.sin(z[0]), lax.cosh(z[1])), _within(lax.cos(z[0]), lax.sinh(z[1]))


def cos(z: Pair) -> Pair:
    return _within(lax.cos(z[0]), lax.cosh(z[1])), lax.neg(_within(lax.sin(z[0]), lax.sinh(z[1])))


def _within(wave: Any, size: Any) -> Any:
    """wave * size, where a wave of zero stays zero, whatever the size."""
    return lax.select(lax.eq(wave, lax.full_like(wave, 0)), wave, lax.mul(wave, size))


def logistic(z: Pair) -> Pair:
    re, im = exp((lax.neg(z[0]), lax.neg(z[1])))
    return reciprocal((lax.add(lax.full_like(re, 1), re), im))


def raised(a: Pair, b: Pair) -> Pair:
    """a ** b as |a|^re(b) exp(-im(b) arg a), at the angle im(b) log|a| + re(b) arg a, as XLA computes it."""
    size, angle = magnitude(a), lax.atan2(a[1], a[0])
    scale = lax.mul(lax.pow(size, b[0]), lax.exp(lax.neg(lax.mul(b[1], angle))))
    turn = lax.add(_within(b[1], lax.log(size)), lax.mul(b[0], angle))
    return lax.mul(scale, lax.cos(turn)), lax.mul(scale, lax.sin(turn))


def sign(z: Pair) -> Pair:
    size = magnitude(z)
    none = lax.eq(size, lax.full_like(size, 0))
    scale = lax.select(none, lax.full_like(size, 1), size)
    return lax.div(z[0], scale), lax.div(z[1], scale)
