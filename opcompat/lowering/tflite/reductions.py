"""Reductions, running sums, arg max, top k and sorting. NaN acts as in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from opcompat.lowering.builder import Lowering
from opcompat.lowering.graph import Tensor
from opcompat.lowering.tflite.builder import INT32_MIN, TfliteBuilder
from opcompat.lowering.tflite.common import (
    FLOATS,
    need_float32,
    out_shape,
    refuse,
    refuse_narrow,
    refuse_uint32,
)
from opcompat.lowering.tflite.structure import padded


def _reduce(b: TfliteBuilder, op: str, x: Tensor, axes: Sequence[int]) -> Tensor:
    """One reduction over `axes`, which go. Neighbouring axes of one kind are merged first."""
    shape = tuple(n for a, n in enumerate(x.shape) if a not in axes)
    axes = [a for a in axes if x.shape[a] != 1]
    if not axes:
        return b.reshape(x, shape)
    sizes: list[int] = []
    kinds: list[bool] = []
    for a, n in enumerate(x.shape):
        if n == 1:
            continue
        if kinds and kinds[-1] == (a in axes):
            sizes[-1] *= n
        else:
            sizes.append(n)
            kinds.append(a in axes)
    kept = tuple(n for n, gone in zip(sizes, kinds, strict=True) if not gone)
    gone = b.ints([i for i, gone in enumerate(kinds) if gone])
    result = b.op1(op, [b.reshape(x, sizes), gone], kept, x.dtype, keepDims=False)
    return b.reshape(result, shape)


def plain(op: str, empty: float) -> Lowering:
    """SUM, PROD: exact on int32 bits whatever the sign."""

    def lower(b: TfliteBuilder, eqn: Any, x: Tensor, *rest: Tensor) -> Tensor:
        need_float32(eqn)
        refuse_narrow(eqn)
        if x.size == 0:
            return b.broadcast_to(b.scalar(empty, x.dtype), out_shape(eqn))
        return _reduce(b, op, x, eqn.params["axes"])

    return lower


def extremum(op: str) -> Lowering:
    """reduce_max and reduce_min."""

    def lower(b: TfliteBuilder, eqn: Any, x: Tensor, *rest: Tensor) -> Tensor:
        refuse_uint32(eqn)
        if x.size == 0:
            return b.broadcast_to(b.const(_neutral(op, x.dtype)), out_shape(eqn))
        if x.dtype == "bool":
            return _reduce(b, "REDUCE_ANY" if op == "REDUCE_MAX" else "REDUCE_ALL", x, eqn.params["axes"])
        return extreme(b, op, x, eqn.params["axes"])

    return lower


def _neutral(op: str, dtype: str) -> np.ndarray:
    """What the maximum or minimum of nothing is."""
    if dtype == "bool":
        return np.asarray(op == "REDUCE_MIN")
    if dtype in FLOATS:
        return np.asarray(-np.inf if op == "REDUCE_MAX" else np.inf).astype(dtype)
    limits = np.iinfo(dtype)
    return np.asarray(limits.min if op == "REDUCE_MAX" else limits.max, dtype)


def extreme(b: TfliteBuilder, op: str, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The kernels skip NaN and take any zero for the other: both are looked for separately."""
    result = _reduce(b, op, x, axes)
    if x.dtype not in FLOATS:
        return result
    if x.dtype == "float32":
        # Where the result is 0, all bits are of one sign or 0, and the largest (or smallest) tell which zero it is.
        bits = _reduce(b, op, b.bitcast(x, "int32"), axes)
        sign = b.mul(b.binary("RIGHT_SHIFT", bits, b.int32(31)), b.int32(INT32_MIN))
        is_zero = b.compare("EQUAL", result, b.scalar(0, x.dtype))
        result = b.select(is_zero, b.bitcast(sign, x.dtype), result)
    invalid = _reduce(b, "REDUCE_ANY", b.is_nan(x), axes)
    return b.select(invalid, b.scalar(np.nan, x.dtype), result)


def logical(op: str, empty: bool) -> Lowering:
    def lower(b: TfliteBuilder, eqn: Any, x: Tensor, *rest: Tensor) -> Tensor:
        if x.dtype != "bool":
            refuse(f"LiteRT has no kernel for {eqn.primitive.name} on integers")
        if x.size == 0:
            return b.broadcast_to(b.scalar(empty, "bool"), out_shape(eqn))
        return _reduce(b, op, x, eqn.params["axes"])

    return lower


