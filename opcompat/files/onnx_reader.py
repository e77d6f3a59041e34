"""Reads an ONNX file into plain values: its graphs, their ops and types, and what the file says of itself.

Runs in a child process (`opcompat.isolation`). `opcompat/files/program.py` says what the values mean. Weights are not
read, wherever they lie.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, inliner, numpy_helper, shape_inference

from opcompat.errors import SourceError
from opcompat.files import protobuf
from opcompat.files.external import locate
from opcompat.files.order import stuck
from opcompat.files.widths import bits

SMALL = 64
"""Elements. The values of integer constants up to this size are told: targets may ask for axes and shapes."""

_NAMES = {"float": "float32", "double": "float64"}
_DTYPE_ATTRIBUTES = {("Cast", "to"), ("BitCast", "to")}
_STACK_LINE = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')
_RAW_DATA = 9


def read(path: str) -> dict[str, Any]:
    """The file as JSON values, see `program.File`. Raises SourceError for what is no sound ONNX model."""
    file = Path(path)
    try:
        found: dict[str, Any] = _plain(_File(file, _parsed(file)).read())
    except (UnicodeError, ValueError, TypeError, OverflowError) as error:
        raise SourceError(f"{file.name}: is damaged: {error}") from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    return found


def _plain(value: Any) -> Any:
    """The value with text in the place of bytes, which protobuf gives for a string that is no UTF-8."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _parsed(file: Path) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(protobuf.strip(file))
    except DecodeError as error:
        raise SourceError(f"{file.name}: is no ONNX file, or damaged: {error}") from error
    if not model.HasField("graph") or not model.ir_version:
        raise SourceError(f"{file.name}: holds no ONNX model")
    return model


def dtype_name(code: int) -> str:
    """numpy's name for a TensorProto.DataType, or ONNX's own in lower case; "" for none."""
    if code not in TensorProto.DataType.values() or code == TensorProto.UNDEFINED:
        return ""
    name: str = TensorProto.DataType.Name(code).lower()
    return _NAMES.get(name, name)


