"""How a one-op TFLite model is fed where JavaScript has no form of a dtype: other dtypes go in and out, and ops inside
the model turn them into those that are asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor
from opcompat.targets.probes.case import Case


@dataclass(frozen=True)
class Passage:
    """How values of a dtype pass: as `dtype`, `count` of them for each value in a further last axis (0: no such axis).

    `op` turns them into values inside the model: BITCAST keeps the bits, CAST the values.
    """

    dtype: str
    op: str = "BITCAST"
    count: int = 0

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape, self.count) if self.count else tuple(shape)

    def pack(self, x: np.ndarray) -> np.ndarray:
        if self.op == "CAST":
            return x.astype(self.dtype)
        return np.ascontiguousarray(x).reshape(-1).view(self.dtype).reshape(self.shape(x.shape))

    def unpack(self, x: np.ndarray, like: np.ndarray) -> np.ndarray:
        if self.op == "CAST":
            return x.astype(like.dtype)
        return np.ascontiguousarray(x).reshape(-1).view(like.dtype).reshape(x.shape[:-1] if self.count else x.shape)


HALF, WIDE = Passage("uint8", count=2), Passage("int32", count=2)
BITS: Mapping[str, Passage] = {
    "bool": Passage("uint8", "CAST"),
    "int8": Passage("uint8"),
    "int16": HALF,
    "uint16": HALF,
    "float16": HALF,
    "bfloat16": HALF,
    "uint32": Passage("int32"),
    "int64": WIDE,
    "uint64": WIDE,
    "float64": WIDE,
}
"""For an interface of float32, int32 and uint8."""


@dataclass(frozen=True)
class Fed:
    """A model, what it is fed, and how its results are read."""

    graph: Graph
    inputs: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    passages: tuple[Passage | None, ...]

    def read(self, results: Sequence[np.ndarray], case: Case) -> list[np.ndarray]:
        triples = zip(results, self.passages, case.expected, strict=True)
        return [x if p is None else p.unpack(x, like) for x, p, like in triples]


def passes(case: Case, dtypes: Sequence[str], passages: Mapping[str, Passage]) -> bool:
    """Whether an interface of these dtypes has forms for all inputs and results of a case."""
    return all(x.dtype.name in dtypes or x.dtype.name in passages for x in (*case.feeds.values(), *case.expected))


def through(graph: Graph, passages: Mapping[str, Passage]) -> Graph:
    """The graph, each input and output of a dtype in `passages` passed as that says."""
    before, after, inputs, outputs = [], [], [], []
    for x in graph.inputs:
        passage = passages.get(x.dtype)
        inputs.append(x if passage is None else Tensor(passage.shape(x.shape), passage.dtype, x.name))
        if passage is not None:
            before.append(Node(passage.op, (inputs[-1],), (x,)))
    for x in graph.outputs:
        passage = passages.get(x.dtype)
        outputs.append(x if passage is None else Tensor(passage.shape(x.shape), passage.dtype))
        if passage is not None:
            after.append(Node(passage.op, (x,), (outputs[-1],)))
    return Graph(graph.name, inputs, outputs, [*before, *graph.nodes, *after])


def fed(case: Case, passages: Mapping[str, Passage]) -> Fed:
    """A case's model and inputs, passed as `passages` says."""
    node, inputs = case.node
    return Fed(
        through(Graph("main", inputs, list(node.outputs), [node]), passages),
        {name: passages[x.dtype.name].pack(x) if x.dtype.name in passages else x for name, x in case.feeds.items()},
        tuple(f"y{i}" for i in range(len(node.outputs))),
        tuple(passages.get(x.dtype) for x in node.outputs),
    )
