"""Gather and scatter.

ONNX Runtime refuses an index out of bounds where JAX clamps, fills or drops, so indices are clamped first
unless they are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opcompat.lowering.builder import Lowering, Unsupported
from opcompat.lowering.graph import Tensor
from opcompat.lowering.onnx.builder import OnnxBuilder
from opcompat.lowering.onnx.dtypes import FLOATS


def gather(b: OnnxBuilder, eqn: Any, x: Tensor, indices: Tensor) -> Tensor:
    """Takes a window of x at each index, in full generality.

    x: any shape; indices: [batch..., n], the last axis holds one start for each axis in start_index_map. Both
    may share "batching" axes. Modes clip and promise_in_bounds clamp (as XLA does on the CPU).
    """
    d, sizes = eqn.params["dimension_numbers"], tuple(eqn.params["slice_sizes"])
    shape, mode = tuple(eqn.outvars[0].aval.shape), eqn.params["mode"].name
    indexed, batching = tuple(d.start_index_map), tuple(d.operand_batching_dims)
    if 0 in shape:
        return b.full(shape, 0, x.dtype)
    if mode not in ("CLIP", "PROMISE_IN_BOUNDS"):
        raise Unsupported(f"gather mode {mode}: out of range, ONNX raises an error")
    limits = [x.shape[i] - sizes[i] for i in indexed]

    # The batch axes of indices and the window axes are followed by label through gather and transpose.
    batch = [("batch", i) for i in range(indices.rank - 1)]
    offset = [i for i in range(x.rank) if i not in d.collapsed_slice_dims and i not in batching]
    front = [("batch", int(i)) for i in d.start_indices_batching_dims]
    # An index along an axis that is taken whole can only be 0.
    columns = [k for k, i in enumerate(indexed) if limits[k] or sizes[i] == 1]
    picked = [indexed[k] for k in columns]
    windowed = [i for i in picked if sizes[i] > 1]
    index = _selected(b, _clamped(b, indices, limits), columns)
    index = _widened(b, index, [sizes[i] if i in windowed else 1 for i in picked])
    labels = [*batch, *(("axis", i) for i in windowed)]
    rest = [i for i in range(x.rank) if i not in picked and i not in batching]
    if len(picked) == 1 and not batching:
        taken = b.gather(x, b.squeeze(index, [-1]), picked[0])
        kept = [("axis", i) for i in rest]
        labels = kept[: picked[0]] + labels + kept[picked[0] :]
    elif picked:
        order = front + [label for label in labels if label not in front]
        index = b.transpose(index, [*(labels.index(label) for label in order), index.rank - 1])
        taken = _gather_nd(b, b.transpose(x, [*batching, *picked, *rest]), index, len(front))
        labels = order + [("axis", i) for i in rest]
    else:
        raise Unsupported("gather of nothing but whole axes")
    ones = [("axis", i) for i in offset if ("axis", i) not in labels]
    taken = b.reshape(taken, [*taken.shape, *(1 for _ in ones)])
    labels += ones

    batch_places = [i for i in range(taken.rank) if i not in d.offset_dims]
    wanted = dict(zip(d.offset_dims, [("axis", i) for i in offset], strict=True))
    wanted.update(zip(batch_places, batch, strict=True))
    return b.transpose(taken, [labels.index(wanted[i]) for i in range(taken.rank)])


def _selected(b: OnnxBuilder, indices: Tensor, columns: list[int]) -> Tensor:
    """Some columns of [batch..., n]."""
    last = indices.rank - 1
    if len(columns) == indices.shape[last]:
        return indices
    return b.concat([b.slice(indices, [k], [k + 1], [last]) for k in columns], last) if columns else indices


def _widened(b: OnnxBuilder, index: Tensor, sizes: list[int]) -> Tensor:
    """[batch..., n] -> [batch..., windows..., n]: the index of every element of the windows beyond size 1."""
    window = [n for n in sizes if n > 1]
    if not window:
        return index
    steps = np.moveaxis(np.indices(sizes), 0, -1).reshape(*window, len(sizes))
    apart = b.reshape(index, [*index.shape[:-1], *(1 for _ in window), len(sizes)])
    return b.elementwise("Add", apart, b.const(steps, index.dtype))


def _gather_nd(b: OnnxBuilder, x: Tensor, index: Tensor, batch_dims: int) -> Tensor:
    """x: [batching..., picked..., rest...], index: [batching..., batch..., n] -> the same without n, rest."""
    rest = x.shape[batch_dims + index.shape[-1] :]
    inputs = [x, b.cast(index, "int64")]
    return b.op1("GatherND", inputs, index.shape[:-1] + rest, x.dtype, batch_dims=batch_dims)


def _clamped(b: OnnxBuilder, indices: Tensor, limits: list[int]) -> Tensor:
    """Indices within 0..limits, each column by its own limit; int32 or int64."""
    if indices.data is not None:
        kept = np.clip(indices.data.astype(np.int64), 0, np.asarray(limits))
        return b.const(kept)
    if indices.dtype not in ("int32", "int64"):
        indices = b.cast(indices, "int64")
    if len(set(limits)) == 1:
        return b.clip(indices, 0, limits[0])
    top = b.const(limits, indices.dtype)
    return b.elementwise("Min", b.elementwise("Max", indices, b.scalar(0, indices.dtype)), top)


def _inside(b: OnnxBuilder, indices: Tensor, limits: list[int]) -> Tensor | None:
    """Bool [batch...]: whether all of an index's columns are in bounds. None if all are known to be."""
    if indices.data is not None:
        known = ((indices.data >= 0) & (indices.data.astype(np.int64) <= np.asarray(limits))).all(-1)
        return None if known.all() else b.const(known)
    if indices.dtype not in ("int32", "int64"):
        indices = b.cast(indices, "int64")
    same = b.elementwise("Equal", indices, _clamped(b, indices, limits), dtype="bool")
    if same.shape[-1] == 1:
        return b.squeeze(same, [-1])
    return b.op1("ReduceMin", [same, b.ints([-1])], same.shape[:-1], "bool", keepdims=0)


