"""Scatter as one update after the other.

Before: `scatter`, `scatter-add`, `-sub`, `-mul`, `-min` and `-max` in their general form, as `x.at[i].set(v)` and its
kin give them.

After: for each index, the window of the operand that it points at is read, combined with its update and written back:
up to four times in a row, for more indices in a loop. In mode "clip" the window is moved into bounds; else what is
out of bounds leaves the window as it was.

Why: TFLite's scatter starts from zeros, adds where indices repeat, and stops at indices out of range.

Exactness: bit for bit: JAX on the CPU updates in the same order, so repeated indices, too, give the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.extend import core as jexc

from opcompat.jaxcompat import is_jaxpr
from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

UNROLLED = 4
"""Up to this many updates stand one after the other, without a loop."""

_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "scatter-add": lax.add,
    "scatter-sub": lax.sub,
    "scatter-mul": lax.mul,
    "scatter-min": lax.min,
    "scatter-max": lax.max,
}


def _combiner(site: Site) -> Callable[[Array, Array], Array]:
    """(what stands there, update) -> what will stand there."""
    if site.name in _COMBINE:
        return _COMBINE[site.name]
    body = site.params["update_jaxpr"]
    if body is None:
        return lambda _, update: update
    # `x.at[i].apply(f)` is a scatter whose body is f.
    closed = (
        body if is_jaxpr(body) and hasattr(body, "consts") else jexc.ClosedJaxpr(body, site.params["update_consts"])
    )
    single = jexc.jaxpr_as_fun(closed)

    def run(old: Array, update: Array) -> Array:
        flat = jax.vmap(lambda a, b: single(a, b)[0])(lax.reshape(old, (old.size,)), lax.reshape(update, (old.size,)))
        return lax.reshape(flat, old.shape)

    return run


def _starts(indices: Array, numbers: Any, rank: int) -> Array:
    """int32[N, rank]: where each window starts, before any clamping."""
    batch = indices.shape[:-1]
    columns = [lax.full(batch, 0, np.int32)] * rank
    for column, axis in enumerate(numbers.scatter_dims_to_operand_dims):
        columns[axis] = _as_int32(lax.index_in_dim(indices, column, indices.ndim - 1, keepdims=False))
    pairs = zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    for axis, which in pairs:
        columns[axis] = lax.broadcasted_iota(np.int32, batch, which)
    flat = [lax.reshape(c, (math.prod(batch), 1)) for c in columns]
    return lax.concatenate(flat, 1)


def _as_int32(indices: Array) -> Array:
    if indices.dtype == np.uint32:
        limit = lax.full_like(indices, np.uint32(2**31 - 1))
        return lax.bitcast_convert_type(lax.min(indices, limit), np.int32)
    return lax.convert_element_type(indices, np.int32)


def _windows(updates: Array, numbers: Any, rank: int, count: int) -> Array:
    """The updates as [N, window...], the window with all axes of the operand."""
    inside = numbers.update_window_dims
    batch = [d for d in range(updates.ndim) if d not in inside]
    sizes = iter(updates.shape[d] for d in inside)
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = [1 if axis in single else next(sizes) for axis in range(rank)]
    return lax.reshape(lax.transpose(updates, (*batch, *inside)), (count, *window))


def _one_by_one(site: Site) -> Callable[[Array, Array, Array], Array]:
    numbers, combine = site.params["dimension_numbers"], _combiner(site)
    # A promise that is broken drops, too: so does JAX.
    drops = lax.GatherScatterMode.from_any(site.params["mode"]) != lax.GatherScatterMode.CLIP

    def scatter(operand: Array, indices: Array, updates: Array) -> Array:
        count = math.prod(indices.shape[:-1])
        if count == 0 or operand.size == 0 or updates.size == 0:
            return operand
        starts = _starts(indices, numbers, operand.ndim)
        windows = _windows(updates, numbers, operand.ndim, count)
        room = np.asarray([n - w for n, w in zip(operand.shape, windows.shape[1:], strict=True)], np.int32)
        highest = lax.broadcast_in_dim(jnp.asarray(room), starts.shape, (1,))
        zero = lax.full_like(starts, 0)
        held = lax.min(lax.max(starts, zero), highest)
        inside = lax.reduce_and(lax.eq(starts, held), (1,))

        def step(x: Array, start: Array, window: Array, ok: Array) -> Array:
            places = [lax.index_in_dim(start, axis, 0, keepdims=False) for axis in range(x.ndim)]
            old = lax.dynamic_slice(x, places, window.shape, allow_negative_indices=False)
            new = combine(old, window)
            if drops:
                new = lax.select(lax.broadcast(ok, window.shape), new, old)
            return lax.dynamic_update_slice(x, new, places, allow_negative_indices=False)

        if count > UNROLLED:
            return lax.scan(lambda x, row: (step(x, *row), None), operand, (held, windows, inside))[0]
        for n in range(count):
            rows = (lax.index_in_dim(v, n, 0, keepdims=False) for v in (held, windows, inside))
            operand = step(operand, *rows)
        return operand

    return scatter


def apply(site: Site) -> Replacement | Declined | None:
    if not jnp.issubdtype(site.aval(1).dtype, jnp.integer):
        return Declined(f"indices are {site.aval(1).dtype}")
    return site.replace(_one_by_one(site))


_T = np.arange(24, dtype=np.float32).reshape(4, 6)
_I = np.array([[0, 2], [-1, 1], [5, 0], [1, 1], [0, 2], [3, 9]], np.int32)
_V = np.array([1, 2, 4, 8, 16, np.nan], np.float32)

RULE = Rule(
    id="OC350",
    stage="legalize",
    primitives=frozenset({"scatter", *_COMBINE}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("set", lambda t, i, v: t.at[i[:, 0], i[:, 1]].set(v), (_T, _I, _V)),
        Example("promise", lambda t, i, v: t.at[i[:, 0], i[:, 1]].add(v, mode="promise_in_bounds"), (_T, _I, _V)),
        Example("add", lambda t, i, v: t.at[i[:, 0], i[:, 1]].add(v, mode="clip"), (_T, _I, _V)),
        Example("max", lambda t, i, v: t.at[i[:, 0], i[:, 1]].max(v), (_T, _I, _V)),
        Example("one row", lambda t, i, v: t.at[i[1, 1]].mul(v), (_T, _I, _V)),
        Example("columns", lambda t, i, v: t.at[:, i[:, 1]].set(v[:4, None]), (_T, _I, _V)),
        Example("applied", lambda t, i: t.at[i[:2, 0]].apply(jnp.square), (_T, _I)),
        Example("batched", lambda t, i, v: jax.vmap(lambda a, k: a.at[k].add(v[:2]))(t, i[:4]), (_T, _I, _V)),
    ),
)
