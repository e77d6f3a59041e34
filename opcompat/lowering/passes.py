"""Clean-ups of a finished graph that both formats share. Each takes a graph and changes it in place."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor
from opcompat.lowering.lower import PLACEHOLDER
from opcompat.rule import freeze

Pass = Callable[[Graph], Graph]


def drop_dead(graph: Graph) -> Graph:
    """Removes nodes whose results nothing uses, in bodies too. Inputs and outputs stay.

    Placeholders stay, too: without results that are used they may still have effects, which are to be refused.
    """
    live = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs) or _refused(node):
            kept.append(node)
            live.update(x for x in node.inputs if x is not None)
            for body in node.bodies.values():
                drop_dead(body)
                live.update(_uses(body))
    graph.nodes = kept[::-1]
    return graph


def _refused(node: Node) -> bool:
    """Whether a node is a placeholder, or one is in its bodies."""
    return node.op == PLACEHOLDER or any(x.op == PLACEHOLDER for body in node.bodies.values() for x in body.walk())


def _uses(graph: Graph) -> set[Tensor]:
    """All tensors that a graph or its bodies mention as operands or outputs."""
    used = set(graph.outputs)
    for node in graph.walk():
        used.update(x for x in node.inputs if x is not None)
        for body in node.bodies.values():
            used.update(body.outputs)
    return used


def merge_equal(graph: Graph) -> Graph:
    """Computes equal things once: nodes with the same op, operands and attributes become one that serves them all."""
    renamed: dict[Tensor, Tensor] = {}
    seen: dict[Hashable, int] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        inputs = tuple(renamed.get(x, x) if x is not None else None for x in node.inputs)
        node = _with_inputs(node, inputs)
        if node.bodies or node.op == PLACEHOLDER:
            for body in node.bodies.values():
                _rename(body, renamed)
                merge_equal(body)
            kept.append(node)
            continue
        outs = tuple((x.shape, x.dtype) for x in node.outputs)
        key = (node.op, tuple(_identity(x) for x in inputs), freeze(node.attrs), outs)
        place = seen.setdefault(key, len(kept))
        if place == len(kept):
            kept.append(node)
        else:
            first = kept[place]
            kept[place] = replace(first, also=(*first.also, *node.served))
            renamed.update(zip(node.outputs, first.outputs, strict=True))
    graph.nodes = kept
    graph.outputs = [renamed.get(x, x) for x in graph.outputs]
    return graph


def _identity(tensor: Tensor | None) -> Hashable:
    """What makes two operands the same: constants by content, weights by name and form, others by identity."""
    if tensor is None:
        return None
    if tensor.data is not None:
        return (tensor.shape, tensor.dtype, tensor.data.tobytes())
    if tensor.weight is not None:
        return (tensor.shape, tensor.dtype, tensor.weight)
    return id(tensor)


def _rename(graph: Graph, renamed: dict[Tensor, Tensor]) -> None:
    graph.nodes = [
        _with_inputs(n, tuple(renamed.get(x, x) if x is not None else None for x in n.inputs)) for n in graph.nodes
    ]
    graph.outputs = [renamed.get(x, x) for x in graph.outputs]
    for node in graph.nodes:
        for body in node.bodies.values():
            _rename(body, renamed)


def _with_inputs(node: Node, inputs: tuple[Tensor | None, ...]) -> Node:
    if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
        return node
    return replace(node, inputs=inputs)


def skip_broadcasts(broadcast: str, broadcasting: frozenset[str]) -> Pass:
    """A pass that lets element-wise ops broadcast their operands themselves.

    `broadcast` is the op that broadcasts its first operand to a shape (Expand, BROADCAST_TO). It is left out
    in front of an op in `broadcasting` if the op's result keeps its shape without it.
    """

    def run(graph: Graph) -> Graph:
        source: dict[Tensor, Tensor] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.op == broadcast and node.inputs[0] is not None:
                source[node.outputs[0]] = source.get(node.inputs[0], node.inputs[0])
            if node.op in broadcasting:
                node = _with_inputs(node, _compact(node, source))
            for body in node.bodies.values():
                run(body)
            nodes.append(node)
        graph.nodes = nodes
        return graph

    return run


def _compact(node: Node, source: dict[Tensor, Tensor]) -> tuple[Tensor | None, ...]:
    """The node's operands, each before its broadcast where the others still give the result its shape."""
    operands: list[Any] = list(node.inputs)
    for index, operand in enumerate(node.inputs):
        if operand is None or operand not in source:
            continue
        trial = [*operands[:index], source[operand], *operands[index + 1 :]]
        if np.broadcast_shapes(*(x.shape for x in trial if x is not None)) == node.outputs[0].shape:
            operands = trial
    return tuple(operands)
