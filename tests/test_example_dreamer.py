"""The example in examples/dreamer, by JAX alone: its contract, its resets, its draws, its stable loop."""

import importlib
import tomllib
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "dreamer"
ACTIONS = ["discrete", "continuous"]
SIZES = ["small", "full"]


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


@cache
def load(size: str, action: str, seed: int = 0) -> Any:
    return importlib.import_module("dreamer").model(size=size, action=action, seed=seed)


@cache
def jitted(size: str, action: str, name: str) -> Any:
    return jax.jit(load(size, action).entry_points[name].function)


def shapes(tree: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): (leaf.shape, str(leaf.dtype))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def step_key(step: int, seed: int = 0) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), step)


def observation(model: Any, seed: int, is_first: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    _, obs, _ = model.entry_points["policy"].args
    return {
        "vector": rng.standard_normal(obs["vector"].shape, dtype=np.float32),
        "reward": rng.standard_normal(obs["reward"].shape, dtype=np.float32),
        "is_first": np.array([is_first]),
        "is_last": np.array([False]),
        "is_terminal": np.array([False]),
    }


def assert_equal(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_the_configuration_names_the_factory_and_its_arguments() -> None:
    config = tomllib.loads((FOLDER / "opcompat.toml").read_text())
    module, function = config["factory"].split(":")
    model = getattr(importlib.import_module(module), function)(**config["factory_args"])
    assert model.name == "dreamer"
    assert list(model.entry_points) == ["init_policy", "policy", "imagine", "value"]


@pytest.mark.parametrize("arguments", [{"size": "huge"}, {"action": "both"}])
def test_unknown_arguments_are_refused(arguments: dict[str, str]) -> None:
    (value,) = arguments.values()
    with pytest.raises(ValueError, match=f"not '{value}'"):
        importlib.import_module("dreamer").model(**arguments)


@pytest.mark.parametrize("action", ACTIONS)
def test_sizes(action: str) -> None:
    count = {size: sum(x.size for x in jax.tree.leaves(load(size, action).params)) for size in SIZES}
    assert 8_000_000 <= count["full"] <= 12_000_000
    assert 50_000 <= count["small"] <= 100_000
    assert {x.dtype for x in jax.tree.leaves(load("full", action).params)} == {np.dtype(np.float32)}


def test_the_seed_decides_the_weights() -> None:
    make = importlib.import_module("dreamer").model
    assert_equal(make("small", seed=1).params, make("small", seed=1).params)
    one, two = (jax.tree.leaves(make("small", seed=seed).params) for seed in (1, 2))
    assert not any(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("size", "latents", "classes", "deter", "actions", "vector"), [
    ("full", 32, 32, 2048, 6, 48),
    ("small", 8, 8, 128, 4, 16),
])  # fmt: skip
@pytest.mark.parametrize("action", ACTIONS)
def test_shapes_dtypes_and_names(
    size: str, action: str, latents: int, classes: int, deter: int, actions: int, vector: int
) -> None:
    entry = load(size, action).entry_points
    params = load(size, action).params
    state = {
        "action": ((1,), "int32") if action == "discrete" else ((1, actions), "float32"),
        "deter": ((1, deter), "float32"),
        "stoch": ((1, latents, classes), "float32"),
    }
    latent = ((1, latents), "int32")

    def outputs(name: str) -> Any:
        out = jax.eval_shape(entry[name].function, params, *entry[name].args)
        return out if entry[name].outputs is None else dict(zip(entry[name].outputs, out, strict=True))

    key, obs, example_state = entry["policy"].args
    assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    assert shapes(obs) == {
        "is_first": ((1,), "bool"),
        "is_last": ((1,), "bool"),
        "is_terminal": ((1,), "bool"),
        "reward": ((1,), "float32"),
        "vector": ((1, vector), "float32"),
    }
    assert shapes(example_state) == state
    assert shapes(outputs("init_policy")) == {f"state.{name}": leaf for name, leaf in state.items()}
    assert shapes(outputs("policy")) == {
        "action": ((1, actions), "float32"),
        "log_prob": ((1,), "float32"),
        "latent": latent,
        **{f"state.{name}": leaf for name, leaf in state.items()},
    }
    assert shapes(outputs("imagine")) == {
        "reward": ((1,), "float32"),
        "cont": ((1,), "float32"),
        "latent": latent,
        **{f"state.{name}": leaf for name, leaf in state.items()},
    }
    assert shapes(outputs("value")) == {"value": ((1,), "float32")}
    for name in ("imagine", "value"):
        sampled = entry[name].inputs(np.random.default_rng(0))
        assert shapes(sampled) == shapes(entry[name].args)
        out = jitted(size, action, name)(params, *sampled)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(out))
    for name in ("policy", "imagine"):
        assert dict(entry[name].feedback) == {"state": "state"}
        assert dict(entry[name].init) == {"state": "init_policy.state"}


@pytest.mark.parametrize("action", ACTIONS)
def test_is_first_forgets_the_state(action: str) -> None:
    model, policy = load("small", action), jitted("small", action, "policy")
    initial = jitted("small", action, "init_policy")(model.params)["state"]
    _, _, _, state = policy(model.params, step_key(0), observation(model, 0), initial)
    first, later = observation(model, 1, is_first=True), observation(model, 1)
    reset = policy(model.params, step_key(1), first, state)
    assert_equal(reset, policy(model.params, step_key(1), first, initial))
    assert_equal(reset, policy(model.params, step_key(1), later, initial))
    after = policy(model.params, step_key(1), later, state)
    assert np.abs(after[3]["deter"] - reset[3]["deter"]).max() > 0.01


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("leaf", ["deter", "stoch", "action"])
def test_every_part_of_the_state_matters(action: str, leaf: str) -> None:
    model, policy = load("small", action), jitted("small", action, "policy")
    _, obs, state = model.entry_points["policy"].args
    other = jnp.roll(state[leaf], 1, axis=-1) if state[leaf].ndim > 1 else (state[leaf] + 1) % 4
    one = policy(model.params, step_key(0), obs, state)[3]["deter"]
    two = policy(model.params, step_key(0), obs, {**state, leaf: other})[3]["deter"]
    assert np.abs(one - two).max() > 1e-3


@pytest.mark.parametrize("action", ACTIONS)
def test_what_the_policy_looks_at(action: str) -> None:
    model, policy = load("small", action), jitted("small", action, "policy")
    _, obs, state = model.entry_points["policy"].args

    def changes(**fields: Any) -> int:
        """For how many of 50 keys other latents are drawn: the observation acts on nothing but the draws."""
        latents = [
            [policy(model.params, step_key(0, seed), seen, state)[2] for seen in (obs, {**obs, **fields})]
            for seed in range(50)
        ]
        return sum(bool((one != two).any()) for one, two in latents)

    assert changes(vector=-obs["vector"]) > 10
    assert changes(reward=obs["reward"] + 1) > 0
    before = policy(model.params, step_key(0), obs, state)
    for name in ("is_last", "is_terminal"):
        assert_equal(policy(model.params, step_key(0), {**obs, name: ~obs[name]}, state), before)


@pytest.mark.parametrize("action", ACTIONS)
def test_the_key_decides_the_draws(action: str) -> None:
    model, policy = load("small", action), jitted("small", action, "policy")
    _, obs, state = model.entry_points["policy"].args
    one, again, other = (policy(model.params, step_key(0, seed), obs, state) for seed in (1, 1, 2))
    assert_equal(one, again)
    assert (one[2] != other[2]).any()
    drawn = [policy(model.params, step_key(0, seed), obs, state)[0][0].tolist() for seed in range(100)]
    assert len({tuple(a) for a in drawn}) == (4 if action == "discrete" else 100)


@pytest.mark.parametrize("action", ACTIONS)
def test_outputs_agree_with_each_other(action: str) -> None:
    """The state holds what was drawn, and log_prob is that of the drawn action."""
    nets = importlib.import_module("dreamer_nets")
    model, policy = load("small", action), jitted("small", action, "policy")
    _, obs, state = model.entry_points["policy"].args
    for seed in range(5):
        drawn, log_prob, latent, after = policy(model.params, step_key(0, seed), obs, state)
        assert_equal(after["stoch"], jax.nn.one_hot(latent, 8))
        features = jnp.concatenate([after["deter"], after["stoch"].reshape(1, 64)], axis=-1)
        out = np.asarray(nets.mlp(model.params["actor"], features), np.float64)
        if action == "discrete":
            assert_equal(drawn, jax.nn.one_hot(after["action"], 4))
            probs = np.exp(out) / np.exp(out).sum()
            expected = np.log(0.99 * probs + 0.01 / 4)[0, after["action"][0]]
        else:
            assert_equal(drawn, after["action"])
            mean, stddev = np.tanh(out[:, :4]), 0.1 + 0.9 / (1 + np.exp(-out[:, 4:] - 2))
            density = np.exp(-(((drawn - mean) / stddev) ** 2) / 2) / (stddev * np.sqrt(2 * np.pi))
            expected = np.log(density).sum()
        np.testing.assert_allclose(log_prob[0], expected, atol=1e-5)


@pytest.mark.parametrize("action", ACTIONS)
def test_gradients_pass_straight_through_the_latents(action: str) -> None:
    model = load("small", action)
    key, state, last_action = model.entry_points["imagine"].args

    def reward(params: Any) -> Any:
        return model.entry_points["imagine"].function(params, key, state, last_action)[0][0]

    assert np.abs(jax.jit(jax.grad(reward))(model.params)["prior"]["out"]["kernel"]).max() > 0


@pytest.mark.parametrize("action", ACTIONS)
def test_one_ulp_dies_out_in_the_closed_loop(action: str) -> None:
    """Every float of the first state one ulp up, 200 steps, no reset that would help."""
    model, policy = load("small", action), jitted("small", action, "policy")
    state = jitted("small", action, "init_policy")(model.params)["state"]
    moved = jax.tree.map(lambda x: x if x.dtype == jnp.int32 else jnp.nextafter(x, jnp.inf), state)
    assert (state["deter"] != moved["deter"]).all()
    drawn = set()
    for step in range(200):
        obs = observation(model, step)
        *one, state = policy(model.params, step_key(step), obs, state)
        *two, moved = policy(model.params, step_key(step), obs, moved)
        np.testing.assert_array_equal(one[2], two[2])
        jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=1e-5), (one, state), (two, moved))
        drawn.add(tuple(one[2][0].tolist()))
    assert len(drawn) > 150, "the latents hardly change"
