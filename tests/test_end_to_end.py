"""The example and a policy full of control flow: scanned, converted, and proven in both runtimes."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as tflite
from ai_edge_litert.interpreter import Interpreter
from click.testing import CliRunner, Result
from conftest import QUICK, ROOT, SEEDS, STEPS, Converted
from jax import lax

from opcompat import api, conversion
from opcompat.bundle import Bundle
from opcompat.cli import cli
from opcompat.errors import UnsupportedError
from opcompat.model import EntryPoint, Model
from opcompat.report import Check, Report
from opcompat.runtime import load

FORMATS = ("onnx", "tflite")
ENTRY_POINTS = ("init_policy", "policy", "imagine", "value")
STATE = {"state.action", "state.deter", "state.stoch"}
INPUTS = {
    "init_policy": set(),
    "policy": {"key", "obs.vector", "obs.reward", "obs.is_first", "obs.is_last", "obs.is_terminal", *STATE},
    "imagine": {"key", "action", *STATE},
    "value": STATE,
}
OUTPUTS = {
    "init_policy": STATE,
    "policy": {"action", "log_prob", "latent", *STATE},
    "imagine": {"reward", "cont", "latent", *STATE},
    "value": {"value"},
}


@pytest.fixture(scope="module", params=["discrete", "continuous"])
def converted(request: pytest.FixtureRequest) -> Converted:
    found: Converted = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def verified(discrete: Converted, continuous: Converted) -> Mapping[str, Report]:
    """Both kinds of action over three seeds: one by verify, the other as part of convert."""
    return {
        "discrete": api.verify(discrete.path, discrete.model, steps=STEPS, seeds=SEEDS),
        "continuous": continuous.report,
    }


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# The bundle


def test_the_files_of_a_bundle(converted: Converted) -> None:
    assert set(contents(converted.path)) == {
        "manifest.json",
        "report.html",
        "report.json",
        "onnx/weights.bin",
        "tflite/model.tflite",
        *(f"onnx/{name}.onnx" for name in ENTRY_POINTS),
        *(f"reference/{name}.npz" for name in ENTRY_POINTS),
    }
    Bundle.open(converted.path).check_files()
    assert json.loads((converted.path / "report.json").read_text())["ok"] is True
    assert "dreamer" in (converted.path / "report.html").read_text()


def test_names_in_the_manifest(converted: Converted) -> None:
    found = converted.bundle.manifest.entry_points
    assert tuple(found) == ENTRY_POINTS
    for name, info in found.items():
        assert {x.name for x in info.inputs} == INPUTS[name]
        assert {x.name for x in info.outputs} == OUTPUTS[name]
    assert found["policy"].feedback == {name: name for name in sorted(STATE)}
    assert {n: i.output for n, i in found["policy"].init.items()} == {n: f"init_policy.{n}" for n in STATE}
    assert found["policy"].input("key").key == "threefry2x32"


def test_names_in_onnx(converted: Converted) -> None:
    for name in ENTRY_POINTS:
        graph = onnx.load(converted.path / "onnx" / f"{name}.onnx", load_external_data=False).graph
        assert {x.name for x in graph.input} == INPUTS[name]
        assert {x.name.removesuffix(".next") for x in graph.output} == OUTPUTS[name]


def test_names_in_tflite(converted: Converted) -> None:
    interpreter = Interpreter(model_path=str(converted.path / "tflite" / "model.tflite"))
    found = interpreter.get_signature_list()
    assert set(found) == set(ENTRY_POINTS)
    for name, signature in found.items():
        assert set(signature["inputs"]) == INPUTS[name]
        assert set(signature["outputs"]) == OUTPUTS[name]


# Weights


def parameter_bytes(model: Model) -> int:
    return sum(np.asarray(x).nbytes for x in jax.tree.leaves(model.params))


def test_weights_are_stored_once_in_onnx(converted: Converted) -> None:
    size = (converted.path / "onnx" / "weights.bin").stat().st_size
    assert size <= 1.05 * parameter_bytes(converted.model)
    for name in ENTRY_POINTS:
        graph = onnx.load(converted.path / "onnx" / f"{name}.onnx", load_external_data=False).graph
        inside = sum(len(x.raw_data) for x in graph.initializer)
        assert inside < 4096, "constants only"


def test_weights_are_stored_once_in_tflite(converted: Converted) -> None:
    data = (converted.path / "tflite" / "model.tflite").read_bytes()
    model = tflite.Model.GetRootAs(data)
    sizes = [model.Buffers(i).DataLength() or model.Buffers(i).Size() for i in range(model.BuffersLength())]
    assert sum(sizes) <= 1.05 * parameter_bytes(converted.model)


def test_the_full_size_is_stored_once(at_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 million parameters, beside which nothing else counts. The proof is left out: only sizes are looked at."""
    import dreamer

    monkeypatch.setattr(conversion, "run_checks", lambda *_, **__: ())
    monkeypatch.setattr(conversion, "record", lambda *_, **__: None)
    model = dreamer.model()
    bundle, _ = api.convert(model, tmp_path / "dist", steps=1)
    for form in FORMATS:
        size = sum(len(data) for data in contents(bundle.path / form).values())
        assert parameter_bytes(model) < size <= 1.05 * parameter_bytes(model)


