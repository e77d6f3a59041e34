"""The vocabulary that ONNX lowerings are written in.

Helpers skip nodes that would do nothing, fold data movement on constants at once, and fold transposes and
reshapes of weights into the weight's stored form. Axes and shapes are int64 constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from opcompat.lowering.builder import Builder, Spec
from opcompat.lowering.graph import Graph, Shape, Tensor
from opcompat.lowering.onnx.dtypes import interface, numpy_dtype

OPSET = 21
"""The opset that is written unless another is asked for, or needed: it runs most widely."""

BITS_OPSET = 26
"""The first opset with BitCast, which alone shows the bits of floats."""

BROADCASTING = frozenset(
    {
        "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Where",
        "Xor",
    }
)  # fmt: skip
"""Ops all of whose inputs broadcast against each other as in numpy."""

INLINE_EXPANDED = 64
"""A broadcast constant up to this many elements is stored; a larger one is expanded when the graph runs."""


class OnnxBuilder(Builder):
    """Appends ONNX nodes.

    Constants that were broadcast are kept as stride-0 numpy views, so that a broadcast costs neither memory
    nor a node where the consumer broadcasts by itself; `op` decides.
    """

    opset: ClassVar[int] = OPSET

    # -- nodes

    def op(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Spec],
        attrs: Mapping[str, Any] | None = None,
        bodies: Mapping[str, Graph] | None = None,
    ) -> tuple[Tensor, ...]:
        """Appends one node. Broadcast constants enter broadcasting ops compactly, other ops expanded."""
        if op in BROADCASTING:
            inputs = self._compacted(inputs, outputs[0][0])
        elif op != "Expand":
            inputs = [x if x is None else self._expanded(x) for x in inputs]
        return super().op(op, inputs, outputs, attrs, bodies)

    def _compacted(self, inputs: Sequence[Tensor | None], shape: Shape) -> list[Tensor | None]:
        small = [x if x is None else _compact(x) for x in inputs]
        if np.broadcast_shapes(*(x.shape for x in small if x is not None)) == shape:
            return list(small)
        # Only constants meet here: one of them has to bring the full shape.
        full = next(x for x in inputs if x is not None and x.shape == shape)
        return [self._expanded(x) if x is full else y for x, y in zip(inputs, small, strict=True)]

    def _expanded(self, x: Tensor) -> Tensor:
        if x.data is None or x.size <= INLINE_EXPANDED:
            return x
        core = _compact(x)
        if core.size == x.size:
            return x
        return self.op1("Expand", [core, self.ints(x.shape)], x.shape, x.dtype)

    def elementwise(self, op: str, *inputs: Tensor, dtype: str | None = None, **attrs: Any) -> Tensor:
        """A broadcasting (or unary) op; the result has the first input's dtype unless `dtype` is given."""
        shape = np.broadcast_shapes(*(x.shape for x in inputs))
        return self.op1(op, inputs, shape, dtype or inputs[0].dtype, **attrs)

    def inline(self, closed_jaxpr: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Lowers a nested jaxpr into this very graph."""
        inner = self.body("inline", closed_jaxpr, inputs)
        self.graph.nodes.extend(inner.nodes)
        return list(inner.outputs)

    def nested(self, graph: Graph) -> OnnxBuilder:
        """A builder for a body of the node to come."""
        inner = type(self)(graph, self._lower_body)
        inner.source, inner.rules = self.source, self.rules
        return inner

    # -- constants

    def ints(self, values: Sequence[int]) -> Tensor:
        """An int64 vector: axes, shapes, starts."""
        return self.const(np.asarray(list(values), np.int64))

    def scalar(self, value: Any, dtype: str) -> Tensor:
        """A constant of rank 0."""
        return self.const(np.asarray(value, numpy_dtype(dtype)))

    def full(self, shape: Sequence[int], value: Any, dtype: str) -> Tensor:
        """A constant filled with `value`; takes the memory of one element."""
        view = np.broadcast_to(np.asarray(value, numpy_dtype(dtype)), tuple(shape))
        return Tensor(tuple(shape), dtype, data=view)

    # -- data movement

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        shape = tuple(int(n) for n in shape)
        if shape == x.shape:
            return x
        if x.data is not None:
            return Tensor(shape, x.dtype, data=_reshaped(x.data, shape))
        if x.weight is not None:
            return _weight_step(x, "reshape", shape, shape)
        # Without allowzero, a 0 in the shape would mean "as in the input".
        attrs = {"allowzero": 1} if 0 in shape else {}
        return self.op1("Reshape", [x, self.ints(shape)], shape, x.dtype, **attrs)

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        """Result axis i is axis permutation[i] of `x`."""
        perm = tuple(int(n) for n in permutation)
        shape = tuple(x.shape[n] for n in perm)
        if perm == tuple(range(x.rank)):
            return x
        if x.data is not None:
            return Tensor(shape, x.dtype, data=x.data.transpose(perm))
        long = [n for n in perm if x.shape[n] != 1]
        if long == sorted(long):  # only axes of size 1 move: no data does
            return self.reshape(x, shape)
        if x.weight is not None and not x.weight.pinned:
            return _weight_step(x, "transpose", perm, shape)
        return self.op1("Transpose", [x], shape, x.dtype, perm=perm)

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Broadcasts as numpy does; the result has exactly `shape`."""
        shape = tuple(int(n) for n in shape)
        if shape == x.shape:
            return x
        if x.data is not None:
            return Tensor(shape, x.dtype, data=np.broadcast_to(x.data, shape))
        return self.op1("Expand", [x, self.ints(shape)], shape, x.dtype)

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Inserts axes of size 1 at the given places of the result."""
        rank, old = x.rank + len(axes), iter(x.shape)
        new = {n % rank for n in axes}
        return self.reshape(x, [1 if n in new else next(old) for n in range(rank)])

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Drops axes of size 1."""
        gone = {n % x.rank for n in axes}
        return self.reshape(x, [n for i, n in enumerate(x.shape) if i not in gone])

    def slice(
        self,
        x: Tensor,
        starts: Sequence[int],
        ends: Sequence[int],
        axes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> Tensor:
        """Static slice, 0 <= start <= end <= size and step >= 1 on each of `axes`."""
        cut = [
            (int(s), int(e), int(a), int(k))
            for s, e, a, k in zip(starts, ends, axes, steps or [1] * len(axes), strict=True)
            if (s, e, k) != (0, x.shape[a], 1)
        ]
        if not cut:
            return x
        index = [slice(None)] * x.rank
        shape = list(x.shape)
        for s, e, a, k in cut:
            index[a], shape[a] = slice(s, e, k), -(-(e - s) // k)
        if x.data is not None:
            return Tensor(tuple(shape), x.dtype, data=x.data[tuple(index)])
        inputs = [x, *(self.ints(column) for column in zip(*cut, strict=True))]
        return self.op1("Slice", inputs, shape, x.dtype)

    def flip(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Reverses the order along `axes`."""
        axes = [n for n in axes if x.shape[n] > 1]
        if not axes:
            return x
        if x.data is not None:
            return Tensor(x.shape, x.dtype, data=np.flip(x.data, tuple(axes)))
        last, first = [-1] * len(axes), [np.iinfo(np.int64).min] * len(axes)
        inputs = [x, self.ints(last), self.ints(first), self.ints(axes), self.ints(last)]
        return self.op1("Slice", inputs, x.shape, x.dtype)

    def concat(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        xs = [x for x in xs if x.shape[axis]] or list(xs[:1])
        if len(xs) == 1:
            return xs[0]
        arrays = [x.data for x in xs if x.data is not None]
        if len(arrays) == len(xs):
            return Tensor(tuple(shape), xs[0].dtype, data=np.concatenate(arrays, axis))
        return self.op1("Concat", xs, shape, xs[0].dtype, axis=axis)

    def gather(self, x: Tensor, indices: Tensor, axis: int) -> Tensor:
        """Takes slices along `axis`; indices lie within bounds. Shape: x[:axis] + indices + x[axis+1:]."""
        shape = x.shape[:axis] + indices.shape + x.shape[axis + 1 :]
        return self.op1("Gather", [x, indices], shape, x.dtype, axis=axis)

    # -- values

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """ONNX Cast: exact for values that `dtype` holds; ints wrap, floats round to nearest even.

        Floats that an integer type does not hold give results of no defined value.
        """
        if dtype == x.dtype:
            return x
        if x.data is not None:
            core = _compact(x).data
            assert core is not None
            with np.errstate(all="ignore"):
                cast = core.astype(numpy_dtype(dtype))
            return Tensor(x.shape, dtype, data=np.broadcast_to(cast, x.shape))
        return self.op1("Cast", [x], x.shape, dtype, to=dtype)

    def where(self, condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
        """Elementwise choice. ONNX Runtime has no Where for bool, and before 1.32 none for uint32."""
        if yes.dtype == "uint32":
            chosen = self.where(condition, self.cast(yes, "int32"), self.cast(no, "int32"))
            return self.cast(chosen, "uint32")
        if yes.dtype != "bool":
            return self.elementwise("Where", condition, yes, no, dtype=yes.dtype)
        chosen = self.elementwise("And", condition, yes)
        other = self.elementwise("And", self.elementwise("Not", condition), no)
        return self.elementwise("Or", chosen, other)

    def clip(self, x: Tensor, low: Any, high: Any) -> Tensor:
        """Clamps to constant bounds."""
        return self.op1("Clip", [x, self.scalar(low, x.dtype), self.scalar(high, x.dtype)], x.shape, x.dtype)

    # -- the file's edge

    def from_interface(self, tensor: Tensor, dtype: str) -> Tensor:
        """float32 in the file to half precision inside; every other dtype is itself."""
        return self.cast(tensor, dtype) if interface(dtype) != dtype else tensor

    def to_interface(self, tensor: Tensor, dtype: str) -> Tensor:
        """Half precision inside to float32 in the file; every other dtype is itself."""
        return self.cast(tensor, interface(dtype))


def uniform(x: Tensor) -> Any:
    """The one value that a constant has everywhere (a numpy scalar), or None. Sees broadcast scalars only."""
    core = _compact(x)
    return core.data.reshape(())[()] if core.data is not None and core.size == 1 else None


def _compact(x: Tensor) -> Tensor:
    """A constant without its broadcasting: axes of stride 0 get size 1, leading ones go."""
    if x.data is None or not x.rank or not x.size:
        return x
    index = tuple(slice(0, 1) if s == 0 else slice(None) for s in x.data.strides)
    core = x.data[index]
    while core.ndim and core.shape[0] == 1:
        core = core[0]
    return x if core.shape == x.shape else Tensor(core.shape, x.dtype, data=core)


def _reshaped(data: np.ndarray, shape: Shape) -> np.ndarray:
    """Reshapes a constant; a broadcast scalar stays one."""
    if data.size and not any(data.strides):
        return np.broadcast_to(data.reshape(-1)[0] if data.ndim else data, shape)
    return data.reshape(shape)


def _weight_step(x: Tensor, step: str, argument: Shape, shape: Shape) -> Tensor:
    assert x.weight is not None
    weight = replace(x.weight, transform=(*x.weight.transform, (step, argument)))
    return Tensor(shape, x.dtype, weight=weight)
