"""SavedModels of jax2tf, read without TensorFlow: stored ones of an old and a new jax, damaged ones, to artifacts."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from click.testing import CliRunner

from opcompat import conversion
from opcompat.cli import cli
from opcompat.errors import SourceError
from opcompat.sources import Options, load_model
from opcompat.sources.tf import checkpoint, messages
from opcompat.sources.tf.crc32c import crc32c

FIXTURES = Path(__file__).parent / "fixtures" / "jax2tf"
MADE_BY = ["jax_0_4", "jax_0_10"]
TRUSTED = Options(trusted=True)


@pytest.mark.parametrize("made_by", MADE_BY)
@pytest.mark.parametrize("name", ["fixed", "open"])
def test_it_acts_as_the_policy_that_was_saved(made_by: str, name: str) -> None:
    model = load_model(
        str(FIXTURES / made_by / name), Options(dims={"b": 1} if name == "open" else {}, trusted=True)
    ).model
    entry = model.entry_points["policy"]
    assert entry.names == ("key", "obs", "state")
    steps = np.load(FIXTURES / made_by / "steps.npz")
    for step in range(5):
        key = jax.random.wrap_key_data(steps[f"{step}.key"])
        out = jax.jit(entry.function)(model.params, key, steps[f"{step}.obs"], steps[f"{step}.state_in"])
        assert sorted(out) == ["action", "entropy", "state"]
        np.testing.assert_array_equal(out["action"], steps[f"{step}.action"])
        for output in ("state", "entropy"):
            np.testing.assert_allclose(out[output], steps[f"{step}.{output}"], atol=2e-6)


@pytest.mark.parametrize("made_by", MADE_BY)
def test_variables_are_parameters_with_their_names(made_by: str) -> None:
    model = load_model(str(FIXTURES / made_by / "fixed"), TRUSTED).model
    shapes = {name: value.shape for name, value in model.params.items()}
    assert shapes == {
        "encoder.kernel": (6, 16), "encoder.bias": (16,), "cell.kernel": (32, 16), "heads.0": (16, 12), "initial": (16,)
    }  # fmt: skip
    assert list(model.entry_points) == ["policy", "start"]
    traces = conversion.trace_all(model)
    # Each weight is stored once for all signatures, and none is written into the graph.
    assert sorted(conversion.stored_weights(traces)) == sorted(f"params.{name}" for name in shapes)


def test_tensorflow_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert load_model(str(FIXTURES / "jax_0_10" / "fixed"), TRUSTED).model.entry_points


def test_places_are_those_of_the_policy() -> None:
    model = load_model(str(FIXTURES / "jax_0_10" / "fixed"), TRUSTED).model
    found = conversion.trace_all(model)["policy"]
    lines = (FIXTURES / "make.py").read_text().splitlines()
    (dot,) = {o.place.line for o in found.originals.values() if o.primitive == "dot_general" and "32,16" in o.operands}
    assert 'params["cell"]["kernel"]' in lines[dot - 1]


def test_open_sizes_are_named() -> None:
    source = str(FIXTURES / "jax_0_10" / "open")
    with pytest.raises(SourceError, match=r"policy: obs: the size 'b' is open.*--dim b=1"):
        load_model(source, TRUSTED)
    args = load_model(source, Options(dims={"b": 3}, trusted=True)).model.entry_points["policy"].args
    assert [a.shape for a in args] == [(), (3, 6), (3, 16)]


@pytest.mark.parametrize("made_by", [pytest.param("jax_0_4", marks=pytest.mark.slow), "jax_0_10"])
def test_from_saved_model_to_proven_artifacts(tmp_path: Path, made_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FIXTURES / made_by / "fixed", "saved")
    Path("opcompat.toml").write_text(
        'source = "saved"\n[entry_points.policy]\nfeedback = {state = "state"}\ninit = {state = "start.state"}\n'
    )
    for command in (
        ["scan", "."],
        ["convert", ".", "--to", "onnx,tflite", "--out", "dist", "--steps", "30"],
        ["verify", "dist", ".", "--steps", "30", "--format", "json"],
    ):
        result = CliRunner().invoke(cli, [*command, "-q"])
        assert result.exit_code == 0, result.output
    loops = [c for c in json.loads(result.stdout)["checks"] if c["kind"] == "closed-loop"]
    assert {c["format"] for c in loops} == {"onnx", "tflite"}
    assert all(c["passed"] and c["draws"] == 120 and not c["mismatched"] for c in loops)


# Damage


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "jax_0_10" / "fixed", tmp_path / "saved"))


def refusal(folder: Path) -> str:
    with pytest.raises(SourceError) as caught:
        load_model(str(folder), TRUSTED)
    return str(caught.value)


def edited(folder: Path, edit: Callable[[Any], None]) -> str:
    """What reading says after `edit` of the SavedModel's message."""
    path = folder / "saved_model.pb"
    saved_model = messages.parse("SavedModel", path.read_bytes(), "x")
    edit(saved_model.meta_graphs[0])
    path.write_bytes(saved_model.SerializeToString())
    return refusal(folder)


