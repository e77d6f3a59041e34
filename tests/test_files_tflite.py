"""TFLite files as scan sources: judged op by op as they are, and refused clearly where they are not sound."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from click.testing import CliRunner

from opcompat.cli import cli
from opcompat.errors import SourceError
from opcompat.files.program import read

OPS, TYPES = schema.BuiltinOperator, schema.TensorType


class File:
    """Builds a TFLite file, sound or not, with the schema's own classes. Buffer 0 is empty."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes, self.model.subgraphs, self.model.signatureDefs = [], [], []
        self.model.buffers = [schema.BufferT()]

    def graph(self, name: str = "") -> Graph:
        graph = schema.SubGraphT()
        graph.name, graph.tensors, graph.operators, graph.inputs, graph.outputs = name, [], [], [], []
        self.model.subgraphs.append(graph)
        return Graph(self, graph)

    def signature(self, key: str, number: int, **tensors: tuple[str, int]) -> None:
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = key, number
        for field, (name, index) in tensors.items():
            entry = schema.TensorMapT()
            entry.name, entry.tensorIndex = name, index
            setattr(signature, field, [entry])
        self.model.signatureDefs.append(signature)

    def write(self, path: Path) -> Path:
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        return path


class Graph:
    def __init__(self, file: File, graph: Any) -> None:
        self.file, self.graph = file, graph

    def tensor(self, shape: Sequence[int], kind: int = TYPES.FLOAT32, name: str = "", data: Any = None) -> int:
        tensor = schema.TensorT()
        tensor.shape, tensor.type, tensor.name, tensor.hasRank, tensor.buffer = list(shape), kind, name, True, 0
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.asarray(data).tobytes(), np.uint8)
            tensor.buffer = len(self.file.model.buffers)
            self.file.model.buffers.append(buffer)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def op(
        self, code: int, inputs: Sequence[int], outputs: Sequence[int], custom: str = "", options: Any = None
    ) -> Any:
        operator_code = schema.OperatorCodeT()
        operator_code.builtinCode, operator_code.deprecatedBuiltinCode = code, min(code, 127)
        operator_code.version, operator_code.customCode = 1, custom or None
        self.file.model.operatorCodes.append(operator_code)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.file.model.operatorCodes) - 1
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if options is not None:
            name = type(options).__name__.removesuffix("T")
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        self.graph.operators.append(operator)
        return operator


def one_op(code: int = OPS.TANH, custom: str = "", kind: int = TYPES.FLOAT32) -> File:
    file = File()
    graph = file.graph()
    x, y = graph.tensor([2, 3], kind, "x"), graph.tensor([2, 3], kind, "y")
    graph.graph.inputs, graph.graph.outputs = [x], [y]
    graph.op(code, [x], [y], custom)
    return file


def scan(path: Path, *args: str) -> Any:
    return CliRunner().invoke(cli, ["scan", str(path), *args])


def report(path: Path, *args: str) -> dict[str, Any]:
    done = scan(path, "--format", "json", *args)
    assert done.exit_code in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ok"] is (done.exit_code == 0)
    return found


def findings(path: Path) -> list[dict[str, Any]]:
    (target,) = report(path)["targets"]
    return list(target["findings"])


def refusal(path: Path) -> str:
    done = scan(path)
    assert done.exit_code in (2, 3), done.output
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return str(done.stderr)


# What a target runs


def test_a_file_that_runs(tmp_path: Path) -> None:
    file = one_op()
    file.signature("act", 0, inputs=("obs", 0), outputs=("action", 1))
    found = report(file.write(tmp_path / "m.tflite"))
    assert found["ok"]
    assert found["entry_points"] == ["act"]
    assert found["facts"]["format"] == "TFLite"
    assert found["facts"]["interface"] == "act(obs float32[2,3]) -> action float32[2,3]"
    assert found["targets"][0]["ops"] == {"TANH": 1}
    assert found["targets"][0]["counts"]["native"] == 1


