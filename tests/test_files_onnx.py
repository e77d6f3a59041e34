"""ONNX files as scan sources: judged op by op as they are, and refused clearly where they are not sound."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from opcompat.cli import cli
from opcompat.errors import LimitError, SourceError
from opcompat.files import protobuf
from opcompat.files.program import Program, read
from opcompat.isolation import Limits, call

FLOAT, UINT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.UINT32, TensorProto.INT64, TensorProto.BOOL


def value(name: str, kind: int = FLOAT, shape: Sequence[Any] | None = (2, 3)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def write(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] = (),
    weights: Sequence[TensorProto] = (),
    opsets: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> Path:
    """A model with the input x and the output y, both float32[2,3], unless others are given."""
    graph = helper.make_graph(nodes, "g", inputs or [value("x")], outputs or [value("y")], weights)
    imports = [helper.make_opsetid(domain, n) for domain, n in (opsets or {"": 21}).items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions)
    path.write_bytes(model.SerializeToString())
    return path


def scan(path: Path, *args: str) -> Result:
    return CliRunner().invoke(cli, ["scan", str(path), *args])


def report(path: Path, *args: str) -> dict[str, Any]:
    done = scan(path, "--format", "json", *args)
    assert done.exit_code in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ok"] is (done.exit_code == 0)
    return found


def findings(path: Path, *args: str) -> list[dict[str, Any]]:
    (target,) = report(path, *args)["targets"]
    return list(target["findings"])


def external(name: str, shape: Sequence[int], **entries: object) -> TensorProto:
    tensor = TensorProto(name=name, data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, text in entries.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(text)
    return tensor


# What a target runs


def test_a_file_that_runs(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    found = report(write(tmp_path / "m.onnx", nodes, weights=[weight]))
    assert found["ok"]
    assert found["parameters"] == 9
    assert found["parameter_bytes"] == 36
    assert found["facts"]["opset"] == "ai.onnx 21"
    assert found["facts"]["IR version"] == "10"
    assert found["facts"]["ops"] == "MatMul 1, Tanh 1"
    assert found["facts"]["interface"] == "g(x float32[2,3]) -> y float32[2,3]"
    assert [t["target"] for t in found["targets"]] == ["onnxruntime"]
    assert found["targets"][0]["counts"]["native"] == 2


def test_an_op_without_a_kernel_is_found_at_its_node(tmp_path: Path) -> None:
    nodes = [helper.make_node("ArgMax", ["x"], ["y"], name="/head/ArgMax", axis=1, keepdims=0)]
    path = write(tmp_path / "m.onnx", nodes, inputs=[value("x", UINT32)], outputs=[value("y", INT64, [2])])
    (found,) = findings(path)
    assert (found["verdict"], found["primitive"], found["operands"]) == ("unsupported", "ArgMax", "uint32[2,3]")
    assert "no CPU kernel of ArgMax(13) for uint32" in found["reason"]
    assert found["evidence"] == "registry"
    assert found["function"] == "/head/ArgMax"
    assert "/head/ArgMax" in scan(path).stdout
    assert "convert its source again" in report(path)["next_step"]


@pytest.mark.parametrize(("opset", "runs"), [(17, False), (18, True)])
def test_a_file_is_judged_by_its_own_opset(tmp_path: Path, opset: int, runs: bool) -> None:
    """BitwiseXor came with opset 18."""
    nodes = [helper.make_node("BitwiseXor", ["x", "x"], ["y"])]
    ends = {"inputs": [value("x", UINT32)], "outputs": [value("y", UINT32)]}
    found = findings(write(tmp_path / "m.onnx", nodes, opsets={"": opset}, **ends))
    assert [f["reason"] for f in found] == ([] if runs else ["ONNX opset 17 has no operator BitwiseXor"])


def test_versions_that_the_runtime_does_not_load(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], opsets={"": 999})
    (found,) = [f for f in findings(path) if f["primitive"] == "versions"]
    assert found["reason"].startswith("opset 999, IR version 10: ")
    assert found["evidence"] == "probed"
    assert "update the runtime" in report(path)["next_step"]


def test_bodies_of_control_flow_are_walked(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, ["x"], [name], name=op)], name, [], [value(name, INT64, None)])

    node = helper.make_node("If", ["c"], ["y"], name="choose")
    node.attribute.append(helper.make_attribute("then_branch", branch("a", "ArgMax")))
    node.attribute.append(helper.make_attribute("else_branch", branch("b", "ArgMin")))
    inputs = [value("x", UINT32), value("c", BOOL, [])]
    found = findings(write(tmp_path / "m.onnx", [node], inputs=inputs, outputs=[value("y", INT64, None)]))
    assert {f["function"] for f in found} == {"choose/then_branch/ArgMax", "choose/else_branch/ArgMin"}
    assert {f["operands"] for f in found} == {"uint32[2,3]"}


def test_types_come_from_inference(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["bits"], to=UINT32),
        helper.make_node("ArgMax", ["bits"], ["y"], axis=0, keepdims=0),
    ]
    (found,) = findings(write(tmp_path / "m.onnx", nodes, outputs=[value("y", INT64, [3])]))
    assert found["operands"] == "uint32[2,3]"


def test_calls_of_functions_in_the_file_are_judged_inside(tmp_path: Path) -> None:
    body = [helper.make_node("Cast", ["a"], ["c"], to=UINT32), helper.make_node("ArgMax", ["c"], ["b"], keepdims=0)]
    function = helper.make_function("local", "Best", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    path = write(
        tmp_path / "m.onnx",
        [helper.make_node("Best", ["x"], ["y"], domain="local")],
        outputs=[value("y", INT64, [3])],
        opsets={"": 21, "local": 1},
        functions=[function],
    )
    (found,) = findings(path)
    assert (found["primitive"], found["operands"]) == ("ArgMax", "uint32[2,3]")


def test_the_runtime_itself_knows_ops_of_its_own_domain(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")]
    found = report(write(tmp_path / "m.onnx", nodes, opsets={"": 21, "com.microsoft": 1}))
    assert found["ok"]
    assert found["targets"][0]["primitives"]["com.microsoft.Gelu"]["native"] == 1
    assert found["facts"]["leftovers"] == "com.microsoft.Gelu"


def test_ops_that_nothing_knows(tmp_path: Path) -> None:
    nodes = [helper.make_node("Strange", ["x"], ["h"], domain="my.ops"), helper.make_node("Tanh", ["h"], ["y"])]
    path = write(tmp_path / "m.onnx", nodes, outputs=[value("y", FLOAT, None)], opsets={"": 21, "my.ops": 1})
    strange, tanh = sorted(findings(path), key=lambda f: f["primitive"] == "Tanh")
    assert strange["primitive"] == "my.ops.Strange"
    assert strange["reason"].startswith("an op of the domain my.ops, which no table covers; onnxruntime: ")
    assert tanh["reason"].startswith("the type of h follows from nothing in the file")
    assert "register the ops of the domain my.ops" in report(path)["next_step"]


@pytest.mark.parametrize("shape", [["batch", 3], [None, 3], None])
def test_shapes_that_vary(tmp_path: Path, shape: Any) -> None:
    ends = {"inputs": [value("x", FLOAT, shape)], "outputs": [value("y", FLOAT, shape)]}
    found = report(write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], **ends))
    assert found["ok"]
    shown = {str(["batch", 3]): "x float32[batch,3]", str([None, 3]): "x float32[?,3]"}.get(str(shape))
    assert found["facts"].get("dynamic", "").partition(", ")[0] == (shown or "")


def test_a_line_that_the_exporter_noted(tmp_path: Path) -> None:
    node = helper.make_node("ArgMax", ["x"], ["y"], name="n", keepdims=0)
    entry = node.metadata_props.add()
    entry.key = "pkg.torch.onnx.stack_trace"
    entry.value = 'File "/a/run.py", line 3, in main\n  f()\nFile "/a/model.py", line 42, in forward\n  argmax(x)'
    path = write(tmp_path / "m.onnx", [node], inputs=[value("x", UINT32)], outputs=[value("y", INT64, [3])])
    (found,) = findings(path)
    assert (found["file"], found["line"], found["function"]) == ("/a/model.py", 42, "forward")


def test_a_target_of_another_format(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])])
    found = report(path, "--target", "onnxruntime,litert")
    ok = {t["target"]: t["ok"] for t in found["targets"]}
    assert ok == {"onnxruntime": True, "litert": False}
    assert "litert runs TFLite files, and this is ONNX" in found["targets"][1]["findings"][0]["reason"]


@pytest.mark.parametrize("args", [["--opset", "18"], ["--batch", "4"], ["--arg", "a=1"]])
def test_options_for_models_are_refused(tmp_path: Path, args: list[str]) -> None:
    done = scan(write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])]), *args)
    assert done.exit_code == 2
    assert "is judged as it is" in done.stderr


def test_a_file_is_no_model_to_convert(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])])
    done = CliRunner().invoke(cli, ["convert", str(path), "--to", "onnx", "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "it can be scanned" in done.stderr


def test_a_bundle_is_judged_file_by_file(discrete: Any) -> None:
    found = report(discrete.path)
    assert found["ok"]
    ran = {t["target"]: t["counts"]["native"] for t in found["targets"]}
    assert ran["onnxruntime"] > 500
    assert ran["litert"] > 500


# Weights


def test_weights_beside_the_file_are_not_read(tmp_path: Path) -> None:
    """A file of 1 GiB, with a child that may take a third of that."""
    with (tmp_path / "big.data").open("wb") as stream:
        stream.truncate(1 << 30)
    size = 1 << 26
    weights = [external(f"w{i}", [8192, 8192 // 4], location="big.data", offset=i * size, length=size) for i in (0, 15)]
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], weights=weights)
    told = call("opcompat.files.onnx_reader:read", str(path), what="x", limits=Limits(seconds=60, memory=300 << 20))
    assert told["parameter_bytes"] == 2 * size
    assert told["external"] == [["big.data", 1 << 30, False]]


def test_weights_inside_the_file_are_not_read(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.zeros((1024, 10240), np.float32), "w")
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], weights=[weight])
    assert path.stat().st_size > 40_000_000
    assert len(protobuf.strip(path)) < 1000
    assert read(path, "onnx").parameters == 1024 * 10240


def test_missing_weights_are_a_finding(tmp_path: Path) -> None:
    weights = [external("w", [4], location="gone.data")]
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], weights=weights)
    (found,) = findings(path)
    assert (found["primitive"], found["reason"]) == ("weights", "gone.data, which holds weights, is not there")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "/etc/passwd"}, "no path inside the model's folder"),
        ({"location": "../w.data"}, "no path inside the model's folder"),
        ({"location": "a/../../w.data"}, "no path inside the model's folder"),
        ({"location": "..\\w.data"}, "no path inside the model's folder"),
        ({"location": "C:\\w.data"}, "no path inside the model's folder"),
        ({}, "no path inside the model's folder"),
        ({"location": "a\0b"}, "no path inside the model's folder"),
        ({"location": "link.data"}, "a link that leaves the model's folder"),
        ({"location": "circle"}, "a link that leaves|is not there"),
        ({"location": "x" * 5000}, "cannot be found"),
        ({"location": "w.data", "offset": -1}, "the offset of its data is '-1'"),
        ({"location": "w.data", "offset": 1 << 62}, "ends at"),
        ({"location": "w.data", "length": 17}, "has 16 bytes, and its data 17"),
        ({"location": "w.data", "offset": 8}, "its data ends at 24 of 'w.data', which has 16 bytes"),
        ({"location": "w.data", "length": "1e9"}, "the length of its data is '1e9'"),
    ],
)
def test_places_of_weights_that_are_refused(tmp_path: Path, entries: dict[str, Any], message: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(16))
    (folder / "w.data").write_bytes(bytes(16))
    (folder / "link.data").symlink_to(tmp_path / "secret")
    (folder / "circle").symlink_to(folder / "circle")
    weights = [external("w", [4], **entries)]
    path = write(folder / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], weights=weights)
    try:
        found = " ".join(f"{name} is not there" for name, _, missing in read(path, "onnx").external if missing)
    except SourceError as error:
        found = str(error)
    assert any(part in found for part in message.split("|")), found


# Files that are not sound


def refusal(path: Path) -> str:
    done = scan(path)
    assert done.exit_code in (2, 3), done.output
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("data", [b"", b"\0", b"hello, world", bytes(1000), b"\xff" * 1000, b"PK\x03\x04"])
def test_what_is_no_model(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert "no ONNX" in refusal(path)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])])
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    assert "damaged" in refusal(path)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("Tanh", ["gone"], ["y"])], "takes 'gone', which nothing makes"),
        ([("Tanh", ["b"], ["a"]), ("Tanh", ["a"], ["b"]), ("Tanh", ["x"], ["y"])], "waits for its own result"),
        ([("Tanh", ["y"], ["y"])], "waits for its own result"),
        ([("Tanh", ["x"], ["y"]), ("Sin", ["x"], ["y"])], "'y' is made twice"),
        ([("Tanh", ["y"], ["x"])], "'x' is made twice"),
    ],
)
def test_graphs_that_are_none(tmp_path: Path, nodes: list[tuple[str, list[str], list[str]]], message: str) -> None:
    assert message in refusal(write(tmp_path / "m.onnx", [helper.make_node(*node) for node in nodes]))


def test_a_weight_that_is_larger_than_its_data(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    weight.dims[0] = 1 << 40
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], weights=[weight])
    assert "takes 4,398,046,511,104 bytes, and its data has 16" in refusal(path)


def test_huge_shapes_cost_nothing(tmp_path: Path) -> None:
    shape = [1 << 60] * 8
    ends = {"inputs": [value("x", FLOAT, shape)], "outputs": [value("y", FLOAT, shape)]}
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ConstantOfShape", ["s"], ["y"])]
    assert read(write(tmp_path / "m.onnx", nodes, **ends), "onnx").parts[0].inputs[0].shape == tuple(shape)


@pytest.mark.parametrize("padding", [0, 5000])
def test_deep_nesting_is_refused(tmp_path: Path, padding: int) -> None:
    """Messages in messages: an attribute's graph's node's attribute, and so on. Large ones are read by our own pass."""
    path = tmp_path / "m.onnx"
    inner = _field(3, b"n" * padding)
    for field in (6, 5, 1) * 100:
        inner = _field(field, inner)
    path.write_bytes(b"\x08\x0a" + _field(7, inner))
    assert "damaged" in refusal(path)


