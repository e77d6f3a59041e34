"""What reports carry for people to look at: series, margins, rewrites, interfaces, artifacts."""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import opcompat
from opcompat.comparison import _bounded
from opcompat.report import MARGIN_EDGES, SERIES, Report


def start(params: Any) -> Any:
    return {"h": jnp.zeros((1, 4))}


def act(params: Any, key: Any, obs: Any, state: Any, unused: Any) -> Any:
    with jax.named_scope("core"):
        h = jnp.tanh(obs @ params["w"] + state["h"]) * jnp.exp(obs[:, :1])
    return jax.random.categorical(key, h), {"h": h}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Report:
    weights = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    args = (jax.random.key(0), jnp.zeros((1, 3)), {"h": jnp.zeros((1, 4))}, jnp.zeros(2))
    model = opcompat.Model(
        name="tiny",
        params={"w": weights},
        entry_points={
            "start": opcompat.EntryPoint(start, outputs=("state",)),
            "act": opcompat.EntryPoint(
                act, args, outputs=("action", "state"), feedback={"state": "state"}, init={"state": "start.state"}
            ),
        },
    )
    bundle, report = opcompat.convert(model, tmp_path_factory.mktemp("tiny") / "dist", steps=12)
    assert '"series"' not in (Path(bundle.path) / "manifest.json").read_text().replace('"series": []', "")
    return report


def test_the_interface_names_keys_state_and_what_is_not_used(converted: Report) -> None:
    face = converted.interfaces["act"]
    assert [port.name for port in face.inputs] == ["key", "obs", "state.h", "unused"]
    key, obs, state, unused = face.inputs
    assert (key.key, key.dtype, key.shape) == ("threefry2x32", "uint32", (2,))
    assert (state.start, obs.start) == ("start.state.h", "")
    assert (obs.used, unused.used) == (True, False)
    assert [port.feeds for port in face.outputs] == ["", "state.h"]
    assert face.dtypes == ("float32", "uint32")


def test_the_closed_loop_has_an_error_for_each_step(converted: Report) -> None:
    loops = [check for check in converted.checks if check.kind == "closed-loop"]
    assert len(loops) == 2
    errors: tuple[float, ...] = ()
    for check in converted.checks:
        for output in check.outputs:
            assert len(output.series) == (12 if check.kind == "closed-loop" else 0)
            if check.kind == "closed-loop" and output.name == "state.h":
                assert max(output.series) == output.error
                errors += output.series
    assert any(errors)


def test_every_decision_has_a_margin(converted: Report) -> None:
    steps = [check for check in converted.checks if check.kind == "step" and check.entry_point == "act"]
    assert len(steps) == 2
    for check in steps:
        assert len(check.margins) == len(MARGIN_EDGES) + 1
        assert sum(check.margins) == check.draws == 12


def test_ops_and_primitives_add_up(converted: Report) -> None:
    for target, artifact in zip(converted.targets, converted.artifacts, strict=True):
        assert sum(target.ops.values()) == sum(target.nodes.values()) == artifact.ops > 0
        totals = [sum(by.get(verdict, 0) for by in target.primitives.values()) for verdict in target.counts]
        assert totals == list(target.counts.values())
        assert target.primitives["tanh"] == {"native": 1}


def test_artifacts_count_their_files(converted: Report) -> None:
    sizes = {file.path: file.bytes for file in converted.files}
    onnx, tflite = converted.artifacts
    assert onnx.bytes == sum(size for path, size in sizes.items() if path.startswith("onnx/"))
    assert tflite.bytes == sizes["tflite/model.tflite"]
    assert onnx.opset is not None
    assert tflite.opset is None


def test_a_rule_shows_what_it_changed(converted: Report) -> None:
    (litert,) = [target for target in converted.targets if target.target == "litert"]
    assert litert.rules
    for rule in litert.rules:
        assert len(rule.before) <= 4100
        assert rule.before != rule.after
    threefry = next(rule for rule in litert.rules if rule.id == "OC101")
    assert "random_bits" in threefry.before
    assert "random_bits" not in threefry.after


def test_findings_have_a_scope_without_lines(converted: Report) -> None:
    assert {finding.scope for target in converted.targets for finding in target.findings} == {"act"}


def test_scopes_are_paths() -> None:
    def function(params: Any, x: Any) -> Any:
        with jax.named_scope("actor"), jax.named_scope("head"):
            return jnp.linalg.eigh(x)[0]

    model = opcompat.Model("m", None, {"f": opcompat.EntryPoint(function, (jnp.eye(3),))})
    (finding,) = [f for f in opcompat.scan(model, ["litert"]).targets[0].findings if f.primitive == "eigh"]
    assert finding.scope == f"actor/head:{finding.function}"


def test_a_long_series_keeps_its_peaks() -> None:
    values = [0.0] * 1000
    values[500], values[700] = 3.0, math.nan
    short = _bounded(values)
    assert len(short) == SERIES
    assert max(v for v in short if not math.isnan(v)) == 3.0
    assert sum(map(math.isnan, short)) == 1
