"""A SavedModel of jax2tf, read without TensorFlow: signatures are entry points, variables are parameters.

jax2tf stores each converted function as one XlaCallModule node, whose payload is StableHLO. Around it there are calls,
reads of variables and identities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export, lax

from opcompat import jaxcompat
from opcompat.errors import SourceError
from opcompat.model import EntryPoint, Model
from opcompat.sources import names
from opcompat.sources.base import Loaded, Options
from opcompat.sources.stablehlo_file import aligned, bound, guarded, read
from opcompat.sources.tf import checkpoint, messages
from opcompat.sources.tf.graph import Graph, Handler, Step, Walk, graph_of, variable_keys
from opcompat.stablehlo.parse import interfaces
from opcompat.stablehlo.program import Interface

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


@dataclass(frozen=True)
class Input:
    """What a signature takes, while the graph is surveyed."""

    name: str


@dataclass(frozen=True)
class Variable:
    """A variable, by the name of its node."""

    node: str


@dataclass(frozen=True)
class Payload:
    """The StableHLO of one XlaCallModule, what it takes, and the platforms that it was made for."""

    where: str
    module: bytes
    interface: Interface
    platform: int | None


def load(source: str, options: Options) -> Loaded:
    """Raises SourceError for what is damaged, is no work of jax2tf, or leaves sizes open."""
    options.check(source, "dims")
    folder = Path(source)
    saved = messages.parse("SavedModel", read(folder / "saved_model.pb"), f"{source}/saved_model.pb")
    meta = next((m for m in saved.meta_graphs if "serve" in m.meta_info_def.tags), None)
    if meta is None:
        raise SourceError(f"{source}: no graph in it is for serving")
    graph = graph_of(meta, source)
    signatures = {n: s for n, s in meta.signature_def.items() if len(s.outputs) and n != "__saved_model_init_op"}
    if not signatures:
        raise SourceError(
            f"{source}: has no signatures, so no entry points; next: tf.saved_model.save(module, path, "
            'signatures={"policy": function})'
        )
    keys = guarded(source, lambda: variable_keys(graph, meta.saver_def.restore_op_name))
    payloads: dict[bytes, Payload] = {}
    variables: dict[str, None] = {}
    entry_points = {}
    for name in sorted(signatures):
        reader = _Signature(f"{source}: {name}", graph, signatures[name], options.dims, payloads, variables)
        entry_points[names.entry_name(name)] = guarded(reader.where, reader.entry_point)
    stored = checkpoint.opened(folder / "variables" / "variables") if variables else None
    params = {}
    for node in variables:
        if stored is None or node not in keys:
            raise SourceError(f"{source}: nothing says where the value of the variable {node!r} is stored")
        params[node] = stored.read(keys[node])
    spoken = dict(zip(params, names.unique([_spoken(keys[n]) for n in params], "variable"), strict=True))
    model = Model(
        names.model_name(source),
        {spoken[node]: value for node, value in params.items()},
        {n: _with_names(e, spoken) for n, e in entry_points.items()},
    )
    return Loaded(model, source, folder.resolve(), guess_keys=True)


def _spoken(key: str) -> str:
    """A variable's name in the model: its path in the object that was saved. TensorFlow writes "/" in names as ".S"."""
    path = key.removesuffix(_VALUE).removeprefix("params/")
    return ".".join(part.replace(".S", "/").replace("..", ".") for part in path.split("/"))


def _with_names(entry: EntryPoint, spoken: Mapping[str, str]) -> EntryPoint:
    """The entry point on parameters by their names in the model, instead of by their nodes."""
    inner = entry.function
    function = lambda params, *args: inner({node: params[n] for node, n in spoken.items()}, *args)  # noqa: E731
    return EntryPoint(function, entry.args, names=entry.names)