def payloads(meta: Any) -> list[Any]:
    return [n for f in meta.graph_def.library.function for n in f.node_def if n.op == "XlaCallModule"]


def test_another_op_is_named(saved: Path) -> None:
    def edit(meta: Any) -> None:
        next(n for f in meta.graph_def.library.function for n in f.node_def if n.op == "Identity").op = "Cumsum"

    assert "Cumsum (" in edited(saved, edit)


def test_what_needs_tensorflow_is_refused(saved: Path) -> None:
    def calls_back(meta: Any) -> None:
        for node in payloads(meta):
            node.attr["function_list"].list.func.add(name="f")

    assert "calls back into TensorFlow (jax2tf.call_tf)" in edited(saved, calls_back)


def test_a_newer_calling_convention(saved: Path) -> None:
    def edit(meta: Any) -> None:
        for node in payloads(meta):
            node.attr["version"].i = 99

    assert "XlaCallModule of version 99, and jax" in edited(saved, edit)


def test_no_signatures(saved: Path) -> None:
    assert "has no signatures" in edited(saved, lambda meta: meta.ClearField("signature_def"))


def test_functions_that_call_themselves(saved: Path) -> None:
    def edit(meta: Any) -> None:
        for function in meta.graph_def.library.function:
            for node in function.node_def:
                if node.op == "StatefulPartitionedCall":
                    node.attr["f"].func.name = function.signature.name

    assert "call each other more than 50 deep" in edited(saved, edit)


def test_a_node_that_feeds_itself(saved: Path) -> None:
    def edit(meta: Any) -> None:
        for function in meta.graph_def.library.function:
            for node in function.node_def:
                if node.op == "Identity":
                    node.input[0] = node.name

    assert "nested too deeply" in edited(saved, edit)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index"])
def test_truncated(saved: Path, name: str, part: float) -> None:
    path = saved / name
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(SourceError):
        load_model(str(saved), TRUSTED)


def test_a_flipped_bit_in_a_weight(saved: Path) -> None:
    path = saved / "variables" / "variables.data-00000-of-00001"
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    assert "the checksum does not fit" in refusal(saved)
    path.write_bytes(data[:100])
    assert "ends before it does" in refusal(saved)
    path.unlink()
    assert "cannot read" in refusal(saved)


def test_a_flipped_bit_in_the_index(saved: Path) -> None:
    path = saved / "variables" / "variables.index"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert "the checksum of a block does not fit" in refusal(saved)


def test_a_variable_that_is_not_stored(saved: Path) -> None:
    def edit(meta: Any) -> None:
        meta.saver_def.restore_op_name = ""

    assert "nothing says where the value of the variable" in edited(saved, edit)


def test_checksums() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA
    # Above the size from which numpy works in lanes, with a remainder, against the definition.
    data = np.random.default_rng(0).integers(0, 256, 3 * 4096 + 5, np.uint8).tobytes()
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    assert crc32c(data) == state ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"dtype": 1, "shape": [2, 2], "tensor_content": np.arange(4, dtype="f4").tobytes()}, [[0, 1], [2, 3]]),
        ({"dtype": 3, "shape": [3], "int_val": [7]}, [7, 7, 7]),
        ({"dtype": 10, "shape": [], "bool_val": [True]}, True),
        ({"dtype": 19, "shape": [2], "half_val": [0x3C00, 0x4000]}, [1, 2]),
        ({"dtype": 1, "shape": [2]}, [0, 0]),
        ({"dtype": 1, "shape": [0]}, []),
    ],
)
def test_constants(fields: dict[str, Any], wanted: Any) -> None:
    np.testing.assert_array_equal(messages.array_of(tensor(fields), "c"), wanted)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": 7, "shape": [], "string_val": [b"x"]}, "dtype 7 has no counterpart in JAX"),
        ({"dtype": 1, "shape": [2**40, 2**40]}, "a constant of"),
        ({"dtype": 1, "shape": [2], "float_val": [1, 2, 3]}, "has 3 elements, and its shape"),
    ],
)
def test_constants_that_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        messages.array_of(tensor(fields), "c")


def tensor(fields: dict[str, Any]) -> Any:
    found = messages.parse("TensorProto", b"", "c")
    found.dtype = fields["dtype"]
    for size in fields["shape"]:
        found.tensor_shape.dim.add(size=size)
    for name, value in fields.items():
        if name == "tensor_content":
            found.tensor_content = value
        elif name.endswith("_val"):
            getattr(found, name).extend(value)
    return found


def test_the_checkpoint_alone() -> None:
    stored = checkpoint.opened(FIXTURES / "jax_0_10" / "fixed" / "variables" / "variables")
    with pytest.raises(SourceError, match="there is no such variable"):
        stored.read("nothing")
