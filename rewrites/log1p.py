"""log(1 + x) without losing small x.

Before: `log1p x` in float32.

After: for x in (-0.29, 0.41), with s = x / (2 + x): `x - (x*x/2 - s * (x*x/2 + R))`, where R is
`2 * (s**2/3 + s**4/5 + ...)`, the rest of the series of 2*atanh(s) = log(1 + x). Elsewhere `log(1 + x)`, where
adding one costs at most an ulp.

Why: neither ONNX nor TFLite has the op, and `log(1 + x)` alone rounds small x away.

Exactness: see below. Formula: the form used by FreeBSD's e_logf.c, with the plain series coefficients.
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

_LOW, _HIGH = -0.2929, 0.4142
_TERMS = 7


def series(f: Array) -> Array:
    """log(1 + f) for float32 f in (-0.2929, 0.4142): s is below 0.172, so seven terms leave less than 1e-9."""
    s = lax.div(f, lax.add(f, lax.full_like(f, 2.0)))
    z = lax.mul(s, s)
    rest = lax.full_like(f, 2.0 / (2 * _TERMS + 1))
    for term in range(_TERMS - 1, 0, -1):
        rest = lax.add(lax.mul(rest, z), lax.full_like(f, 2.0 / (2 * term + 1)))
    half = lax.mul(lax.full_like(f, 0.5), lax.mul(f, f))
    return lax.sub(f, lax.sub(half, lax.mul(s, lax.add(half, lax.mul(rest, z)))))


def near_zero(f: Array) -> Array:
    """Whether the series may be used for log(1 + f)."""
    return lax.bitwise_and(lax.gt(f, lax.full_like(f, _LOW)), lax.lt(f, lax.full_like(f, _HIGH)))


def _log1p(x: Array) -> Array:
    return lax.select(near_zero(x), series(x), lax.log(lax.add(x, lax.full_like(x, 1.0))))


def apply(site: Site) -> Replacement | Declined:
    if site.result.dtype != np.float32:
        return Declined(f"only for float32, not {site.result.dtype}")
    return site.replace(_log1p)


_X = np.concatenate(
    [
        np.array([0, -0.0, -1, np.inf, np.nan, -2, 2e-38, 3e38, 1e-7, -1e-7, -0.9999999], np.float32),
        np.geomspace(1e-9, 1e6, 401).astype(np.float32),
        np.linspace(-0.99, 1, 1001, dtype=np.float32),
    ]
)

RULE = Rule(
    id="OC502",
    stage="legalize",
    primitives=frozenset({"log1p"}),
    apply=apply,
    exactness=Exactness("ulp", 5),
    page=__doc__,
    module=__name__,
    examples=(Example("range", lax.log1p, (_X,)),),
)
