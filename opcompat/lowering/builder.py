"""What a lowering function works with: a builder that appends target ops to a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opcompat.errors import OpcompatError
from opcompat.lowering.graph import Graph, Node, Shape, Tensor


class Unsupported(OpcompatError):
    """Raised by a lowering function: the target format has no exact form for this equation. Says why."""

    exit_code = 1


Lowering = Callable[..., "Tensor | Sequence[Tensor]"]
"""(builder, equation, *operands) -> one tensor per output variable of the equation."""

Spec = tuple[Shape, str]


@dataclass(frozen=True)
class Backend:
    """A file format: its table from primitive name to lowering function, and its dtype conventions.

    `storage` maps a logical dtype to the one tensors have inside graphs (TFLite keeps uint32 as int32 bit
    patterns), `interface` to the one that inputs and outputs have in the file. `builder` is the class that
    lowering functions get; `passes` clean up a finished graph, in order.
    """

    name: str
    table: Mapping[str, Lowering]
    storage: Callable[[str], str]
    interface: Callable[[str], str]
    builder: type[Builder]
    passes: tuple[Callable[[Graph], Graph], ...] = ()


class Builder:
    """Appends nodes to `graph`. Subclasses add the format's vocabulary (reshape, cast, ...)."""

    def __init__(self, graph: Graph, lower_body: Callable[[Graph, Any, Sequence[Tensor]], None]) -> None:
        self.graph = graph
        self.source = ""
        self.rules: tuple[str, ...] = ()
        self._lower_body = lower_body

    def op(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Spec],
        attrs: Mapping[str, Any] | None = None,
        bodies: Mapping[str, Graph] | None = None,
    ) -> tuple[Tensor, ...]:
        """Appends one node; returns its outputs, of the given shapes and storage dtypes."""
        outs = tuple(Tensor(tuple(int(n) for n in shape), dtype) for shape, dtype in outputs)
        self.graph.nodes.append(Node(op, tuple(inputs), outs, attrs or {}, bodies or {}, self.source, self.rules))
        return outs

    def op1(self, op: str, inputs: Sequence[Tensor | None], shape: Sequence[int], dtype: str, **attrs: Any) -> Tensor:
        """`op` for the common case of one output and no bodies."""
        return self.op(op, inputs, [(tuple(shape), dtype)], attrs)[0]

    def const(self, value: Any, dtype: str | None = None) -> Tensor:
        """A constant of the given storage dtype."""
        array = np.asarray(value, dtype=dtype)
        return Tensor(array.shape, array.dtype.name, data=array)

    def body(self, name: str, closed_jaxpr: Any, inputs: Sequence[Tensor]) -> Graph:
        """Lowers a nested jaxpr into a graph of its own, its variables bound to `inputs` in order.

        Each of `inputs` may be a fresh tensor (the caller then lists it in `graph.inputs`), a constant, or a
        tensor of the surrounding graph if the format allows captures. The result's `outputs` are set.
        """
        graph = Graph(name)
        self._lower_body(graph, closed_jaxpr, inputs)
        return graph

    def from_interface(self, tensor: Tensor, dtype: str) -> Tensor:
        """Turns an input as it stands in the file into the storage form of logical `dtype`."""
        raise NotImplementedError

    def to_interface(self, tensor: Tensor, dtype: str) -> Tensor:
        """Turns a value of logical `dtype` into the form that an output has in the file."""
        raise NotImplementedError
