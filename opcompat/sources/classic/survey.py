"""Looks through a SavedModel before any of it runs: which ops each signature reaches, and which of them may not be.

Reads the protobuf alone, without TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opcompat.errors import SourceError, UnsupportedError
from opcompat.sources.classic.ops import ALLOWED, reason
from opcompat.sources.stablehlo_file import read
from opcompat.sources.tf import messages

SHOWN = 50
"""How many refused nodes a message shows."""


@dataclass(frozen=True)
class Use:
    """A node that a signature reaches: in the main graph, or, where `function` is not empty, in that function."""

    signature: str
    function: str
    node: str
    op: str


@dataclass(frozen=True)
class Survey:
    """What a SavedModel's signatures reach. `file_ops` stand in what runs while it is loaded."""

    source: str
    signatures: tuple[str, ...]
    uses: tuple[Use, ...]

    @property
    def refused(self) -> tuple[Use, ...]:
        return tuple(use for use in self.uses if use.op not in ALLOWED)

    @property
    def needs_xla(self) -> bool:
        """Whether TensorFlow runs it only under its XLA compiler: it has ops that old versions of jax2tf wrote."""
        return any(use.op.startswith("Xla") for use in self.uses)

    def check(self, refused: Sequence[Use]) -> None:
        """Raises UnsupportedError that names every one of them, with its reason."""
        if not refused:
            return
        lines = [f"{self.source}: {len(refused)} nodes of its graphs have no exact counterpart in JAX:"]
        for op in dict.fromkeys(use.op for use in refused):
            lines.append(f"  {op} {reason(op)}")
            places = [_place(use) for use in refused if use.op == op]
            lines += [f"    {place}" for place in places[:SHOWN]]
            if len(places) > SHOWN:
                lines.append(f"    and {len(places) - SHOWN} more")
        raise UnsupportedError("\n".join(lines))


def survey(source: str) -> Survey:
    """Raises SourceError for what is no SavedModel of TensorFlow 2, or runs more than functions when it is loaded."""
    path = Path(source) / "saved_model.pb"
    saved = messages.parse("SavedModel", read(path), str(path))
    meta = next((m for m in saved.meta_graphs if "serve" in m.meta_info_def.tags), None)
    if meta is None:
        raise SourceError(f"{source}: no graph in it is for serving")
    objects = meta.object_graph_def.nodes
    if not len(objects):
        raise SourceError(
            f"{source}: is a SavedModel of TensorFlow 1, without functions; next: load it in TensorFlow 2 "
            "(tf.compat.v1) and save it again with tf.saved_model.save"
        )
    for one in objects:
        if one.HasField("asset") or one.HasField("resource"):
            raise SourceError(
                f"{source}: has lookup tables or files beside it, which are read when it is loaded; next: save the "
                "policy without them"
            )
    names = tuple(sorted(n for n, s in meta.signature_def.items() if len(s.outputs) and not n.startswith("__")))
    if not names:
        raise SourceError(
            f"{source}: has no signatures, so no entry points; next: tf.saved_model.save(module, path, "
            'signatures={"policy": function})'
        )
    functions = {f.signature.name: f for f in meta.graph_def.library.function}
    nodes = {n.name: n for n in meta.graph_def.node}
    uses = [u for name in names for u in _reached(name, meta.signature_def[name], nodes, functions, source)]
    return Survey(source, names, tuple(dict.fromkeys(uses)))


def _reached(
    name: str, signature: Any, nodes: Mapping[str, Any], functions: Mapping[str, Any], source: str
) -> Iterator[Use]:
    """Every node that the signature's outputs need, and every node of each function that is called on the way."""
    stack = [info.name for info in (*signature.outputs.values(), *signature.inputs.values())]
    seen: set[str] = set()
    called: list[str] = []
    while stack:
        node_name = stack.pop().lstrip("^").partition(":")[0]
        if node_name in seen:
            continue
        seen.add(node_name)
        if node_name not in nodes:
            raise SourceError(f"{source}: {name}: damaged: there is no node {node_name!r}")
        node = nodes[node_name]
        # A variable enters the main graph through its handle; tf.saved_model.load binds it to the object.
        if node.op != "VarHandleOp":
            yield Use(name, "", node.name, node.op)
        stack += node.input
        called += _calls(node)
    while called:
        function_name = called.pop()
        if function_name in seen:
            continue
        seen.add(function_name)
        if function_name not in functions:
            raise SourceError(f"{source}: {name}: damaged: there is no function {function_name!r}")
        for node in functions[function_name].node_def:
            yield Use(name, function_name, node.name, node.op)
            called += _calls(node)


def _calls(node: Any) -> Iterator[str]:
    for attr in node.attr.values():
        if attr.HasField("func"):
            yield attr.func.name
        yield from (f.name for f in attr.list.func)


def _place(use: Use) -> str:
    inside = f", in function {use.function}" if use.function else ""
    return f"signature {use.signature}, node {use.node}{inside}"
