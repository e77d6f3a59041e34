"""Reads and writes at computed places. Indices out of range act as in JAX, and never reach a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opcompat.lowering.graph import Tensor
from opcompat.lowering.tflite.builder import TfliteBuilder
from opcompat.lowering.tflite.common import dtype, out_shape, refuse


def _as_int32(b: TfliteBuilder, eqn: Any, operand: int, index: Tensor) -> Tensor:
    """An index as int32; unsigned ones beyond its range at the end, where they are out of range as well."""
    if dtype(eqn, operand) == "uint32":
        return b.select(b.compare("LESS", index, b.int32(0)), b.int32(2**31 - 1), index)
    if index.dtype in ("int64", "uint64"):
        refuse(f"{eqn.primitive.name} with {index.dtype} indices")
    return b.cast(index, "int32")


def dynamic_slice(b: TfliteBuilder, eqn: Any, x: Tensor, *starts: Tensor) -> Tensor:
    """One GATHER of consecutive indices per moving axis.

    SLICE would do with a computed start too, but then its output, and all that follows, counts as dynamic,
    which shuts the default delegate out.
    """
    for axis, size in enumerate(eqn.params["slice_sizes"]):
        if size == x.shape[axis]:
            continue
        first = b.clip_int(_as_int32(b, eqn, axis + 1, starts[axis]), 0, x.shape[axis] - size)
        if first.data is not None:
            begin = [int(first.data) if a == axis else 0 for a in range(x.rank)]
            x = b.slice(x, begin, [size if a == axis else n for a, n in enumerate(x.shape)])
            continue
        wanted = b.reshape(first, (1,))
        if size > 1:
            wanted = b.add(wanted, b.ints(range(size)))
        x = b.gather(x, wanted, axis)
    return x


def dynamic_update_slice(b: TfliteBuilder, eqn: Any, x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    if x.shape == update.shape:
        return update
    if update.size == 0:
        return x
    places = []
    for axis, start in enumerate(starts):
        room = x.shape[axis] - update.shape[axis]
        places.append(b.int32(0) if room == 0 else b.clip_int(_as_int32(b, eqn, axis + 2, start), 0, room))
    vector = b.concat([b.reshape(p, (1,)) for p in places], 0)
    return b.op1("DYNAMIC_UPDATE_SLICE", [x, update, vector], x.shape, x.dtype)


def gather(b: TfliteBuilder, eqn: Any, x: Tensor, indices: Tensor) -> Tensor:
    """`take` along one axis, whole slices elsewhere, batch axes in front: one GATHER.

    Any other form is refused.
    """
    p = eqn.params
    if "FILL" in str(p["mode"]):
        refuse("gather mode fill: out of range, GATHER fails")
    numbers = p["dimension_numbers"]
    axis, batch = _taken_axis(x, indices, numbers, p["slice_sizes"])
    picks = _as_int32(b, eqn, 1, b.reshape(indices, indices.shape[:-1]))
    safe = b.clip_int(picks, 0, x.shape[axis] - 1)
    taken = b.gather(x, safe, axis, batch)
    order = _result_order(numbers.offset_dims, axis, batch, picks.rank, len(out_shape(eqn)))
    # "Promised in bounds" is clamped as well: that is what JAX does on the CPU, and GATHER would fail.
    return b.transpose(taken, order)


def _taken_axis(x: Tensor, indices: Tensor, numbers: Any, slice_sizes: Sequence[int]) -> tuple[int, int]:
    """(the axis that is indexed, the number of leading batch axes), or Unsupported."""
    batch = len(numbers.operand_batching_dims)
    leading = tuple(range(batch))
    simple = (
        len(numbers.start_index_map) == 1
        and tuple(numbers.collapsed_slice_dims) == tuple(numbers.start_index_map)
        and tuple(numbers.operand_batching_dims) == leading
        and tuple(numbers.start_indices_batching_dims) == leading
    )
    if not simple or indices.shape[-1] != 1:
        refuse("gather that is not a take along one axis")
    axis = int(numbers.start_index_map[0])
    if axis < batch or x.shape[axis] == 0:
        refuse("gather from an empty or batched axis")
    whole = [n if a != axis and a >= batch else 1 for a, n in enumerate(x.shape)]
    if list(slice_sizes) != whole:
        refuse("gather of partial slices")
    return axis, batch


def _result_order(offset_dims: Sequence[int], axis: int, batch: int, pick_rank: int, rank: int) -> list[int]:
    """From GATHER's axes (batch, slice before, picked, slice after) to those that JAX asks for."""
    picked = pick_rank - batch
    slice_axes = [*range(batch, axis), *range(axis + picked, rank)]
    index_axes = [*range(batch), *range(axis, axis + picked)]
    order, slices, others = [], iter(slice_axes), iter(index_axes)
    for out in range(rank):
        order.append(next(slices) if out in offset_dims else next(others))
    return order