def scatter(reduction: str) -> Lowering:
    """Writes (or adds, ...) windows of updates into x at given starts.

    x: any shape; indices: [batch..., n], one start for each axis in scatter_dims_to_operand_dims; updates: the
    batch axes of indices, and at update_window_dims the windows. Windows that do not lie within x are dropped,
    as XLA does, except that mode clip moves them inside. Which of several writes to one place stays is JAX's
    and ONNX Runtime's choice.
    """

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        d, mode = eqn.params["dimension_numbers"], eqn.params["mode"].name
        if x.dtype == "bool" and reduction != "none":
            raise Unsupported(f"scatter-{reduction} of bools")
        if reduction in ("min", "max") and x.dtype in FLOATS:
            raise Unsupported(f"scatter-{reduction} of floats: ONNX Runtime loses NaN")
        if mode not in ("FILL_OR_DROP", "CLIP", "PROMISE_IN_BOUNDS"):
            raise Unsupported(f"scatter mode {mode}")
        if not x.size or not updates.size:
            return x
        batching = tuple(d.operand_batching_dims)
        indices = _with_batch_index(b, indices, d.scatter_indices_batching_dims)
        indexed = (*batching, *d.scatter_dims_to_operand_dims)
        window = [i for i in range(x.rank) if i not in d.inserted_window_dims and i not in batching]
        place = dict(zip(window, d.update_window_dims, strict=True))
        sizes = [updates.shape[place[i]] if i in place else 1 for i in range(x.rank)]
        if any(sizes[i] != x.shape[i] for i in range(x.rank) if i not in indexed):
            raise Unsupported("scatter of windows that are not whole along axes without an index")
        limits = [x.shape[i] - sizes[i] for i in indexed]
        inside = _inside(b, indices, limits) if mode != "CLIP" else None

        # A window of size 1 is indexed, a whole one is not, and one between is indexed element by element.
        columns = [k for k, i in enumerate(indexed) if limits[k] or sizes[i] == 1]
        picked = [indexed[k] for k in columns]
        if not picked:
            raise Unsupported("scatter of nothing but whole axes")
        windowed = [i for i in picked if sizes[i] > 1]
        index = _selected(b, _clamped(b, indices, limits), columns)
        index = _widened(b, index, [sizes[i] if i in windowed else 1 for i in picked])
        rest = [i for i in range(x.rank) if i not in picked]
        batch = [i for i in range(updates.rank) if i not in d.update_window_dims]
        single = [place[i] for i in picked if i in place and i not in windowed]
        order = [*batch, *(place[i] for i in windowed), *(place[i] for i in rest), *single]
        rows = b.transpose(updates, order)
        rows = b.reshape(rows, rows.shape[: rows.rank - len(single)])
        if inside is not None:
            inside = b.reshape(inside, [*inside.shape, *(1 for _ in windowed), 1])
        front = [*picked, *rest]
        result = _scatter_nd(b, b.transpose(x, front), index, rows, inside, reduction)
        return b.transpose(result, np.argsort(front).tolist())

    return lower


def _with_batch_index(b: OnnxBuilder, indices: Tensor, batching: Sequence[int]) -> Tensor:
    """Puts a column in front for each batching axis: the position along that axis."""
    if not batching:
        return indices
    if indices.dtype not in ("int32", "int64"):
        indices = b.cast(indices, "int64")
    shape = indices.shape[:-1]
    grid = np.indices(shape)
    columns = [b.const(grid[i][..., None], indices.dtype) for i in batching]
    return b.concat([*columns, indices], indices.rank - 1)


def _scatter_nd(
    b: OnnxBuilder, x: Tensor, index: Tensor, rows: Tensor, inside: Tensor | None, reduction: str
) -> Tensor:
    """Rows that are not inside go to an extra row, which is cut off afterwards."""
    size, extra = x.shape[0], x
    if inside is not None:
        last = index.rank - 1
        first = b.slice(index, [0], [1], [last])
        first = b.where(b.expand(inside, first.shape), first, b.scalar(size, index.dtype))
        index = b.concat([first, b.slice(index, [1], [index.shape[last]], [last])], last)
        extra = b.concat([x, b.full((1, *x.shape[1:]), 0, x.dtype)], 0)
    attrs = {} if reduction == "none" else {"reduction": reduction}
    result = b.op1("ScatterND", [extra, b.cast(index, "int64"), rows], extra.shape, x.dtype, **attrs)
    return b.slice(result, [0], [size], [0])


INDEXING: dict[str, Callable[..., Any]] = {
    "gather": gather,
    "scatter": scatter("none"),
    "scatter-add": scatter("add"),
    "scatter-max": scatter("max"),
    "scatter-min": scatter("min"),
    "scatter-mul": scatter("mul"),
    "scatter_add": scatter("add"),
    "scatter_max": scatter("max"),
    "scatter_min": scatter("min"),
    "scatter_mul": scatter("mul"),
}
