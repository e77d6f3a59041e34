"""jaxpr -> target graph: one walk, used by analyze (to judge) and by convert (to write)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opcompat import jaxcompat
from opcompat.complexes import is_complex
from opcompat.lowering.builder import Backend, Builder, Unsupported
from opcompat.lowering.graph import Graph, Node, Tensor, Weight
from opcompat.provenance import Provenance, provenance
from opcompat.trace import Trace

PLACEHOLDER = "?"
"""The op name of a node that stands where nothing could be emitted; its `problem` says why."""


class _Lowerer:
    """Lowers one entry point. Holds what bodies share with the main graph: the backend and the weights."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def graph(self, graph: Graph, closed: Any, inputs: Sequence[Tensor], owner: Provenance) -> Mapping[Any, Tensor]:
        """Appends the equations of `closed` to `graph`, its inputs bound to `inputs`, and sets the outputs.

        Returns the tensor of each variable.
        """
        p = jaxcompat.parts(closed)
        builder = self.builder(graph)
        env: dict[Any, Tensor] = dict(zip(p.invars, inputs, strict=True))
        for var, value in zip(p.constvars, p.consts, strict=True):
            env[var] = self.constant(builder, value, var.aval.dtype)

        def read(atom: Any) -> Tensor:
            return self.constant(builder, atom.val, atom.aval.dtype) if jaxcompat.is_literal(atom) else env[atom]

        for eqn in p.eqns:
            mark = provenance(eqn)
            builder.source, builder.rules = mark if mark.source else Provenance(owner.source, owner.rules + mark.rules)
            outs = self.equation(builder, eqn, [read(v) for v in eqn.invars])
            env.update(zip(eqn.outvars, outs, strict=True))
        builder.source, builder.rules = owner
        graph.outputs = [read(v) for v in p.outvars]
        return env

    def builder(self, graph: Graph) -> Builder:
        def body(inner: Graph, closed: Any, inputs: Sequence[Tensor]) -> None:
            self.graph(inner, closed, inputs, Provenance(builder.source, builder.rules))

        builder = self.backend.builder(graph, body)
        return builder

    def constant(self, builder: Builder, value: Any, dtype: Any) -> Tensor:
        # A literal may hold a Python number: only its aval knows the dtype.
        array = np.asarray(value, dtype)
        storage = self.backend.storage(array.dtype.name)
        return builder.const(array if storage == array.dtype.name else array.view(storage))

    def equation(self, builder: Builder, eqn: Any, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        """The tensors of one equation's outputs; a placeholder node where it cannot be lowered."""
        function = self.backend.table.get(eqn.primitive.name)
        before = len(builder.graph.nodes)
        if any(is_complex(v.aval) for v in (*eqn.invars, *eqn.outvars)):
            return self.placeholder(builder, eqn, operands, "no form in pairs of real numbers is known")
        if function is None:
            return self.placeholder(builder, eqn, operands, "no lowering")
        try:
            outs = function(builder, eqn, *operands)
        except Unsupported as error:
            del builder.graph.nodes[before:]
            return self.placeholder(builder, eqn, operands, str(error))
        outs = (outs,) if isinstance(outs, Tensor) else tuple(outs)
        for var, out in zip(eqn.outvars, outs, strict=True):
            expected = tuple(var.aval.shape), self.backend.storage(var.aval.dtype.name)
            if (out.shape, out.dtype) != expected:
                # A form that a lowering does not know (complex numbers, say): never a plausible wrong file.
                del builder.graph.nodes[before:]
                wrong = f"gives {out.dtype}{list(out.shape)}, not {expected[1]}{list(expected[0])}"
                return self.placeholder(builder, eqn, operands, f"its lowering {wrong}")
        return outs

    def placeholder(self, builder: Builder, eqn: Any, operands: Sequence[Tensor], problem: str) -> tuple[Tensor, ...]:
        outs = tuple(Tensor(tuple(v.aval.shape), self.backend.storage(v.aval.dtype.name)) for v in eqn.outvars)
        builder.graph.nodes.append(
            Node(
                PLACEHOLDER,
                tuple(operands),
                outs,
                {"primitive": eqn.primitive.name},
                {},
                builder.source,
                builder.rules,
                problem,
            )
        )
        return outs


def lower_jaxpr(closed: Any, backend: Backend, inputs: Sequence[Tensor], name: str) -> Graph:
    """Lowers a closed jaxpr whose inputs are bound to `inputs` (storage dtypes); no interface, no passes."""
    graph = Graph(name)
    _Lowerer(backend).graph(graph, closed, inputs, Provenance("", ()))
    return graph


def lower_equation(eqn: Any, backend: Backend) -> Graph:
    """Lowers one equation alone, literals as constants and other operands as inputs."""
    graph = Graph("equation")
    lowerer = _Lowerer(backend)
    builder = lowerer.builder(graph)
    builder.source, builder.rules = provenance(eqn)
    operands = [
        lowerer.constant(builder, v.val, v.aval.dtype)
        if jaxcompat.is_literal(v)
        else Tensor(tuple(v.aval.shape), backend.storage(v.aval.dtype.name))
        for v in eqn.invars
    ]
    graph.inputs = [x for x in operands if not x.is_constant]
    graph.outputs = list(lowerer.equation(builder, eqn, operands))
    return graph


@dataclass(frozen=True)
class Lowered:
    """An entry point in a target's format: the graph and the names of its outputs, in order.

    `values` has the tensor of each variable of the rewritten jaxpr, those included that no longer are in the graph.
    """

    graph: Graph
    output_names: tuple[str, ...]
    values: Mapping[Any, Tensor] = field(default_factory=dict, repr=False)


def contested(graphs: Iterable[Graph]) -> frozenset[str]:
    """The leaves that some graph wants in another order of bytes than another: to be pinned, and stored once."""
    forms: dict[str, set[Any]] = {}
    for graph in graphs:
        used = [x for node in graph.walk() for x in node.inputs if x is not None]
        for weight in (x.weight for x in (*used, *graph.outputs) if x.weight is not None):
            forms.setdefault(weight.leaf, set()).add(weight.transform if weight.moved else ())
    return frozenset(leaf for leaf, found in forms.items() if len(found) > 1)


def lower(trace: Trace, closed: Any, backend: Backend, pinned: frozenset[str] = frozenset()) -> Lowered:
    """Lowers an entry point whole: `closed` is its rewritten jaxpr, `trace` its interface.

    Weights enter by reference. What cannot be lowered becomes a placeholder node with its problem, and the walk
    goes on, so that one run finds everything. Leaves in `pinned` are stored as they are.
    """
    graph = Graph(trace.entry_point)
    lowerer = _Lowerer(backend)
    builder = lowerer.builder(graph)
    operands = [Tensor(p.shape, backend.storage(p.dtype), p.name, weight=Weight(p.name)) for p in trace.params]
    for leaf in trace.inputs:
        tensor = Tensor(leaf.shape, backend.interface(leaf.dtype), leaf.name)
        graph.inputs.append(tensor)
        operands.append(builder.from_interface(tensor, leaf.dtype))
    values = lowerer.graph(graph, closed, operands, Provenance("", ()))
    graph.outputs = [
        builder.to_interface(tensor, leaf.dtype) for tensor, leaf in zip(graph.outputs, trace.outputs, strict=True)
    ]
    for clean in backend.passes:
        graph = clean(graph)
    return Lowered(graph, tuple(leaf.name for leaf in trace.outputs), values)
