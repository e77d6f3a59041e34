"""A policy that nobody here wrote: brax's PPO, normalizer and tanh-squashed normal included, on both runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.training.acme import running_statistics, specs
from brax.training.agents.ppo import networks as ppo_networks

from opcompat import api
from opcompat.model import EntryPoint, Model

OBSERVATIONS, ACTIONS, STEPS = 27, 8, 200


def brax_model(deterministic: bool) -> Model:
    networks = ppo_networks.make_ppo_networks(
        OBSERVATIONS, ACTIONS, preprocess_observations_fn=running_statistics.normalize
    )
    make = ppo_networks.make_inference_fn(networks)
    seen = jax.random.normal(jax.random.key(0), (64, OBSERVATIONS)) * 3 + 1
    normalizer = running_statistics.init_state(specs.Array((OBSERVATIONS,), jnp.dtype("float32")))
    params = (running_statistics.update(normalizer, seen), networks.policy_network.init(jax.random.PRNGKey(1)))

    def act(params: Any, observation: Any, key: Any) -> Any:
        return make((*params, None), deterministic=deterministic)(observation, key)

    args = (jnp.zeros((1, OBSERVATIONS)), jax.random.PRNGKey(0))
    return Model("brax_ppo", params, {"act": EntryPoint(act, args, outputs=("action", "extras"))})


@pytest.mark.parametrize("deterministic", [True, False])
def test_scan_convert_and_verify(deterministic: bool, tmp_path: Path) -> None:
    model = brax_model(deterministic)
    scanned = api.scan(model)
    assert scanned.ok
    assert {t.target: (t.counts["unsupported"], t.counts["unknown"]) for t in scanned.targets} == {
        "onnxruntime": (0, 0),
        "litert": (0, 0),
    }
    fired = {r.id for t in scanned.targets for r in t.rules}
    assert fired >= (set() if deterministic else {"OC100", "OC101"})

    bundle, report = api.convert(model, tmp_path / "dist", steps=STEPS)
    assert report.ok
    assert {(c.format, c.kind) for c in report.checks if c.passed} >= {
        (form, kind) for form in ("onnx", "tflite") for kind in ("step", "boundary")
    }
    steps = [c for c in report.checks if c.kind == "step"]
    assert {c.steps for c in steps} == {STEPS}
    names = {"action"} if deterministic else {"action", "extras.log_prob", "extras.raw_action"}
    assert all({o.name for o in c.outputs} >= names for c in steps)
    assert [x.key for x in bundle.manifest.entry_points["act"].inputs] == ["", "" if deterministic else "threefry2x32"]

    recorded = np.load(tmp_path / "dist" / "reference" / "act.npz")
    actions = recorded["outputs/action"]
    assert len(np.unique(actions.ravel())) == actions.size
    assert (np.abs(actions) < 1).all()
    if not deterministic:
        notes = [c.note for c in report.checks if c.kind == "key"]
        assert notes == ["", ""], "the key reaches the draws"
