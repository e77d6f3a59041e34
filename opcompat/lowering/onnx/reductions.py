"""Reductions, scans along an axis, and sorting.

Signs of zeros may differ from JAX's: a sum of -0 alone is -0 here and +0 in XLA, which starts from +0; of -0 and +0
either may be the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opcompat.lowering.builder import Lowering, Unsupported
from opcompat.lowering.graph import Tensor
from opcompat.lowering.onnx.builder import BITS_OPSET, OnnxBuilder
from opcompat.lowering.onnx.dtypes import FLOATS, UNSIGNED, bits
from opcompat.lowering.onnx.structure import padded


def _reduce(b: OnnxBuilder, op: str, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    shape = [n for i, n in enumerate(x.shape) if i not in axes]
    return b.op1(op, [x, b.ints(axes)], shape, x.dtype, keepdims=0)


def _halved(b: OnnxBuilder, op: str, x: Tensor, axes: tuple[int, ...], neutral: Any) -> Tensor:
    """Combines the first half of the elements with the second until one is left: integers wrap as they should."""
    kept = [i for i in range(x.rank) if i not in axes]
    shape = [x.shape[i] for i in kept]
    rows = b.transpose(x, [*axes, *kept])
    rows = b.reshape(rows, [int(np.prod([x.shape[i] for i in axes], dtype=np.int64)), *shape])
    if not rows.shape[0]:
        return b.full(shape, neutral, x.dtype)
    while (count := rows.shape[0]) > 1:
        half = count // 2
        pairs = b.elementwise(op, b.slice(rows, [0], [half], [0]), b.slice(rows, [half], [2 * half], [0]))
        rows = b.concat([pairs, b.slice(rows, [2 * half], [count], [0])], 0)
    return b.reshape(rows, shape)


def reduce_sum(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Integers wrap in JAX; ONNX Runtime's saturate, so narrower ones are summed as int64."""
    axes = tuple(eqn.params["axes"])
    if x.dtype in FLOATS or not axes:
        return _reduce(b, "ReduceSum", x, axes) if axes else x
    count = int(np.prod([x.shape[n] for n in axes], dtype=np.int64))
    # Sums are kept in float64 inside: they have to stay below 2**53.
    if bits(x.dtype) + count.bit_length() > 53:
        raise Unsupported(f"reduce_sum of {count} {x.dtype} values: ONNX Runtime does not wrap")
    return b.cast(_reduce(b, "ReduceSum", b.cast(x, "int64"), axes), x.dtype)