def arg_extremum(op: str) -> Lowering:
    """argmax, argmin: the first of equals (as the kernel does), and the first NaN before any number."""

    def lower(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
        refuse_uint32(eqn)
        (axis,) = eqn.params["axes"]
        if np.dtype(eqn.params["index_dtype"]).name not in ("int32", "uint32"):
            refuse(f"{eqn.primitive.name} with {eqn.params['index_dtype']} indices")
        shape = out_shape(eqn)
        if x.dtype == "bool":
            x = b.cast(x, "int32")
        best = b.op1(op, [x, b.int32(axis)], shape, "int32")
        if x.dtype not in FLOATS:
            return best
        missing = b.is_nan(x)
        first = b.op1("ARG_MAX", [b.cast(missing, "int32"), b.int32(axis)], shape, "int32")
        return b.select(_reduce(b, "REDUCE_ANY", missing, (axis,)), first, best)

    return lower


def cumsum(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
    need_float32(eqn)
    refuse_narrow(eqn)
    axis, backwards = int(eqn.params["axis"]), bool(eqn.params["reverse"])
    before = int(np.prod(x.shape[:axis], dtype=np.int64))
    after = int(np.prod(x.shape[axis + 1 :], dtype=np.int64))
    flat = b.reshape(x, (before, x.shape[axis], after))
    options = {"exclusive": False, "reverse": backwards}
    return b.reshape(b.op1("CUMSUM", [flat, b.int32(1)], flat.shape, x.dtype, **options), x.shape)


# --- order ---------------------------------------------------------------------------------------------


def _sort_keys(b: TfliteBuilder, x: Tensor) -> Tensor:
    """int32 keys in the order of float32 values, -0.0 below 0.0 and NaN at the ends; undoes itself.

    Negative floats have their other 31 bits flipped: the sign fill (0 or -1) times 0x80000001 is the mask
    0x7fffffff or 0.
    """
    bits = b.bitcast(x, "int32")
    fill = b.binary("RIGHT_SHIFT", bits, b.int32(31))
    return b.binary("BITWISE_XOR", bits, b.mul(fill, b.int32(0x80000001)))


def _canonical(b: TfliteBuilder, x: Tensor) -> Tensor:
    """`x` with one NaN, the positive one, and one zero: what JAX compares when it sorts."""
    x = b.select(b.is_nan(x), b.scalar(np.nan, "float32"), x)
    zero = b.scalar(0, "float32")
    return b.select(b.compare("EQUAL", x, zero), zero, x)


def _ranking(b: TfliteBuilder, keys: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(keys, indices) of the `count` largest int32 keys along the last axis, the first of equals first."""
    shape = (*keys.shape[:-1], count)
    rows = b.reshape(keys, (keys.size // keys.shape[-1], keys.shape[-1]))
    flat = (rows.shape[0], count)
    top, where = b.op("TOPK_V2", [rows, b.int32(count)], [(flat, "int32"), (flat, "int32")])
    return b.reshape(top, shape), b.reshape(where, shape)


def top_k(b: TfliteBuilder, eqn: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """By JAX's total order (NaN first, 0.0 before -0.0), on int32 keys: TOPK_V2 itself puts NaN last."""
    refuse_uint32(eqn)
    count, axis = int(eqn.params["k"]), int(eqn.params.get("axis", -1))
    if axis not in (-1, x.rank - 1):
        refuse("top_k along an axis that is not the last")
    if x.dtype == "int32":
        return _ranking(b, x, count)
    if x.dtype != "float32":
        refuse(f"top_k on {x.dtype}")
    _, where = _ranking(b, _sort_keys(b, x), count)
    return _take_last(b, x, where), where


def sort(b: TfliteBuilder, eqn: Any, *operands: Tensor) -> list[Tensor]:
    """Ascending, stable, by the first operand: the largest of the complemented keys come first."""
    p, x = eqn.params, operands[0]
    refuse_uint32(eqn)
    if int(p["num_keys"]) != 1:
        refuse("sort by several keys")
    if int(p["dimension"]) != x.rank - 1:
        refuse("sort along an axis that is not the last")
    if x.dtype not in ("float32", "int32"):
        refuse(f"sort on {x.dtype}")
    keys = x if x.dtype == "int32" else _sort_keys(b, _canonical(b, x))
    _, where = _ranking(b, b.binary("BITWISE_XOR", keys, b.int32(-1)), x.shape[-1])
    return [_take_last(b, operand, where) for operand in operands]


def _take_last(b: TfliteBuilder, x: Tensor, where: Tensor) -> Tensor:
    """take_along_axis on the last axis."""
    rows = x.size // x.shape[-1]
    flat = b.reshape(x, (rows, x.shape[-1]))
    picks = b.reshape(where, (rows, where.shape[-1]))
    return b.reshape(b.gather(flat, picks, 1, batch=1), where.shape)


# --- windows -------------------------------------------------------------------------------------------

WINDOW_LIMIT = 64
"""Elements of a window; each one costs a strided slice."""


def windowed(kind: str) -> Lowering:
    """reduce_window_max, _min, _sum: the window's shifted copies, stacked and reduced.

    The pooling ops would be shorter, but they lose NaN and divide by counts.
    """

    def lower(b: TfliteBuilder, eqn: Any, x: Tensor) -> Tensor:
        refuse_uint32(eqn)
        p = eqn.params
        window = [int(n) for n in p["window_dimensions"]]
        if int(np.prod(window)) > WINDOW_LIMIT:
            refuse(f"a window of more than {WINDOW_LIMIT} elements")
        if any(n != 1 for n in p["base_dilation"]) or x.dtype not in ("float32", "int32"):
            refuse(f"a window over {x.dtype} or with dilated input")
        edge = b.scalar(_PADDING[kind][x.dtype], x.dtype)
        full = padded(b, x, [(int(low), int(high)) for low, high in p["padding"]], edge)
        shape = out_shape(eqn)
        copies = []
        for corner in product(*[range(n) for n in window]):
            starts = [c * int(d) for c, d in zip(corner, p["window_dilation"], strict=True)]
            strides = [int(s) for s in p["window_strides"]]
            limits = [a + (n - 1) * s + 1 for a, n, s in zip(starts, shape, strides, strict=True)]
            copy = b.strided_slice(full, starts, limits, strides)
            copies.append(b.reshape(copy, (1, copy.size)))
        stacked = b.concat(copies, 0)
        reduce = _reduce if kind == "sum" else extreme
        return b.reshape(reduce(b, _KERNEL[kind], stacked, (0,)), shape)

    return lower


_KERNEL = {"sum": "SUM", "max": "REDUCE_MAX", "min": "REDUCE_MIN"}
_PADDING: dict[str, dict[str, float]] = {
    "max": {"float32": -np.inf, "int32": -(2**31)},
    "min": {"float32": np.inf, "int32": 2**31 - 1},
    "sum": {"float32": 0.0, "int32": 0},
}
