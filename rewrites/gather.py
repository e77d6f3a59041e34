"""Indexing by a clamped take along one axis.

Before: `gather` in its general form, as `x[i, j]`, `jnp.take_along_axis` and dynamic indexing give it.

After: the flat index of every row that is read, computed with clamping, and one take along the first axis of the
operand reshaped to rows. (Mode "fill" has become a clip and a select before: OC303.)

Why: runtimes gather along one axis, and where JAX clamps or fills, they raise an error or read elsewhere. Trailing
dimensions that are taken whole stay together, so embedding look-ups copy rows, not elements.

Exactness: bit for bit, out-of-range indices included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def apply(site: Site) -> Replacement | Declined | None:
    if not jnp.issubdtype(site.aval(1).dtype, jnp.integer):
        return Declined(f"indices are {site.aval(1).dtype}")
    if math.prod(site.aval(0).shape) >= 2**31:
        return Declined("the operand has more elements than an int32 index can tell apart")
    if lax.GatherScatterMode.from_any(site.params["mode"]) == lax.GatherScatterMode.FILL_OR_DROP:
        return None
    return site.replace(_as_take(site.eqn.params, site.result.shape))


def _as_take(params: Any, out_shape: tuple[int, ...]) -> Callable[[Array, Array], Array]:
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]

    def take(operand: Array, indices: Array) -> Array:
        shape = operand.shape
        rows = _whole_tail(shape, numbers, sizes, len(out_shape))
        head, tail = shape[: len(shape) - rows], shape[len(shape) - rows :]
        starts = _starts(indices, shape, numbers, sizes)
        batch = [d for d in range(len(out_shape)) if d not in numbers.offset_dims]
        lead = out_shape[: len(out_shape) - rows]
        flat = jnp.zeros(lead, jnp.int32)
        hidden = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        visible = iter(numbers.offset_dims)
        for dim in range(len(head)):
            stride = math.prod(head[dim + 1 :])
            position = _spread(starts.get(dim), lead, batch)
            if dim in numbers.operand_batching_dims:
                which = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(dim)]
                position = lax.broadcasted_iota(jnp.int32, lead, batch[which])
            if dim not in hidden:
                position = position + lax.broadcasted_iota(jnp.int32, lead, next(visible))
            flat = flat + position * np.int32(stride)
        table = lax.reshape(operand, (math.prod(head), *tail))
        return _take_rows(table, flat)

    return take


def _whole_tail(shape: tuple[int, ...], numbers: Any, sizes: tuple[int, ...], out_rank: int) -> int:
    """How many trailing dimensions are taken whole and stay last in the result."""
    hidden = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    count = 0
    for dim in reversed(range(len(shape))):
        stays_last = out_rank - 1 - count in numbers.offset_dims
        if dim in hidden or sizes[dim] != shape[dim] or not stays_last:
            break
        count += 1
    return count


def _starts(indices: Array, shape: tuple[int, ...], numbers: Any, sizes: tuple[int, ...]) -> dict[int, Array]:
    """The clamped start of the slice in each indexed dimension."""
    signed = as_int32(indices)
    starts = {}
    for column, dim in enumerate(numbers.start_index_map):
        start = lax.index_in_dim(signed, column, indices.ndim - 1, keepdims=False)
        last = lax.full_like(start, shape[dim] - sizes[dim])
        starts[dim] = lax.min(lax.max(start, lax.full_like(start, 0)), last)
    return starts


def as_int32(indices: Array) -> Array:
    """Indices as int32. Those beyond its range go to its end, or to -1: they stay on their side of any operand."""
    dtype, highest = indices.dtype, 2**31 - 1
    if dtype.itemsize >= 4 and dtype != np.int32:
        indices = lax.min(indices, lax.full_like(indices, highest))
        if dtype.kind == "i":
            indices = lax.max(indices, lax.full_like(indices, -1))
    if dtype == np.uint32:
        return lax.bitcast_convert_type(indices, np.int32)
    return lax.convert_element_type(indices, np.int32)


def _spread(value: Array | None, shape: tuple[int, ...], batch: list[int]) -> Array:
    """A value per batch index (or nothing) at each element of the result's leading dimensions."""
    if value is None:
        return jnp.zeros(shape, jnp.int32)
    return lax.broadcast_in_dim(value, shape, tuple(batch))


def _take_rows(table: Array, rows: Array) -> Array:
    """table[rows] for indices that are in bounds: the one form of gather that lowerings accept."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(rows.ndim, rows.ndim + table.ndim - 1)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
    )
    return lax.gather(
        table,
        lax.expand_dims(rows, (rows.ndim,)),
        numbers,
        slice_sizes=(1, *table.shape[1:]),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


_T = np.arange(24, dtype=np.float32).reshape(4, 6)
_I = np.array([[0], [3], [-1], [9]], np.int32)

RULE = Rule(
    id="OC301",
    stage="legalize",
    primitives=frozenset({"gather"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("clip", lambda t, i: jnp.take_along_axis(t, i, 1, mode="clip"), (_T, _I)),
        Example("two indices", lambda t, i: t[i[:, 0], i[::-1, 0]], (_T, _I % 4)),
        Example("bytes", lambda t, i: t.at[i.astype(np.int8)[:, 0]].get(mode="clip"), (np.tile(_T, (25, 1)), _I)),
        Example("unsigned", lambda t, i: t.at[i.astype(np.uint32)[:, 0]].get(mode="clip"), (_T, _I)),
        Example("64 bits", lambda t, i: t.at[i.astype(np.int64)[:, 0] << 40].get(mode="clip"), (_T, _I), x64=True),
        Example(
            "windows",
            lambda t, i: jax.vmap(lambda k: lax.dynamic_slice(t, (k, k), (2, 3)))(i[:, 0]),
            (_T, _I),
        ),
    ),
)