@dataclass(frozen=True)
class _Signature:
    """Reads one signature. `payloads` and `variables` collect, over all signatures, what they use."""

    where: str
    graph: Graph
    definition: Any
    dims: Mapping[str, int]
    payloads: dict[bytes, Payload]
    variables: dict[str, None]

    def entry_point(self) -> EntryPoint:
        inputs = {info.name.partition(":")[0]: name for name, info in self.definition.inputs.items()}
        order = sorted(inputs, key=inputs.__getitem__)
        shapes = self._shapes(inputs)
        dtypes = {n: messages.dtype_of(i.dtype, f"{self.where}: {n}") for n, i in self.definition.inputs.items()}
        modules = self._modules(inputs, shapes)
        outputs = {name: self.definition.outputs[name].name for name in sorted(self.definition.outputs)}

        def function(params: Mapping[str, Any], *args: Any) -> dict[str, Any]:
            values = dict(zip(order, args, strict=True))
            leaves: Mapping[str, Handler] = {
                "Placeholder": lambda step: (values[step.node.name],),
                "VarHandleOp": lambda step: (Variable(step.node.name),),
                "ReadVariableOp": lambda step: (params[step.args[0].node],),
                "XlaCallModule": lambda step: modules[_key(step)](*step.args),
                "Cast": _cast,
            }
            walk = Walk(self.graph, leaves)
            return {name: walk.main(reference) for name, reference in outputs.items()}

        args = tuple(jaxcompat.shape_dtype(shapes[inputs[n]], dtypes[inputs[n]]) for n in order)
        return EntryPoint(function, args, names=tuple(inputs[n] for n in order))

    def _survey(self, inputs: Mapping[str, str]) -> dict[bytes, list[tuple[Any, ...]]]:
        """What each payload is called with, as far as it comes from inputs and variables."""
        calls: dict[bytes, list[tuple[Any, ...]]] = {}

        def module(step: Step) -> tuple[Any, ...]:
            payload = self._payload(step)
            calls.setdefault(_key(step), []).append(step.args)
            return (None,) * len(payload.interface.results)

        def variable(step: Step) -> tuple[Any, ...]:
            self.variables[step.node.name] = None
            return (Variable(step.node.name),)

        leaves: Mapping[str, Handler] = {
            "Placeholder": lambda step: (Input(inputs.get(step.node.name) or _unknown(step)),),
            "VarHandleOp": variable,
            "ReadVariableOp": lambda step: step.args[:1],
            "XlaCallModule": module,
            "Cast": lambda step: step.args[:1],
        }
        walk = Walk(self.graph, leaves)
        for info in self.definition.outputs.values():
            walk.main(info.name)
        return calls

    def _payload(self, step: Step) -> Payload:
        key = _key(step)
        if key not in self.payloads:
            self.payloads[key] = _payload(step, f"{self.where}: {step.node.name}")
        return self.payloads[key]

    def _shapes(self, inputs: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
        """The shape of each input. Open sizes have the names that the payloads tell, else NAME[AXIS]."""
        shapes = {n: messages.shape_of(i.tensor_shape, f"{self.where}: {n}") for n, i in self.definition.inputs.items()}
        found: dict[str, tuple[int, ...]] = {}
        for key, calls in self._survey(inputs).items():
            for args in calls:
                taken = [(a.name, shapes[a.name]) for a in args if isinstance(a, Input)]
                found |= self._aligned(taken, self.payloads[key].module)
        return found | self._aligned([(n, s) for n, s in shapes.items() if n not in found], b"")

    def _aligned(self, taken: Sequence[tuple[str, tuple[Any, ...]]], module: bytes) -> dict[str, tuple[int, ...]]:
        return dict(zip([n for n, _ in taken], aligned(self.where, module, taken, self.dims), strict=True))

    def _modules(self, inputs: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> dict[bytes, Any]:
        """The function of each payload that this signature reaches, at the shapes that it is called with."""
        found = {}
        for key, calls in self._survey(inputs).items():
            payload = self.payloads[key]
            own = [a for a in payload.interface.arguments if not a.constant]
            given = {tuple(_shape(a, t.type.shape, shapes) for a, t in zip(args, own, strict=True)) for args in calls}
            if len(given) > 1:
                raise SourceError(f"{payload.where}: called with different shapes in one signature")
            found[key] = bound(
                payload.where,
                payload.module,
                payload.interface,
                self.dims,
                platform=payload.platform,
                shapes=next(iter(given)),
            )[0]
        return found


def _shape(argument: Any, declared: tuple[Any, ...], shapes: Mapping[str, tuple[int, ...]]) -> Any:
    return shapes[argument.name] if isinstance(argument, Input) else declared


def _unknown(step: Step) -> str:
    raise step.refuse("an input that the signature does not name")


def _key(step: Step) -> bytes:
    return sha256(step.attr["module"].s).digest()


def _payload(step: Step, where: str) -> Payload:
    """Reads one XlaCallModule. Raises SourceError for what needs TensorFlow itself, or a newer reader."""
    attr = step.attr
    version, newest = attr["version"].i, export.maximum_supported_calling_convention_version
    if version > newest:
        raise SourceError(
            f"{where}: XlaCallModule of version {version}, and jax {jax.__version__} knows up to {newest}; next: "
            "install a newer jax, or save the model with an older one"
        )
    if len(attr["function_list"].list.func):
        raise SourceError(f"{where}: calls back into TensorFlow (jax2tf.call_tf), which artifacts cannot")
    if attr["has_token_input_output"].b:
        raise SourceError(f"{where}: has ordered effects, which artifacts have not")
    platforms = [p.decode("utf-8", "replace").lower() for p in attr["platforms"].list.s]
    module = attr["module"].s
    _, found = guarded(where, lambda: interfaces(module))
    if "main" not in found:
        raise SourceError(f"{where}: damaged: the module has no @main")
    chosen = platforms.index("cpu") if "cpu" in platforms else 0
    interface = _with_platform(found["main"], len(step.args))
    return Payload(where, module, interface, chosen if len(platforms) > 1 else None)


def _with_platform(interface: Interface, count: int) -> Interface:
    """Before jax.export marked it, the index of the platform was just one more argument, the first."""
    own = [a for a in interface.arguments if not a.constant]
    if len(own) != count + 1 or own[0].type.shape or own[0].type.dtype != np.int32:
        return interface
    first = replace(interface.arguments[0], constant="_platform_index")
    return replace(interface, arguments=(first, *interface.arguments[1:]))


def _cast(step: Step) -> tuple[Any, ...]:
    """What jax2tf puts before a payload whose 64-bit arguments were narrowed."""
    (x,) = step.args
    dtype = messages.dtype_of(step.attr["DstT"].type, f"{step.walk.graph.where}: {step.node.name}")
    if jax.numpy.issubdtype(x.dtype, np.floating) and not jax.numpy.issubdtype(dtype, np.floating):
        raise step.refuse(f"from {x.dtype} to {dtype}: frameworks differ in what they make of values out of range")
    return (lax.convert_element_type(x, dtype),)