def test_a_file_is_recognized_by_its_content(tmp_path: Path) -> None:
    assert report(one_op().write(tmp_path / "model.bin"))["facts"]["format"] == "TFLite"


def test_an_op_that_does_not_run(tmp_path: Path) -> None:
    (found,) = findings(one_op(OPS.NEG, kind=TYPES.UINT32).write(tmp_path / "m.tflite"))
    assert (found["primitive"], found["operands"], found["function"]) == ("NEG", "uint32[2,3]", "y")
    assert found["verdict"] in ("unsupported", "unknown")


@pytest.mark.parametrize(
    ("custom", "reason", "step"),
    [
        ("FlexErf", "only where the Flex delegate is linked in", "Flex delegate"),
        ("MyOp", "ai-edge-litert has no kernel of it unless", "register the custom ops"),
    ],
)
def test_custom_ops(tmp_path: Path, custom: str, reason: str, step: str) -> None:
    path = one_op(OPS.CUSTOM, custom).write(tmp_path / "m.tflite")
    (found,) = findings(path)
    assert found["primitive"] == f"CUSTOM {custom}"
    assert found["verdict"] == "unsupported"
    assert reason in found["reason"]
    assert "ai-edge-litert: " in found["reason"]  # the runtime was asked, and said why
    assert step in report(path)["next_step"]
    assert report(path)["facts"]["leftovers"] == f"CUSTOM {custom}"


def test_stablehlo_ops_that_a_converter_left_over(tmp_path: Path) -> None:
    path = one_op(OPS.STABLEHLO_CBRT).write(tmp_path / "m.tflite")
    (found,) = findings(path)
    assert found["reason"].startswith("a StableHLO op that the converter left over")
    assert "legalizes StableHLO" in report(path)["next_step"]


def test_ops_that_are_newer_than_the_schema(tmp_path: Path) -> None:
    (found,) = findings(one_op(5000).write(tmp_path / "m.tflite"))
    assert found["primitive"] == "BUILTIN_5000"
    assert "newer than the installed" in found["reason"]


def test_quantized_values_are_asked_of_the_runtime(tmp_path: Path) -> None:
    file = one_op(OPS.TANH, kind=TYPES.INT8)
    for tensor, scale in zip(file.model.subgraphs[0].tensors, (0.1, 1 / 128), strict=True):
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [0]
    found = report(file.write(tmp_path / "m.tflite"))
    assert found["ok"]
    assert found["targets"][0]["primitives"]["TANH"]["native"] == 1


def test_subgraphs_are_judged_once_and_by_what_reaches_them(tmp_path: Path) -> None:
    """Forty ifs, each with the next graph for both branches: 2**40 ways, 40 graphs."""
    file = File()
    for i in range(41):
        graph = file.graph(f"g{i}")
        c, x, y = graph.tensor([], TYPES.BOOL), graph.tensor([2]), graph.tensor([2], name="y")
        graph.graph.inputs, graph.graph.outputs = [c, x], [y]
        options = schema.IfOptionsT()
        options.thenSubgraphIndex = options.elseSubgraphIndex = i + 1
        graph.op(OPS.IF, [c, x], [y], options=options) if i < 40 else graph.op(OPS.STABLEHLO_CBRT, [x], [y])
    path = file.write(tmp_path / "m.tflite")
    program = read(path, "tflite")
    assert program.reached == dict.fromkeys(range(41), ("main",))
    assert report(path)["targets"][0]["counts"]["unknown"] == 1


def test_a_dimension_that_varies(tmp_path: Path) -> None:
    file = one_op()
    for tensor in file.model.subgraphs[0].tensors:
        tensor.shape, tensor.shapeSignature = [1, 3], [-1, 3]
    found = report(file.write(tmp_path / "m.tflite"))
    assert found["ok"]
    assert found["facts"]["dynamic"] == "x float32[?,3], y float32[?,3]"


