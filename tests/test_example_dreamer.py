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
OBSERVATIONS = ["vector", "image"]
HALVES = ["bfloat16", "float16"]
QUICK = {"xla_backend_optimization_level": 0, "xla_allow_excess_precision": False}
"""Compiles in half the time, and rounds after every half-precision operation.

Two calls of one function may differ by an ulp then, so the float32 policy is compiled as users do.
"""


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


@cache
def load(size: str, action: str, **options: Any) -> Any:
    return importlib.import_module("dreamer").model(size=size, action=action, **options)


@cache
def jitted(size: str, action: str, name: str, **options: Any) -> Any:
    function = load(size, action, **options).entry_points[name].function
    return jax.jit(function, compiler_options=QUICK if options or name != "policy" else None)


def shapes(tree: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): (leaf.shape, str(leaf.dtype))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def step_key(step: int, seed: int = 0) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), step)


def observe(model: Any, seed: int, is_first: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    _, obs, _ = model.entry_points["policy"].args
    seen: dict[str, np.ndarray[Any, Any]] = {}
    if "vector" in obs:
        seen["vector"] = rng.standard_normal(obs["vector"].shape, dtype=np.float32)
    else:
        seen["image"] = rng.integers(256, size=obs["image"].shape, dtype=np.uint8)
    return {
        **seen,
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


@pytest.mark.parametrize(
    "arguments",
    [{"size": "huge"}, {"action": "both"}, {"observation": "sound"}, {"dtype": "float64"}, {"batch": 0}],
)
def test_unknown_arguments_are_refused(arguments: dict[str, Any]) -> None:
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"{name} must be .*, not {value!r}"):
        importlib.import_module("dreamer").model(**arguments)


@pytest.mark.parametrize("action", ACTIONS)
def test_sizes(action: str) -> None:
    count = {size: sum(x.size for x in jax.tree.leaves(load(size, action).params)) for size in SIZES}
    assert 8_000_000 <= count["full"] <= 12_000_000
    assert 50_000 <= count["small"] <= 100_000
    assert {x.dtype for x in jax.tree.leaves(load("full", action).params)} == {np.dtype(np.float32)}


def test_sizes_with_an_image() -> None:
    agent = importlib.import_module("dreamer").Agent(True, True, np.dtype(np.float32))
    full = sum(x.size for x in jax.tree.leaves(agent.init_params(0)))
    small = sum(x.size for x in jax.tree.leaves(load("small", "discrete", observation="image").params))
    assert 8_000_000 <= full <= 12_000_000
    assert 50_000 <= small <= 110_000


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
    _, _, _, state = policy(model.params, step_key(0), observe(model, 0), initial)
    first, later = observe(model, 1, is_first=True), observe(model, 1)
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


@pytest.mark.parametrize(
    ("action", "dtype"),
    [("discrete", "float32"), ("continuous", "float32"), ("discrete", "bfloat16"), ("continuous", "float16")],
)
def test_outputs_agree_with_each_other(action: str, dtype: str) -> None:
    """The state holds what was drawn, and log_prob is that of the drawn action: in float32, whatever the dtype."""
    mlp = jax.jit(importlib.import_module("dreamer_nets").mlp, compiler_options=QUICK)
    options = {} if dtype == "float32" else {"dtype": dtype}
    model, policy = load("small", action, **options), jitted("small", action, "policy", **options)
    _, obs, state = model.entry_points["policy"].args
    for seed in range(5):
        drawn, log_prob, latent, after = policy(model.params, step_key(0, seed), obs, state)
        assert_equal(after["stoch"], jax.nn.one_hot(latent, 8))
        features = jnp.concatenate([after["deter"], after["stoch"].reshape(1, 64)], axis=-1)
        out = np.asarray(mlp(model.params["actor"], features), np.float64)
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

    assert np.abs(jax.jit(jax.grad(reward), compiler_options=QUICK)(model.params)["prior"]["out"]["kernel"]).max() > 0


@pytest.mark.parametrize(
    ("action", "observation"), [("discrete", "vector"), ("continuous", "vector"), ("discrete", "image")]
)
def test_one_ulp_dies_out_in_the_closed_loop(action: str, observation: str) -> None:
    """Every float of the first state one ulp up, 200 steps, no reset that would help."""
    options = {} if observation == "vector" else {"observation": observation}
    model, policy = load("small", action, **options), jitted("small", action, "policy", **options)
    state = jitted("small", action, "init_policy", **options)(model.params)["state"]
    moved = jax.tree.map(lambda x: x if x.dtype == jnp.int32 else jnp.nextafter(x, jnp.inf), state)
    assert (state["deter"] != moved["deter"]).all()
    drawn = set()
    for step in range(200):
        obs = observe(model, step)
        *one, state = policy(model.params, step_key(step), obs, state)
        *two, moved = policy(model.params, step_key(step), obs, moved)
        np.testing.assert_array_equal(one[2], two[2])
        jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=1e-5), (one, state), (two, moved))
        drawn.add(tuple(one[2][0].tolist()))
    assert len(drawn) > 150, "the latents hardly change"


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_shapes_and_dtypes_of_the_variants(action: str, observation: str, dtype: str) -> None:
    """As in float32, but for parameters, deter and stoch."""
    plain, variant = load("small", action), load("small", action, observation=observation, dtype=dtype)
    assert {str(x.dtype) for x in jax.tree.leaves(variant.params)} == {dtype}
    seen = shapes(variant.entry_points["policy"].args[1])
    assert seen.pop("image", ((1, 64, 64, 3), "uint8")) == ((1, 64, 64, 3), "uint8")
    assert ("vector" in seen) == (observation == "vector")
    for name, entry in variant.entry_points.items():
        as_before = plain.entry_points[name]
        expected = shapes(jax.eval_shape(as_before.function, plain.params, *as_before.args))
        halved = {
            path: (shape, dtype if path.endswith(("deter", "stoch")) else before)
            for path, (shape, before) in expected.items()
        }
        assert shapes(jax.eval_shape(entry.function, variant.params, *entry.args)) == halved


