"""What users get wrong, and what goes wrong around them: a clear message, the right exit code, nothing lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner, Result

from opcompat import api, conversion
from opcompat.bundle import Bundle
from opcompat.cli import cli
from opcompat.errors import ConfigError, OutputError, TraceError
from opcompat.model import EntryPoint, Model

POLICY = """

import jax.numpy as jnp
import opcompat

def double(params, x):
    return {"y": x * params["w"]}

def loud(params, x):
    print("the function prints")
    return double(params, x)

def raising(params, x):
    raise ValueError("the function raises")


def make(function="double", shape=(3,), given=(3,), feedback={}, init={}, outputs=None, weights=2.0):
    entry = opcompat.EntryPoint(
        globals()[function], (jnp.zeros(given),), feedback=feedback, init=init, outputs=outputs
    )
    return opcompat.Model("tiny", {"w": jnp.full(shape, weights)}, {"policy": entry})
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("source")
    (folder / "bad_input_policy.py").write_text(POLICY)
    (folder / "opcompat.toml").write_text('factory = "bad_input_policy:make"\n')
    return str(folder)


def invoke(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


def convert(source: str, out: Path, *args: str) -> Result:
    return invoke("convert", source, "--to", "onnx", "--steps", "2", "--out", str(out), *args)


def double(params: Any, x: Any) -> Any:
    return {"y": x * params["w"]}


def model(function: Callable[..., Any] = double, weight: Any = 2.0, **options: Any) -> Model:
    x = jnp.zeros(3)
    return Model("tiny", {"w": weight}, {"policy": EntryPoint(function, (x,), **options)})


# The model


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["given=[4]"], "policy: the function fails on its example arguments: TypeError"),
        (["function=raising"], "ValueError: the function raises"),
        (['feedback={state="x"}'], "policy: feedback names the output 'state', but there are only y"),
        (['feedback={y="state"}'], "policy: feedback names the input 'state', but there are only x"),
        (['feedback={y="x"}'], "policy: x is fed back, but init= does not say where its first value comes from"),
        (['feedback={y="x"}', 'init={x="start.y"}'], "not ENTRY_POINT.OUTPUT with an entry point of policy"),
        (['feedback={y="x"}', "shape=[2, 3]", 'init={x="policy.y"}'], "y is float32[2, 3], but x takes float32[3]"),
        (['outputs=["a", "b"]'], "policy: outputs= has 2 names"),
    ],
)
@pytest.mark.parametrize("command", ["scan", "convert"])
def test_a_model_that_does_not_fit(
    source: str, tmp_path: Path, command: str, arguments: list[str], message: str
) -> None:
    options = [part for argument in arguments for part in ("--arg", argument)]
    run = (lambda: invoke("scan", source, *options)) if command == "scan" else (
        lambda: convert(source, tmp_path / "dist", *options)
    )  # fmt: skip
    done = run()
    assert done.exit_code == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_function_names_its_line(source: str) -> None:
    done = invoke("scan", source, "--arg", "function=raising")
    line = next(i for i, text in enumerate(POLICY.splitlines(), 1) if "raise ValueError" in text)
    assert f"bad_input_policy.py:{line}\n" in done.stderr


def test_what_the_function_prints_does_not_spoil_the_report(source: str) -> None:
    done = invoke("scan", source, "--arg", "function=loud", "--format", "json")
    assert done.exit_code == 0
    assert done.stdout.startswith("{")
    assert "the function prints" in done.stderr


@pytest.mark.parametrize("name", ["", "1st", "a b", "../up", "a/b", "con:", "a.b", "ä b", None])
def test_names_that_cannot_be_files(name: Any) -> None:
    with pytest.raises(ConfigError, match="cannot name a model or entry point"):
        Model(name, (), {"policy": EntryPoint(double)})
    with pytest.raises(ConfigError, match="cannot name a model or entry point"):
        Model("m", (), {name: EntryPoint(double)})


def test_models_without_entry_points_or_with_plain_functions() -> None:
    with pytest.raises(ConfigError, match="'m' has no entry points"):
        Model("m", (), {})
    with pytest.raises(ConfigError, match=r"entry point 'f' is function, not opcompat\.EntryPoint"):
        Model("m", (), {"f": double})  # type: ignore[dict-item]


def test_a_tuple_needs_names(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"returns a tuple of 2; name its parts with outputs=") as caught:
        api.convert(model(lambda params, x: (x, x), names=("x",)), tmp_path / "dist")
    assert caught.value.exit_code == 2
    with pytest.raises(TraceError, match="two outputs are named 'a'"):
        api.scan(model(lambda params, x: (x, x), names=("x",), outputs=("a", "a")))


