"""Shapes, slices, padding and constants: primitives that move data and compute nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opcompat.lowering.graph import Tensor
from opcompat.lowering.onnx.builder import OnnxBuilder
from opcompat.lowering.onnx.dtypes import numpy_dtype


def iota(b: OnnxBuilder, eqn: Any) -> Tensor:
    """0, 1, ... along one axis; the others are broadcast."""
    shape, axis = tuple(eqn.params["shape"]), int(eqn.params["dimension"])
    dtype = np.dtype(eqn.params["dtype"]).name
    line = np.arange(shape[axis]).astype(numpy_dtype(dtype))
    column = line.reshape([-1 if i == axis else 1 for i in range(len(shape))]) if line.size else line
    return Tensor(shape, dtype, data=np.broadcast_to(column, shape) if line.size else np.zeros(shape, line.dtype))


def iota_2x32_shape(b: OnnxBuilder, eqn: Any) -> tuple[Tensor, Tensor]:
    """The high and the low words of 0, 1, ... in row-major order: what threefry counts with."""
    shape = tuple(eqn.params["shape"])
    count = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint64).reshape(shape)
    high = count >> np.uint64(32)
    words = b.full(shape, 0, "uint32") if not high.any() else b.const(high, "uint32")
    return words, b.const(count & np.uint64(0xFFFFFFFF), "uint32")


def broadcast_in_dim(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Axis i of `x` becomes axis broadcast_dimensions[i]; sizes of 1 are repeated."""
    shape = tuple(eqn.params["shape"])
    places = dict(zip(eqn.params["broadcast_dimensions"], x.shape, strict=True))
    return b.expand(b.reshape(x, [places.get(i, 1) for i in range(len(shape))]), shape)


