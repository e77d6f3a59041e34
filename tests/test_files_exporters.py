"""Files of the exporters that users have, as scan sources (made by tests/fixtures/make_files.py), and mutated files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opcompat.cli import cli
from tests.fuzz import formats, run

FIXTURES = Path(__file__).parent / "fixtures"


def report(name: str, *args: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["scan", str(FIXTURES / name), "--format", "json", *args])
    assert done.exit_code in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ok"] is (done.exit_code == 0)
    return found


@pytest.mark.parametrize(
    ("name", "facts", "native"),
    [
        ("torch_dynamo.onnx", {"opset": "ai.onnx 20", "IR version": "10"}, 19),
        ("torch_script.onnx", {"opset": "ai.onnx 20", "IR version": "9"}, 19),
        ("tf2onnx.onnx", {"opset": "ai.onnx 18, ai.onnx.ml 2", "IR version": "8"}, 16),
        ("tflite_control.tflite", {"format": "TFLite"}, 11),
        ("tflite_int8.tflite", {"dynamic": "obs float32[?,8], logits float32[?,4]"}, 3),
        ("litert.tflite", {"interface": "act(obs float32[1,8]) -> logits float32[1,4], root float32[1,8]"}, 3),
    ],
)
def test_files_that_run(name: str, facts: dict[str, str], native: int) -> None:
    found = report(name)
    assert found["ok"]
    assert {label: found["facts"][label] for label in facts} == facts
    (target,) = found["targets"]
    assert target["counts"]["native"] == sum(target["counts"].values()) == native


def test_bodies_are_among_the_ops() -> None:
    assert {"WHILE", "IF", "TANH", "NEG"} <= set(report("tflite_control.tflite")["targets"][0]["ops"])
    assert {"Loop", "If", "Tanh", "Neg"} <= set(report("tf2onnx.onnx")["targets"][0]["ops"])


@pytest.mark.parametrize(
    ("name", "op"),
    [("tflite_flex.tflite", "CUSTOM FlexMatrixDeterminant"), ("tflite_custom.tflite", "CUSTOM MatrixDeterminant")],
)
def test_ops_that_stayed_tensorflows(name: str, op: str) -> None:
    (found,) = report(name)["targets"][0]["findings"]
    assert (found["verdict"], found["primitive"]) == ("unsupported", op)


def test_pytorch_names_the_users_line() -> None:
    from opcompat.files.program import read

    places = {op.place for part in read(FIXTURES / "torch_dynamo.onnx", "onnx").parts for op in part.ops}
    assert any(place and place[0].endswith("make_files.py") and place[2] == "forward" for place in places)


def test_a_file_for_several_targets() -> None:
    found = report("torch_dynamo.onnx", "--target", "onnxruntime,onnxruntime@1.18,coreml")
    counts = {t["target"]: sum(t["counts"].values()) for t in found["targets"]}
    assert counts == {"onnxruntime": 19, "onnxruntime@1.18": 19, "coreml": 19}


# Mutated files


def test_cases_are_the_same_every_time() -> None:
    form = next(f for f in formats.FORMATS if f.name == "onnx")
    assert formats.case(form, 0, 7) == formats.case(form, 0, 7)
    assert len({formats.case(form, 0, n) for n in range(50)}) > 40


@pytest.mark.parametrize(
    ("code", "died", "may_die", "what"),
    [
        ("return ''", "", False, "read"),
        ("return 'Traceback'", "Traceback", False, "crashed"),
        ("import os; os.abort()", "SIGABRT", False, "crashed"),
        ("import os; os.abort()", "", True, "parser died"),
        ("import time; time.sleep(60)", "stopped after", False, "stopped"),
        ("import time; time.sleep(60)", "", True, "stopped"),
        ("return len(bytes(1 << 30))", "needs more than", False, "stopped"),
        ("raise SourceError('x')", "", False, "refused"),
        ("raise FindingError('x')", "exit code 1", False, "refused"),
        ("raise ValueError('x')", "ValueError: x", True, "crashed"),
    ],
)
def test_the_run_sees_what_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, died: str, may_die: bool, what: str
) -> None:
    from opcompat.isolation import Limits, Worker

    package = tmp_path / "tests" / "fuzz"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "attempt.py").write_text(
        f"from opcompat.errors import *\n\ndef broken(path):\n    {code}\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    form = formats.Format("x", "x", lambda: (b"",), (), "broken", may_die)
    with Worker(Limits(seconds=1.5, memory=512 << 20)) as worker:
        outcome, problem = run.attempt(form, worker, tmp_path / "x")
    assert outcome == what
    assert (died in problem) if died else not problem
