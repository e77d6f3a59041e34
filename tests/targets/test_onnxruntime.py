"""What the target says of a node is what the runtime does with it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import onnxruntime
import pytest
from onnx import helper

from opcompat.lowering.graph import Node, Tensor
from opcompat.lowering.onnx.dtypes import numpy_dtype
from opcompat.targets import catalog
from opcompat.targets.onnxruntime import _session_errors, check, target
from opcompat.targets.table import Row

OPSET = 21


def node(
    op: str, inputs: list[tuple[tuple[int, ...], str]], *outputs: tuple[tuple[int, ...], str], **attrs: Any
) -> Node:
    return Node(op, tuple(Tensor(*x) for x in inputs), tuple(Tensor(*y) for y in outputs), attrs)


def loads(n: Node, opset: int = OPSET) -> bool:
    """Whether a session accepts a model of this node alone."""

    def info(name: str, x: Tensor) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(numpy_dtype(x.dtype)), x.shape)

    attrs = dict(n.attrs)
    if "to" in attrs:
        attrs["to"] = helper.np_dtype_to_tensor_dtype(numpy_dtype(attrs["to"]))
    ins = [f"x{i}" for i in range(len(n.inputs))]
    outs = [f"y{i}" for i in range(len(n.outputs))]
    graph = helper.make_graph(
        [helper.make_node(n.op, ins, outs, **attrs)],
        "g",
        [info(name, x) for name, x in zip(ins, n.inputs, strict=True) if x is not None],
        [info(name, y) for name, y in zip(outs, n.outputs, strict=True)],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except tuple(_session_errors()):
        return False
    return True


DTYPES = ("float32", "int32", "uint32", "bool", "int64", "float64")
BINARY = [
    "Add",
    "And",
    "BitShift",
    "BitwiseXor",
    "Div",
    "Equal",
    "Less",
    "GreaterOrEqual",
    "Max",
    "Mod",
    "Mul",
    "Or",
    "Pow",
    "Sub",
    "Xor",
    "MatMul",
]
UNARY = [
    "Abs",
    "Ceil",
    "Cos",
    "Erf",
    "Exp",
    "IsNaN",
    "Neg",
    "Not",
    "BitwiseNot",
    "Reciprocal",
    "Round",
    "Sign",
    "Sin",
    "Sqrt",
    "Tanh",
    "Softplus",
    "HardSwish",
]
BOOL_RESULT = {"Equal", "Less", "GreaterOrEqual", "IsNaN"}
SHAPE = (2, 2)


def cases() -> list[Node]:
    found = []
    for dtype in DTYPES:
        x = (SHAPE, dtype)
        for op in BINARY:
            attrs = {"direction": "LEFT"} if op == "BitShift" else {"fmod": 1} if op == "Mod" else {}
            found.append(node(op, [x, x], (SHAPE, "bool" if op in BOOL_RESULT else dtype), **attrs))
        found += [node(op, [x], (SHAPE, "bool" if op in BOOL_RESULT else dtype)) for op in UNARY]
        found.append(node("Where", [(SHAPE, "bool"), x, x], x))
        found.append(node("ArgMax", [x], ((2,), "int64"), axis=1, keepdims=0))
        found.append(node("TopK", [x, ((1,), "int64")], x, (SHAPE, "int64"), axis=1))
        found.append(node("CumSum", [x, ((), "int64")], x))
        found += [
            node(op, [x, ((1,), "int64")], ((2,), dtype), keepdims=0) for op in ("ReduceMax", "ReduceSum", "ReduceL1")
        ]
        found.append(node("Clip", [x, ((), dtype), ((), dtype)], x))
        found.append(node("GatherND", [x, ((3, 1), "int64")], ((3, 2), dtype)))
        found.append(node("Gather", [x, ((3,), "int32")], ((3, 2), dtype), axis=0))
        found.append(node("Cast", [x], (SHAPE, "bfloat16"), to="bfloat16"))
    return found


@pytest.mark.parametrize("op", sorted({n.op for n in cases()}))
def test_verdicts_agree_with_the_runtime(op: str) -> None:
    for n in cases():
        if n.op == op:
            verdict = check(n, OPSET)
            assert verdict.status in ("yes", "no")
            dtypes = [x.dtype for x in n.inputs if x is not None]
            assert (verdict.status == "yes") == loads(n), (op, dtypes, verdict)
            assert bool(verdict.reason) == (verdict.status == "no")


@pytest.mark.parametrize("opset", [18, 20, 22, 24])
def test_verdicts_agree_in_other_opsets(opset: int) -> None:
    for op, dtype in itertools.product(("Add", "ReduceMax", "Where", "Gelu"), ("float32", "bool")):
        x = (SHAPE, dtype)
        inputs = {"ReduceMax": [x, ((1,), "int64")], "Where": [(SHAPE, "bool"), x, x], "Gelu": [x]}.get(op, [x, x])
        n = node(op, inputs, ((2, 1) if op == "ReduceMax" else SHAPE, dtype))
        assert (check(n, opset).status == "yes") == loads(n, opset), (op, dtype, opset)


def test_reasons() -> None:
    version = onnxruntime.__version__
    argmax = node("ArgMax", [(SHAPE, "uint32")], ((2,), "int64"), axis=1, keepdims=0)
    assert check(argmax, OPSET).reason == f"no CPU kernel of ArgMax(13) for uint32 in ONNX Runtime {version}"
    assert check(argmax, OPSET).evidence == "registry"
    less = node("Less", [(SHAPE, "bool"), (SHAPE, "bool")], (SHAPE, "bool"))
    assert check(less, OPSET).reason == "Less(13) is not defined for bool"
    mixed = node("Add", [(SHAPE, "float32"), (SHAPE, "int32")], (SHAPE, "float32"))
    assert check(mixed, OPSET).reason == "Add mixes float32 and int32"
    bitcast = node("BitCast", [(SHAPE, "float32")], (SHAPE, "int32"))
    assert check(bitcast, OPSET).reason == "ONNX opset 21 has no operator BitCast"
    placeholder = Node("?", (), (Tensor((), "float32"),), problem="no lowering")
    assert check(placeholder, OPSET).reason == "no lowering"
    assert check(node("Add", [(SHAPE, "float32")], (SHAPE, "float32")), OPSET).status == "no"


def test_functions_are_probed() -> None:
    verdict = check(node("HardSwish", [(SHAPE, "float32")], (SHAPE, "float32")), OPSET)
    assert verdict.status == "yes"


def test_kernel_versions() -> None:
    def row(since: int, until: int = 0) -> Row:
        return Row("yes", "registry", since=since, until=until)

    assert row(13).serves(13)
    assert not row(13).serves(14)
    assert row(11, 12).serves(12)
    assert not row(11, 12).serves(13)


def test_target() -> None:
    t = target()
    assert (t.name, t.runtime, t.version) == ("onnxruntime", "onnxruntime", onnxruntime.__version__)
    assert t.backend.name == "onnx"
    assert t.check(node("Add", [(SHAPE, "int32")] * 2, (SHAPE, "int32"))).status == "yes"
    assert target(26).check(node("BitCast", [(SHAPE, "float32")], (SHAPE, "int32"), to="int32")).status == "yes"


def test_describe() -> None:
    rows = dict(catalog.describe("onnxruntime"))
    assert "14: T float32" in rows["Add"]
    assert rows["And"] == "7: T bool, T1 bool"


def test_import_is_light() -> None:
    code = "import sys, opcompat.targets.onnxruntime; print({'onnx', 'onnxruntime'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
