"""TensorFlow graphs around StableHLO: what jax2tf puts there is walked; anything else is refused by its name.

The same walk serves several purposes, which differ in what the leaves (inputs, variables, StableHLO) stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opcompat.errors import SourceError
from opcompat.sources.tf import messages

MAX_STEPS = 200_000
MAX_CALLS = 50
"""How deeply functions may call each other. A SavedModel has three levels."""


@dataclass(frozen=True)
class Graph:
    """The main graph of a SavedModel and its functions. `where` begins the messages."""

    nodes: Mapping[str, Any]
    functions: Mapping[str, Any]
    where: str

    def node(self, name: str) -> Any:
        if name not in self.nodes:
            raise SourceError(f"{self.where}: damaged: there is no node {name!r}")
        return self.nodes[name]


@dataclass(frozen=True)
class Step:
    """One node with the values of its inputs."""

    node: Any
    args: tuple[Any, ...]
    walk: Walk

    @property
    def attr(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.node.attr
        return found

    def refuse(self, reason: str) -> SourceError:
        return SourceError(f"{self.walk.graph.where}: {self.node.op} ({self.node.name}): {reason}")

    def call(self, name: str) -> tuple[Any, ...]:
        return self.walk.call(name, self.args)


Handler = Callable[[Step], tuple[Any, ...]]


def graph_of(meta_graph: Any, where: str) -> Graph:
    """The graph of a MetaGraphDef."""
    definition = meta_graph.graph_def
    functions = {f.signature.name: f for f in definition.library.function}
    return Graph({n.name: n for n in definition.node}, functions, where)


@dataclass
class Walk:
    """Evaluates nodes by `leaves`, over the ops that only pass on. `steps` and `depth` guard against bombs."""

    graph: Graph
    leaves: Mapping[str, Handler]
    steps: int = 0
    depth: int = 0
    _main: Scope | None = field(default=None, repr=False)

    def main(self, reference: str) -> Any:
        """The value of a tensor of the main graph, "node:1"."""
        if self._main is None:
            self._main = Scope(self, self.graph.nodes, {})
        return self._main.value(reference)

    def call(self, name: str, args: Sequence[Any]) -> tuple[Any, ...]:
        """What a function of the library returns."""
        function = self.graph.functions.get(name)
        if function is None:
            raise SourceError(f"{self.graph.where}: damaged: there is no function {name!r}")
        if self.depth >= MAX_CALLS:
            raise SourceError(f"{self.graph.where}: functions call each other more than {MAX_CALLS} deep")
        self.depth += 1
        scope = self.scope(name, args)
        for output in function.signature.output_arg:
            if output.name not in function.ret:
                raise SourceError(f"{self.graph.where}: damaged: {name} does not return {output.name!r}")
        results = tuple(scope.value(function.ret[o.name]) for o in function.signature.output_arg)
        self.depth -= 1
        return results

    def scope(self, name: str, args: Sequence[Any]) -> Scope:
        """The inside of a function, with its arguments bound."""
        function = self.graph.functions[name]
        names = [a.name for a in function.signature.input_arg]
        if len(names) != len(args):
            raise SourceError(f"{self.graph.where}: damaged: {name} takes {len(names)} arguments, not {len(args)}")
        return Scope(self, {n.name: n for n in function.node_def}, dict(zip(names, args, strict=True)))


@dataclass
class Scope:
    """The nodes of one graph or function call, and the values that are known so far."""

    walk: Walk
    nodes: Mapping[str, Any]
    arguments: Mapping[str, Any]
    _known: dict[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)

    def value(self, reference: str) -> Any:
        """The value of "argument", "node", "node:1" or "node:output:1": all ops here have one list of outputs."""
        name, *rest = reference.split(":")
        if name in self.arguments:
            return self.arguments[name]
        values = self._values(name)
        index = int(rest[-1]) if rest and rest[-1].isdecimal() else 0
        if index >= len(values):
            raise SourceError(f"{self.walk.graph.where}: damaged: {name!r} has no output {index}")
        return values[index]

    def _values(self, name: str) -> tuple[Any, ...]:
        if name not in self._known:
            node = self.nodes.get(name)
            if node is None:
                raise SourceError(f"{self.walk.graph.where}: damaged: there is no node {name!r}")
            self.walk.steps += 1
            if self.walk.steps > MAX_STEPS:
                raise SourceError(f"{self.walk.graph.where}: unfolds into more than {MAX_STEPS:,} nodes")
            handler = self.walk.leaves.get(node.op) or _PASSING.get(node.op)
            args = tuple(self.value(i) for i in node.input if not i.startswith("^"))
            step = Step(node, args, self.walk)
            if handler is None:
                raise step.refuse(
                    "beside the StableHLO of jax2tf, this graph computes with TensorFlow's own ops, which are not "
                    "read together with it; next: save a function that is nothing but jax2tf.convert(...)"
                )
            self._known[name] = handler(step)
        return self._known[name]


def _constant(step: Step) -> tuple[Any, ...]:
    return (messages.array_of(step.attr["value"].tensor, f"{step.walk.graph.where}: {step.node.name}"),)


_PASSING: Mapping[str, Handler] = {
    "Const": _constant,
    "Identity": lambda step: step.args[:1],
    "IdentityN": lambda step: step.args,
    "PartitionedCall": lambda step: step.call(step.attr["f"].func.name),
    "PreventGradient": lambda step: step.args[:1],
    "StatefulPartitionedCall": lambda step: step.call(step.attr["f"].func.name),
    "StopGradient": lambda step: step.args[:1],
    "XlaSharding": lambda step: step.args[:1],
}
"""What passes values on, or is one."""


def variable_keys(graph: Graph, restore: str) -> dict[str, str]:
    """The checkpoint's key of each variable, by the name of its node: what the restoring op `restore` assigns."""
    call = graph.nodes.get(restore)
    if call is None:
        return {}
    found: dict[str, str] = {}
    leaves: Mapping[str, Handler] = {
        "VarHandleOp": lambda step: (step.node.name,),
        "Placeholder": lambda step: (None,),
        "Const": lambda step: ([t.decode("utf-8", "replace") for t in step.attr["value"].tensor.string_val],),
        "RestoreV2": lambda step: tuple(step.args[1]),
    }
    walk = Walk(graph, leaves)
    if call.op in ("StatefulPartitionedCall", "PartitionedCall"):
        args = [walk.main(i) for i in call.input if not i.startswith("^")]
        name = call.attr["f"].func.name
        if name not in graph.functions:
            raise SourceError(f"{graph.where}: damaged: there is no function {name!r}")
        scope, nodes = walk.scope(name, args), graph.functions[name].node_def
    else:
        scope, nodes = Scope(walk, graph.nodes, {}), list(graph.nodes.values())
    for node in nodes:
        if node.op == "AssignVariableOp" and len(node.input) >= 2:
            handle, key = scope.value(node.input[0]), scope.value(node.input[1])
            if isinstance(handle, str) and isinstance(key, str):
                found[handle] = key
    return found
