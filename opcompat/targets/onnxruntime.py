"""ONNX Runtime on the CPU: what the installed version runs, read from its own kernel registry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from opcompat.errors import CrashError
from opcompat.isolation import Worker
from opcompat.lowering.graph import Node
from opcompat.targets import onnx_types, table
from opcompat.targets.base import Limits, Support, Target
from opcompat.targets.probes import ort_registry

PROVIDER = ort_registry.PROVIDER


@cache
def live() -> table.Table:
    """The installed version's registry as a table."""
    return table.Table(ort_registry.content("onnxruntime", "", ""))


def check(node: Node, opset: int, worker: Worker | None = None) -> Support:
    """Judges one node; nodes in its bodies are judged on their own.

    Operators without a kernel that are functions of others are tried: the runtime expands them. For nodes of unknown
    origin that happens in a child process, the `worker`.
    """
    support = table.check(live(), node, opset)
    if support.status == "yes" or support.evidence != "registry":
        return support
    schema = onnx_types.schema(node.op, opset)
    kernels = any(row.serves(schema.since_version) for row in live().rows(node.op))
    if kernels or not (schema.has_function or schema.has_context_dependent_function):
        return support
    return _probed(node, opset, worker)


def _probed(node: Node, opset: int, worker: Worker | None) -> Support:
    """Loads a model of this one node."""
    key = tuple(None if x is None else (x.dtype, x.shape) for x in node.inputs)
    outputs = tuple((x.dtype, x.shape) for x in node.outputs)
    question = node.op, key, outputs, tuple(sorted(node.attrs.items())), opset
    if worker is None:
        return _probe(*question)
    try:
        refusal = worker.call("opcompat.targets.onnxruntime:refusal", *question, what=f"{node.op} in onnxruntime")
    except CrashError as error:
        return Support("unknown", "probed", str(error))
    return Support("no", "probed", refusal) if refusal else Support("yes", "probed")


def refusal(op: str, inputs: Any, outputs: Any, attrs: Any, opset: int) -> str:
    """Why the runtime does not load a model of one node, "" if it does; arguments as `_probe`'s, read from JSON."""

    def tuples(x: Any) -> Any:
        return tuple(tuples(y) for y in x) if isinstance(x, list) else x

    return _probe(op, tuples(inputs), tuples(outputs), tuples(attrs), opset).reason


@cache
def _probe(op: str, inputs: Any, outputs: Any, attrs: Any, opset: int) -> Support:
    import onnxruntime

    from opcompat.lowering.graph import Tensor
    from opcompat.targets.probes.onnx_file import one_op

    ends = tuple(None if x is None else Tensor(x[1], x[0], f"x{i}") for i, x in enumerate(inputs))
    node = Node(op, ends, tuple(Tensor(shape, dtype) for dtype, shape in outputs), dict(attrs))
    data = one_op(node, [x for x in ends if x is not None], [f"y{i}" for i in range(len(outputs))], opset)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(data, options, providers=[PROVIDER])
    except tuple(_session_errors()) as error:
        return Support("no", "probed", str(error).splitlines()[0])
    return Support("yes", "probed")


def _session_errors() -> Iterator[type[Exception]]:
    """What a session raises for a model that it cannot load."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    for name in ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException"):
        yield getattr(state, name)


def target(opset: int | None = None, *, isolated: bool = False) -> Target:
    """ONNX Runtime's CPU provider, as installed, for files of the given opset (by default the project's own).

    `isolated`: nodes are of unknown origin, and only tried in a child process.
    """
    from opcompat.lowering.onnx.table import OPSET, backend

    version, number = live().content["version"], opset or OPSET
    worker = Worker() if isolated else None  # it starts with the first question, and ends with this process
    return Target(
        name="onnxruntime",
        runtime="onnxruntime",
        version=version,
        backend=backend(number),
        check=lambda node: check(node, number, worker),
        summary=f"ONNX Runtime {version}, {PROVIDER}, opset {number}",
        limits=Limits(),
        evidence="registry",
        date="",
        origin="its kernel registry, read each time",
    )
