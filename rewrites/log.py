"""Logarithm with a series near one.

Before: `log x` in float32.

After: for x in (0.7, 1.41), with f = x - 1 (exact) and s = f / (2 + f): `f - (f*f/2 - s * (f*f/2 + R))`, where R
is `2 * (s**2/3 + s**4/5 + ...)`, the rest of the series of 2*atanh(s) = log(1 + f). Elsewhere the runtime's own.

Why: LiteRT's default delegate loses all digits where the logarithm is small: log(0.9999999) comes out as half
its value, and Gumbel noise, -log(-log(u)), turns that into an absolute error of 0.7 in the tail.

Exactness: see below; the series alone is within 1 ulp. Formula: the form used by FreeBSD's e_logf.c, with the
plain series coefficients.
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


def _log(x: Array) -> Array:
    f = lax.sub(x, lax.full_like(x, 1.0))
    return lax.select(near_zero(f), series(f), lax.log(x))


def apply(site: Site) -> Replacement | Declined:
    if site.result.dtype != np.float32:
        return Declined(f"only for float32, not {site.result.dtype}")
    return site.replace(_log)


_X = np.concatenate(
    [
        np.array([0, -0.0, 1, np.inf, np.nan, -1, 2e-38, 3e38, 0.99999994, 1.0000001], np.float32),
        np.geomspace(1e-6, 1e6, 401).astype(np.float32),
        np.linspace(0.5, 2, 1001, dtype=np.float32),
    ]
)

RULE = Rule(
    id="OC501",
    stage="legalize",
    primitives=frozenset({"log"}),
    apply=apply,
    exactness=Exactness("ulp", 4),
    page=__doc__,
    module=__name__,
    examples=(Example("range", lax.log, (_X,)),),
)
