"""A bundle of unknown origin is replayed in a child process: its artifacts cannot take the tool down."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from click.testing import CliRunner

import opcompat
from opcompat.bundle import Bundle
from opcompat.cli import cli
from opcompat.runtime import apart
from opcompat.runtime.loaded import load


def double(params: Any, x: Any) -> Any:
    return {"y": x * params["w"]}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = opcompat.Model("tiny", {"w": jnp.float32(2)}, {"policy": opcompat.EntryPoint(double, (jnp.zeros(3),))})
    out = tmp_path_factory.mktemp("bundle") / "dist"
    opcompat.convert(model, out, ["onnx"], steps=2)
    return out


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An onnxruntime of the child's own, which does what a runtime does with an artifact that breaks it."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "onnxruntime.py"


def verify(path: Path) -> Any:
    return CliRunner().invoke(cli, ["verify", str(path)])


def test_the_checks_come_back_whole(bundle: Path) -> None:
    assert apart.replay(Bundle.open(bundle), "onnx") == load(bundle, "onnx").replay().checks
    assert verify(bundle).exit_code == 0


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("os.abort()", "replaying onnx: the process was killed by SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "replaying onnx: the process was killed by SIGSEGV"),
        ("time.sleep(60)", "replaying onnx: stopped after 1 s"),
        ("bytes(1 << 40)", "replaying onnx: needs more than"),
    ],
)
def test_a_runtime_that_dies_or_hangs(
    bundle: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.setattr(apart, "SECONDS", 1.0)
    runtime.write_text(textwrap.dedent(f"import os, signal, time\n{code}\n"))
    done = verify(bundle)
    assert done.exit_code == 3, done.output
    assert message in done.stderr
    assert done.stdout == ""
