"""The builder with TFLite's vocabulary: the ops that most lowerings are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opcompat.lowering.builder import Builder
from opcompat.lowering.graph import Graph, Shape, Tensor

FOLD_LIMIT = 4096
"""Elements. A broadcast constant up to this size is stored; a larger one is broadcast at run time."""

INT32_MIN = -(2**31)

MOVABLE_RANK = 4
"""Above this rank axes are merged where that changes nothing: few kernels go further."""

DELEGATE_RANK = 6
"""The highest rank that LiteRT's default delegate (XNNPACK) takes."""


class TfliteBuilder(Builder):
    """Emits TFLite ops. Structural helpers act at once on constants, and skip what changes nothing."""

    def ints(self, values: Sequence[int]) -> Tensor:
        """An int32 vector: how TFLite takes shapes, axes and paddings."""
        return self.const(np.asarray(values, np.int32).reshape(-1))

    def int32(self, value: int) -> Tensor:
        """An int32 scalar, given as any integer with the same low 32 bits."""
        return self.const(np.uint32(value & 0xFFFFFFFF).view(np.int32))

    def scalar(self, value: float | bool, dtype: str) -> Tensor:
        return self.const(np.asarray(value).astype(dtype))

    # --- structure: no arithmetic, every helper is exact ---------------------------------------------

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        shape = tuple(int(n) for n in shape)
        if shape == x.shape:
            return x
        if x.data is not None:
            return self.const(x.data.reshape(shape))
        if x.weight is not None:
            return _moved(x, shape, ("reshape", shape))
        return self.op1("RESHAPE", [x, self.ints(shape)], shape, x.dtype)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        perm = tuple(int(p) for p in perm)
        shape = tuple(x.shape[p] for p in perm)
        if perm == tuple(range(x.rank)):
            return x
        if x.data is not None:
            return self.const(np.ascontiguousarray(x.data.transpose(perm)))
        if [p for p in perm if x.shape[p] != 1] == [p for p in range(x.rank) if x.shape[p] != 1]:
            return self.reshape(x, shape)
        if x.weight is not None and not x.weight.pinned:
            return _moved(x, shape, ("transpose", perm))
        if x.rank > MOVABLE_RANK:
            merged, order = _merge_axes(x.shape, perm)
            if len(order) < x.rank:
                moved = self.transpose(self.reshape(x, merged), order)
                return self.reshape(moved, shape)
        return self.op1("TRANSPOSE", [x, self.ints(perm)], shape, x.dtype)

    def broadcast_to(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """numpy broadcasting; the rank may grow at the front."""
        shape = tuple(int(n) for n in shape)
        if shape == x.shape:
            return x
        if int(np.prod(shape, dtype=np.int64)) == x.size:
            return self.reshape(x, shape)
        if x.data is not None and np.prod(shape, dtype=np.int64) <= FOLD_LIMIT:
            return self.const(np.ascontiguousarray(np.broadcast_to(x.data, shape)))
        return self.op1("BROADCAST_TO", [x, self.ints(shape)], shape, x.dtype)

    def slice(self, x: Tensor, starts: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """`x[starts : starts + sizes]` with constant, valid bounds."""
        if tuple(sizes) == x.shape:
            return x
        if x.data is not None:
            window = tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))
            return self.const(np.ascontiguousarray(x.data[window]))
        return self.op1("SLICE", [x, self.ints(starts), self.ints(sizes)], sizes, x.dtype)

    def strided_slice(self, x: Tensor, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]) -> Tensor:
        """`x[starts : limits : strides]` with constant, valid bounds and positive strides."""
        sizes = [max(0, -(-(b - a) // s)) for a, b, s in zip(starts, limits, strides, strict=True)]
        if all(s == 1 for s in strides):
            return self.slice(x, starts, sizes)
        if x.data is not None:
            window = tuple(slice(a, b, s) for a, b, s in zip(starts, limits, strides, strict=True))
            return self.const(np.ascontiguousarray(x.data[window]))
        operands = [x, self.ints(starts), self.ints(limits), self.ints(strides)]
        return self.op1("STRIDED_SLICE", operands, sizes, x.dtype)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        data = [p.data for p in parts]
        if all(d is not None for d in data):
            return self.const(np.concatenate([d for d in data if d is not None], axis))
        if len(shape) <= MOVABLE_RANK:
            return self.op1("CONCATENATION", parts, shape, parts[0].dtype, axis=axis)
        before, after = (int(np.prod(s, dtype=np.int64)) for s in (shape[:axis], shape[axis + 1 :]))
        flat = [self.reshape(p, (before, p.shape[axis], after)) for p in parts]
        joined = (before, shape[axis], after)
        return self.reshape(self.op1("CONCATENATION", flat, joined, parts[0].dtype, axis=1), shape)

    def reverse(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Flips `axes`. One op per axis: the kernel only takes neighbouring axes together."""
        for axis in sorted(a for a in axes if x.shape[a] > 1):
            x = self.op1("REVERSE_V2", [x, self.ints([axis])], x.shape, x.dtype)
        return x

    def gather(self, x: Tensor, indices: Tensor, axis: int, batch: int = 0) -> Tensor:
        """`take(x, indices, axis)`, the first `batch` axes of both side by side; the indices must be in range."""
        if x.dtype == "uint16":  # which the kernel does not take
            return self.bitcast(self.gather(self.bitcast(x, "int16"), indices, axis, batch), "uint16")
        shape = x.shape[:axis] + indices.shape[batch:] + x.shape[axis + 1 :]
        return self.op1("GATHER", [x, indices], shape, x.dtype, axis=axis, batchDims=batch)

    # --- elementwise ---------------------------------------------------------------------------------

    def unary(self, op: str, x: Tensor, dtype: str = "") -> Tensor:
        return self.op1(op, [x], x.shape, dtype or x.dtype)

    def precise(self, op: str, x: Tensor) -> Tensor:
        """A float32 function by the runtime's own kernel (libm), which is right to the last ulp or two.

        LiteRT's default delegate has coarse and partly wrong versions: SQRT(3e38) is 50 % off, RSQRT(0) is
        NaN, EXP(NaN) is 0, LOG is 1e5 ulp off near 1, SIN(1e10) is -4891. It takes no tensor above rank 6,
        and these kernels look at sizes only, so a reshape to rank 7 settles who runs them. Measured cost:
        0.1 us per op and 3 ns per element.
        """
        hidden = self.reshape(x, (1,) * DELEGATE_RANK + (x.size,))
        return self.reshape(self.unary(op, hidden), x.shape)

    def elementwise(self, op: str, operands: Sequence[Tensor], dtype: str) -> Tensor:
        """An op that broadcasts like numpy. Ranks above 4 are brought down by merging axes first.

        That is needed for more than reach: above rank 6 the delegate steps aside, and the runtime's own ADD,
        SUB, MUL and DIV turn inf into the largest finite number.
        """
        shape = np.broadcast_shapes(*[x.shape for x in operands])
        if len(shape) <= MOVABLE_RANK:
            return self.op1(op, operands, shape, dtype)
        merged = _merge_broadcast([x.shape for x in operands], shape)
        if len(merged[0]) > MOVABLE_RANK:
            operands = [self.broadcast_to(x, shape) if x.size > 1 else x for x in operands]
            merged = _merge_broadcast([x.shape for x in operands], shape)
        operands = [self.reshape(x, s) for x, s in zip(operands, merged, strict=True)]
        flat = np.broadcast_shapes(*merged)
        return self.reshape(self.op1(op, operands, flat, dtype), shape)

    def binary(self, op: str, x: Tensor, y: Tensor, dtype: str = "") -> Tensor:
        """`elementwise` of two; `dtype` is the result's where it is not the operands'."""
        return self.elementwise(op, [x, y], dtype or x.dtype)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.binary("ADD", x, y)

    def sub(self, x: Tensor, y: Tensor) -> Tensor:
        return self.binary("SUB", x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.binary("MUL", x, y)

    def compare(self, op: str, x: Tensor, y: Tensor) -> Tensor:
        return self.binary(op, x, y, "bool")

    def select(self, predicate: Tensor, yes: Tensor, no: Tensor) -> Tensor:
        return self.elementwise("SELECT_V2", [predicate, yes, no], yes.dtype)

    def is_nan(self, x: Tensor) -> Tensor:
        return self.compare("NOT_EQUAL", x, x)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """A plain CAST: exact only where every value has a counterpart in `dtype`."""
        if x.dtype == dtype:
            return x
        return self.unary("CAST", x, dtype)

    def bitcast(self, x: Tensor, dtype: str) -> Tensor:
        if x.dtype == dtype:
            return x
        if x.data is not None:
            return self.const(x.data.view(dtype))
        return self.unary("BITCAST", x, dtype)

    def clip_int(self, x: Tensor, low: int, high: int) -> Tensor:
        """int32 `x` held between two int32 constants."""
        if x.data is not None:
            return self.const(np.clip(x.data, low, high).astype(x.dtype))
        return self.binary("MINIMUM", self.binary("MAXIMUM", x, self.int32(low)), self.int32(high))

    # --- bodies --------------------------------------------------------------------------------------

    def inner(self, name: str) -> TfliteBuilder:
        """A builder for a body: its own graph, this builder's place."""
        builder = TfliteBuilder(Graph(name), self._lower_body)
        builder.source, builder.rules = self.source, self.rules
        return builder

    def inline(self, closed_jaxpr: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Appends a jaxpr's equations to this builder's own graph; returns its results."""
        self._lower_body(self.graph, closed_jaxpr, inputs)
        return list(self.graph.outputs)

    # --- the edges of a file -------------------------------------------------------------------------

    def from_interface(self, tensor: Tensor, dtype: str) -> Tensor:
        """uint32 arrives as uint32 and is kept as int32 bits; half precision arrives as float32."""
        if dtype == "uint32":
            return self.bitcast(tensor, "int32")
        if dtype in INTERFACE:
            return self.cast(tensor, dtype)
        return tensor

    def to_interface(self, tensor: Tensor, dtype: str) -> Tensor:
        if dtype == "uint32":
            if tensor.weight is not None:  # a weight's bytes say nothing about the sign
                return Tensor(tensor.shape, "uint32", tensor.name, weight=tensor.weight)
            return self.bitcast(tensor, "uint32")
        return self.cast(tensor, interface(dtype))


INTERFACE = {"float16": "float32", "bfloat16": "float32"}
"""Logical dtypes that a file shows as another one."""


def storage(dtype: str) -> str:
    """uint32 is kept as int32 bit patterns: hardly any kernel takes uint32."""
    return "int32" if dtype == "uint32" else dtype


def interface(dtype: str) -> str:
    return INTERFACE.get(dtype, dtype)


def _moved(x: Tensor, shape: Shape, step: tuple[str, tuple[int, ...]]) -> Tensor:
    assert x.weight is not None
    return Tensor(shape, x.dtype, x.name, weight=replace(x.weight, transform=(*x.weight.transform, step)))


def _merge_broadcast(shapes: Sequence[Shape], result: Shape) -> list[Shape]:
    """The same broadcast over fewer axes: neighbours that the same operands span become one."""
    padded = [(1,) * (len(result) - len(s)) + s for s in shapes]
    merged: list[list[int]] = [[] for _ in shapes]
    last: tuple[bool, ...] | None = None
    for axis, n in enumerate(result):
        if n == 1:
            continue
        spans = tuple(s[axis] == n for s in padded)
        for sizes, spanned in zip(merged, spans, strict=True):
            factor = n if spanned else 1
            if spans == last:
                sizes[-1] *= factor
            else:
                sizes.append(factor)
        last = spans
    return [tuple(sizes) for sizes in merged]


def _merge_axes(shape: Shape, perm: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The same transpose over fewer axes: size-1 axes go, neighbours that stay neighbours merge.

    Returns the merged operand shape and the permutation of its axes.
    """
    moving = [p for p in perm if shape[p] != 1]
    kept = sorted(moving)
    runs: list[list[int]] = []
    for axis in moving:
        follows = runs and kept.index(axis) == kept.index(runs[-1][-1]) + 1
        if follows:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    in_place = sorted(runs)
    merged = [int(np.prod([shape[a] for a in run], dtype=np.int64)) for run in in_place]
    return merged, [in_place.index(run) for run in runs]
