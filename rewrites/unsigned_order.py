"""Order of unsigned integers by signed operations.

Before: `lt`, `le`, `gt`, `ge`, `max`, `min`, `clamp`, `reduce_max`, `reduce_min`, `argmax`, `argmin` on uint32.

After: the same on int32, after flipping the sign bit, which maps 0..2**32-1 to -2**31..2**31-1 in order; results
that are values are flipped back.

Why: LiteRT compares signed integers only, and ONNX Runtime lacks some kernels for uint32.

Exactness: bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site

_COMPARES = frozenset({"lt", "le", "gt", "ge"})
_SELECTS = frozenset({"max", "min", "clamp", "reduce_max", "reduce_min"})
_INDICES = frozenset({"argmax", "argmin"})
_SIGN = np.int32(-(2**31))


def _to_signed(x: Array) -> Array:
    bits = lax.bitcast_convert_type(x, np.int32)
    return lax.bitwise_xor(bits, lax.full_like(bits, _SIGN))


def _to_unsigned(x: Array) -> Array:
    return lax.bitcast_convert_type(lax.bitwise_xor(x, lax.full_like(x, _SIGN)), np.uint32)


def apply(site: Site) -> Replacement | None:
    if site.aval(0).dtype != np.uint32:
        return None
    primitive, params = site.eqn.primitive, site.eqn.params

    def signed(*xs: Array) -> Any:
        out = primitive.bind(*(_to_signed(x) for x in xs), **params)
        return _to_unsigned(out) if site.name in _SELECTS else out

    return site.replace(signed)


_A = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)
_B = np.array([0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 1], np.uint32)

RULE = Rule(
    id="OC206",
    stage="legalize",
    primitives=_COMPARES | _SELECTS | _INDICES,
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("max", lax.max, (_A, _B)),
        Example("min", lax.min, (_A, _B)),
        Example("reduce_max", jnp.max, (_A,)),
        Example("argmax", lambda x: lax.argmax(x, 0, np.int32), (_A,)),
    ),
    declines=(Example("int32", lax.max, (_A.view(np.int32), _B.view(np.int32))),),
)
