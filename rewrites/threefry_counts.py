"""The 64-bit counter of random bits as two iotas.

Before: `iota_2x32_shape[shape=S]`, the flat index of each element as a high and a low 32-bit word.

After: zeros for the high word and a reshaped `iota` for the low one; both are constants and get folded.

Why: no runtime has the primitive. Arrays of 2**32 elements and more are declined.

Exactness: bit for bit.
"""

from __future__ import annotations

import math

import jax
import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def apply(site: Site) -> Replacement | Declined:
    shape = site.result.shape
    if math.prod(shape) >= 2**32:
        return Declined("the counter needs its high word")

    def counts() -> tuple[Array, Array]:
        low = lax.reshape(lax.iota(np.uint32, math.prod(shape)), shape)
        return lax.full_like(low, np.uint32(0)), low

    return site.replace(counts)


RULE = Rule(
    id="OC102",
    stage="legalize",
    primitives=frozenset({"iota_2x32_shape"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example(
            "bits",
            lambda words: jax.random.bits(jax.random.wrap_key_data(words), (3, 5), np.uint32),
            (np.array([3, 4], np.uint32),),
        ),
        Example(
            "empty",
            lambda words: jax.random.bits(jax.random.wrap_key_data(words), (0, 5), np.uint32),
            (np.array([3, 4], np.uint32),),
        ),
    ),
)
