"""Threefry-2x32 as additions, rotations and exclusive ors.

Before: `threefry2x32 key0 key1 count0 count1`, JAX's random bit generator as one primitive.

After: its twenty rounds, four rotations at a time with a key injection after each four, on 32-bit integers.

Why: no runtime has the primitive. Rotations are written with shifts and an or; OC104 gives them another form
where a target lacks those.

Exactness: bit for bit. Source of the formula: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3"
(SC 2011), the Threefry-2x32-20 parameters.
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.extend.random import threefry_2x32

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def _rotate_left(x: Array, by: int) -> Array:
    left = lax.shift_left(x, lax.full_like(x, np.uint32(by)))
    return lax.bitwise_or(left, lax.shift_right_logical(x, lax.full_like(x, np.uint32(32 - by))))


def threefry2x32(key0: Array, key1: Array, count0: Array, count1: Array) -> tuple[Array, Array]:
    """Twenty rounds. All uint32; keys and counts of one shape, or keys are scalars."""
    shape = np.broadcast_shapes(key0.shape, key1.shape, count0.shape, count1.shape)

    def spread(x: Array) -> Array:
        dims = tuple(range(len(shape) - x.ndim, len(shape)))
        return x if x.shape == shape else lax.broadcast_in_dim(x, shape, dims)

    parity = lax.bitwise_xor(lax.bitwise_xor(key0, key1), lax.full_like(key0, _PARITY))
    keys = (key0, key1, parity)
    x0, x1 = lax.add(spread(count0), spread(key0)), lax.add(spread(count1), spread(key1))
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = lax.add(x0, x1)
            x1 = lax.bitwise_xor(x0, _rotate_left(x1, rotation))
        injected = lax.add(keys[(group + 2) % 3], lax.full_like(key0, np.uint32(group + 1)))
        x0, x1 = lax.add(x0, spread(keys[(group + 1) % 3])), lax.add(x1, spread(injected))
    return x0, x1


def apply(site: Site) -> Replacement:
    return site.replace(threefry2x32)


def _example(key0: Array, key1: Array, count0: Array, count1: Array) -> tuple[Array, Array]:
    both = threefry_2x32((key0, key1), jnp.concatenate([count0, count1]))
    return both[:3], both[3:]


RULE = Rule(
    id="OC101",
    stage="pattern",
    primitives=frozenset({"threefry2x32"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example(
            "words",
            _example,
            (
                np.uint32(0xDEADBEEF),
                np.uint32(7),
                np.array([0, 1, 0xFFFFFFFF], np.uint32),
                np.array([5, 0x80000000, 9], np.uint32),
            ),
        ),
    ),
)
