"""Which tensor of a file is which tensor of the graph that this version lowers the policy to.

If the file holds the very ops that this version writes, in order, each tensor has its place. Otherwise (the file is
from another version, or its lowering was another) the longest runs of equal ops are matched, and what stands between
them is known by the ops that read it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from opcompat.bisecting.artifact import Program, Value
from opcompat.lowering.graph import Graph, Node, Tensor


@dataclass(frozen=True)
class Alignment:
    """`values` has the file's tensor for tensors of the graph; `changed` the ops of the graph without a match."""

    values: Mapping[Tensor, Value]
    changed: tuple[Node, ...]


def align(graph: Graph, program: Program, output_names: Sequence[str]) -> Alignment:
    """`output_names` are the names that the graph's outputs have in the file."""
    ours = [_signature(node.op, node.outputs, len(node.inputs)) for node in graph.nodes]
    theirs = [_signature(op.name, op.outputs, len(op.inputs)) for op in program.ops]
    found: dict[Tensor, Value] = {}
    pairs = _pairs(ours, theirs)
    matched = {a for a, _ in pairs}
    # What is read counts before what is made: the file may have more ops in between.
    for a, b in pairs:
        both = zip(graph.nodes[a].inputs, program.ops[b].inputs, strict=True)
        _note(found, ((x, v) for x, v in both if x is not None and v is not None))
    by_name = {name: key for key, name in program.outputs.items()}
    made = {v.key: v for op in program.ops for v in op.outputs}
    _note(
        found,
        ((x, made[by_name[n]]) for x, n in zip(graph.outputs, output_names, strict=True) if by_name.get(n) in made),
    )
    for a, b in pairs:
        _note(found, zip(graph.nodes[a].outputs, program.ops[b].outputs, strict=True))
    made_by_ops = {x: v for x, v in found.items() if v.key in made and not x.is_constant}
    return Alignment(made_by_ops, tuple(n for i, n in enumerate(graph.nodes) if i not in matched))


def _note(found: dict[Tensor, Value], pairs: Iterable[tuple[Tensor, Value]]) -> None:
    """What is known stays; a tensor of another type or shape is another value."""
    for tensor, value in pairs:
        if tensor not in found and value.dtype == tensor.dtype and value.shape == tensor.shape:
            found[tensor] = value


def _signature(op: str, outputs: Sequence[Tensor | Value], inputs: int) -> Hashable:
    return op, inputs, tuple((x.dtype, x.shape) for x in outputs)


def _pairs(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    if len(ours) <= len(theirs) and list(ours) == list(theirs[: len(ours)]):
        return [(i, i) for i in range(len(ours))]
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    return [(block.a + i, block.b + i) for block in blocks for i in range(block.size)]
