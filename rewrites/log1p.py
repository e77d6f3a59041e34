"""log(1 + x) without losing small x.

Before: `log1p x` in float32.

After: for x in (-0.29, 0.41) the series of OC501 in x itself; elsewhere `log(1 + x)`, where adding one costs at
most an ulp.

Why: neither ONNX nor TFLite has the op, and `log(1 + x)` alone rounds small x away.

Exactness: see below.
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

from .log import near_zero, series


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
