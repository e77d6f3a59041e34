"""Primitives that no table knows, by JAX's own decomposition.

Before: any primitive that the target lacks and no other rule helps, such as `erf_inv`, `lgamma`, `digamma`,
`random_gamma`, `nextafter`, `cumlogsumexp`.

After: what JAX itself lowers it to, read back from StableHLO as JAX operations: sums, products, selects, loops.

Why: JAX can lower every primitive to a small, versioned set of operations by its own formulas, so new primitives
work without a table entry. What stays opaque (LAPACK calls for eigenvalues and factorizations) is declined with
the name of the call.

Exactness: the same formulas in the same order; elementary functions within them are the runtime's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax import lax

from opcompat.inline import OUTSIDE
from opcompat.jaxcompat import configuration, shape_dtype
from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site, freeze
from opcompat.stablehlo import Undecomposable, decompose


@dataclass(frozen=True)
class _Call:
    """A primitive with its parameters, and all that its decomposition depends on. `params` is in `key`, hashable."""

    primitive: Any
    key: Hashable
    avals: tuple[tuple[tuple[int, ...], Any], ...]
    configuration: tuple[tuple[str, Any], ...]
    params: Mapping[str, Any] = field(compare=False)


@lru_cache(maxsize=1024)
def _decomposed(call: _Call) -> Callable[..., Any] | str:
    """The function, or why there is none. The same call in many places, and for many targets, is taken apart once."""
    try:
        return decompose(
            lambda *xs: call.primitive.bind(*xs, **call.params), *(shape_dtype(*aval) for aval in call.avals)
        )
    except Undecomposable as error:
        return str(error)


def apply(site: Site) -> Replacement | Declined | None:
    if site.name in OUTSIDE:
        return None
    params = dict(site.eqn.params)
    avals = tuple((v.aval.shape, v.aval.dtype) for v in site.operands)
    call = _Call(site.eqn.primitive, freeze(params), avals, tuple(sorted(configuration().items())), params)
    function = _decomposed(call)
    if isinstance(function, str):
        return Declined(function)
    # With its own operands named, the function gets them as they are: JAX itself broadcasts those of other shapes.
    return site.replace(lambda *xs: tuple(function(*xs)), site.operands)


_X = np.linspace(-0.999, 0.999, 501, dtype=np.float32)

RULE = Rule(
    id="OC590",
    stage="decompose",
    primitives=frozenset(),
    apply=apply,
    exactness=Exactness("ulp", 16, absolute=1e-6),
    page=__doc__,
    module=__name__,
    examples=(
        Example("erf_inv", lax.erf_inv, (_X,)),
        Example("lgamma", lax.lgamma, (np.abs(_X) * np.float32(5) + np.float32(0.1),)),
        Example("nextafter a number", lambda x: jax.numpy.nextafter(x, 0.0), (_X,)),
    ),
    declines=(
        Example("sin", lax.sin, (_X,)),
        Example("eigh", lambda x: jax.lax.linalg.eigh(x, symmetrize_input=False)[1], (np.eye(3, dtype=np.float32),)),
    ),
)
