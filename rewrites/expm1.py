"""exp(x) - 1 without losing small x.

Before: `expm1 x` in float32.

After: for |x| < 0.35 the Taylor series, `x * (1 + x * (1/2 + x * (1/6 + ...)))` to the ninth power; elsewhere
`exp(x) - 1`, which there loses at most two bits.

Why: neither ONNX nor TFLite has the op, and `exp(x) - 1` alone rounds small x away.

Exactness: see below; nine terms leave less than 1e-10.
"""

from __future__ import annotations

import math

import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

_NEAR = 0.35
_DEGREE = 9


def _expm1(x: Array) -> Array:
    rest = lax.full_like(x, 1.0 / math.factorial(_DEGREE))
    for power in range(_DEGREE - 1, 1, -1):
        rest = lax.add(lax.mul(rest, x), lax.full_like(x, 1.0 / math.factorial(power)))
    # A product keeps the sign of a zero.
    near = lax.mul(x, lax.add(lax.mul(x, rest), lax.full_like(x, 1.0)))
    far = lax.sub(lax.exp(x), lax.full_like(x, 1.0))
    return lax.select(lax.lt(lax.abs(x), lax.full_like(x, _NEAR)), near, far)


def apply(site: Site) -> Replacement | Declined:
    if site.result.dtype != np.float32:
        return Declined(f"only for float32, not {site.result.dtype}")
    return site.replace(_expm1)


_X = np.concatenate(
    [
        np.array([0, np.inf, -np.inf, np.nan, 88, 89, -88, -200, 2e-38, 1e-7, -1e-7], np.float32),
        np.linspace(-10, 10, 2001, dtype=np.float32),
        np.linspace(-0.5, 0.5, 1001, dtype=np.float32),
    ]
)

RULE = Rule(
    id="OC503",
    stage="legalize",
    primitives=frozenset({"expm1"}),
    apply=apply,
    exactness=Exactness("ulp", 5),
    page=__doc__,
    module=__name__,
    examples=(Example("range", lax.expm1, (_X,)),),
)
