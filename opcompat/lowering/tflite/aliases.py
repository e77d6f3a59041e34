"""Keeps values apart that LiteRT would store in one place.

LiteRT gives RESHAPE and BITCAST their operand's memory, and lets ADD, SUB, MUL, DIV and DYNAMIC_UPDATE_SLICE write
their result over an operand that has no other use. Before it does so it looks at the uses of that operand and of the
tensor that the memory was first made for, but not at tensors between the two (measured, 2.3.0). So in

    a = x * 2;  b = reshape(a);  c = reshape(b) + 1;  d = b - 3

c is written over b before d reads it. The pass finds such places as the runtime's planner would, and copies the
operand. It leaves the order of nodes out of account, since delegates change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor

SHARING = frozenset({"RESHAPE", "BITCAST", "EXPAND_DIMS", "SQUEEZE"})
"""Ops whose result is their first operand's memory."""

IN_PLACE: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV"), (0, 1)),
    **dict.fromkeys(("DYNAMIC_UPDATE_SLICE", "SOFTMAX"), (0,)),
}
"""op -> the operands that its result may be written over."""


def keep_apart(graph: Graph) -> Graph:
    """Inserts copies so that nothing is overwritten while it has uses, in bodies too."""
    memory = _Memory(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        for body in node.bodies.values():
            keep_apart(body)
        operand = memory.overwritten(node)
        if operand is not None and memory.is_read_elsewhere(operand):
            copy = _copy(operand, node)
            nodes.append(copy)
            node = replace(node, inputs=tuple(copy.outputs[0] if x is operand else x for x in node.inputs))
        elif operand is not None:
            memory.share(node.outputs[0], operand)
        elif node.op in SHARING and node.inputs[0] is not None:
            memory.share(node.outputs[0], node.inputs[0])
        nodes.append(node)
    graph.nodes = nodes
    return graph


class _Memory:
    """Which tensors of a graph lie in one place, and how often each is used."""

    def __init__(self, graph: Graph) -> None:
        self.fixed = set(graph.inputs)
        self.uses = Counter(x for node in graph.nodes for x in node.inputs if x is not None)
        self.uses.update(graph.outputs)
        self.places: dict[Tensor, list[Tensor]] = {}

    def share(self, result: Tensor, operand: Tensor) -> None:
        if self.is_own(operand):
            place = self.places.setdefault(operand, [operand])
            place.append(result)
            self.places[result] = place

    def is_own(self, x: Tensor) -> bool:
        """Whether the runtime may reuse the memory: not that of inputs and constants."""
        return not (x.is_constant or x in self.fixed)

    def overwritten(self, node: Node) -> Tensor | None:
        """The operand that the runtime would write the result over."""
        for index in IN_PLACE.get(node.op, ()):
            x = node.inputs[index]
            if x is not None and self.is_own(x) and self.uses[x] == 1 and x.size == node.outputs[0].size:
                first = self.places.get(x, [x])[0]
                return x if self.uses[first] == 1 else None
        return None

    def is_read_elsewhere(self, x: Tensor) -> bool:
        """Whether anything in the place of `x` has another use than the one that leads there."""
        return any(self.uses[other] > 1 for other in self.places.get(x, ()))


def _copy(x: Tensor, owner: Node) -> Node:
    """A node that makes a copy. For float32 it is a maximum with -inf, which the default delegate takes."""
    result = Tensor(x.shape, x.dtype)
    if x.dtype == "float32":
        least = Tensor((), "float32", data=np.asarray(-np.inf, np.float32))
        return Node("MAXIMUM", (least, x), (result,), source=owner.source, rules=owner.rules)
    shape = Tensor((x.rank,), "int32", data=np.asarray(x.shape, np.int32))
    return Node("BROADCAST_TO", (x, shape), (result,), source=owner.source, rules=owner.rules)
