"""Sorting by one integer or float key along the last axis.

Before: `sort` along any axis, by several keys, or by keys of uint32, bool and narrower integers.

After: `sort` along the last axis by one int32 or float32 key that has the same order; other operands move along.
By several keys: one stable sort for each key, the last key first, that carries the order found so far.

Why: LiteRT orders int32 and float32 only, through its largest k elements, and no runtime takes several keys.

Exactness: bit for bit, ties, NaN and signed zeros included. Where the original does not ask for stability, equal
keys may come out in another order than in JAX: the result is always the stable one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

_SIGN = np.int32(-(2**31))
_DIRECT = (np.dtype(np.int32), np.dtype(np.float32))


def _fits_int32(dtype: np.dtype) -> bool:
    return dtype == np.bool_ or (bool(jnp.issubdtype(dtype, jnp.integer)) and dtype.itemsize < 4)


def _as_key(x: Array) -> Array:
    """An int32 or float32 array in the order of `x`."""
    if x.dtype == np.uint32:
        bits = lax.bitcast_convert_type(x, np.int32)
        return lax.bitwise_xor(bits, lax.full_like(bits, _SIGN))
    return lax.convert_element_type(x, np.int32) if _fits_int32(x.dtype) else x


def _picked(x: Array, order: Array) -> Array:
    """x[row, order[row, i]]: both of shape [rows, n]."""
    rows = lax.broadcasted_iota(np.int32, order.shape, 0)
    numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(0, 1))
    return lax.gather(
        x,
        lax.concatenate([lax.expand_dims(i, (2,)) for i in (rows, order)], 2),
        numbers,
        slice_sizes=(1, 1),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def _sorted(rows: Sequence[Array], num_keys: int) -> list[Array]:
    """Arrays [rows, n], each row sorted by the first `num_keys` of them.

    The order found so far is an operand of the next sort. After the sort by the first key it is the final one;
    a single key needs none, and its operands travel with it.
    """
    keys = [_as_key(x) for x in rows[:num_keys]]
    if num_keys == 1:
        return list(lax.sort((keys[0], *rows), dimension=1, is_stable=True, num_keys=1)[1:])
    order = lax.broadcasted_iota(np.int32, rows[0].shape, 1)
    for number, key in enumerate(reversed(keys)):
        given = key if number == 0 else _picked(key, order)
        _, order = lax.sort((given, order), dimension=1, is_stable=True, num_keys=1)
    return [_picked(x, order) for x in rows]


def _as_single(axis: int, num_keys: int) -> Callable[..., tuple[Array, ...]]:
    def run(*operands: Array) -> tuple[Array, ...]:
        shape = operands[0].shape
        rest = [a for a in range(len(shape)) if a != axis]
        moved = [lax.transpose(x, (*rest, axis)) for x in operands]
        outer = moved[0].shape
        flat = [lax.reshape(x, (-1 if x.size == 0 else x.size // shape[axis], shape[axis])) for x in moved]
        back = np.argsort((*rest, axis)).tolist()
        return tuple(lax.transpose(lax.reshape(x, outer), back) for x in _sorted(flat, num_keys))

    return run


def apply(site: Site) -> Replacement | Declined | None:
    axis, keys = site.params["dimension"], site.params["num_keys"]
    dtypes = [v.aval.dtype for v in site.operands[:keys]]
    last = axis == len(site.result.shape) - 1
    if keys == 1 and last and dtypes[0] in _DIRECT:
        return Declined("it is by one key along the last axis already")
    if site.result.size == 0:
        return site.replace(lambda *xs: xs)
    odd = [d for d in dtypes if not (d in _DIRECT or d == np.uint32 or _fits_int32(d))]
    if odd:
        return Declined(f"no 32-bit key has the order of {odd[0]}")
    return site.replace(_as_single(axis, keys))


def _example(axis: int, keys: int) -> Callable[..., tuple[Array, ...]]:
    return lambda *xs: tuple(lax.sort(xs, dimension=axis, is_stable=True, num_keys=keys))


_RNG = np.random.default_rng(3)
_WORDS = _RNG.integers(0, 2**32, (4, 6), dtype=np.uint32)
_FEW = _RNG.integers(-1, 2, (4, 6), dtype=np.int32)
_FLOATS = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0] * 4, np.float32).reshape(4, 6)

RULE = Rule(
    id="OC302",
    stage="legalize",
    primitives=frozenset({"sort"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("uint32", _example(1, 1), (_WORDS, _FLOATS)),
        Example("first axis", _example(0, 1), (_FLOATS, _WORDS)),
        Example("bool", _example(1, 1), (_FEW > 0, _WORDS)),
        Example("int16", _example(0, 1), (_FEW.astype(np.int16),)),
        Example("two keys", _example(1, 2), (_FEW, _WORDS, _FLOATS)),
        Example("three keys", _example(0, 3), (_FEW > 0, _FLOATS, _FEW, _WORDS)),
        Example("nothing", _example(1, 2), (_WORDS[:0], _FEW[:0])),
    ),
    declines=(
        Example("int32", _example(1, 1), (_FEW, _WORDS)),
        Example("float32", _example(1, 1), (_FLOATS,)),
    ),
)