def test_two_conversions_give_the_same_bytes(discrete: Converted, tmp_path: Path) -> None:
    """The other one in a process of its own, whose hashes fall otherwise, by the command line."""
    command = (sys.executable, "-c", "from opcompat.cli import main; main()", "convert", "examples/dreamer")
    options = ("--arg", "size=small", "--to", "onnx,tflite", "--steps", str(QUICK), "--out", str(tmp_path / "dist"))
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, other = contents(discrete.path), contents(tmp_path / "dist")
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []


# Verification


def kinds(checks: tuple[Check, ...]) -> set[tuple[str, str]]:
    return {(c.entry_point, c.kind) for c in checks}


@pytest.mark.parametrize("action", ["discrete", "continuous"])
def test_every_step_and_the_closed_loop_act_like_jax(verified: Mapping[str, Report], action: str) -> None:
    report = verified[action]
    assert report.ok
    for form in FORMATS:
        checks = tuple(c for c in report.checks if c.format == form)
        assert all(c.passed and c.binding for c in checks)
        assert {(n, "step") for n in ENTRY_POINTS} <= kinds(checks)
        for name in ("policy", "imagine"):
            assert {(name, "closed-loop"), (name, "key"), (name, "boundary")} <= kinds(checks)
            for check in (c for c in checks if c.entry_point == name and c.kind in ("step", "closed-loop")):
                assert (check.steps, check.seeds) == (STEPS, SEEDS)
                # Eight latents; if discrete, two choices of an action's class; in imagine, the reward's sign (symexp).
                decisions = (10 if action == "discrete" else 8) + (name == "imagine")
                assert check.draws == decisions * STEPS * SEEDS
                assert check.mismatched == 0
                exact = {o.name: o.error for o in check.outputs if o.tolerance == 0}
                assert exact["latent"] == 0
                assert check.kind == "step" or check.sensitivity < 1e-5


# Scan


