"""The sampling modes: draws become inputs, or the centres of their distributions, and keys leave the interface."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from jax import lax

import opcompat.runtime
from opcompat import api, sampling
from opcompat.cli import cli
from opcompat.contract import contracts
from opcompat.errors import BundleError, ConfigError, UnsupportedError
from opcompat.manifest import Leaf, Manifest, Noise
from opcompat.model import EntryPoint, Model
from opcompat.reference import Reference
from opcompat.report import Check
from opcompat.runtime.noise import draw
from opcompat.sampling.samplers import SAMPLERS, recognise
from opcompat.trace import trace
from opcompat.verification import Recorder

KEY = jax.random.key(0)
LOGITS = np.array([[0.1, 2.0, 2.0, -1.0], [3.0, -0.5, 0.0, 1.0]], np.float32)
LINE = re.compile(r"noise\.test_sampling_\d+_\w+\Z")

normal, uniform, split = jax.random.normal, jax.random.uniform, jax.random.split


def model(function: Callable[..., Any], *args: Any, **options: Any) -> Model:
    """A model with one entry point, `policy`."""
    return Model("m", {"bias": jnp.float32(0)}, {"policy": EntryPoint(function, args=args, **options)})


def sampled(made: Model, mode: Any) -> sampling.Sampled:
    return sampling.apply(made, {name: trace(made, name) for name in made.entry_points}, mode)


def run(done: sampling.Sampled, name: str = "policy", **inputs: Any) -> dict[str, np.ndarray]:
    return Reference(done.model, done.traces[name]).step(inputs)


def greedy(function: Callable[..., Any], *args: Any, **inputs: Any) -> np.ndarray:
    """The one output of a policy (params, key, ...) in greedy mode."""
    done = sampled(model(function, KEY, *args), "greedy")
    (leaf,) = done.traces["policy"].outputs
    assert not any(x.key or x.noise for x in done.traces["policy"].inputs)
    assert done.dropped["policy"] == ("key",)
    return run(done, **inputs)[leaf.name]


def noise(function: Callable[..., Any], *args: Any) -> list[Any]:
    """The noise inputs of a policy (params, key, ...), in order."""
    done = sampled(model(function, KEY, *args), "noise")
    assert not any(x.key for x in done.traces["policy"].inputs)
    return [x for x in done.traces["policy"].inputs if x.noise]


def proof(made: Model) -> Check:
    done = sampled(made, "noise")
    recorder = Recorder(done.model, done.traces, contracts(done.model, done.traces))
    (check,) = sampling.prove(done, recorder, 2)
    return check


# Each function of jax.random


def truncated(params: Any, key: Any, low: Any, high: Any) -> Any:
    return jax.random.truncated_normal(key, low, high, (2,))


DISTRIBUTIONS: dict[str, tuple[Callable[..., Any], list[str], Any]] = {
    "normal": (lambda params, key: normal(key, (3,)), ["normal"], np.zeros(3)),
    "normal bfloat16": (lambda params, key: normal(key, (3,), jnp.bfloat16), ["normal"], np.zeros(3)),
    "uniform": (lambda params, key: uniform(key, (3,)), ["uniform"], np.full(3, 0.5)),
    "uniform float16": (lambda params, key: uniform(key, (3,), jnp.float16), ["uniform"], np.full(3, 0.5)),
    "range": (lambda params, key: uniform(key, (2,), minval=-1.0, maxval=3.0), ["uniform"], np.ones(2)),
    "gumbel": (lambda params, key: jax.random.gumbel(key, (3,)), ["gumbel"], np.zeros(3)),
    "gumbel high": (lambda params, key: jax.random.gumbel(key, (3,), mode="high"), ["gumbel"], np.zeros(3)),
    "categorical": (lambda params, key: jax.random.categorical(key, LOGITS), ["gumbel"], [1, 0]),
    "without replacement": (
        lambda params, key: jax.random.categorical(key, LOGITS[0], shape=(2,), replace=False),
        ["gumbel"],
        [1, 2],
    ),
    "bernoulli": (
        lambda params, key: jax.random.bernoulli(key, jnp.array([0.2, 0.5, 0.8])),
        ["uniform"],
        [False, False, True],
    ),
    "bernoulli high": (
        lambda params, key: jax.random.bernoulli(key, jnp.array([0.5, np.nextafter(np.float32(0.5), 1)]), mode="high"),
        ["uniform"],
        [False, True],
    ),
    "exponential": (lambda params, key: jax.random.exponential(key, (3,)), ["uniform"], np.ones(3)),
    "laplace": (lambda params, key: jax.random.laplace(key, (3,)), ["uniform"], np.zeros(3)),
    "logistic": (lambda params, key: jax.random.logistic(key, (3,)), ["uniform"], np.zeros(3)),
    "cauchy": (lambda params, key: jax.random.cauchy(key, (3,)), ["uniform"], np.zeros(3)),
    "truncated": (lambda params, key: jax.random.truncated_normal(key, -1.0, 2.0, (3,)), ["uniform"], np.zeros(3)),
    "multivariate": (
        lambda params, key: jax.random.multivariate_normal(key, jnp.array([1.0, 2.0]), jnp.eye(2)),
        ["normal"],
        [1, 2],
    ),
    "one for each key": (
        lambda params, key: jax.vmap(lambda k: uniform(k, (2,), minval=-2.0, maxval=0.0))(split(key, 3)),
        ["uniform"],
        -np.ones((3, 2)),
    ),
    "normals for each key": (
        lambda params, key: jax.vmap(normal)(split(key, (2, 3)).reshape(6)),
        ["normal"],
        np.zeros(6),
    ),
    "bounds for each key": (
        lambda params, key: jax.vmap(lambda k, b: jax.random.bernoulli(k, b))(split(key), jnp.array([0.3, 0.7])),
        ["uniform"],
        [False, True],
    ),
    "randint": (lambda params, key: jax.random.randint(key, (3,), 0, 7), ["bits", "bits"], None),
    "permutation": (lambda params, key: jax.random.permutation(key, 5), ["bits"], None),
    "bits": (lambda params, key: jax.random.bits(key, (3,)), ["bits"], None),
    "bytes": (lambda params, key: jax.random.bits(key, (3,), jnp.uint8), ["bits"], None),
    "choice": (lambda params, key: jax.random.choice(key, 5, p=jnp.ones(5) / 5), ["uniform"], None),
    "rademacher": (lambda params, key: jax.random.rademacher(key, (3,)), ["uniform"], None),
    "maxwell": (lambda params, key: jax.random.maxwell(key, (2,)), ["normal"], None),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_noise_of_each_distribution(name: str) -> None:
    function, wanted, _ = DISTRIBUTIONS[name]
    leaves = noise(function)
    assert [leaf.noise.distribution for leaf in leaves] == wanted
    assert all(leaf.dtype == "uint32" for leaf in leaves if leaf.noise.distribution == "bits")
    check = proof(model(function, KEY))
    assert check.passed, check
    assert check.steps == 200
    assert check.mismatched == 0


@pytest.mark.parametrize("name", [name for name, (_, _, centre) in DISTRIBUTIONS.items() if centre is not None])
def test_greedy_takes_the_mode_or_mean(name: str) -> None:
    function, _, centre = DISTRIBUTIONS[name]
    result = greedy(function)
    reference = function(None, KEY)
    assert (result.shape, result.dtype) == (reference.shape, reference.dtype)
    np.testing.assert_array_equal(result.astype(np.float32), np.asarray(centre, np.float32))


@pytest.mark.parametrize("name", [name for name, (_, _, centre) in DISTRIBUTIONS.items() if centre is None])
def test_greedy_refuses_what_has_no_mode(name: str) -> None:
    with pytest.raises(
        UnsupportedError, match=r"policy: sampling greedy .* at .*test_sampling.py:\d+: no mode or mean"
    ) as error:
        greedy(DISTRIBUTIONS[name][0])
    assert "next: convert with --sampling noise or exact" in str(error.value)


def test_the_mode_of_a_truncated_normal_is_the_bound_next_to_zero() -> None:
    bounds = {"low": np.float32(1), "high": np.float32(2)}
    result = greedy(truncated, *bounds.values(), **bounds)
    np.testing.assert_array_equal(result, np.full(2, np.nextafter(np.float32(1), np.float32(2))))


@pytest.mark.parametrize("function", [jax.random.gamma, jax.random.poisson])
@pytest.mark.parametrize("mode", ["noise", "greedy"])
def test_draws_that_are_not_made_of_standard_ones_are_refused(function: Any, mode: str) -> None:
    with pytest.raises(UnsupportedError, match=r"test_sampling.py:\d+.*next: .*--sampling"):
        sampled(model(lambda params, key: function(key, jnp.float32(2.0)), KEY), mode)


def test_every_sampler_says_what_it_is_within() -> None:
    assert all(sampler.centre is None or sampler.within for sampler in SAMPLERS)


# Policies


def tanh_normal(params: Any, key: Any, mean: Any) -> Any:
    return jnp.tanh(mean + 0.5 * normal(key, mean.shape))


def gumbel_max(params: Any, key: Any, logits: Any) -> Any:
    return jnp.argmax(logits + jax.random.gumbel(key, logits.shape), axis=-1)


def test_greedy_policies() -> None:
    mean = np.array([-2.0, 0.3], np.float32)
    np.testing.assert_allclose(greedy(tanh_normal, mean, mean=mean), np.tanh(mean), rtol=1e-6)
    np.testing.assert_array_equal(greedy(gumbel_max, LOGITS, logits=LOGITS), LOGITS.argmax(-1))


def test_the_users_own_functions_are_not_taken_for_jax_s() -> None:
    @jax.jit
    def _normal(key: Any) -> Any:
        return 3 + 2 * normal(key, (2,))

    @jax.jit
    def _gumbel(key: Any) -> Any:
        return -jnp.log(uniform(key, (2,), minval=0.5))

    def policy(params: Any, key: Any) -> Any:
        return _normal(key) + _gumbel(jax.random.fold_in(key, 1))

    assert [leaf.noise.distribution for leaf in noise(policy)] == ["normal", "uniform"]
    np.testing.assert_allclose(greedy(policy), 3 - np.log(np.full(2, 0.75)), rtol=1e-6)
    assert proof(model(policy, KEY)).passed


def test_names_tell_the_place_and_are_unique() -> None:
    def policy(params: Any, key: Any, noise: Any) -> Any:
        a, b = (normal(k, (2,)) for k in split(key))
        return a * b + uniform(jax.random.fold_in(key, 7), (2,)) + noise

    first, second, third = noise(policy, np.zeros(2, np.float32))
    line = policy.__code__.co_firstlineno + 1
    assert third.name == f"noise.test_sampling_{line + 1}_policy"
    assert second.name == f"{first.name}_2"
    assert first.name.startswith(f"noise.test_sampling_{line}_")
    assert first.noise == Noise("normal", f"test_sampling.py:{line}", first.noise.function)
    assert (first.shape, first.dtype) == ((2,), "float32")


def test_one_key_gives_one_draw() -> None:
    def policy(params: Any, key: Any) -> Any:
        a, b = split(key)[0], split(key)[0]
        return normal(a, (2,)) - normal(b, (2,))

    assert len(noise(policy)) == 1
    done = sampled(model(policy, KEY), "noise")
    (leaf,) = done.traces["policy"].inputs
    assert not run(done, **{leaf.name: np.ones(2, np.float32)})["output"].any()


def test_a_key_for_two_distributions_is_mentioned() -> None:
    check = proof(model(lambda params, key: normal(key, (2,)) + uniform(key, (2,)), KEY))
    assert check.passed
    assert "one key serves several draws" in check.note
    assert "without key" in check.note


def test_draws_from_constant_keys_stay_what_they_are() -> None:
    def policy(params: Any, key: Any) -> Any:
        return normal(jax.random.key(3), (2,)) + normal(key, (2,))

    assert len(noise(policy)) == 1
    np.testing.assert_allclose(greedy(policy), normal(jax.random.key(3), (2,)), rtol=1e-6)


def test_unused_draws_and_keys_are_left_out() -> None:
    def policy(params: Any, key: Any, x: Any) -> Any:
        normal(key, (2,))
        jax.random.gamma(key, 2.0)
        return 2 * x

    assert not noise(policy, np.float32(1))


# Loops and branches


def in_scan(params: Any, key: Any, x: Any) -> Any:
    def step(carry: Any, y: Any) -> Any:
        key, total = carry
        key, sub = split(key)
        total = total + y * normal(sub, (2,))
        return (key, total), jax.random.categorical(jax.random.fold_in(sub, 1), total)

    (_, total), drawn = lax.scan(step, (key, x), jnp.arange(5.0), reverse=True)
    return {"total": total, "drawn": drawn}


def in_branches(params: Any, key: Any, which: Any) -> Any:
    def third(key: Any) -> Any:
        return lax.scan(lambda k, _: (jax.random.fold_in(k, 1), uniform(k, (2,))), key, length=3)[1].sum(0)

    return lax.switch(which, [lambda k: normal(k, (2,)), lambda k: jnp.ones(2), third], key)


def in_scan_of_branches(params: Any, key: Any, x: Any) -> Any:
    def step(total: Any, k: Any) -> Any:
        grown = lax.cond(
            total.sum() > 0, lambda: total - uniform(k, (2,)), lambda: total + jax.random.exponential(k, (2,))
        )
        return grown, grown

    return lax.scan(step, x, split(key, 4))[1]


def in_while(params: Any, key: Any, x: Any) -> Any:
    def step(state: Any) -> Any:
        key, x = state
        key, sub = split(key)
        return key, x + 1 + normal(sub, ())

    return lax.while_loop(lambda state: state[1] < 5, step, (key, x))[1]


X = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("function", "argument", "wanted"),
    [
        (in_scan, X, [("normal", (5, 2)), ("gumbel", (5, 2))]),
        (in_branches, np.int32(1), [("normal", (2,)), ("uniform", (3, 2))]),
        (in_scan_of_branches, X, [("uniform", (4, 2)), ("uniform", (4, 2))]),
    ],
)
def test_noise_in_loops_and_branches(function: Any, argument: Any, wanted: list[Any]) -> None:
    leaves = noise(function, argument)
    assert sorted((x.noise.distribution, x.shape) for x in leaves) == sorted(wanted)
    assert all(LINE.match(x.name) for x in leaves)
    assert proof(model(function, KEY, argument)).passed


def test_greedy_in_loops_and_branches() -> None:
    np.testing.assert_allclose(greedy(in_branches, np.int32(2), which=np.int32(2)), [1.5, 1.5])
    np.testing.assert_allclose(greedy(in_while, np.float32(0), x=np.float32(0)), 5)
    done = sampled(model(in_scan, KEY, X), "greedy")
    result = run(done, x=np.array([1, 2], np.float32))
    np.testing.assert_array_equal(result["drawn"], np.ones(5))
    np.testing.assert_array_equal(result["total"], [1, 2])


def test_noise_in_a_while_loop_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"normal draw at .*test_sampling.py:\d+ is inside a while loop .*next: "
    ):
        noise(in_while, np.float32(0))


# Interface


def recurrent() -> Model:
    """A policy whose state holds a typed and a raw key, and which returns a raw one besides."""

    def start(params: Any, seed: Any) -> Any:
        return {"state": {"key": jax.random.key(seed), "raw": jnp.zeros(2, jnp.uint32), "x": jnp.ones(2)}}

    def policy(params: Any, state: Any) -> Any:
        key, sub = split(state["key"])
        raw = lax.cond(state["x"][0] > 0, lambda: split(state["raw"])[0], lambda: state["raw"])
        x = 0.5 * state["x"] + normal(sub, (2,)) + lax.scan(lambda k, _: (k, uniform(k)), raw, length=2)[1]
        return x, {"key": key, "raw": raw, "x": x}, split(raw)[1]

    example = {"key": KEY, "raw": jnp.zeros(2, jnp.uint32), "x": jnp.ones(2)}
    entry = EntryPoint(
        policy,
        args=(example,),
        outputs=("action", "state", "spare"),
        feedback={"state": "state"},
        init={"state": "start.state"},
    )
    return Model("m", {"w": jnp.ones(2)}, {"start": EntryPoint(start, args=(np.int32(1),)), "policy": entry})


def test_keys_leave_inputs_outputs_feedback_and_init() -> None:
    done = sampled(recurrent(), "noise")
    policy = done.traces["policy"]
    assert [leaf.name for leaf in policy.outputs] == ["action", "state.x"]
    assert [leaf.name for leaf in policy.inputs if leaf.noise is None] == ["state.x"]
    assert [leaf.name for leaf in done.traces["start"].outputs] == ["state.x"]
    assert done.dropped["policy"] == ("spare", "state.key", "state.raw")
    contract = contracts(done.model, done.traces)["policy"]
    assert dict(contract.feedback) == {"state.x": "state.x"}
    assert proof(recurrent()).passed


def test_initial_arrays_lose_their_keys() -> None:
    made = recurrent()
    entry = made.entry_points["policy"]
    start = {"key": KEY, "raw": np.zeros(2, np.uint32), "x": np.ones(2, np.float32)}
    alone = Model("m", made.params, {"policy": EntryPoint(**{**vars(entry), "init": {"state": start}})})
    done = sampled(alone, "greedy")
    (leaf,) = contracts(done.model, done.traces)["policy"].starts
    assert leaf == "state.x"


def test_exact_changes_nothing() -> None:
    made = recurrent()
    assert sampled(made, "exact").model is made


def test_a_key_that_is_used_as_a_number_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"policy: key is a PRNG key, and random_unwrap at .*test_sampling.py"):
        noise(lambda params, key: jax.random.key_data(key).astype(jnp.float32))


def test_recognition_compares_the_whole_body() -> None:
    (eqn,) = jax.make_jaxpr(lambda k: normal(k, (2,)))(KEY).eqns
    found = recognise(eqn, "noise")
    assert found is not None
    assert found.sampler == "normal"


# Noise, and the manifest


@pytest.mark.parametrize(
    ("distribution", "mean", "std"), [("normal", 0, 1), ("gumbel", 0.5772, 1.2825), ("uniform", 0.5, 0.2887)]
)
def test_noise_has_its_distribution(distribution: str, mean: float, std: float) -> None:
    leaf = Leaf("noise.x", (400, 100), "float32", "float32", noise=Noise(distribution))
    values = draw(leaf, np.random.default_rng(0))
    assert values.shape == leaf.shape
    assert values.dtype == np.float32
    assert abs(values.mean() - mean) < 0.02
    assert abs(values.std() - std) < 0.02


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_uniform_noise_never_becomes_one(dtype: str) -> None:
    values = draw(Leaf("noise.x", (100_000,), dtype, "float32", noise=Noise("uniform")), np.random.default_rng(0))
    assert values.min() >= 0
    assert values.astype(jnp.dtype(dtype)).max() < 1


def test_noise_bits_use_all_bits() -> None:
    values = draw(Leaf("noise.x", (1000,), "uint32", "uint32", noise=Noise("bits")), np.random.default_rng(0))
    assert np.bitwise_or.reduce(values) == 2**32 - 1
    with pytest.raises(BundleError, match="obs: is no noise"):
        draw(Leaf("obs", (1,), "float32", "float32"), np.random.default_rng(0))


# Bundles


def mixed(params: Any, key: Any, obs: Any, state: Any) -> Any:
    """Every kind of noise, a scan, and two draws at one line."""
    keys = split(key, 4)
    a, b = normal(keys[0], (3,)), normal(keys[1], (3,))
    state = 0.5 * state + 0.1 * a * params["w"] + obs
    steps = lax.scan(lambda k, _: (jax.random.fold_in(k, 1), uniform(k, (3,))), keys[2], length=2)[1]
    index = jax.random.categorical(keys[3], state + steps.sum(0))
    coin = jax.random.bits(jax.random.fold_in(key, 9), ()) % jnp.uint32(2)
    return {"action": jnp.tanh(state + b), "index": index, "coin": coin.astype(jnp.int32), "state": state}


def mixed_model(function: Callable[..., Any] = mixed) -> Model:
    zeros = np.zeros(3, np.float32)
    entry = EntryPoint(function, args=(KEY, zeros, zeros), feedback={"state": "state"}, init={"state": zeros})
    return Model("mixed", {"w": jnp.arange(3.0)}, {"policy": entry})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return api.convert(mixed_model(), tmp_path_factory.mktemp("noise") / "dist", sampling="noise", steps=20)


def test_a_noise_bundle_is_proven_in_both_formats(bundle: Any) -> None:
    made, report = bundle
    assert report.ok
    kinds = {(check.format, check.kind) for check in report.checks}
    assert ("jax", "sampling") in kinds
    assert {("onnx", "step"), ("tflite", "step"), ("onnx", "boundary")} <= kinds
    assert not any(kind == "key" for _, kind in kinds)
    info = made.manifest.entry_points["policy"]
    assert made.manifest.sampling == "noise"
    assert info.dropped == ("key",)
    found = {(x.noise.distribution, x.type) for x in info.inputs if x.noise}
    assert found == {
        ("normal", "float32[3]"),
        ("uniform", "float32[2,3]"),
        ("gumbel", "float32[3]"),
        ("bits", "uint32[]"),
    }
    assert Manifest.from_json(made.manifest.to_json()).entry_points == made.manifest.entry_points


def test_the_runtime_fills_a_noise_bundle(bundle: Any) -> None:
    policy = opcompat.runtime.load(bundle[0].path).entry_point("policy")
    rng = np.random.default_rng(0)
    outputs = [policy.step({"obs": np.zeros(3, np.float32), **policy.noise(rng)}) for _ in range(20)]
    assert {int(x["coin"]) for x in outputs} == {0, 1}
    assert len({int(x["index"]) for x in outputs}) > 1


def test_verify_honours_the_bundles_mode(bundle: Any) -> None:
    made, _ = bundle
    report = api.verify(made, mixed_model(), steps=10)
    assert report.ok
    assert any(check.kind == "sampling" for check in report.checks)
    assert api.verify(made).ok


def test_noise_in_the_manifest_is_checked(bundle: Any) -> None:
    plain = bundle[0].manifest.to_json()
    (first, *_) = [x for x in plain["entry_points"]["policy"]["inputs"] if "noise" in x]
    first["noise"]["distribution"] = "cauchy"
    with pytest.raises(
        BundleError, match=r"inputs\[\d\].noise.distribution: must be one of normal, gumbel, uniform, bits"
    ):
        Manifest.from_json(plain)
    del first["noise"]["distribution"]
    with pytest.raises(BundleError, match=r"noise\.distribution: is missing"):
        Manifest.from_json(plain)


def test_unknown_modes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sampling 'argmax' does not exist; next: use one of exact, noise, greedy"):
        api.convert(mixed_model(), tmp_path / "dist", sampling="argmax")


def test_a_refusal_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"no mode or mean of jax\.random\.bits is known"):
        api.convert(mixed_model(), tmp_path / "dist", sampling="greedy")
    assert not (tmp_path / "dist").exists()


# The example, by the command line


DREAMER = Path(__file__).parents[1] / "examples" / "dreamer"


@pytest.mark.parametrize(("mode", "action"), [("noise", "discrete"), ("greedy", "continuous")])
def test_dreamer(mode: str, action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DREAMER))
    importlib.import_module("dreamer")
    out = tmp_path / "dist"
    arguments = ["convert", str(DREAMER), "--to", "onnx,tflite", "--out", str(out), "--sampling", mode, "--steps", "50"]
    result = CliRunner().invoke(cli, [*arguments, "--arg", "size=small", "--arg", f"action={action}"])
    assert result.exit_code == 0, result.output
    loaded = opcompat.runtime.load(out)
    assert loaded.manifest.sampling == mode
    policy = loaded.entry_point("policy")
    assert not any(leaf.key for leaf in policy.inputs)
    assert loaded.manifest.entry_points["policy"].dropped == ("key",)
    places = [leaf.noise.place for leaf in policy.inputs if leaf.noise]
    assert len(places) == (2 if mode == "noise" else 0)
    assert all(place.startswith("dreamer") for place in places)