class _File:
    """One model. Graphs are numbered in the order in which they are met; bodies come after what holds them."""

    def __init__(self, path: Path, model: onnx.ModelProto) -> None:
        self.path = path
        self.model = model
        self.graphs: list[dict[str, Any]] = []
        self.ops: Counter[str] = Counter()
        self.parameters = self.bytes = 0
        self.external: dict[str, tuple[int, bool]] = {}
        self.inference = ""

    def read(self) -> dict[str, Any]:
        self.types()
        number = self.graph(self.model.graph, "", {})
        facts = {
            "opsets": {o.domain or "ai.onnx": o.version for o in self.model.opset_import},
            "ir_version": self.model.ir_version,
            "producer": f"{self.model.producer_name} {self.model.producer_version}".strip()[:200],
            "inference": self.inference,
        }
        return {
            "format": "onnx",
            "facts": facts,
            "ops": dict(self.ops),
            "graphs": self.graphs,
            "entries": [[self.model.graph.name or self.path.stem, number]],
            "parameters": self.parameters,
            "parameter_bytes": self.bytes,
            "external": [[name, size, missing] for name, (size, missing) in self.external.items()],
        }

    def types(self) -> None:
        """Puts functions in the place of their calls, and infers the types of values, as far as that goes."""
        try:
            if self.model.functions:
                self.model = inliner.inline_local_functions(self.model)
            self.model = shape_inference.infer_shapes(self.model, data_prop=True)
        except (RuntimeError, ValueError, shape_inference.InferenceError) as error:
            self.inference = next(iter(str(error).splitlines()), "")[:300]

    # --- graphs --------------------------------------------------------------------------------------

    def graph(self, graph: onnx.GraphProto, path: str, outer: dict[str, Any]) -> int:
        """Adds a graph and its bodies; returns its number. `outer` has the values of the graphs around it."""
        number = len(self.graphs)
        self.graphs.append({})
        scope = _Scope(self, graph, path, outer)
        self.graphs[number] = scope.read()
        return number

    def weight(self, tensor: TensorProto, owner: str) -> None:
        """Counts one stored tensor, and checks that its data has the size that it says."""
        dtype, count = dtype_name(tensor.data_type), 1
        for n in tensor.dims:
            if n < 0:
                raise SourceError(f"{owner}: has a dimension of {n}")
            count *= n
        self.parameters += count
        if dtype in ("", "string"):
            return
        needed = -(-count * bits(dtype) // 8)
        self.bytes += needed
        if tensor.data_location == TensorProto.EXTERNAL:
            entries = {e.key: e.value for e in tensor.external_data}
            stored = locate(self.path.parent, entries, needed, owner)
            self.external[stored.path] = (stored.size, stored.missing)
            return
        field, _, length = tensor.doc_string.partition(":")
        raw = int(length) if field == str(_RAW_DATA) else len(tensor.raw_data) if tensor.HasField("raw_data") else None
        if raw is not None and raw != needed:
            raise SourceError(f"{owner}: {dtype}{list(tensor.dims)} takes {needed:,} bytes, and its data has {raw:,}")


class _Scope:
    """One graph of the file: its values by name, and its nodes."""

    def __init__(self, file: _File, graph: onnx.GraphProto, path: str, outer: dict[str, Any]) -> None:
        self.file = file
        self.graph = graph
        self.path = path
        self.known: dict[str, Any] = dict(outer)  # name -> [dtype, shape or None, constant, data or None]
        self.own: set[str] = set()
        self.values: list[list[Any]] = []
        self.numbers: dict[str, int] = {}

    def read(self) -> dict[str, Any]:
        for info in (*self.graph.value_info, *self.graph.output, *self.graph.input):
            self.known[info.name] = _typed(info)
        inputs = [info.name for info in self.graph.input]
        self.stored()
        self.own.update(inputs)
        nodes = self.constants()
        self.check(nodes)
        read = [self.node(node, i) for i, node in enumerate(nodes)]
        initial = {t.name for t in self.graph.initializer}
        return {
            "name": self.path,
            "nodes": read,
            "inputs": [self.number(name) for name in inputs if name not in initial],
            "outputs": [self.number(info.name) for info in self.graph.output],
            "values": self.values,
        }

    def stored(self) -> None:
        tensors = [(t.name, t) for t in self.graph.initializer]
        tensors += [(s.values.name, s.values) for s in self.graph.sparse_initializer]
        for name, tensor in tensors:
            self.file.weight(tensor, f"{self.file.path.name}: initializer {name[:100]}")
            self.known[name] = _constant(tensor)
            self.own.add(name)

    def constants(self) -> list[onnx.NodeProto]:
        """The nodes that are not Constant; those are values."""
        rest = []
        for node in self.graph.node:
            if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
                rest.append(node)
                continue
            name = node.output[0]
            tensors = [a.t for a in node.attribute if a.type == AttributeProto.TENSOR]
            for tensor in tensors:
                self.file.weight(tensor, f"{self.file.path.name}: constant {name[:100]}")
            inferred = self.known.get(name, ["", None, False, None])
            self.known[name] = _constant(tensors[0]) if tensors else [*inferred[:2], True, None]
            self.define(name)
            self.file.ops["Constant"] += 1
        return rest

    def define(self, name: str) -> None:
        if name in self.own:
            raise SourceError(f"{self.file.path.name}: the value {name[:100]!r} is made twice")
        self.own.add(name)

    def check(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Raises SourceError for a value that is made twice, or nowhere, and for nodes that wait for each other."""
        for node in nodes:
            for name in filter(None, node.output):
                self.define(name)
        producers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
        waits: list[set[int]] = []
        for node in nodes:
            names = [name for name in node.input if name]
            lost = next((n for n in names if n not in self.own and n not in self.known), None)
            if lost is not None:
                raise SourceError(f"{self.file.path.name}: {_label(node)} takes {lost[:100]!r}, which nothing makes")
            waits.append({producers[name] for name in names if name in producers})
        circular = stuck(waits)
        if circular is not None:
            raise SourceError(f"{self.file.path.name}: {_label(nodes[circular])} waits for its own result")

    def number(self, name: str) -> int:
        """The number of a value in this graph; -1 where an optional one is left out."""
        if not name:
            return -1
        if name not in self.numbers:
            self.numbers[name] = len(self.values)
            self.values.append([name, *self.known.get(name, ["", None, False, None])])
        return self.numbers[name]

    def node(self, node: onnx.NodeProto, index: int) -> list[Any]:
        op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        name = f"{self.path}{node.name or f'{node.op_type}_{index}'}"
        self.file.ops[op] += 1
        inputs = [self.number(x) for x in node.input]
        outputs = [self.number(x) for x in node.output]
        attrs, bodies = {}, {}
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                bodies[attribute.name] = self.file.graph(attribute.g, f"{name}/{attribute.name}/", self.known)
            elif attribute.type != AttributeProto.GRAPHS:
                attrs[attribute.name] = _value(node.op_type, attribute)
        return [op, name, inputs, outputs, attrs, bodies, _line(node.metadata_props)]


def _label(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name or '(without a name)'}"[:200]


def _typed(info: onnx.ValueInfoProto) -> list[Any]:
    """[dtype, shape, constant, data]; a dimension that varies is its name, or null."""
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return [f"a {kind.removesuffix('_type').replace('_', ' ')}" if kind else "", None, False, None]
    tensor = info.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = [_dimension(d) for d in tensor.shape.dim]
    return [dtype_name(tensor.elem_type), shape, False, None]


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return dim.dim_value
    return dim.dim_param[:100] or None


def _constant(tensor: TensorProto) -> list[Any]:
    dtype, data = dtype_name(tensor.data_type), None
    small = tensor.data_location != TensorProto.EXTERNAL and not tensor.doc_string
    if small and dtype in ("int32", "int64") and len(tensor.dims) <= 1 and sum(tensor.dims) <= SMALL:
        data = numpy_helper.to_array(tensor).reshape(-1).tolist()
    return [dtype, list(tensor.dims), True, data]


def _value(op: str, attribute: onnx.AttributeProto) -> Any:
    if (op, attribute.name) in _DTYPE_ATTRIBUTES:
        return dtype_name(attribute.i)
    match attribute.type:
        case AttributeProto.FLOAT:
            return attribute.f
        case AttributeProto.INT:
            return attribute.i
        case AttributeProto.STRING:
            return attribute.s[:1000].decode("utf-8", "replace")
        case AttributeProto.FLOATS:
            return list(attribute.floats)
        case AttributeProto.INTS:
            return list(attribute.ints)
        case AttributeProto.STRINGS:
            return [s[:1000].decode("utf-8", "replace") for s in attribute.strings]
        case AttributeProto.TENSOR:
            return f"{dtype_name(attribute.t.data_type)}{list(attribute.t.dims)}"
    return AttributeProto.AttributeType.Name(attribute.type)


def _line(props: Iterable[onnx.StringStringEntryProto]) -> list[Any] | None:
    """[file, line, function] in the user's code, which PyTorch's exporter notes; None where nothing is noted."""
    text = next((p.value for p in props if p.key.endswith("stack_trace")), "")
    found = _STACK_LINE.findall(text)
    return [found[-1][0], int(found[-1][1][:9]), found[-1][2]] if found else None
