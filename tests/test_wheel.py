"""The wheel on a device: no JAX, only numpy and one runtime. Builds it and two environments: about 40 s."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import Converted

ROOT = Path(__file__).parent.parent

ON_DEVICE = """
import importlib.util, sys
import numpy as np
import opcompat.runtime

path, format, absent = sys.argv[1:]
for name in ("jax", "onnx", "click", "rich", absent):
    assert importlib.util.find_spec(name) is None, name
bundle = opcompat.runtime.load(path)
assert bundle.format == format
bundle.bundle.check_files()

recorded = np.load(f"{path}/reference/policy.npz", allow_pickle=False)
policy = bundle.entry_point("policy")
fed_back = set(bundle.manifest.entry_points["policy"].feedback.values())
for step in range(3):
    given = {x.name: recorded[f"inputs/{x.name}"][step] for x in policy.inputs if x.name not in fed_back}
    outputs = policy.step(given)
assert set(policy.state) >= fed_back and set(outputs) == {x.name for x in policy.outputs}

result = bundle.replay()
result.raise_if_failed()
assert all(check.mismatched == 0 for check in result.checks), result
assert sum(check.draws for check in result.checks) > 0
print(opcompat.__file__, result, sep="\\n")
"""


@pytest.fixture(scope="module")
def bundle(discrete: Converted) -> Path:
    """The bundle that goes to the device: the small example, converted."""
    return discrete.path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since setuptools writes into the folder that it builds."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("opcompat", "rewrites", "reports"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    (copy / "README.md").write_text("The wheel's test does not need the text.")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(out), str(copy))
    (path,) = out.iterdir()
    return path


def run(*command: str, cwd: Path | None = None) -> str:
    """Runs a command as a user's shell would: without what makes Python find this checkout."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_installs_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (n for n in names if n.endswith(".dist-info/entry_points.txt"))
        entry_points = archive.read(metadata).decode()
    assert {n.split("/")[0].split("-")[0] for n in names} == {"opcompat"}
    assert "opcompat/py.typed" in names
    assert {
        "opcompat/runtime/loaded.py",
        "opcompat/rewrites/__init__.py",
        "opcompat/reports/__init__.py",
    } <= {*names}
    assert "opcompat = opcompat.cli:main" in entry_points
    assert "[opcompat.rules]" in entry_points


@pytest.mark.parametrize(
    ("package", "format", "absent"),
    [("onnxruntime", "onnx", "ai_edge_litert"), ("ai-edge-litert", "tflite", "onnxruntime")],
)
def test_a_device_steps_and_replays_the_bundle(
    wheel: Path, bundle: Path, tmp_path: Path, package: str, format: str, absent: str
) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    python = str(tmp_path / "venv/bin/python")
    install = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile")
    run(*install, "numpy", package)
    run(*install, "--no-deps", str(wheel))
    shown = run(python, "-I", "-c", ON_DEVICE, str(bundle), format, absent, cwd=tmp_path)
    assert str(tmp_path / "venv") in shown
    assert "policy" in shown