def test_parameters_without_values_can_be_scanned_but_not_converted(tmp_path: Path) -> None:
    abstract = model(weight=jax.ShapeDtypeStruct((3,), np.float32))
    assert api.scan(abstract).ok
    with pytest.raises(ConfigError, match="has parameters without values") as caught:
        api.convert(abstract, tmp_path / "dist")
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": ["onnx", "coreml"]}, "no format 'coreml': there are onnx, tflite"),
        ({"steps": 0}, "steps and seeds must be positive"),
        ({"seeds": -1}, "steps and seeds must be positive"),
        ({"sampling": "guess"}, "guess"),
    ],
)
def test_options_that_do_not_exist(options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        api.convert(model(), tmp_path / "dist", **options)
    assert list(tmp_path.iterdir()) == []


def test_targets_that_do_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"no target 'onnxruntim'.*did you mean onnxruntime"):
        api.scan(model(), targets=["onnxruntim"])


# The output


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_output_that_exists(source: str, tmp_path: Path) -> None:
    out = tmp_path / "dist"
    assert convert(source, out).exit_code == 0
    before = contents(out)

    refused = convert(source, out)
    assert refused.exit_code == 2
    assert "exists" in refused.stderr
    assert "--force" in refused.stderr
    assert contents(out) == before

    (out / "notes.txt").write_text("mine")
    refused = convert(source, out, "--force")
    assert refused.exit_code == 2
    assert "notes.txt" in refused.stderr
    assert contents(out) == {**before, "notes.txt": b"mine"}

    (out / "notes.txt").unlink()
    assert convert(source, out, "--force", "--arg", "weights=3.0").exit_code == 0
    assert contents(out)["onnx/policy.onnx"] != b""
    assert contents(out)["manifest.json"] != before["manifest.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["dist"]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_folder_of_somebody_else_s(source: str, tmp_path: Path, force: list[str]) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "thesis.tex").write_text("years of work")
    done = convert(source, tmp_path / "dist", *force)
    assert done.exit_code == 2
    assert "holds no bundle" in done.stderr
    assert contents(tmp_path) == {"dist/thesis.tex": b"years of work"}


def test_a_conversion_that_fails_keeps_the_bundle_that_was_there(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dist"
    assert convert(source, out).exit_code == 0
    before = contents(out)
    assert convert(source, out, "--force", "--arg", "function=raising").exit_code == 2
    assert contents(out) == before

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "weights.bin")

    monkeypatch.setattr(conversion, "record", full)
    done = convert(source, out, "--force")
    assert done.exit_code == 2
    assert "No space left on device" in done.stderr
    assert "free some space" in done.stderr
    assert contents(out) == before
    assert [p.name for p in tmp_path.iterdir()] == ["dist"]


def test_a_disk_that_is_full_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def full(path: Path, data: Any) -> int:
        if path.suffix in (".onnx", ".tflite", ".bin"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="No space left on device") as caught:
        api.convert(model(), tmp_path / "dist", to=["tflite"], steps=1)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


KILLED = """
import sys
from opcompat import conversion
from opcompat.cli import main

def wait(*args, **kwargs):
    print("in the middle", flush=True)
    sys.stdin.read()

conversion.run_checks = wait
main()
"""


def kill_in_the_middle(source: str, out: Path, *args: str) -> None:
    """Starts a conversion in a process of its own and kills it once its files are written, but not proven."""
    command = [sys.executable, "-c", KILLED, "convert", source, "--to", "onnx", "--out", str(out), *args]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if "in the middle" in line:
                break
        else:
            raise AssertionError("".join(seen))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_a_kill_loses_nothing_and_the_next_run_cleans_up(source: str, tmp_path: Path) -> None:
    out = tmp_path / "dist"
    kill_in_the_middle(source, out)
    assert not out.exists()
    assert len(list(tmp_path.iterdir())) == 1, "what the killed run had written"

    assert convert(source, out).exit_code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["dist"]
    before = contents(out)

    kill_in_the_middle(source, out, "--force", "--arg", "weights=3.0")
    assert contents(out) == before
    Bundle.open(out).check_files()
    assert invoke("verify", str(out)).exit_code == 0

    assert convert(source, out, "--force", "--arg", "weights=3.0").exit_code == 0
    assert contents(out) != before
    assert [p.name for p in tmp_path.iterdir()] == ["dist"]
