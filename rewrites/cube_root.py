"""Cube roots by a power and one step of Newton's method.

Before: `cbrt` in float32.

After: with r = |x| ** (1/3), r - (r - |x| / r**2) / 3, with the sign of x; zeros and infinities stay.

Why: neither ONNX nor TFLite has the op, and their powers of negative numbers are NaN.

Exactness: see below. One step makes the error of the power, which is relative, quadratically smaller.
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site


def _cbrt(x: Array) -> Array:
    a = lax.abs(x)
    # What has no ordinary root is its own: 0, -0, infinities and NaN.
    ordinary = lax.bitwise_and(lax.gt(a, lax.full_like(a, 0)), lax.lt(a, lax.full_like(a, np.inf)))
    safe = lax.select(ordinary, a, lax.full_like(a, 1))
    root = lax.pow(safe, lax.full_like(a, 1 / 3))
    error = lax.sub(root, lax.div(safe, lax.mul(root, root)))
    root = lax.sub(root, lax.mul(error, lax.full_like(a, 1 / 3)))
    return lax.select(ordinary, lax.mul(root, lax.sign(x)), x)


def apply(site: Site) -> Replacement | Declined:
    if site.result.dtype != np.float32:
        return Declined(f"only for float32, not {site.result.dtype}")
    return site.replace(_cbrt)


_X = np.concatenate(
    [
        np.array([0, -0.0, 1, -1, 8, -27, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1.2e-38], np.float32),
        np.geomspace(1e-37, 1e38, 1001).astype(np.float32),
        np.linspace(-5, 5, 1001, dtype=np.float32),
    ]
)

RULE = Rule(
    id="OC530",
    stage="legalize",
    primitives=frozenset({"cbrt"}),
    apply=apply,
    exactness=Exactness("ulp", 3),
    page=__doc__,
    module=__name__,
    examples=(Example("range", lax.cbrt, (_X,)),),
)
