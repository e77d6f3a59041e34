"""Philox-4x32 as products of half words.

Before: `rng_bit_generator key`, the hardware generator behind `rbg` keys, with the default or the Philox algorithm.

After: ten rounds on 32-bit words, as XLA computes them on the CPU. With the key's words k0..k3, block i of four
result words encrypts the counter (k2, k3, k0, k1) + i under (k0, k1); afterwards the 64-bit number (k2, k3) has
advanced by the number of blocks. The upper word of each 32 x 32 bit product is put together from 16-bit halves.
Results of 8 and 16 bits are the low bits of one word each.

Why: no runtime has the primitive, nor 64-bit products of unsigned words everywhere.

Exactness: bit for bit. Source of the formula: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3"
(SC 2011), the Philox-4x32-10 parameters; the counter's layout was found by comparison with XLA. Keys of 64-bit
words and results of 64 bits are declined; the algorithm THREE_FRY is OC106's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_WORD = np.dtype(np.uint32)


def _all(x: Array, value: int) -> Array:
    return lax.full_like(x, np.uint32(value))


def _high_half(x: Array) -> Array:
    return lax.shift_right_logical(x, _all(x, 16))


def _halves(x: Array) -> tuple[Array, Array]:
    """The upper and the lower 16 bits."""
    high = _high_half(x)
    return high, lax.sub(x, lax.mul(high, _all(x, 1 << 16)))


def _product(x: Array, factor: int) -> tuple[Array, Array]:
    """The upper and the lower word of x * factor. No sum of partial products exceeds a word."""
    high, low = _halves(x)
    above, below = _all(x, factor >> 16), _all(x, factor & 0xFFFF)
    middle = lax.add(lax.mul(high, below), _high_half(lax.mul(low, below)))
    carried, rest = _halves(middle)
    last = lax.add(lax.mul(low, above), rest)
    upper = lax.add(lax.add(lax.mul(high, above), carried), _high_half(last))
    return upper, lax.mul(x, _all(x, factor))


def _encrypted(counter: Sequence[Array], key: Sequence[Array]) -> Sequence[Array]:
    """Four words of one shape per block, encrypted under two scalar words."""
    c0, c1, c2, c3 = counter
    for number in range(_ROUNDS):
        keys = [
            lax.broadcast(lax.add(k, _all(k, number * step & 0xFFFFFFFF)), c0.shape)
            for k, step in zip(key, _INCREMENTS, strict=True)
        ]
        (upper0, lower0), (upper2, lower2) = _product(c0, _MULTIPLIERS[0]), _product(c2, _MULTIPLIERS[1])
        c0, c1 = lax.bitwise_xor(lax.bitwise_xor(upper2, c1), keys[0]), lower2
        c2, c3 = lax.bitwise_xor(lax.bitwise_xor(upper0, c3), keys[1]), lower0
    return c0, c1, c2, c3


def plus(words: Sequence[Array], number: Array) -> list[Array]:
    """The number made of `words`, the lowest first, plus one word; all of the shape of `number`."""
    total = [lax.add(words[0], number)]
    carry = lax.lt(total[0], number)
    for word in words[1:]:
        total.append(lax.add(word, lax.convert_element_type(carry, _WORD)))
        carry = lax.bitwise_and(carry, lax.eq(total[-1], _all(word, 0)))
    return total


def philox(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[Array], tuple[Array, Array]]:
    """A function from a key of four words to (the key afterwards, bits of the given shape and dtype)."""
    size = math.prod(shape)
    blocks = -(-size // 4)

    def generate(key: Array) -> tuple[Array, Array]:
        k0, k1, k2, k3 = (lax.index_in_dim(key, i, keepdims=False) for i in range(4))
        advanced = plus((k2, k3), _all(k2, blocks))
        state = lax.concatenate([lax.reshape(x, (1,)) for x in (k0, k1, *advanced)], 0)
        spread = [lax.broadcast(k, (blocks,)) for k in (k2, k3, k0, k1)]
        words = _encrypted(plus(spread, lax.iota(_WORD, blocks)), (k0, k1))
        columns = lax.concatenate([lax.reshape(x, (blocks, 1)) for x in words], 1)
        bits = lax.slice(lax.reshape(columns, (4 * blocks,)), (0,), (size,))
        return state, lax.reshape(lax.convert_element_type(bits, dtype), shape)

    return generate


def generated(site: Site, generator: Callable[[tuple[int, ...], Any], Callable[..., Any]]) -> Replacement | Declined:
    """rng_bit_generator by `generator(shape, dtype)`, which counts in 32-bit words."""
    dtype, shape = np.dtype(site.params["dtype"]), tuple(site.params["shape"])
    if site.aval(0).dtype != _WORD:
        return Declined(f"the key is {site.aval(0).dtype}, not words of 32 bits")
    if dtype not in (np.dtype(np.uint8), np.dtype(np.uint16), _WORD):
        return Declined(f"only for 8, 16 and 32 bits, not {dtype}")
    if math.prod(shape) >= 2**32:
        return Declined("the count needs 64 bits")
    return site.replace(generator(shape, dtype))


def apply(site: Site) -> Replacement | Declined | None:
    if site.params["algorithm"] == lax.RandomAlgorithm.RNG_THREE_FRY:
        return None  # OC106
    return generated(site, philox)


def _bits(shape: tuple[int, ...], dtype: Any, algorithm: Any = lax.RandomAlgorithm.RNG_DEFAULT) -> Any:
    generate: Any = lax.rng_bit_generator
    return lambda key: generate(key, shape, dtype, algorithm=algorithm)


_KEY = np.array([0xDEADBEEF, 0x12345678, 0xFFFFFFFF, 0xABCDEF01], np.uint32)
_LAST = np.array([0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF], np.uint32)

RULE = Rule(
    id="OC105",
    stage="pattern",
    primitives=frozenset({"rng_bit_generator"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("words", _bits((3, 5), np.uint32), (_KEY,)),
        Example("named", _bits((4,), np.uint32, lax.RandomAlgorithm.RNG_PHILOX), (_KEY,)),
        Example("carries", _bits((9,), np.uint32), (_LAST,)),
        Example("bytes", _bits((7,), np.uint8), (_KEY,)),
        Example("half words", _bits((2, 3), np.uint16), (_KEY,)),
        Example("one", _bits((), np.uint32), (_KEY,)),
        Example("none", _bits((0, 3), np.uint32), (_KEY,)),
        Example(
            "rbg keys",
            lambda words: jax.random.uniform(jax.random.wrap_key_data(words, impl="rbg"), (6,), np.float32),
            (_KEY,),
        ),
    ),
    declines=(Example("threefry", _bits((4,), np.uint32, lax.RandomAlgorithm.RNG_THREE_FRY), (_KEY,)),),
)
