"""The bit generator by Threefry.

Before: `rng_bit_generator key` with the algorithm THREE_FRY.

After: Threefry-2x32 of counts that start at the key's last two words, under its first two, as XLA arranges them on the
CPU. Each count gives two words. They become neighbours along one dimension, the first of even size, else the largest,
of which half the size is counted; if that is odd, the last word is dropped. Afterwards the 64-bit number in the last
two words has advanced by the number of counts. Results of 8 and 16 bits are the low bits of one word each.

Why: no runtime has the primitive.

Exactness: bit for bit; the arrangement was found by comparison with XLA. Keys of 64-bit words and results of 64 bits
are declined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

from .philox import generated, plus
from .threefry import threefry2x32

_WORD = np.dtype(np.uint32)


def _halved(shape: tuple[int, ...]) -> int:
    """The dimension along which the two words of a count are neighbours."""
    even = [axis for axis, size in enumerate(shape) if size % 2 == 0]
    return even[0] if even else shape.index(max(shape))


def _generator(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[Array], tuple[Array, Array]]:
    """A function from a key of four words to (the key afterwards, bits of the given shape and dtype)."""
    whole = shape or (1,)
    axis = _halved(whole)
    half = (*whole[:axis], -(-whole[axis] // 2), *whole[axis + 1 :])
    count = math.prod(half)

    def generate(key: Array) -> tuple[Array, Array]:
        k0, k1, low, high = (lax.index_in_dim(key, i, keepdims=False) for i in range(4))
        advanced = plus((low, high), lax.full_like(low, count))
        state = lax.concatenate([lax.reshape(x, (1,)) for x in (k0, k1, *advanced)], 0)
        starts = [lax.broadcast(x, (count,)) for x in (low, high)]
        words = threefry2x32(k0, k1, *plus(starts, lax.iota(_WORD, count)))
        pairs = lax.concatenate([lax.expand_dims(lax.reshape(x, half), (axis + 1,)) for x in words], axis + 1)
        bits = lax.reshape(pairs, (*whole[:axis], 2 * half[axis], *whole[axis + 1 :]))
        bits = lax.slice_in_dim(bits, 0, whole[axis], axis=axis)
        return state, lax.reshape(lax.convert_element_type(bits, dtype), shape)

    return generate


def apply(site: Site) -> Replacement | Declined | None:
    if site.params["algorithm"] != lax.RandomAlgorithm.RNG_THREE_FRY:
        return None
    return generated(site, _generator)


def _bits(shape: tuple[int, ...], dtype: Any = np.uint32, algorithm: Any = lax.RandomAlgorithm.RNG_THREE_FRY) -> Any:
    generate: Any = lax.rng_bit_generator
    return lambda key: generate(key, shape, dtype, algorithm=algorithm)


_KEY = np.array([0xDEADBEEF, 0x12345678, 0xFFFFFFFE, 0xABCDEF01], np.uint32)
_LAST = np.full(4, 0xFFFFFFFF, np.uint32)
_SHAPES = ((), (1,), (2,), (5,), (2, 3), (3, 2), (5, 7), (7, 5), (3, 3, 4), (0, 3))

RULE = Rule(
    id="OC106",
    stage="pattern",
    primitives=frozenset({"rng_bit_generator"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        *(Example("by".join(str(n) for n in shape) or "one", _bits(shape), (_KEY,)) for shape in _SHAPES),
        Example("carries", _bits((9,)), (_LAST,)),
        Example("bytes", _bits((7,), np.uint8), (_KEY,)),
        Example("half words", _bits((2, 3), np.uint16), (_KEY,)),
    ),
    declines=(Example("philox", _bits((4,), algorithm=lax.RandomAlgorithm.RNG_PHILOX), (_KEY,)),),
)
