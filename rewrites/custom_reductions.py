"""Reductions by any function, neighbour with neighbour.

Before: `reduce` of one operand or several with a function of its own, as `lax.reduce` gives it.

After: each element combined with the next one, again and again until one is left, and that with the initial value.
Sums, products, maxima, minima and bits are reductions of their own.

Why: runtimes reduce by a fixed set of functions, one operand at a time.

Exactness: bit for bit for functions that are associative in the dtype; others, float sums among them, are taken in
another order, as JAX itself does from a certain size on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.extend import core as jexc

from opcompat.jaxcompat import combiner, is_literal, parts
from opcompat.rule import Exactness, Example, Replacement, Rule, Site

_NAMED: dict[str, tuple[Callable[[Array, Sequence[int]], Array], Callable[[Array, Array], Array]]] = {
    "add": (lax.reduce_sum, lax.add),
    "mul": (lax.reduce_prod, lax.mul),
    "max": (lax.reduce_max, lax.max),
    "min": (lax.reduce_min, lax.min),
    "and": (lax.reduce_and, lax.bitwise_and),
    "or": (lax.reduce_or, lax.bitwise_or),
    "xor": (lax.reduce_xor, lax.bitwise_xor),
}


def names_of(closed: Any) -> list[str] | None:
    """The function of each operand if each is combined by itself and by one equation; None if not so."""
    body = parts(closed)
    makers = {eqn.outvars[0]: eqn for eqn in body.eqns}
    pairs = zip(body.invars, body.invars[len(body.outvars) :], strict=False)
    names = []
    for out, pair in zip(body.outvars, pairs, strict=True):
        eqn = None if is_literal(out) else makers.get(out)
        if eqn is None or eqn.primitive.name not in _NAMED or tuple(eqn.invars) != pair:
            return None
        names.append(eqn.primitive.name)
    return names


def elementwise(closed: Any) -> Callable[..., list[Array]]:
    """The body of a reduction, which takes scalars, on arrays of one shape."""
    body: Any = jax.vmap(jexc.jaxpr_as_fun(closed))  # untyped in JAX

    def run(*xs: Array) -> list[Array]:
        results = body(*(lax.reshape(x, (x.size,)) for x in xs))
        return [lax.reshape(r, xs[0].shape) for r in results]

    return run


def _folded(rows: list[Array], combine: Callable[..., list[Array]]) -> list[Array]:
    """The rows combined into one, in their order."""
    while (count := rows[0].shape[0]) > 1:
        even, odd = ([lax.slice_in_dim(x, i, count - count % 2, 2) for x in rows] for i in range(2))
        last = [lax.slice_in_dim(x, count - count % 2, count) for x in rows]
        rows = combine(*even, *odd)
        if count % 2:
            rows = [lax.concatenate([x, y], 0) for x, y in zip(rows, last, strict=True)]
    return rows


def _reduced(closed: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> Callable[..., tuple[Array, ...]]:
    names, combine = names_of(closed), elementwise(closed)

    def run(*given: Array) -> tuple[Array, ...]:
        count = len(given) // 2
        operands, starts = given[:count], [lax.broadcast(x, shape) for x in given[count:]]
        kept = [a for a in range(operands[0].ndim) if a not in axes]
        size = math.prod(operands[0].shape[a] for a in axes)
        if size == 0 or 0 in shape:
            return tuple(starts)
        if names is not None:
            both = [_NAMED[name] for name in names]
            results = [reduce(x, axes) for (reduce, _), x in zip(both, operands, strict=True)]
            return tuple(pair(s, r) for (_, pair), s, r in zip(both, starts, results, strict=True))
        rows = [lax.reshape(lax.transpose(x, (*axes, *kept)), (size, math.prod(shape))) for x in operands]
        return tuple(combine(*starts, *(lax.reshape(x, shape) for x in _folded(rows, combine))))

    return run


def apply(site: Site) -> Replacement:
    axes = tuple(sorted(int(a) for a in site.params["dimensions"]))
    return site.replace(_reduced(combiner(site.params), axes, site.result.shape))


_X = np.random.default_rng(0).integers(0, 2**32, (3, 5, 2), dtype=np.uint32)
_F = np.linspace(0.5, 1.5, 42, dtype=np.float32).reshape(6, 7)
_PLACES = np.arange(42, dtype=np.int32).reshape(6, 7)


def _example(function: Any, axes: tuple[int, ...], *starts: Any) -> Callable[..., Any]:
    def run(*xs: Array) -> Any:
        first = tuple(np.asarray(s).astype(x.dtype)[()] for s, x in zip(starts, xs, strict=True))
        return lax.reduce(xs, first, function, axes)

    return run


def _largest(x: Any, y: Any) -> Any:
    """(value, place) of the larger value, of equals the one that comes first."""
    first = lax.bitwise_or(lax.gt(x[0], y[0]), lax.bitwise_and(lax.eq(x[0], y[0]), lax.lt(x[1], y[1])))
    return lax.select(first, x[0], y[0]), lax.select(first, x[1], y[1])


RULE = Rule(
    id="OC360",
    stage="legalize",
    primitives=frozenset({"reduce"}),
    apply=apply,
    exactness=Exactness("ulp", 16),
    page=__doc__,
    module=__name__,
    examples=(
        Example("sum from 3", _example(lambda x, y: (lax.add(x[0], y[0]),), (0, 1), 3.0), (_F,)),
        Example("last", _example(lambda x, y: (y[0],), (1,), 0), (_X,)),
        Example("largest and place", _example(_largest, (1,), -np.inf, 0), (_F % np.float32(0.3), _PLACES)),
        Example(
            "maximum and minimum",
            _example(lambda x, y: (lax.max(x[0], y[0]), lax.min(x[1], y[1])), (0, 2), 3, 0),
            (_X, _X.view(np.int32)),
        ),
        Example("circle", _example(lambda x, y: (x[0] + y[0] + x[0] * y[0],), (0, 2), 0), (_X,)),
        Example("a constant", _example(lambda x, y: (lax.max(x[0], y[0]) | np.uint32(1),), (0,), 0), (_X,)),
        Example("nothing", _example(lambda x, y: (x[0] * y[0] + y[0],), (0,), 3), (_X[:0],)),
    ),
)
