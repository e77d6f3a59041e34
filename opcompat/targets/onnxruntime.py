"""ONNX Runtime on the CPU: what the installed version runs, read from its own kernel registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from opcompat.lowering.graph import Node, Tensor
from opcompat.lowering.onnx.builder import OPSET
from opcompat.targets.base import Support, Target

PROVIDER = "CPUExecutionProvider"

_TYPE_NAMES = {"float32": "float", "float64": "double"}
_FOREVER = 2**31 - 1


class Kernel(NamedTuple):
    """An implementation: of schemas since..until, for the types listed by type parameter or operand name."""

    since: int
    until: int
    types: Mapping[str, frozenset[str]]

    def serves(self, schema_since: int) -> bool:
        """An open end says nothing about later schemas: the kernel then serves the one it was made for."""
        if self.since == schema_since:
            return True
        return self.since < schema_since <= self.until < _FOREVER


@cache
def _kernels() -> Mapping[str, tuple[Kernel, ...]]:
    """The CPU kernels of the default domain, by op."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found: dict[str, list[Kernel]] = {}
    for k in state.get_all_opkernel_def():
        if k.domain in ("", "ai.onnx") and k.provider == PROVIDER:
            since, until = k.version_range
            types = {name: frozenset(allowed) for name, allowed in k.type_constraints.items()}
            found.setdefault(k.op_name, []).append(Kernel(since, until, types))
    return {op: tuple(kernels) for op, kernels in found.items()}


@cache
def _version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


@cache
def _schema(op: str, opset: int) -> Any:
    """The operator's schema in an opset, or None."""
    import onnx

    try:
        return onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None


def _type(x: Tensor) -> str:
    return f"tensor({_TYPE_NAMES.get(x.dtype, x.dtype)})"


def _bound(formals: Any, actuals: tuple[Tensor | None, ...]) -> Iterator[tuple[Any, Tensor]]:
    """(formal parameter, tensor) pairs; the last formal takes what a variadic one may."""
    for i, x in enumerate(actuals):
        if x is not None and formals:
            yield formals[min(i, len(formals) - 1)], x


def _types(schema: Any, node: Node) -> dict[str, set[str]]:
    """The types that a node gives to each type parameter, and to each operand's own name."""
    types: dict[str, set[str]] = {}
    pairs = (*_bound(schema.inputs, node.inputs), *_bound(schema.outputs, node.outputs))
    for formal, x in pairs:
        types.setdefault(formal.type_str, set()).add(_type(x))
        types.setdefault(formal.name, set()).add(_type(x))
    return types


def _violation(schema: Any, node: Node, types: Mapping[str, set[str]]) -> str:
    """How a node breaks its schema, or ""."""
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        return f"{node.op} takes {schema.min_input} to {schema.max_input} inputs"
    for constraint in schema.type_constraints:
        wrong = types.get(constraint.type_param_str, set()) - set(constraint.allowed_type_strs)
        if wrong:
            return f"{node.op}({schema.since_version}) is not defined for {_plain(wrong)}"
    homogeneous = {f.type_str for f in (*schema.inputs, *schema.outputs) if f.is_homogeneous}
    mixed = sorted(p for p in homogeneous if len(types.get(p, ())) > 1)
    return f"{node.op} mixes {_plain(types[mixed[0]])}" if mixed else ""


def _names(types: set[str]) -> list[str]:
    """numpy's names for ONNX's types, sorted."""
    names = {v: k for k, v in _TYPE_NAMES.items()}
    inner = (t.removeprefix("tensor(").removesuffix(")") for t in types)
    return sorted(names.get(t, t) for t in inner)


def _plain(types: set[str]) -> str:
    return " and ".join(_names(types))


def _serves(kernel: Kernel, types: Mapping[str, set[str]]) -> bool:
    return all(types.get(name, set()) <= allowed for name, allowed in kernel.types.items())


def check(node: Node, opset: int) -> Support:
    """Judges one node; nodes in its bodies are judged on their own."""
    if node.problem:
        return Support("no", "documented", node.problem)
    schema = _schema(node.op, opset)
    if schema is None:
        return Support("no", "documented", f"ONNX opset {opset} has no operator {node.op}")
    types = _types(schema, node)
    violation = _violation(schema, node, types)
    if violation:
        return Support("no", "documented", violation)
    kernels = [k for k in _kernels().get(node.op, ()) if k.serves(schema.since_version)]
    if any(_serves(k, types) for k in kernels):
        return Support("yes", "registry")
    if not kernels and (schema.has_function or schema.has_context_dependent_function):
        return _probed(node, opset)
    given = _plain({_type(x) for x in node.inputs if x is not None} or {_type(x) for x in node.outputs})
    return Support(
        "no",
        "registry",
        f"no CPU kernel of {node.op}({schema.since_version}) for {given} in ONNX Runtime {_version()}",
    )


def _probed(node: Node, opset: int) -> Support:
    """Loads a model of this one node: the runtime expands operators that are functions of others."""
    key = tuple(None if x is None else (x.dtype, x.shape) for x in node.inputs)
    outputs = tuple((x.dtype, x.shape) for x in node.outputs)
    return _probe(node.op, key, outputs, tuple(sorted(node.attrs.items())), opset)


@cache
def _probe(op: str, inputs: Any, outputs: Any, attrs: Any, opset: int) -> Support:
    import onnx
    import onnxruntime
    from onnx import helper

    from opcompat.lowering.onnx.dtypes import numpy_dtype

    def info(name: str, spec: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(numpy_dtype(spec[0])), spec[1])

    names = ["" if spec is None else f"x{i}" for i, spec in enumerate(inputs)]
    results = [f"y{i}" for i in range(len(outputs))]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **dict(attrs))],
        "probe",
        [info(name, spec) for name, spec in zip(names, inputs, strict=True) if spec is not None],
        [info(name, spec) for name, spec in zip(results, outputs, strict=True)],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[PROVIDER])
    except tuple(_session_errors()) as error:
        return Support("no", "probed", str(error).splitlines()[0])
    return Support("yes", "probed")


def _session_errors() -> Iterator[type[Exception]]:
    """What a session raises for a model that it cannot load."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    for name in ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException"):
        yield getattr(state, name)


def describe(opset: int = OPSET) -> list[tuple[str, str]]:
    """(operator, the dtypes of its kernels by type parameter) for every operator of `opset` with a kernel."""
    rows = []
    for op, kernels in sorted(_kernels().items()):
        schema = _schema(op, opset)
        types: dict[str, set[str]] = {}
        for kernel in kernels:
            if schema is not None and kernel.serves(schema.since_version):
                for name, allowed in kernel.types.items():
                    types.setdefault(name, set()).update(t for t in allowed if t.startswith("tensor("))
        if types:
            listed = "; ".join(f"{name}: {' '.join(_names(types[name]))}" for name in sorted(types))
            rows.append((f"{op}({schema.since_version})", listed))
    return rows


def target(opset: int = OPSET) -> Target:
    """ONNX Runtime's CPU provider, as installed, for files of the given opset."""
    from opcompat.lowering.onnx.table import backend

    return Target(
        name="onnxruntime",
        runtime="onnxruntime",
        version=_version(),
        backend=backend(opset),
        check=lambda node: check(node, opset),
        summary=f"ONNX Runtime {_version()}, {PROVIDER}, opset {opset}",
    )