def test_several_signatures_where_one_is_read(tmp_path: Path) -> None:
    from opcompat.targets import catalog

    one = next((n for n in catalog.TARGETS if catalog.target(n).limits.signatures == 1), None)
    if one is None:
        pytest.skip("no target has such a limit")
    file = one_op()
    file.signature("a", 0, inputs=("x", 0), outputs=("y", 1))
    file.signature("b", 0, inputs=("x", 0), outputs=("y", 1))
    (target,) = report(file.write(tmp_path / "m.tflite"), "--target", one)["targets"]
    assert "signatures" in {f["primitive"] for f in target["findings"]}


# Files that are not sound


def _bad(change: Callable[[Any], None]) -> File:
    file = one_op()
    change(file.model)
    return file


def _constant(count: int) -> File:
    file = one_op()
    graph = Graph(file, file.model.subgraphs[0])
    graph.tensor([count], data=np.zeros(4, np.float32), name="w")
    return file


def _calls(*targets: int) -> File:
    file = File()
    for target in targets:
        graph = file.graph()
        c, x, y = graph.tensor([], TYPES.BOOL), graph.tensor([2]), graph.tensor([2])
        options = schema.IfOptionsT()
        options.thenSubgraphIndex = options.elseSubgraphIndex = target
        graph.op(OPS.IF, [c, x], [y], options=options)
    return file


def _field(path: str, value: Any) -> File:
    def change(model: Any) -> None:
        owner = model
        *parts, last = path.split(".")
        for part in parts:
            owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
        setattr(owner, last, value)

    return _bad(change)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (_field("subgraphs.0.operators.0.inputs", [7]), "names the tensor 7, of 2"),
        (_field("subgraphs.0.operators.0.outputs", [-2]), "names the tensor -2, of 2"),
        (_field("subgraphs.0.operators.0.opcodeIndex", 9), "has the code 9"),
        (_field("subgraphs.0.inputs", [99]), "names the tensor 99, of 2"),
        (_field("subgraphs.0.tensors.0.buffer", 5), "has the buffer 5, of 1"),
        (_field("subgraphs", []), "holds no graph"),
        (_constant(5), "takes 20 bytes, and its data has 16"),
        (_constant(1 << 30), "takes 4,294,967,296 bytes, and its data has 16"),
        (_calls(0), "the subgraph 0 calls itself"),
        (_calls(1, 2, 1), "calls itself"),
        (_calls(9), "refers to the subgraph 9, of 1"),
    ],
)
def test_files_that_are_not_sound(tmp_path: Path, file: File, message: str) -> None:
    assert message in refusal(file.write(tmp_path / "m.tflite"))


def test_a_buffer_outside_the_file(tmp_path: Path) -> None:
    file = _constant(4)
    buffer = file.model.buffers[1]
    buffer.data, buffer.offset, buffer.size = None, 1 << 40, 16
    assert "the file at" in refusal(file.write(tmp_path / "m.tflite"))


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"hello, world", b"\x08\0\0\0TFL3", b"\xff\xff\xff\x7fTFL3" * 9])
def test_what_is_no_model(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    assert any(word in refusal(path) for word in ("holds no TFLite model", "is damaged"))


def test_vectors_that_are_longer_than_the_file(tmp_path: Path) -> None:
    path = one_op().write(tmp_path / "m.tflite")
    data = bytearray(path.read_bytes())
    inputs = data.find(np.asarray([2, 2, 3], np.uint32).tobytes())  # the length and the content of a shape
    assert inputs > 0
    data[inputs : inputs + 4] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    assert "it says that it has 1,073,741,824 Shape" in refusal(path)


def test_large_files_are_mapped_not_read(tmp_path: Path) -> None:
    """1.5 GiB of weights beside the flatbuffer, in the same file."""
    file = _constant(3 << 27)
    buffer = file.model.buffers[1]
    buffer.data, buffer.offset, buffer.size = None, 1 << 20, 3 << 29
    path = file.write(tmp_path / "m.tflite")
    with path.open("r+b") as stream:
        stream.truncate((1 << 20) + (3 << 29))
    assert read(path, "tflite").parameter_bytes == 3 << 29


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        read(tmp_path / "gone.tflite", "tflite")
