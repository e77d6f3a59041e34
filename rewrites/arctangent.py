"""The angle of a point by the arctangent of a ratio.

Before: `atan2(y, x)` in float32.

After: with t = atan(min / max) of |x| and |y|, which is in [0, pi/4]: pi/2 - t where |y| > |x|, then pi minus that
where x is negative, with the sign of y. Signs of zeros count, and two infinities are a ratio of 1.

Why: ONNX has an arctangent of one argument only.

Exactness: see below.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import Array, lax

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site


def _is_negative(x: Array) -> Array:
    """Whether the sign bit is set: the reciprocal of -0 is below 0."""
    return lax.lt(lax.min(x, lax.div(lax.full_like(x, 1), x)), lax.full_like(x, 0))


def _atan2(y: Array, x: Array) -> Array:
    height, width = lax.abs(y), lax.abs(x)
    largest = lax.max(height, width)
    ratio = lax.div(lax.min(height, width), largest)
    ratio = lax.select(lax.eq(largest, lax.full_like(x, 0)), lax.full_like(x, 0), ratio)
    both = lax.eq(lax.min(height, width), lax.full_like(x, np.inf))
    angle = lax.atan(lax.select(both, lax.full_like(x, 1), ratio))
    angle = lax.select(lax.gt(height, width), lax.sub(lax.full_like(x, np.pi / 2), angle), angle)
    angle = lax.select(_is_negative(x), lax.sub(lax.full_like(x, np.pi), angle), angle)
    return lax.mul(angle, lax.select(_is_negative(y), lax.full_like(x, -1), lax.full_like(x, 1)))


def apply(site: Site) -> Replacement | Declined:
    if site.result.dtype != np.float32:
        return Declined(f"only for float32, not {site.result.dtype}")
    return site.replace(_spread(site.result.shape))


def _spread(shape: tuple[int, ...]) -> Callable[[Array, Array], Array]:
    """An equation may take a scalar beside an array."""

    def run(y: Array, x: Array) -> Array:
        return _atan2(*(lax.broadcast_in_dim(v, shape, range(len(shape) - v.ndim, len(shape))) for v in (y, x)))

    return run


_VALUES = np.array([0, -0.0, 1, -1, 2.5, -7, 1e-30, -1e-30, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)
_Y, _X = np.repeat(_VALUES, _VALUES.size), np.tile(_VALUES, _VALUES.size)
_ANGLES = np.linspace(-np.pi, np.pi, 1001)

RULE = Rule(
    id="OC531",
    stage="legalize",
    primitives=frozenset({"atan2"}),
    apply=apply,
    exactness=Exactness("ulp", 4),
    page=__doc__,
    module=__name__,
    examples=(
        Example("boundaries", lax.atan2, (_Y, _X)),
        Example("circle", lax.atan2, (np.sin(_ANGLES).astype(np.float32), np.cos(_ANGLES).astype(np.float32))),
    ),
)