def invoke(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


@pytest.fixture(scope="module")
def scanned(at_root: Path) -> dict[str, Any]:
    done = invoke("scan", "examples/dreamer", "--arg", "size=small", "--format", "json", "-q")
    assert done.exit_code == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("index", [0, 1])
def test_scan_names_sampling_keys_and_numerics(scanned: dict[str, Any], index: int) -> None:
    target = scanned["targets"][index]
    assert target["ok"] is True
    assert target["counts"]["unsupported"] == target["counts"]["unknown"] == 0
    assert target["counts"]["native"] > 300
    found = {f["primitive"]: f for f in target["findings"]}
    assert {f["verdict"] for f in target["findings"]} == {"rewritten"}
    assert {f["file"] for f in target["findings"]} <= {
        "examples/dreamer/dreamer.py",
        "examples/dreamer/dreamer_nets.py",
    }
    for primitive, rule, text in (
        ("random_split", "OC100", "jax.random.split(key)"),
        ("random_bits", "OC101", "jax.random.categorical("),
        ("expm1", "OC503", "jnp.expm1("),
    ):
        finding = found[primitive]
        assert rule in finding["rules"]
        assert text in (ROOT / finding["file"]).read_text().splitlines()[finding["line"] - 1]
    assert {f["target"] for f in scanned["targets"]} == {"onnxruntime", "litert"}


# Refusal


def decompose(params: Any, x: Any) -> Any:
    values, vectors = jnp.linalg.eigh(x)
    return {"values": values, "vectors": vectors @ x}


EIGH_LINE = inspect.getsourcelines(decompose)[1] + 1


def eigen_model() -> Model:
    return Model("eigen", (), {"decompose": EntryPoint(decompose, (jnp.eye(3),))})


def test_what_stays_unsupported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        api.convert(eigen_model(), tmp_path / "dist")
    text = str(caught.value)
    assert caught.value.exit_code == 1
    for target in ("onnxruntime", "litert"):
        assert f"{target}: eigh float32[3,3] at " in text
    assert f"{Path(__file__).name}:{EIGH_LINE}: " in text
    assert "next: " in text
    report = caught.value.report
    assert report is not None
    assert not report.ok
    for judged in report.targets:
        stuck = [f for f in judged.findings if f.verdict == "unsupported"]
        assert [(f.primitive, f.operands, f.line) for f in stuck] == [("eigh", "float32[3,3]", EIGH_LINE)]
        assert stuck[0].reason
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_refuses_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    done = invoke("convert", f"{__name__}:eigen_model", "--to", "onnx", "--out", str(tmp_path / "dist"))
    assert done.exit_code == 1
    shown = done.stdout + done.stderr
    assert "eigh float32[3,3]" in shown
    assert f"test_end_to_end.py:{EIGH_LINE}" in shown
    assert list(tmp_path.iterdir()) == []
    assert invoke("scan", f"{__name__}:eigen_model").exit_code == 1


# Control flow


@jax.custom_jvp
def safe_sqrt(x: Any) -> Any:
    return jnp.sqrt(jnp.maximum(x, 0.0))


safe_sqrt.defjvp(lambda primals, tangents: (safe_sqrt(*primals), tangents[0]))


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x * 2.0


clipped.defvjp(lambda x: (clipped(x), None), lambda _, g: (jnp.clip(g, -1, 1),))


@jax.checkpoint
def block(kernel: Any, x: Any) -> Any:
    return jnp.tanh(x @ kernel)


def flow(params: Any, key: Any, x: Any, mode: Any, state: Any) -> Any:
    scan_key, while_key, fori_key, cond_key = jax.random.split(key, 4)

    def recur(carry: Any, step: Any) -> Any:
        noise_key, row = step
        carry = jnp.tanh(carry @ params["kernel"] + row + 0.1 * jax.random.normal(noise_key, carry.shape))
        return carry, carry.sum()

    def accept(loop: Any) -> Any:
        index, total, key = loop
        key, sub = jax.random.split(key)
        return index + 1, total + jax.random.uniform(sub, total.shape), key

    state, sums = lax.scan(recur, state, (jax.random.split(scan_key, 5), jnp.stack([x] * 5)))
    backwards, _ = lax.scan(lambda c, row: (c * 0.5 + row, None), state, params["rows"], reverse=True)
    tries, total, _ = lax.while_loop(
        lambda s: (s[0] < 10) & (s[1].sum() < 3.0), accept, (jnp.int32(0), jnp.zeros(3), while_key)
    )
    drawn = lax.fori_loop(
        0, 4, lambda i, a: a + jax.random.uniform(jax.random.fold_in(fori_key, i), (2,)), jnp.zeros(2)
    )
    picked = lax.switch(mode[0], [lambda y: y, lambda y: -y, lambda y: y @ params["kernel"]], state)
    flag = lax.cond(x.sum() > 0, lambda k: jax.random.bernoulli(k, 0.3, (4,)), lambda k: jnp.zeros(4, bool), cond_key)
    action = jax.jit(lambda y: y * 2.0 + 1.0)(block(params["kernel"], clipped(safe_sqrt(picked))))
    return {
        "action": action, "sums": sums, "backwards": backwards, "tries": tries,
        "total": total, "drawn": drawn, "flag": flag, "state": state,
    }  # fmt: skip


def flow_model() -> Model:
    rng = np.random.default_rng(0)
    params = {
        "kernel": jnp.asarray(rng.standard_normal((4, 4)) * 0.3, jnp.float32),
        "rows": jnp.asarray(rng.standard_normal((6, 4)), jnp.float32),
    }
    zeros = np.zeros(4, np.float32)
    entry = EntryPoint(
        flow,
        (jax.random.key(0), zeros, np.zeros(1, np.int32), zeros),
        feedback={"state": "state"},
        init={"state": zeros},
        inputs=lambda rng: (0, rng.standard_normal(4), rng.integers(0, 3, 1), zeros),
    )
    return Model("flow", params, {"policy": entry})


def test_control_flow(tmp_path: Path) -> None:
    model = flow_model()
    _, report = api.convert(model, tmp_path / "dist", steps=50, seeds=2)
    assert [(c.format, c.kind) for c in report.checks if c.passed and c.binding] == [
        (form, kind) for form in FORMATS for kind in ("step", "closed-loop", "key", "boundary")
    ]
    recorded = np.load(tmp_path / "dist" / "reference" / "policy.npz")
    assert len(set(recorded["outputs/tries"].tolist())) > 1, "the loop runs a different number of times"
    assert set(recorded["inputs/mode"].ravel().tolist()) == {0, 1, 2}
    assert 0 < recorded["outputs/flag"].mean() < 0.5


def test_scalars_among_the_weights(tmp_path: Path) -> None:
    def scaled(params: Any, x: Any) -> Any:
        return {"y": x * params["scale"] + params["shift"]}

    entry = EntryPoint(scaled, (jnp.zeros(3),))
    _, report = api.convert(
        Model("scaled", {"scale": jnp.float32(3), "shift": 0.5}, {"f": entry}), tmp_path / "dist", steps=3
    )
    assert {c.format for c in report.checks if c.passed} == set(FORMATS)


# On the device


@pytest.mark.parametrize("form", FORMATS)
def test_the_bundle_steps_and_replays(discrete: Converted, form: str) -> None:
    loaded = load(discrete.path, format=form)
    loaded.replay().raise_if_failed()
    policy = loaded.entry_point("policy")
    recorded = np.load(discrete.path / "reference" / "policy.npz")
    for step in range(QUICK):
        given = {x.name: recorded[f"inputs/{x.name}"][step] for x in policy.inputs if x.name not in STATE}
        got = policy.step(given)
        np.testing.assert_array_equal(got["latent"], recorded["outputs/latent"][step])
        np.testing.assert_array_equal(got["action"], recorded["outputs/action"][step])
    report = api.verify(discrete.path)
    assert report.ok
    assert {c.kind for c in report.checks} == {"replay"}