def reduce_prod(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    axes = tuple(eqn.params["axes"])
    if not axes:
        return x
    # ONNX Runtime's integer products saturate where JAX's wrap.
    return _reduce(b, "ReduceProd", x, axes) if x.dtype in FLOATS else _halved(b, "Mul", x, axes, 1)


def extremum(op: str, neutral: Callable[[str], Any]) -> Lowering:
    """reduce_max, reduce_min: NaN wins in JAX, and depends on its place in ONNX Runtime."""

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
        axes = tuple(eqn.params["axes"])
        if not axes:
            return x
        if not x.size:
            return b.full(eqn.outvars[0].aval.shape, neutral(x.dtype), x.dtype)
        if x.dtype in UNSIGNED - {"uint8", "uint64"}:  # no kernel; int64 holds them all
            return b.cast(_reduce(b, op, b.cast(x, "int64"), axes), x.dtype)
        result = _reduce(b, op, x, axes)
        if x.dtype not in FLOATS:
            return result
        return b.where(_any_nan(b, x, axes), b.scalar(np.nan, x.dtype), result)

    return lower


def _any_nan(b: OnnxBuilder, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """A sum of magnitudes is NaN exactly where an element is: infinities of one sign do not cancel."""
    return b.elementwise("IsNaN", _reduce(b, "ReduceL1", x, axes), dtype="bool")


def reduce_logical(op: str, bitwise: str, neutral: int) -> Lowering:
    """reduce_and, reduce_or of bools; of integers, bit by bit."""

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
        axes = tuple(eqn.params["axes"])
        if not axes:
            return x
        if x.dtype != "bool":
            all_bits = -1 if x.dtype not in UNSIGNED else np.iinfo(x.dtype).max
            return _halved(b, bitwise, x, axes, neutral and all_bits)
        if not x.size:
            return b.full(eqn.outvars[0].aval.shape, neutral, x.dtype)
        return _reduce(b, op, x, axes)

    return lower


def reduce_xor(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    return _halved(b, "Xor" if x.dtype == "bool" else "BitwiseXor", x, tuple(eqn.params["axes"]), 0)


_INDEXABLE = {"bool": "int32", "uint32": "int64", "int16": "int32", "uint16": "int32"}
"""Dtypes that ArgMax and TopK have no kernel for, and a wider one with the same order."""


def arg_extremum(op: str) -> Lowering:
    """argmax, argmin: the first index of the extremum; the first NaN, if there is one."""

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
        (axis,) = eqn.params["axes"]
        index = np.dtype(eqn.params["index_dtype"]).name
        if x.shape[axis] - 1 > np.iinfo(index).max:
            raise Unsupported(f"{eqn.primitive.name} over {x.shape[axis]} elements: {index} indices wrap around")
        x = b.cast(x, _INDEXABLE.get(x.dtype, x.dtype))
        result = _arg(b, op, x, axis)
        if x.dtype in FLOATS:
            nans = b.cast(b.elementwise("IsNaN", x, dtype="bool"), "int32")
            result = b.where(_any_nan(b, x, (axis,)), _arg(b, "ArgMax", nans, axis), result)
        return b.cast(result, index)

    return lower


def _arg(b: OnnxBuilder, op: str, x: Tensor, axis: int) -> Tensor:
    shape = [n for i, n in enumerate(x.shape) if i != axis]
    return b.op1(op, [x], shape, "int64", axis=axis, keepdims=0)


def cumsum(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
    """Running sum; integers wrap (unsigned ones by way of their signed bit patterns)."""
    dtype = "int" + x.dtype.removeprefix("uint") if x.dtype in UNSIGNED else x.dtype
    axis = b.const(np.asarray(eqn.params["axis"], np.int64))
    reverse = int(eqn.params["reverse"])
    total = b.op1("CumSum", [b.cast(x, dtype), axis], x.shape, dtype, reverse=reverse)
    return b.cast(total, x.dtype)


MAX_WINDOW_SLICES = 64
"""Slices that a windowed reduction may take."""


def reduce_window(op: str, initial: Callable[[str], Any]) -> Lowering:
    """Windowed max, min or sum: one axis after the other, each the reduction of its shifted slices.

    Not MaxPool: in ONNX Runtime it loses NaN, and gives the least finite number for windows of -inf.
    """

    def lower(b: OnnxBuilder, eqn: Any, x: Tensor) -> Tensor:
        p = eqn.params
        windows = [int(n) for n in p["window_dimensions"]]
        if x.dtype == "bool":
            raise Unsupported("windowed reduction of bools")
        if not x.size or 0 in eqn.outvars[0].aval.shape:
            raise Unsupported("windowed reduction without elements")
        if sum(n for n in windows if n > 1) > MAX_WINDOW_SLICES:
            raise Unsupported(f"windowed reduction over {windows}: too many slices")
        pairs = zip(p["padding"], p["base_dilation"], strict=True)
        config = [(int(low), int(high), int(n) - 1) for (low, high), n in pairs]
        x = padded(b, x, b.scalar(initial(x.dtype), x.dtype), config)
        columns = windows, p["window_strides"], p["window_dilation"], eqn.outvars[0].aval.shape
        for axis, (window, stride, dilation, size) in enumerate(zip(*columns, strict=True)):
            starts = [k * int(dilation) for k in range(window)]
            parts = [b.slice(x, [s], [s + (size - 1) * int(stride) + 1], [axis], [int(stride)]) for s in starts]
            x = parts[0]
            for part in parts[1:]:
                x = b.elementwise(op, x, part)
        return x

    return lower


def _least(dtype: str) -> Any:
    if dtype == "bool":
        return False
    return -np.inf if dtype in FLOATS else np.iinfo(dtype).min


def _greatest(dtype: str) -> Any:
    if dtype == "bool":
        return True
    return np.inf if dtype in FLOATS else np.iinfo(dtype).max


def _top(b: OnnxBuilder, key: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    """(values, int64 indices); ties in order of index, NaN above everything."""
    shape = tuple(k if i == axis else n for i, n in enumerate(key.shape))
    outputs = [(shape, key.dtype), (shape, "int64")]
    attrs = {"axis": axis, "largest": int(largest), "sorted": 1}
    values, indices = b.op("TopK", [key, b.ints([k])], outputs, attrs)
    return values, indices


def top_k(b: OnnxBuilder, eqn: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """The k largest, ties in order of index."""
    axis = int(eqn.params.get("axis", x.rank - 1)) % x.rank
    k = int(eqn.params["k"])
    index = eqn.outvars[1].aval.dtype.name
    key = _total_order(b, x) if x.dtype in FLOATS else b.cast(x, _INDEXABLE.get(x.dtype, x.dtype))
    _, indices = _top(b, key, k, axis, largest=True)
    return _taken(b, x, indices, axis), b.cast(indices, index)


def _total_order(b: OnnxBuilder, x: Tensor) -> Tensor:
    """Integers in JAX's order of floats: NaN with its sign bit set, negative numbers, -0, +0, positive numbers, NaN.

    They are the bits, of negative values all flipped but the sign. inf - inf has its sign bit set on common CPUs, so
    a NaN that comes last is no rarity.
    """
    if b.opset < BITS_OPSET:
        raise Unsupported(
            f"top_k on {x.dtype}: JAX ranks NaN by its sign, which only BitCast shows, new in opset {BITS_OPSET}; "
            "sort and argsort put every NaN last and need no newer opset"
        )
    to = f"int{bits(x.dtype)}"
    words = b.op1("BitCast", [x], x.shape, to, to=to)
    negative = b.elementwise("Less", words, b.scalar(0, to), dtype="bool")
    return b.elementwise("BitwiseXor", words, b.where(negative, b.scalar(np.iinfo(to).max, to), b.scalar(0, to)))


def sort(b: OnnxBuilder, eqn: Any, *xs: Tensor) -> tuple[Tensor, ...]:
    """Ascending sort of all operands by the first; zeros are equal, NaN comes last.

    Always stable, which a sort that asks for no stability allows (JAX's own order of ties differs then).
    """
    if int(eqn.params["num_keys"]) != 1:
        raise Unsupported("sort by more than one key")
    axis = int(eqn.params["dimension"])
    if not xs[0].shape[axis]:
        return xs
    key = b.cast(xs[0], _INDEXABLE.get(xs[0].dtype, xs[0].dtype))
    values, indices = _top(b, key, key.shape[axis], axis, largest=False)
    return b.cast(values, xs[0].dtype), *(_taken(b, x, indices, axis) for x in xs[1:])


def _taken(b: OnnxBuilder, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    return b.op1("GatherElements", [x, indices], indices.shape, x.dtype, axis=axis)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "argmax": arg_extremum("ArgMax"),
    "argmin": arg_extremum("ArgMin"),
    "cumsum": cumsum,
    "reduce_and": reduce_logical("ReduceMin", "BitwiseAnd", 1),
    "reduce_max": extremum("ReduceMax", _least),
    "reduce_min": extremum("ReduceMin", _greatest),
    "reduce_or": reduce_logical("ReduceMax", "BitwiseOr", 0),
    "reduce_prod": reduce_prod,
    "reduce_sum": reduce_sum,
    "reduce_window_max": reduce_window("Max", _least),
    "reduce_window_min": reduce_window("Min", _greatest),
    "reduce_window_sum": reduce_window("Add", lambda dtype: 0),
    "reduce_xor": reduce_xor,
    "sort": sort,
    "top_k": top_k,
}
