"""Products of integer and bool matrices by multiplying and adding.

Before: `dot_general` on integers or bools, or into them.

After: both operands spread to [batch, left, right, contracted], multiplied, and the products added along
the last axis; bools by `and` and `or`. Integers whose product is to be a float are converted to it first, and floats
whose product is to be an integer are multiplied as floats.

Why: LiteRT multiplies matrices of float32, and of quantized integers.

Exactness: bit for bit, sums that wrap around included. More than 2**24 products are declined: they would stand in
memory all at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

LIMIT = 2**24


def _matrices(x: Array, contracted: Sequence[int], batch: Sequence[int]) -> Array:
    """`x` as [batch, free, contracted]."""
    free = [a for a in range(x.ndim) if a not in contracted and a not in batch]
    sizes = [math.prod(x.shape[a] for a in axes) for axes in (batch, free, contracted)]
    return lax.reshape(lax.transpose(x, (*batch, *free, *contracted)), sizes)


def _products(dimension_numbers: Any, result: Any) -> Callable[[Array, Array], Array]:
    (x_contracted, y_contracted), (x_batch, y_batch) = dimension_numbers

    def run(x: Array, y: Array) -> Array:
        x, y = (lax.convert_element_type(v, result.dtype) for v in (x, y))
        left, right = _matrices(x, x_contracted, x_batch), _matrices(y, y_contracted, y_batch)
        shape = (*left.shape[:2], right.shape[1], left.shape[2])
        left, right = lax.broadcast_in_dim(left, shape, (0, 1, 3)), lax.broadcast_in_dim(right, shape, (0, 2, 3))
        if result.dtype == np.bool_:
            found = lax.reduce_or(lax.bitwise_and(left, right), (3,))
        else:
            found = lax.reduce_sum(lax.mul(left, right), (3,))
        return lax.reshape(found, result.shape)

    return run


def _through_floats(site: Site, dtype: np.dtype) -> Callable[[Array, Array], Array]:
    params = {**site.params, "preferred_element_type": dtype}

    def run(x: Array, y: Array) -> Any:
        operands = [lax.convert_element_type(v, dtype) for v in (x, y)]
        return lax.convert_element_type(site.eqn.primitive.bind(*operands, **params), site.result.dtype)

    return run


def apply(site: Site) -> Replacement | Declined | None:
    dtypes = [site.aval(0).dtype, site.aval(1).dtype, site.result.dtype]
    floats = [bool(jnp.issubdtype(d, jnp.inexact)) for d in dtypes]
    if any(floats):
        return (
            Declined("floats only")
            if all(floats)
            else site.replace(_through_floats(site, next(d for d, f in zip(dtypes, floats, strict=True) if f)))
        )
    numbers = site.params["dimension_numbers"]
    inner = math.prod(site.aval(0).shape[a] for a in numbers[0][0])
    if site.result.size * inner > LIMIT:
        return Declined(f"more than {LIMIT} products")
    return site.replace(_products(numbers, site.result))


_RNG = np.random.default_rng(0)
_X = _RNG.integers(-(2**31), 2**31, (3, 4, 5), dtype=np.int32)
_Y = _RNG.integers(-(2**31), 2**31, (3, 5, 2), dtype=np.int32)
_NUMBERS = (((2,), (1,)), ((0,), (0,)))

RULE = Rule(
    id="OC254",
    stage="legalize",
    primitives=frozenset({"dot_general"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("int32", lambda x, y: lax.dot_general(x, y, _NUMBERS), (_X, _Y)),
        Example("uint32", lambda x, y: lax.dot(x, y), (_X.view(np.uint32)[0], _Y.view(np.uint32)[0])),
        Example("bool", lambda x, y: lax.dot(x, y), (_X[0] > 0, _Y[0] > 0)),
        Example(
            "int8 into int32",
            lambda x, y: lax.dot(x, y, preferred_element_type=np.int32),
            (_X[0].astype(np.int8), _Y[0].astype(np.int8)),
        ),
        Example("into float32", lambda x, y: lax.dot(x, y, preferred_element_type=np.float32), (_X[0] % 9, _Y[0] % 9)),
        Example("outer", lambda x, y: lax.dot_general(x, y, (((), ()), ((), ()))), (_X[0, 0], _Y[0])),
        Example("nothing", lambda x, y: lax.dot(x, y), (_X[0, :, :0], _Y[0, :0])),
    ),
    declines=(Example("float32", lax.dot, (np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))),),
)
