"""Targets of the web: their tables, how interfaces are fed, and (marker `browser`) that the runtimes still agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from opcompat.errors import ConfigError
from opcompat.lowering.graph import Node, Tensor
from opcompat.lowering.tflite.writer import write
from opcompat.targets import catalog, table
from opcompat.targets.probes.case import Case, difference
from opcompat.targets.probes.tflite_cases import cases
from opcompat.targets.probes.web.engines import ENGINES, WebSandbox
from opcompat.targets.probes.web.interface import BITS, fed, passes
from opcompat.targets.probes.web.process import NodeError, NodeProcess, decode, encode

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests" / "web", ROOT / "examples" / "web")
PACKAGES = next((p for p in FOLDERS if (p / "node_modules").exists()), FOLDERS[0])
"""Where `npm install` was run: all of the packages, or those of the example."""
SAMPLED = 40


@pytest.mark.parametrize("name", ENGINES)
def test_tables_say_how_they_were_made(name: str) -> None:
    content, engine = table.load(name).content, ENGINES[name]
    assert content["target"] == name
    assert content["evidence"] == "probed"
    assert content["tried"] >= 300
    assert content["limits"] == engine.limits
    assert content["summary"] == engine.summary
    assert content["runtime"] == engine.packages[0]
    assert catalog.target(name).version == content["version"]


def pair(op: str, dtype: str, result: str = "", rank: int = 2) -> Node:
    shape = (2,) * rank
    return Node(op, (Tensor(shape, dtype), Tensor(shape, dtype)), (Tensor(shape, result or dtype),))


VERDICTS = [
    ("onnxruntime-web", pair("Add", "uint32"), "yes"),
    ("onnxruntime-web", pair("BitwiseXor", "uint32"), "yes"),
    ("onnxruntime-web", pair("Less", "bfloat16", "bool"), "no"),
    ("onnxruntime-web-webgpu", pair("Add", "float32"), "yes"),
    ("onnxruntime-web-webgpu", pair("BitwiseXor", "uint32"), "no"),  # wasm runs it: it is no kernel of the GPU
    ("litert-web", pair("BITWISE_XOR", "uint32"), "yes"),
    ("litert-web", pair("LESS", "float32", "bool"), "yes"),
    ("litert-web", pair("ADD", "uint32"), "no"),
    ("tfjs", pair("ADD", "float32"), "yes"),
    ("tfjs", pair("BITWISE_XOR", "int32"), "no"),  # newer than its TFLite
    ("tfjs", pair("ADD", "int64"), "unknown"),
]


@pytest.mark.parametrize(("name", "subject", "status"), VERDICTS, ids=str)
def test_verdict(name: str, subject: Node, status: str) -> None:
    support = catalog.target(name).check(subject)
    assert support.status == status, support
    assert bool(support.reason) == (status != "yes")


def test_a_version_that_was_not_asked_about_is_unknown() -> None:
    def verdict(op: str, opset: int) -> str:
        x = Tensor((2,), "float32")
        return catalog.target("onnxruntime-web", opset).check(Node(op, (x,), (x,))).status

    assert (verdict("Abs", 21), verdict("Abs", 22)) == ("yes", "yes")  # Abs(13) is in both
    assert (verdict("Acos", 21), verdict("Acos", 22)) == ("yes", "unknown")


# -- the interface


@pytest.mark.parametrize("dtype", BITS)
def test_passages_keep_the_values(dtype: str) -> None:
    case = next(c for c in cases([dtype], [2], special=True) if c.op == "RESHAPE")
    x, _ = case.inputs[0]
    packed = BITS[dtype].pack(x)
    assert packed.dtype.name in ("uint8", "int32")
    np.testing.assert_array_equal(BITS[dtype].unpack(packed, x).view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("op", ["ADD", "LESS", "SELECT_V2", "TOPK_V2", "CAST", "WHILE"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "uint8"])
def test_a_fed_model_means_the_same(op: str, dtype: str) -> None:
    """On LiteRT itself, which passes all dtypes."""
    known = catalog.target("litert")
    asked = [c for c in cases([dtype], [2]) if c.op == op and known.check(c.node[0]).status == "yes"]
    for case in asked:
        model = fed(case, BITS)
        assert {x.dtype for x in (*model.graph.inputs, *model.graph.outputs)} <= {"float32", "int32", "uint8"}
        content = write({"main": model.graph}, {}, output_names={"main": list(model.outputs)})
        results = Interpreter(model_content=content).get_signature_runner("main")(**model.inputs)
        assert difference(case, model.read([results[name] for name in model.outputs], case)) == ""


def test_what_an_interface_has_no_form_for_is_not_asked() -> None:
    (case,) = [c for c in cases(["int64"], [1]) if (c.op, c.kind) == ("ADD", "same")]
    assert not passes(case, ["float32"], {})
    assert passes(case, ["float32"], BITS)
    asked = {x.dtype.name for c in ENGINES["tfjs"].cases() for x in (*c.feeds.values(), *c.expected)}
    assert asked == set(ENGINES["tfjs"].limits["interface"])


def test_without_node_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="install Node"):
        WebSandbox("onnxruntime-web")


# -- with the runtimes


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Iterator[WebSandbox]:
    made = WebSandbox(request.param, PACKAGES)
    yield made
    made.close()


@pytest.mark.browser
@pytest.mark.parametrize("sandbox", ENGINES, indirect=True)
def test_tables_still_match_the_runtimes(sandbox: WebSandbox) -> None:
    target = catalog.target(sandbox.name)
    every = list(sandbox.engine.cases())
    chosen = np.random.default_rng(1).choice(len(every), SAMPLED, replace=False)
    for case in sandbox.ahead(every[i] for i in chosen):
        verdict, answer = target.check(case.node[0]), sandbox.ask(case)
        if verdict.status == "yes":
            assert answer == "", (case.op, case.rank, answer)
        if answer == "" and not case.special:
            assert verdict.status in ("yes", "conditional"), (case.op, case.rank, verdict)


@pytest.mark.browser
@pytest.mark.parametrize("sandbox", ENGINES, indirect=True)
def test_a_wrong_result_and_a_broken_file_are_answers(sandbox: WebSandbox) -> None:
    add = "Add" if sandbox.engine.form == "onnx" else "ADD"
    case = next(c for c in sandbox.engine.cases() if c.op == add and c.rank == 1)
    assert sandbox.ask(case) == ""
    wrong = Case(case.op, case.kind, case.rank, case.inputs, (case.expected[0] + 1,))
    assert sandbox.ask(wrong).startswith("wrong: ")
    refused = sandbox.run(b"no model", case.feeds, ["y0"])
    assert isinstance(refused, str)
    assert refused.startswith("load: ")
    assert sandbox.ask(case) == ""


@pytest.mark.browser
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="npm install onnxruntime-web"):
        WebSandbox("onnxruntime-web", tmp_path)


@pytest.mark.browser
def test_a_program_that_ends_or_hangs(tmp_path: Path) -> None:
    script = tmp_path / "echo.mjs"
    script.write_text(
        'import readline from "node:readline";\n'
        'console.log("1");\n'
        "for await (const line of readline.createInterface({ input: process.stdin })) {\n"
        '  if (line === \'"end"\') throw new Error("the end");\n'
        "  if (line !== '\"hang\"') console.log(line);\n"
        "}\n"
    )
    with NodeProcess(script) as process:
        assert process.ready == 1
        x = np.asarray([[1, 2**32 - 1]], np.uint32)
        np.testing.assert_array_equal(decode(process.ask(encode(x))), x)
        with pytest.raises(NodeError, match=r"no answer in 0\.5 s"):
            process.ask("hang", 0.5)
        with pytest.raises(NodeError, match="the end"):
            process.ask("end")
