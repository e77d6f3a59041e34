"""Reads a TFLite file into plain values: its subgraphs, their ops and types, and what the file says of itself.

Runs in a child process (`opcompat.isolation`). `opcompat/files/program.py` says what the values mean. The file is
mapped, and weights are not touched. Python's flatbuffers reader believes every offset: what lies outside the file makes
it raise, and every length is checked here before it is used.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from opcompat.errors import SourceError
from opcompat.files.external import locate
from opcompat.files.order import stuck
from opcompat.files.widths import bits
from opcompat.lowering.tflite.options import ENUM_FIELDS, TENSOR_TYPES

IDENTIFIER = b"TFL3"
SMALL = 64
"""Elements. The values of integer constants up to this size are told: targets may ask for axes and shapes."""

MOST = 4_000_000
"""Tables and vector elements that are read: several tables may point at the same long vector, again and again."""

_MAPPED = 1 << 31
_TEXT = 1000


def _members(enum: Any) -> dict[int, str]:
    return {number: name for name, number in vars(enum).items() if isinstance(number, int)}


_OPS = _members(schema.BuiltinOperator)
_TYPES = _members(schema.TensorType)
_DTYPES = {name: dtype for dtype, name in TENSOR_TYPES.items()}
_ENUMS = {field: _members(getattr(schema, enum)) for field, enum in ENUM_FIELDS.items()}


def read(path: str) -> dict[str, Any]:
    """The file as JSON values, see `program.File`. Raises SourceError for what is no sound TFLite model."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            size = file.stat().st_size
            if stream.read(8)[4:] != IDENTIFIER:
                raise SourceError(f"{file.name}: holds no TFLite model")
            with mmap.mmap(stream.fileno(), min(size, _MAPPED), access=mmap.ACCESS_READ) as data:
                return _File(file, data, size).read()
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error


