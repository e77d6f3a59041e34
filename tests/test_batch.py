"""Further batch sizes: entry points NAME@N with the same function and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opcompat import EntryPoint, Model, api, runtime
from opcompat.batch import sizes_of, with_batches
from opcompat.errors import ConfigError

W = np.linspace(-1, 1, 512 * 64, dtype=np.float32).reshape(512, 64)


def start(params: Any) -> dict[str, jax.Array]:
    return {"state": jnp.tanh(params["bias"])[None]}


def policy(params: Any, key: jax.Array, obs: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    hidden = jnp.tanh(obs @ params["w"] + state)
    return jax.random.categorical(key, hidden), 0.5 * hidden


def model() -> Model:
    args = (jax.random.key(0), jnp.zeros((1, 512)), jnp.zeros((1, 64)))
    return Model(
        "small",
        {"w": W, "bias": np.linspace(0, 1, 64, dtype=np.float32)},
        {
            "start": EntryPoint(start),
            "policy": EntryPoint(
                policy,
                args=args,
                outputs=("action", "state"),
                feedback={"state": "state"},
                init={"state": "start.state"},
            ),
        },
    )


def test_entry_points_are_added_for_sizes_that_the_examples_do_not_have() -> None:
    wide = with_batches(model(), [1, 16])
    assert list(wide.entry_points) == ["start", "policy", "policy@16"]
    key, obs, state = wide.entry_points["policy@16"].args
    assert key.shape == ()
    assert (obs.shape, state.shape) == ((16, 512), (16, 64))
    assert sizes_of(model(), tuple(wide.entry_points)) == (16,)
    assert list(with_batches(model(), []).entry_points) == ["start", "policy"]


def test_raw_keys_are_no_batch_whatever_they_are_called() -> None:
    def act(params: Any, obs: jax.Array, state: dict[str, jax.Array]) -> dict[str, Any]:
        seed, now = jax.random.split(state["seed"])
        drawn = jax.random.categorical(now, obs @ params + state["hidden"])
        return {"action": drawn, "state": {"seed": seed, "hidden": state["hidden"]}}

    state = {"seed": jax.random.PRNGKey(0), "hidden": jnp.zeros((1, 3))}
    example = (jnp.zeros((1, 4)), state)
    entry = EntryPoint(act, example, feedback={"state": "state"}, init={"state": state})
    wide = with_batches(Model("raw", jnp.ones((4, 3)), {"act": entry}), [5]).entry_points["act@5"]
    obs, given = wide.args
    assert (obs.shape, given["seed"].shape, given["hidden"].shape) == ((5, 4), (2,), (5, 3))
    words = EntryPoint(lambda params, x: x + 1, (jnp.zeros(2, jnp.uint32),), ("y",), names=("key",))
    assert with_batches(Model("no_key", (), {"f": words}), [5]).entry_points["f@5"].args[0].shape == (5,)


def test_a_state_without_a_batch_is_repeated() -> None:
    first = with_batches(model(), [16]).entry_points["policy@16"].init["state"]
    assert first.shape == (16, 64)
    once = jax.jit(start)(model().params)["state"]
    assert np.array_equal(first, np.repeat(once, 16, axis=0))


def test_weights_are_shared_and_both_sizes_verify(tmp_path: Path) -> None:
    alone, _ = api.convert(model(), tmp_path / "alone", steps=4)
    both, report = api.convert(model(), tmp_path / "both", batch=[1, 16], steps=20)
    assert {c.entry_point for c in report.checks} == {"start", "policy", "policy@16"}
    assert all(c.passed for c in report.checks)

    def weights(path: Path) -> int:
        return (path / "onnx" / "weights.bin").stat().st_size

    assert weights(both.path) < 1.01 * weights(alone.path)
    step = runtime.load(both.path).entry_point("policy@16")
    assert step.inputs[1].shape == (16, 512)
    assert api.verify(both, model(), steps=5).ok


def test_arguments_without_a_common_batch_are_refused() -> None:
    args = (jnp.zeros((1, 4)), jnp.zeros((3, 4)))
    odd = Model("odd", {}, {"add": EntryPoint(lambda params, a, b: a + b, args=args, names=("a", "b"))})
    with pytest.raises(ConfigError, match=r"different first dimensions \[1, 3\]"):
        with_batches(odd, [16])


def test_names_of_the_user_are_kept() -> None:
    entry = model().entry_points["start"]
    own = Model("own", model().params, {**model().entry_points, "policy@16": entry})
    assert sizes_of(own, ("start", "policy", "policy@16", "policy@4")) == (4,)
    with pytest.raises(ConfigError, match="'policy@16' of its own"):
        with_batches(own, [16])


def test_sizes_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="positive"):
        with_batches(model(), [0])