def _field(number: int, data: bytes) -> bytes:
    length, out = len(data), bytearray([number * 8 + 2])
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(out) + bytes([length]) + data


def test_a_long_string_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"], name="n" * (2 << 20))])
    assert "has 2,097,152 bytes" in refusal(path)


def test_functions_that_double_are_stopped(tmp_path: Path) -> None:
    """Each calls the next twice: 2**40 nodes in a small file."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    functions = []
    for i in range(40):
        op, domain = (f"F{i + 1}", "f") if i < 39 else ("Tanh", "")
        body = [
            helper.make_node(op, ["a"], ["m"], domain=domain),
            helper.make_node(op, ["m"], ["b"], domain=domain),
        ]
        functions.append(helper.make_function("f", f"F{i}", ["a"], ["b"], body, opsets))
    nodes = [helper.make_node("F0", ["x"], ["y"], domain="f")]
    path = write(tmp_path / "m.onnx", nodes, opsets={"": 21, "f": 1}, functions=functions)
    with pytest.raises(LimitError, match=r"needs more than 0.25 GiB|stopped after 5 s"):
        call("opcompat.files.onnx_reader:read", str(path), what="x", limits=Limits(seconds=5, memory=256 << 20))


def test_the_stripped_copy_is_the_same_model_without_its_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(size=(64, 64)).astype(np.float32), "large"),
        numpy_helper.from_array(np.arange(5), "small"),
        helper.make_tensor("typed", FLOAT, [3000], [0.5] * 3000),
    ]
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"], note="kept")], weights=weights)
    whole = onnx.load(path)
    copy = onnx.ModelProto.FromString(protobuf.strip(path))
    assert [t.doc_string for t in copy.graph.initializer] == ["9:16384", "", "4:12000"]
    for tensor in (*whole.graph.initializer, *copy.graph.initializer):
        for field in ("doc_string", *(("raw_data", "float_data") if tensor.name != "small" else ())):
            tensor.ClearField(field)
    assert copy == whole


def test_reading_again_gives_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])])
    first: Program = read(path, "onnx")
    assert first == read(path, "onnx")
