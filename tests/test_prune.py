"""Inputs that no output depends on: kept by default, left out on request, in both formats and under verification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from click.testing import CliRunner

from opcompat import api, runtime
from opcompat.cli import cli
from opcompat.conversion import trace_all
from opcompat.model import EntryPoint, Model
from opcompat.prune import reach, unused

OBS = {"image": jnp.zeros((1, 4)), "weight": jnp.zeros(1), "done": jnp.zeros((1,), bool)}


def recurrent(params: Any, key: jax.Array, obs: Any, state: Any) -> tuple[jax.Array, Any]:
    """Neither the key nor obs.weight nor state.age reaches an output; the loop carries obs.done to nowhere."""
    jax.random.normal(key)

    def body(_: int, carry: Any) -> Any:
        hidden, done = carry
        return jnp.tanh(hidden @ params["w"] + obs["image"]), ~done

    hidden, _ = jax.lax.fori_loop(0, 3, body, (state["hidden"], obs["done"]))
    return hidden.sum(-1), {"hidden": hidden, "age": hidden[0, 0]}


def model() -> Model:
    params = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)) / 2, jnp.float32)}
    state = {"hidden": jnp.zeros((1, 4)), "age": jnp.zeros(())}

    def start(params: Any) -> Any:
        return {"state": state}

    entry = EntryPoint(
        recurrent,
        (jax.random.key(0), OBS, state),
        outputs=("action", "state"),
        feedback={"state": "state"},
        init={"state": "start.state"},
    )
    return Model("pruned", params, {"start": EntryPoint(start), "act": entry})


GONE = ("key", "obs.done", "obs.weight", "state.age")
KEPT = ["obs.image", "state.hidden"]


def names(bundle: Any) -> list[str]:
    return [leaf.name for leaf in bundle.manifest.entry_points["act"].inputs]


def test_reach_looks_into_loops_and_branches() -> None:
    one = trace_all(model())["act"]
    assert unused(one) == GONE
    assert reach(one) == {"action": set(KEPT), "state.hidden": set(KEPT), "state.age": set(KEPT)}

    def act(params: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        _, last = jax.lax.scan(lambda carry, x: (carry + x, carry * 2), a, b)
        picked = jax.lax.cond(c > 0, lambda: last[0], lambda: last[1])
        counted = jax.lax.while_loop(lambda n: n[0] < c, lambda n: (n[0] + 1, n[1] * 2), (jnp.int32(0), d))
        return {"scan": last, "cond": picked, "count": counted[0], "rest": counted[1]}

    args = (jnp.zeros(()), jnp.zeros(3), jnp.int32(0), jnp.zeros(()))
    found = reach(trace_all(Model("m", {}, {"act": EntryPoint(act, args)}))["act"])
    assert {k: "".join(sorted(v)) for k, v in found.items()} == {
        "scan": "ab",
        "cond": "abc",
        "count": "c",
        "rest": "cd",
    }


def in_files(path: Path) -> list[set[str]]:
    """The inputs of act as the files themselves have them: ONNX's, and those of TFLite's signature."""
    onnx = onnxruntime.InferenceSession(path / "onnx" / "act.onnx")
    tflite = Interpreter(str(path / "tflite" / "model.tflite"))
    return [{x.name for x in onnx.get_inputs()}, set(tflite.get_signature_list()["act"]["inputs"])]


@pytest.mark.parametrize("sampling", ["exact", "noise"])
def test_unused_inputs_stay_by_default_and_go_on_request(sampling: str, tmp_path: Path) -> None:
    bundle, report = api.convert(model(), tmp_path / "whole", steps=5, sampling=sampling)
    assert report.ok
    assert names(bundle) == [n for n in sorted([*KEPT, *GONE]) if sampling == "exact" or n != "key"]
    assert bundle.manifest.entry_points["act"].pruned == ()
    assert in_files(tmp_path / "whole") == [set(names(bundle))] * 2

    bundle, report = api.convert(model(), tmp_path / "pruned", steps=5, sampling=sampling, prune_inputs=True)
    assert report.ok
    assert {c.kind for c in report.checks} >= {"step", "closed-loop", "boundary"}
    assert names(bundle) == KEPT
    assert in_files(tmp_path / "pruned") == [set(KEPT)] * 2
    info = bundle.manifest.entry_points["act"]
    assert info.pruned == tuple(n for n in GONE if sampling == "exact" or n != "key")
    assert info.feedback == {"state.hidden": "state.hidden"}
    assert {leaf.name for leaf in info.outputs} == {"action", "state.hidden", "state.age"}
    assert bundle.manifest.entry_points["start"].pruned == ()
    assert api.verify(bundle, model(), steps=5).ok
    assert api.verify(tmp_path / "pruned").ok
    for form in ("onnx", "tflite"):
        step = runtime.load(tmp_path / "pruned", format=form).entry_point("act").step
        assert set(step({"obs.image": np.ones((1, 4), np.float32)})) == {"action", "state.hidden", "state.age"}


def test_nothing_to_prune_changes_nothing(tmp_path: Path) -> None:
    def act(params: Any, x: Any) -> Any:
        return x + 1

    tiny = Model("tiny", {}, {"act": EntryPoint(act, (jnp.zeros(2),))})
    for name, prune in (("a", False), ("b", True)):
        api.convert(tiny, tmp_path / name, steps=2, prune_inputs=prune)
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    out = tmp_path / "dist"
    done = CliRunner().invoke(
        cli, ["convert", "tests.test_prune:model", "--to", "onnx,tflite", "--out", str(out), "--prune-inputs", "-v"]
    )
    assert done.exit_code == 0, done.output
    assert "act: leaves out key, obs.done, obs.weight, state.age, which reach no output" in done.output
    assert CliRunner().invoke(cli, ["verify", str(out), "tests.test_prune:model", "--steps", "3"]).exit_code == 0
