"""Bitwise or by addition and exclusive or.

Before: `a | b` on 32-bit integers.

After: `(a & b) + (a ^ b)`, with the and of OC203. The two terms have no bit in common, so the sum carries
nothing.

Why: LiteRT has an exclusive or, but no or.

Exactness: bit for bit.
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

from .bitwise_and import int32_and, on_int32


def _or(a: Array, b: Array) -> Array:
    return lax.add(int32_and(a, b), lax.bitwise_xor(a, b))


def apply(site: Site) -> Replacement | Declined | None:
    dtype = site.result.dtype
    if dtype == np.bool_:
        return None
    if dtype not in (np.dtype(np.int32), np.dtype(np.uint32)):
        return Declined(f"only for 32-bit integers, not {dtype}")
    return site.replace(on_int32(_or, dtype))


_A = np.array([0, 1, -1, 0x7FFFFFFF, -0x80000000, 0x5A5A5A5A, -0x40000000], np.int32)
_B = np.array([-1, 3, -1, 0x40000000, -0x80000000, 0x3C3C3C3C, -0x7FFFFFFF], np.int32)

RULE = Rule(
    id="OC204",
    stage="legalize",
    primitives=frozenset({"or"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("int32", lax.bitwise_or, (_A, _B)),
        Example("uint32", lax.bitwise_or, (_A.view(np.uint32), _B.view(np.uint32))),
    ),
    declines=(Example("bool", lax.bitwise_or, (_A > 0, _B > 0)),),
)
