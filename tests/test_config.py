"""Settings: where they are found, what they may hold, and what a mistake in them says."""

from pathlib import Path

import pytest

from opcompat.config import Config, did_you_mean, find, read_folder
from opcompat.errors import ConfigError

FULL = """
factory = "policy:make"
targets = ["onnxruntime", "litert"]
to = ["onnx"]
out = "dist"
sampling = "exact"
opset = 21
steps = 200
seeds = 3

[factory_args]
size = "small"
layers = [1, 2]
"""


def test_every_key(tmp_path: Path) -> None:
    (tmp_path / "opcompat.toml").write_text(FULL)
    assert find(tmp_path) == Config(
        path=tmp_path / "opcompat.toml",
        factory="policy:make",
        factory_args={"size": "small", "layers": [1, 2]},
        targets=("onnxruntime", "litert"),
        to=("onnx",),
        out=tmp_path / "dist",
        sampling="exact",
        opset=21,
        steps=200,
        seeds=3,
    )


def test_the_nearest_file_upward_holds_and_opcompat_toml_wins(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.opcompat]\nsteps = 1\n")
    assert find(inner).steps == 1
    (tmp_path / "opcompat.toml").write_text("steps = 2\n")
    assert find(inner).steps == 2
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert find(inner).steps == 2
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.opcompat]\nsteps = 3\n")
    assert find(inner).steps == 3


def test_only_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "opcompat.toml").write_text("steps = 2\n")
    (tmp_path / "a").mkdir()
    assert read_folder(tmp_path / "a") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('factroy = "a:b"', "unknown key 'factroy'; did you mean 'factory'?"),
        ("tolerance = 1", "unknown key 'tolerance' (known keys: factory, factory_args, source"),
        ('factory = "policy"', "factory: must be \"module:function\", not 'policy'"),
        ("factory = 1", "factory: must be a string, not 1 (int)"),
        ("factory_args = 1", "factory_args: must be a table"),
        ('factory = "a:b"\nsource = "model"', "factory and source both name the model; keep one"),
        ("dims = {b = 0}", "dims: must be a whole number from 1, not 0"),
        ("entry_points = 1", "entry_points: must be a table of tables, one per entry point"),
        ("[entry_points.policy]\ninnit = {}", "entry_points: policy: unknown key 'innit'; did you mean 'init'?"),
        ("[entry_points.policy]\nkeys = 1", "keys must be a list of inputs, or a table"),
        ("[entry_points.policy]\nfeedback = {state = 1}", "must be a string, not 1 (int)"),
        ("[entry_points.policy]\ntolerance = true", "tolerance must be a number"),
        ('targets = "litert"', "targets: must be a list of names, not 'litert' (str)"),
        ("targets = []", "targets: must be a list of names"),
        ("to = [1]", "to: must be a list of names"),
        ("out = false", "out: must be a string"),
        ('sampling = "argmax"', "sampling: sampling 'argmax' does not exist (there are exact"),
        ("opset = true", "opset: must be a whole number from 1, not True (bool)"),
        ("steps = 0", "steps: must be a whole number from 1"),
        ("seeds = 1.5", "seeds: must be a whole number from 1"),
        ("steps = ", "is not valid TOML"),
    ],
)
def test_a_mistake_names_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "opcompat.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        find(tmp_path)
    assert str(tmp_path / "opcompat.toml") in str(caught.value)
    assert message in str(caught.value)


def test_a_mistake_in_pyproject_names_its_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.opcompat]\nstep = 1\n")
    with pytest.raises(ConfigError, match=r"pyproject.toml \[tool.opcompat\]: unknown key 'step'"):
        find(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool]\nopcompat = 1\n")
    with pytest.raises(ConfigError, match="must be a table"):
        find(tmp_path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "opcompat.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        find(tmp_path)


def test_near_matches() -> None:
    assert did_you_mean("oc11", ["OC101", "OC250"]) == "; did you mean 'OC101'?"
    assert did_you_mean("zzz", ["OC101"]) == ""