@pytest.mark.parametrize(("action", "dtype"), [("discrete", "bfloat16"), ("continuous", "float16")])
def test_half_precision_stays_near_float32(action: str, dtype: str) -> None:
    """The same weights, rounded, and the same inputs: within a few roundings of numbers up to one."""
    whole, half = load("small", action), load("small", action, dtype=dtype)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a.astype(dtype), b), whole.params, half.params)
    key, obs, state = whole.entry_points["policy"].args
    rounded = half.entry_points["policy"].args[2]
    one = jitted("small", action, "policy")(whole.params, key, obs, state)[3]["deter"]
    two = jitted("small", action, "policy", dtype=dtype)(half.params, key, obs, rounded)[3]["deter"]
    error = np.abs(one - two.astype(np.float32)).max()
    assert 0 < error < 4 * jnp.finfo(dtype).eps


def test_the_image_encoder_is_a_strided_convolution_with_a_norm() -> None:
    """Against windows cut out one by one, in float64."""
    image = importlib.import_module("dreamer_image")
    model = load("small", "discrete", observation="image")
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), model.params["image"])
    pixels = np.random.default_rng(0).integers(256, size=(2, 64, 64, 3), dtype=np.uint8)
    x = pixels / 255 - 0.5
    for stage in params.values():
        padded = np.pad(x, [(0, 0), (1, 2), (1, 2), (0, 0)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(1, 2))[:, ::2, ::2]
        x = np.einsum("bhwikl,klio->bhwo", windows, stage["kernel"], optimize=True) + stage["bias"]
        x = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-4) * stage["norm"]["scale"]
        x = x / (1 + np.exp(-x))
    tokens = jax.jit(image.encode_image)(model.params["image"], pixels)
    assert tokens.shape == (2, image.image_tokens((8, 8, 16, 16))) == (2, 256)
    np.testing.assert_allclose(tokens, x.reshape(2, -1), atol=1e-5)


def test_the_policy_looks_at_the_image() -> None:
    options = {"observation": "image"}
    model, policy = load("small", "discrete", **options), jitted("small", "discrete", "policy", **options)
    _, obs, state = model.entry_points["policy"].args
    for name, other in (("image", obs["image"][:, ::-1]), ("reward", obs["reward"] + 1)):
        changed = 0
        for seed in range(50):
            one, two = (policy(model.params, step_key(0, seed), seen, state)[2] for seen in (obs, {**obs, name: other}))
            changed += bool((one != two).any())
        assert changed > 0, name


@pytest.mark.parametrize(("action", "observation"), [("continuous", "vector"), ("discrete", "image")])
def test_batches(action: str, observation: str) -> None:
    """The functions of batch 1 serve any other, and every row is treated alone."""
    options = {} if observation == "vector" else {"observation": observation}
    one, three = load("small", action, **options), load("small", action, batch=3, **options)
    assert_equal(one.params, three.params)
    first = jitted("small", action, "init_policy", batch=3, **options)(three.params)["state"]
    single = jitted("small", action, "init_policy", **options)(one.params)["state"]
    assert_equal(first, jax.tree.map(lambda x: np.repeat(x, 3, axis=0), single))
    key, obs, state = three.entry_points["policy"].args
    obs = {**obs, "is_first": np.array([False, True, False])}
    policy = jitted("small", action, "policy", **options)
    after = policy(one.params, key, obs, state)
    again = jax.eval_shape(three.entry_points["policy"].function, three.params, key, obs, state)
    assert shapes(after) == shapes(again)
    value = jitted("small", action, "value", **options)
    values = value(one.params, after[3])["value"]
    for row in range(3):
        alone = partial(jax.tree.map, lambda x, row=row: x[row : row + 1])
        deter = policy(one.params, key, alone(obs), alone(state))[3]["deter"]
        np.testing.assert_allclose(deter, alone(after[3]["deter"]), atol=1e-5)
        np.testing.assert_allclose(value(one.params, alone(after[3]))["value"], alone(values), atol=1e-4)
    name, *sampled = "imagine", *three.entry_points["imagine"].inputs(np.random.default_rng(0))
    assert shapes(sampled) == shapes(list(three.entry_points[name].args))
    assert shapes(jax.eval_shape(one.entry_points[name].function, one.params, *sampled)) == shapes(
        jax.eval_shape(three.entry_points[name].function, three.params, *three.entry_points[name].args)
    )
