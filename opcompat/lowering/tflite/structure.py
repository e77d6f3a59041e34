"""Shapes and data movement: exact for every dtype that the kernels move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opcompat.lowering.graph import Tensor
from opcompat.lowering.tflite.builder import MOVABLE_RANK, TfliteBuilder, storage
from opcompat.lowering.tflite.common import out_shape, refuse


def reshape(b: TfliteBuilder, eqn: Any, x: Tensor, *rest: Tensor) -> Tensor:
    if eqn.params.get("dimensions") is not None:
        refuse("reshape with permuted dimensions")
    return b.reshape(x, out_shape(eqn))


def to_result_shape(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    """squeeze, expand_dims: the elements keep their order."""
    return b.reshape(x, out_shape(eqn))


def transpose(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.transpose(x, eqn.params["permutation"])


def broadcast_in_dim(b: TfliteBuilder, eqn: Any, x: Tensor, *rest: Tensor) -> Tensor:
    shape = out_shape(eqn)
    aligned = [1] * len(shape)
    for size, axis in zip(x.shape, eqn.params["broadcast_dimensions"], strict=True):
        aligned[axis] = size
    return b.broadcast_to(b.reshape(x, aligned), shape)


def iota(b: TfliteBuilder, eqn: Any, *rest: Tensor) -> Tensor:
    """A constant; only one axis of it is stored."""
    shape, axis = out_shape(eqn), int(eqn.params["dimension"])
    name = np.dtype(eqn.params["dtype"]).name
    counts = np.arange(shape[axis]).astype(np.dtype(eqn.params["dtype"]))
    line = b.const(counts.view(storage(name)))
    return b.broadcast_to(b.reshape(line, [n if a == axis else 1 for a, n in enumerate(shape)]), shape)


def rev(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    return b.reverse(x, eqn.params["dimensions"])


def concatenate(b: TfliteBuilder, eqn: Any, *parts: Tensor) -> Tensor:
    return b.concat(parts, int(eqn.params["dimension"]))


def stack(b: TfliteBuilder, eqn: Any, *parts: Tensor) -> Tensor:
    axis = int(eqn.params["axis"]) % len(out_shape(eqn))
    grown = [b.reshape(p, (*p.shape[:axis], 1, *p.shape[axis:])) for p in parts]
    return b.concat(grown, axis)


def split(b: TfliteBuilder, eqn: Any, x: Tensor) -> list[Tensor]:
    axis, start, parts = int(eqn.params["axis"]), 0, []
    for size in eqn.params["sizes"]:
        starts = [start if a == axis else 0 for a in range(x.rank)]
        sizes = [int(size) if a == axis else n for a, n in enumerate(x.shape)]
        parts.append(b.slice(x, starts, sizes))
        start += int(size)
    return parts


def slice_(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    p = eqn.params
    return b.strided_slice(x, p["start_indices"], p["limit_indices"], p["strides"] or (1,) * x.rank)


def pad(b: TfliteBuilder, eqn: Any, x: Tensor, value: Tensor) -> Tensor:
    config = [tuple(int(n) for n in axis) for axis in eqn.params["padding_config"]]
    for axis, (_, _, interior) in enumerate(config):
        if interior and x.shape[axis] > 1:
            x = _spread(b, x, axis, interior, value)
    return padded(b, x, [(low, high) for low, high, _ in config], value)


def _spread(b: TfliteBuilder, x: Tensor, axis: int, count: int, value: Tensor) -> Tensor:
    """`count` elements of `value` between neighbours along an axis: rows that are padded behind, in one."""
    before, n, after = _size(x.shape[:axis]), x.shape[axis], _size(x.shape[axis + 1 :])
    if x.size == 0:
        shape = [*x.shape[:axis], n + (n - 1) * count, *x.shape[axis + 1 :]]
        return b.const(np.zeros(shape, x.dtype))
    rows = padded(b, b.reshape(x, (before * n, 1, after)), [(0, 0), (0, count), (0, 0)], value)
    whole = b.reshape(rows, (before, n * (1 + count), after))
    length = n + (n - 1) * count
    return b.reshape(
        b.slice(whole, (0, 0, 0), (before, length, after)), [*x.shape[:axis], length, *x.shape[axis + 1 :]]
    )


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def padded(b: TfliteBuilder, x: Tensor, edges: Sequence[tuple[int, int]], value: Tensor) -> Tensor:
    """`x` with (low, high) elements of `value` added per axis; a negative count cuts instead."""
    starts = [max(0, -low) for low, _ in edges]
    sizes = [n - a - max(0, -high) for n, a, (_, high) in zip(x.shape, starts, edges, strict=True)]
    if min(sizes, default=1) <= 0:
        # The operand is cut away, or empty: only padding is left.
        shape = [n + low + high for n, (low, high) in zip(x.shape, edges, strict=True)]
        return b.broadcast_to(value, shape)
    x = b.slice(x, starts, sizes)
    grow = [(max(0, low), max(0, high)) for low, high in edges]
    if not any(low or high for low, high in grow):
        return x
    # Axes that do not grow are merged, since the kernel ends at a low rank.
    merged, kept = _merge_unpadded(x.shape, grow)
    if len(merged) > MOVABLE_RANK:
        first = next(axis for axis, edge in enumerate(grow) if edge != (0, 0))
        x = padded(b, x, [edge if axis == first else (0, 0) for axis, edge in enumerate(grow)], value)
        return padded(b, x, [(0, 0) if axis == first else edge for axis, edge in enumerate(grow)], value)
    shape = [n + low + high for n, (low, high) in zip(merged, kept, strict=True)]
    amounts = b.const(np.asarray(kept, np.int32).reshape(-1, 2))
    flat = b.op1("PADV2", [b.reshape(x, merged), amounts, value], shape, x.dtype)
    return b.reshape(flat, [n + low + high for n, (low, high) in zip(x.shape, grow, strict=True)])


def _merge_unpadded(shape: Sequence[int], edges: Sequence[tuple[int, int]]) -> tuple[list[int], list[tuple[int, int]]]:
    sizes: list[int] = []
    kept: list[tuple[int, int]] = []
    for n, edge in zip(shape, edges, strict=True):
        if edge == (0, 0) and kept and kept[-1] == (0, 0):
            sizes[-1] *= n
        else:
            sizes.append(n)
            kept.append(edge)
    return sizes, kept