class _File:
    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self.path = path
        self.data = data
        self.size = size
        self.left = MOST
        self.ops: Counter[str] = Counter()
        self.parameters = self.bytes = 0
        self.counted: set[int] = set()
        self.external: dict[str, tuple[int, bool]] = {}

    def read(self) -> dict[str, Any]:
        try:
            return self.model(schema.Model.GetRootAs(self.data))
        except (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError) as error:
            # What the reader raises for offsets that leave the file, and for required fields that are missing.
            raise self.damaged(str(error)) from error

    def damaged(self, why: str) -> SourceError:
        return SourceError(f"{self.path.name}: is damaged: {why[:300]}")

    # --- vectors -------------------------------------------------------------------------------------

    def count(self, length: int, width: int, what: str) -> int:
        """The length of a vector, if the file has room for it. `width`: bytes of an element."""
        if length * width > len(self.data):
            raise self.damaged(f"it says that it has {length:,} {what}")
        self.left -= length
        if self.left < 0:
            raise self.damaged(f"it refers to more than {MOST:,} elements")
        return length

    def tables(self, length: int, get: Callable[[int], Any], what: str) -> list[Any]:
        found = [get(i) for i in range(self.count(length, 4, what))]
        if any(table is None for table in found):
            raise self.damaged(f"one of its {what} is missing")
        return found

    def ints(self, owner: Any, field: str) -> list[int]:
        if getattr(owner, f"{field}IsNone")():
            return []
        self.count(getattr(owner, f"{field}Length")(), 4, field)
        return [int(n) for n in getattr(owner, f"{field}AsNumpy")()]

    def text(self, data: bytes | None) -> str:
        """At most _TEXT characters. The whole string is in the file, which bounds it."""
        return (data or b"")[:_TEXT].decode("utf-8", "replace")

    # --- tables --------------------------------------------------------------------------------------

    def model(self, model: Any) -> dict[str, Any]:
        self.codes = [
            self.code(c) for c in self.tables(model.OperatorCodesLength(), model.OperatorCodes, "operator codes")
        ]
        self.buffers = self.tables(model.BuffersLength(), model.Buffers, "buffers")
        self.outside = {b.Id(): b for b in self.tables(model.ExternalBuffersLength(), model.ExternalBuffers, "buffers")}
        self.groups = self.tables(model.ExternalBufferGroupsLength(), model.ExternalBufferGroups, "groups")
        subgraphs = self.tables(model.SubgraphsLength(), model.Subgraphs, "subgraphs")
        if not subgraphs:
            raise SourceError(f"{self.path.name}: holds no graph")
        graphs = [self.subgraph(graph, i, len(subgraphs)) for i, graph in enumerate(subgraphs)]
        circular = stuck([{body for node in graph["nodes"] for body in node[5].values()} for graph in graphs])
        if circular is not None:
            raise SourceError(f"{self.path.name}: the subgraph {circular} calls itself")
        entries = self.entries(model, graphs)
        return {
            "format": "tflite",
            "facts": {
                "schema_version": model.Version(),
                "op_versions": dict(sorted(self.versions(graphs).items())),
                "producer": self.text(model.Description())[:200],
                "signatures": model.SignatureDefsLength(),
                "subgraphs": len(graphs),
            },
            "ops": dict(self.ops),
            "graphs": [{k: v for k, v in graph.items() if k != "versions"} for graph in graphs],
            "entries": entries,
            "parameters": self.parameters,
            "parameter_bytes": self.bytes,
            "external": [[name, size, missing] for name, (size, missing) in self.external.items()],
        }

    def versions(self, graphs: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """op -> its newest version in the file."""
        found: dict[str, int] = {}
        for op, version in (pair for graph in graphs for pair in graph["versions"]):
            found[op] = max(version, found.get(op, 1))
        return found

    def code(self, code: Any) -> tuple[str, int]:
        """(op, version). Codes above 126 do not fit the old field, so the larger of the two counts."""
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        if number == schema.BuiltinOperator.CUSTOM:
            return f"CUSTOM {self.text(code.CustomCode()) or '(without a name)'}", code.Version()
        return _OPS.get(number, f"BUILTIN_{number}"), code.Version()

    def entries(self, model: Any, graphs: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        """[name, subgraph] of every signature, or of the first subgraph where there is none.

        Tensors get the names that a signature gives them.
        """
        found: list[list[Any]] = []
        for signature in self.tables(model.SignatureDefsLength(), model.SignatureDefs, "signatures"):
            number = signature.SubgraphIndex()
            name = self.text(signature.SignatureKey()) or f"signature_{len(found)}"
            if number >= len(graphs):
                raise self.damaged(f"the signature {name!r} has the subgraph {number}, of {len(graphs)}")
            maps = self.tables(signature.InputsLength(), signature.Inputs, "inputs")
            maps += self.tables(signature.OutputsLength(), signature.Outputs, "outputs")
            values = graphs[number]["values"]
            for named in maps:
                if named.TensorIndex() >= len(values):
                    raise self.damaged(f"the signature {name!r} names a tensor that is not there")
                values[named.TensorIndex()][0] = self.text(named.Name()) or values[named.TensorIndex()][0]
            found.append([name, number])
        return found or [["main", 0]]

    def subgraph(self, graph: Any, number: int, total: int) -> dict[str, Any]:
        name = f"{self.text(graph.Name()) or f'subgraph_{number}'}/" if number else ""
        tensors = self.tables(graph.TensorsLength(), graph.Tensors, "tensors")
        values = [self.tensor(tensor, i) for i, tensor in enumerate(tensors)]
        operators = self.tables(graph.OperatorsLength(), graph.Operators, "operators")
        numbers = [self.operands(self.ints(graph, f), len(values), name) for f in ("Inputs", "Outputs")]
        nodes, versions = [], []
        for i, operator in enumerate(operators):
            node, version = self.operator(operator, i, name, values, total)
            nodes.append(node)
            versions.append((node[0], version))
        return {
            "name": name,
            "values": values,
            "nodes": nodes,
            "versions": versions,
            "inputs": [n for n in numbers[0] if n >= 0],
            "outputs": [n for n in numbers[1] if n >= 0],
        }

    def operands(self, numbers: list[int], count: int, where: str) -> list[int]:
        for number in numbers:
            if not -1 <= number < count:
                raise self.damaged(f"{where}: names the tensor {number}, of {count}")
        return numbers

    def operator(self, operator: Any, index: int, path: str, values: list[Any], total: int) -> tuple[list[Any], int]:
        if operator.OpcodeIndex() >= len(self.codes):
            raise self.damaged(
                f"the operator {path}{index} has the code {operator.OpcodeIndex()}, of {len(self.codes)}"
            )
        op, version = self.codes[operator.OpcodeIndex()]
        self.ops[op] += 1
        inputs = self.operands(self.ints(operator, "Inputs"), len(values), f"{path}{op} {index}")
        outputs = self.operands(self.ints(operator, "Outputs"), len(values), f"{path}{op} {index}")
        first = values[outputs[0]][0] if outputs and outputs[0] >= 0 else ""
        attrs, bodies = self.options(operator, total, f"{path}{op} {index}")
        return [op, f"{path}{first or f'{op}_{index}'}", inputs, outputs, attrs, bodies, None], version

    def options(self, operator: Any, total: int, where: str) -> tuple[dict[str, Any], dict[str, int]]:
        """(options by the schema's field names, subgraphs by what they are for)."""
        found = (
            schema.BuiltinOptionsCreator(operator.BuiltinOptionsType(), operator.BuiltinOptions()),
            schema.BuiltinOptions2Creator(operator.BuiltinOptions2Type(), operator.BuiltinOptions2()),
        )
        attrs: dict[str, Any] = {}
        bodies: dict[str, int] = {}
        for field, value in (pair for options in found if options for pair in vars(options).items()):
            if field == "subgraph" or field.endswith("SubgraphIndex"):
                if not -1 <= value < total:
                    raise self.damaged(f"{where}: refers to the subgraph {value}, of {total}")
                if value >= 0:
                    bodies[field.removesuffix("SubgraphIndex")] = int(value)
            else:
                attrs[field] = self.plain(field, value)
        return attrs, bodies

    def plain(self, field: str, value: Any) -> Any:
        if field in _ENUMS:
            return _ENUMS[field].get(value, f"{field}_{value}")
        if isinstance(value, bytes):
            return self.text(value)
        if isinstance(value, bool | int | float | str) or value is None:
            return value
        if hasattr(value, "tolist"):
            return value[:SMALL].tolist()
        return [n for n in value[:SMALL] if isinstance(n, bool | int | float)] if isinstance(value, list) else None

    # --- tensors -------------------------------------------------------------------------------------

    def tensor(self, tensor: Any, index: int) -> list[Any]:
        name = self.text(tensor.Name()) or f"tensor_{index}"
        kind = _TYPES.get(tensor.Type(), f"TYPE_{tensor.Type()}")
        dtype = _DTYPES.get(kind, kind.lower())
        static, signature = self.ints(tensor, "Shape"), self.ints(tensor, "ShapeSignature")
        shape: list[int | None] = [n if n >= 0 else None for n in (signature or static)]
        if static and len(static) != len(shape):
            raise self.damaged(f"the tensor {name} has the shapes {static[:8]} and {signature[:8]}")
        length = self.stored(tensor, name, dtype, static)
        known: list[int | None] | None = shape
        if not static and not signature and not tensor.HasRank() and not length:
            known = None  # a scalar and a tensor of unknown rank look alike without the flag; older files lack it
        return [name, dtype, known, length > 0, self.values(tensor, dtype, static, length), self.quantized(tensor)]

    def stored(self, tensor: Any, name: str, dtype: str, shape: Sequence[int]) -> int:
        """Bytes of a constant's data, 0 for what is computed."""
        if tensor.ExternalBuffer():
            return self.beside(tensor.ExternalBuffer(), name)
        if tensor.Buffer() >= len(self.buffers):
            raise self.damaged(f"the tensor {name} has the buffer {tensor.Buffer()}, of {len(self.buffers)}")
        buffer = self.buffers[tensor.Buffer()]
        start, length = buffer.Offset(), buffer.Size()
        if start <= 1:
            start, length = 0, buffer.DataLength()
        if start + length > self.size:
            raise self.damaged(f"the data of {name} ends at {start + length:,}, the file at {self.size:,}")
        if not length:
            return 0
        elements = _product(shape)
        needed = -(-elements * bits(dtype) // 8)
        if dtype != "string" and tensor.Sparsity() is None and needed != length:
            raise self.damaged(f"{name}, {dtype}{list(shape)[:8]}, takes {needed:,} bytes, and its data has {length:,}")
        if tensor.Buffer() not in self.counted:
            self.counted.add(tensor.Buffer())
            self.parameters += elements
            self.bytes += length
        return int(length)

    def beside(self, number: int, name: str) -> int:
        buffer = self.outside.get(number)
        if buffer is None or buffer.Group() >= len(self.groups):
            raise self.damaged(f"the tensor {name} has an external buffer {number} that is not there")
        place = self.text(self.groups[buffer.Group()].Name())
        length = int(buffer.Length())
        entries = {"location": place, "offset": str(buffer.Offset())}
        found = locate(self.path.parent, entries, length, f"{self.path.name}: tensor {name}")
        self.external[found.path] = (found.size, found.missing)
        self.bytes += length
        return length

    def values(self, tensor: Any, dtype: str, shape: Sequence[int], length: int) -> list[int] | None:
        if dtype not in ("int32", "int64") or not length or len(shape) > 1 or _product(shape) > SMALL:
            return None
        if tensor.ExternalBuffer() or self.buffers[tensor.Buffer()].DataIsNone():
            return None
        found = self.buffers[tensor.Buffer()].DataAsNumpy().view(dtype)
        return [int(n) for n in found]

    def quantized(self, tensor: Any) -> bool:
        found = tensor.Quantization()
        return found is not None and found.ScaleLength() > 0


def _product(shape: Iterable[int]) -> int:
    total = 1
    for n in shape:
        total *= max(n, 0)
    return total
