"""The target-side program: what a lowering emits, a target checks and a writer writes.

One small structure serves both formats, so that provenance, clean-up and support checks are written once.
`op` and `attrs` are the target format's own words ("MatMul", "BATCH_MATMUL"); everything else is neutral.
Analyze builds the same graph as convert: weights stand in it by reference and are never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Weight:
    """A parameter leaf, by name, and the pure data movement that was folded into it.

    `transform` is a sequence of steps, applied in order: ("transpose", perm) or ("reshape", shape). A `pinned`
    leaf is stored as it is, since uses disagree about the form: transposes of it stay ops.
    """

    leaf: str
    transform: tuple[tuple[str, tuple[int, ...]], ...] = ()
    pinned: bool = field(default=False, compare=False)

    @property
    def moved(self) -> bool:
        """Whether the stored bytes are in another order than the leaf's. Reshaping alone keeps them."""
        return any(step == "transpose" for step, _ in self.transform)

    def apply(self, array: np.ndarray) -> np.ndarray:
        """Returns the stored form of the leaf's value, C-contiguous."""
        for step, argument in self.transform:
            array = array.transpose(argument) if step == "transpose" else array.reshape(argument)
        return np.asarray(array, order="C")


@dataclass(frozen=True, eq=False)
class Tensor:
    """One value. Compared by identity. A constant carries `data`, a parameter `weight`, others neither.

    `dtype` is the numpy name of the type in the file ("float32", "int32", "bool", ...).
    """

    shape: Shape
    dtype: str
    name: str = ""
    data: np.ndarray | None = None
    weight: Weight | None = None

    @property
    def is_constant(self) -> bool:
        return self.data is not None or self.weight is not None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Node:
    """One target op. `inputs` holds None where an optional input is left out.

    `source` is the id of the original equation that this op serves, `rules` the rules that led to it; `also` has the
    same of equal ops that were merged into this one.
    `problem` is set on a placeholder: why no op could be emitted.
    """

    op: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    bodies: Mapping[str, Graph] = field(default_factory=dict)
    source: str = ""
    rules: tuple[str, ...] = ()
    problem: str = ""
    also: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def served(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """(source, rules) of every original equation that this op serves."""
        return ((self.source, self.rules), *self.also)


@dataclass(eq=False)
class Graph:
    """A program or a body: nodes in topological order. Bodies may use tensors of the graphs around them."""

    name: str
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """Yields every node, those in bodies included."""
        for node in self.nodes:
            yield node
            for body in node.bodies.values():
                yield from body.walk()
