"""log(1 + x) without losing small x.

Before: `log1p x` in float32.

After: with u = 1 + x and d = u - 1 (what is left of x in u), `log(u) / d * x`. Where d is 0 or x is infinite, `1 * x`:
choosing the factor and not the product keeps the sign of zero, which ONNX Runtime's Where loses.

Why: neither ONNX nor TFLite has the op, and `log(1 + x)` alone rounds small x away.

Exactness: see below; 3.8 ulp at most were measured in ONNX Runtime and 2.1 in LiteRT (docs/accuracy.md). Formula:
theorem 4 of D. Goldberg, "What every computer scientist should know about floating-point arithmetic" (1991).
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site


def _log1p(x: Array) -> Array:
    one = lax.full_like(x, 1.0)
    # XLA would make x of (x + 1) - 1.
    u: Array = lax.optimization_barrier(lax.add(x, one))  # type: ignore[no-untyped-call]
    kept = lax.sub(u, one)
    itself = lax.bitwise_or(lax.eq(kept, lax.full_like(x, 0.0)), lax.eq(x, lax.full_like(x, np.inf)))
    return lax.mul(lax.select(itself, one, lax.div(lax.log(u), kept)), x)


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