def reshape(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """`dimensions`, if given, is the order in which the axes of `x` are read."""
    order = eqn.params["dimensions"]
    return b.reshape(x if order is None else b.transpose(x, order), eqn.outvars[0].aval.shape)


def same_order(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Axes of size 1 come or go."""
    return b.reshape(x, eqn.outvars[0].aval.shape)


def transpose(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.transpose(x, eqn.params["permutation"])


def rev(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.flip(x, eqn.params["dimensions"])


def concatenate(b: OnnxBuilder, eqn: Any, *xs: Tensor) -> Tensor:
    return b.concat(xs, int(eqn.params["dimension"]))


def stack(b: OnnxBuilder, eqn: Any, *xs: Tensor) -> Tensor:
    axis = int(eqn.params["axis"])
    return b.concat([b.unsqueeze(x, [axis]) for x in xs], axis % (xs[0].rank + 1))


def split(b: OnnxBuilder, eqn: Any, x: Tensor) -> Sequence[Tensor]:
    return _split(b, x, [int(n) for n in eqn.params["sizes"]], int(eqn.params["axis"]))


def _split(b: OnnxBuilder, x: Tensor, sizes: list[int], axis: int) -> Sequence[Tensor]:
    if len(sizes) == 1:
        return [x]
    if x.data is not None:
        ends = np.cumsum(sizes)
        return [b.slice(x, [e - n], [e], [axis]) for n, e in zip(sizes, ends, strict=True)]
    outputs = [((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype) for n in sizes]
    return b.op("Split", [x, b.ints(sizes)], outputs, {"axis": axis})


def unstack(b: OnnxBuilder, eqn: Any, x: Tensor) -> Sequence[Tensor]:
    """Every slice along an axis, without that axis (a primitive since jax 0.12)."""
    axis = int(eqn.params["axis"]) % x.rank
    parts = _split(b, x, [1] * x.shape[axis], axis) if x.shape[axis] else []
    return [b.squeeze(part, [axis]) for part in parts]


def slice_(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    p = eqn.params
    return b.slice(x, p["start_indices"], p["limit_indices"], range(x.rank), p["strides"])


def pad(b: OnnxBuilder, eqn: Any, x: Tensor, value: Tensor) -> Tensor:
    config = eqn.params["padding_config"]
    return padded(b, x, value, [tuple(map(int, c)) for c in config])


def padded(b: OnnxBuilder, x: Tensor, value: Tensor, config: Sequence[tuple[int, ...]]) -> Tensor:
    """Pads each axis by (low, high, interior); negative low and high cut off instead."""
    for axis, (_, _, interior) in enumerate(config):
        if interior:
            x = _dilated(b, x, value, axis, interior + 1)
    lows = [max(low, 0) for low, _, _ in config]
    highs = [max(high, 0) for _, high, _ in config]
    x = _edged(b, x, value, lows, highs)
    starts = [max(-low, 0) for low, _, _ in config]
    ends = [n - max(-high, 0) for n, (_, high, _) in zip(x.shape, config, strict=True)]
    return b.slice(x, starts, ends, range(x.rank))


def _edged(b: OnnxBuilder, x: Tensor, value: Tensor, lows: list[int], highs: list[int]) -> Tensor:
    if not any(lows) and not any(highs):
        return x
    shape = [low + n + high for low, n, high in zip(lows, x.shape, highs, strict=True)]
    if not x.size:
        return b.expand(value, shape)
    return b.op1("Pad", [x, b.ints(lows + highs), value], shape, x.dtype, mode="constant")


def _dilated(b: OnnxBuilder, x: Tensor, value: Tensor, axis: int, step: int) -> Tensor:
    """Puts step - 1 copies of `value` between neighbours: pads a new axis of size 1, and merges it."""
    size = x.shape[axis]
    if size < 2:
        return x
    apart = b.unsqueeze(x, [axis + 1])
    highs = [0] * apart.rank
    highs[axis + 1] = step - 1
    apart = _edged(b, apart, value, [0] * apart.rank, highs)
    merged = b.reshape(apart, [*x.shape[:axis], size * step, *x.shape[axis + 1 :]])
    return b.slice(merged, [0], [(size - 1) * step + 1], [axis])


def dynamic_slice(b: OnnxBuilder, eqn: Any, x: Tensor, *starts: Tensor) -> Tensor:
    """Starts are clamped so that the slice lies within `x`, as JAX does."""
    for axis, (start, size) in enumerate(zip(starts, eqn.params["slice_sizes"], strict=True)):
        x = _window(b, x, axis, _clamped_start(b, start, x.shape[axis] - size), int(size))
    return x


def _clamped_start(b: OnnxBuilder, start: Tensor, last: int) -> Tensor | int:
    """min(max(start, 0), last): a number if it is known, else a vector of one element, int32 or int64."""
    if last == 0:
        return 0
    if start.data is not None:
        return int(np.clip(int(start.data), 0, last))
    if start.dtype not in ("int32", "int64"):
        # uint32 beyond int32 has to stay large.
        start = b.cast(start, "int64")
    return b.reshape(b.clip(start, 0, last), [1])


def _window(b: OnnxBuilder, x: Tensor, axis: int, start: Tensor | int, size: int) -> Tensor:
    if isinstance(start, int):
        return b.slice(x, [start], [start + size], [axis])
    if size == 1:
        return b.gather(x, start, axis)
    end = b.elementwise("Add", start, b.const([size], start.dtype))
    shape = [size if i == axis else n for i, n in enumerate(x.shape)]
    return b.op1("Slice", [x, start, end, b.const([axis], start.dtype)], shape, x.dtype)


MAX_INDEX_GRID = 4096
"""Index tuples that dynamic_update_slice writes out rather than transposing its operands."""


def dynamic_update_slice(b: OnnxBuilder, eqn: Any, x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    """Starts are clamped so that the update lies within `x`: one ScatterND at a grid plus the starts."""
    if not update.size:
        return x
    clamped = [_clamped_start(b, s, n - u) for s, n, u in zip(starts, x.shape, update.shape, strict=True)]
    partial = [i for i in range(x.rank) if x.shape[i] != update.shape[i]]
    if not partial:
        return update
    leading = list(range(partial[-1] + 1))
    if np.prod([update.shape[i] for i in leading]) <= MAX_INDEX_GRID:
        return _scattered(b, x, update, [clamped[i] for i in leading])
    order = partial + [i for i in range(x.rank) if i not in partial]
    moved, rows = b.transpose(x, order), b.transpose(update, order)
    result = _scattered(b, moved, rows, [clamped[i] for i in partial])
    return b.transpose(result, np.argsort(order).tolist())


def _scattered(b: OnnxBuilder, x: Tensor, update: Tensor, starts: Sequence[Tensor | int]) -> Tensor:
    """Writes `update` over the window of `x` that begins at `starts`, which index the leading axes."""
    grid = np.moveaxis(np.indices(update.shape[: len(starts)], np.int64), 0, -1).copy()
    grid += np.asarray([s if isinstance(s, int) else 0 for s in starts])
    index = b.const(grid)
    if not all(isinstance(s, int) for s in starts):
        offset = b.concat([b.ints([0]) if isinstance(s, int) else b.cast(s, "int64") for s in starts], 0)
        # One index tuple is its offset; more are a grid around it.
        single = grid.size == offset.size and not grid.any()
        index = b.reshape(offset, grid.shape) if single else b.elementwise("Add", index, offset)
    return b.op1("ScatterND", [x, index, update], x.shape, x.dtype)


STRUCTURE: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": broadcast_in_dim,
    "concatenate": concatenate,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "expand_dims": same_order,
    "iota": iota,
    "iota_2x32_shape": iota_2x32_shape,
    "pad": pad,
    "reshape": reshape,
    "rev": rev,
    "slice": slice_,
    "split": split,
    "squeeze": same_order,
    "stack": stack,
    "transpose": transpose,
    "unstack": unstack,
}
