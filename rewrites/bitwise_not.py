"""Bitwise not of integers as exclusive or.

Before: `~x` on 32-bit integers.

After: `x ^ -1`.

Why: LiteRT has an exclusive or, but a not only for booleans.

Exactness: bit for bit.
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def _not(x: Array) -> Array:
    ones = np.array(0xFFFFFFFF, np.uint32).astype(x.dtype)
    return lax.bitwise_xor(x, lax.full_like(x, ones))


def apply(site: Site) -> Replacement | Declined | None:
    dtype = site.result.dtype
    if dtype == np.bool_:
        return None
    if dtype not in (np.dtype(np.int32), np.dtype(np.uint32)):
        return Declined(f"only for 32-bit integers, not {dtype}")
    return site.replace(_not)


_X = np.array([0, 1, -1, 0x7FFFFFFF, -0x80000000], np.int32)

RULE = Rule(
    id="OC205",
    stage="legalize",
    primitives=frozenset({"not"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("int32", lax.bitwise_not, (_X,)),
        Example("uint32", lax.bitwise_not, (_X.view(np.uint32),)),
    ),
    declines=(Example("bool", lax.bitwise_not, (_X > 0,)),),
)
