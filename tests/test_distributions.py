"""Entry points from a distribution object, with small stand-ins for both libraries: no more than they are asked for."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opcompat import EntryPoint, Model, distribution_entry_points
from opcompat.errors import ConfigError
from opcompat.trace import trace

PARAMS = {"w": jnp.arange(12.0).reshape(4, 3) / 12}
ARGS = (jnp.ones(4),)


@dataclass
class Plain:
    """sample and log_prob alone."""

    mean: Any

    def sample(self, seed: Any) -> Any:
        return self.mean + jax.random.normal(seed, self.mean.shape)

    def log_prob(self, value: Any) -> Any:
        return -0.5 * jnp.sum((value - self.mean) ** 2)


class LikeDistrax(Plain):
    def sample_and_log_prob(self, *, seed: Any) -> Any:
        return self.sample(seed), jnp.float32(7)

    def mode(self) -> Any:
        return self.mean

    def entropy(self) -> Any:
        raise NotImplementedError("no closed form")

    def stddev(self) -> Any:
        raise ValueError("parts\nare not independent")


class LikeTfp(Plain):
    def experimental_sample_and_log_prob(self, sample_shape: Any = (), seed: Any = None) -> Any:
        return self.sample(seed), jnp.float32(8)


class Doubling:
    def forward(self, x: Any) -> Any:
        return 2 * x

    def inverse(self, y: Any) -> Any:
        return y / 2


@dataclass
class Doubled(LikeDistrax):
    @property
    def distribution(self) -> Any:
        return Plain(self.mean)

    @property
    def bijector(self) -> Any:
        return Doubling()


def policy(of: Any) -> Any:
    def fn(params: Any, obs: jax.Array) -> Any:
        assert isinstance(params["w"], jax.core.Tracer), "never really run"
        assert isinstance(obs, jax.core.Tracer), "never really run"
        return of(obs @ params["w"])

    return fn


def heads(mean: Any) -> Any:
    return {"b": Doubled(mean), "a": LikeTfp(mean[:2])}


def model(of: Any, *methods: str, **options: Any) -> Model:
    return Model("m", PARAMS, distribution_entry_points(policy(of), ARGS, methods, **options))


def call(m: Model, name: str, *extra: Any) -> Any:
    return jax.jit(m.entry_points[name].function)(m.params, *ARGS, *extra)


def interface(m: Model, name: str) -> tuple[list[str], list[str]]:
    found = trace(m, name)
    return [x.name for x in found.inputs], [x.name for x in found.outputs]


@pytest.mark.parametrize(("of", "log_prob"), [(LikeDistrax, 7), (LikeTfp, 8)])
def test_sample_takes_both_from_one_call_where_there_is_one(of: Any, log_prob: float) -> None:
    _, found = call(model(of, "sample"), "sample", jax.random.key(3))
    assert found == log_prob


def test_sample_asks_for_the_log_prob_where_there_is_no_such_call() -> None:
    action, log_prob = call(model(Plain, "sample"), "sample", jax.random.key(3))
    mean = ARGS[0] @ PARAMS["w"]
    np.testing.assert_allclose(action, Plain(mean).sample(jax.random.key(3)), rtol=1e-6)
    np.testing.assert_allclose(log_prob, Plain(mean).log_prob(action), rtol=1e-6)


@pytest.mark.parametrize(("method", "inputs", "outputs"), [
    ("sample", ["obs", "key"], ["action", "log_prob"]),
    ("log_prob", ["obs", "action"], ["log_prob"]),
    ("mode", ["obs"], ["action"]),
    ("forward", ["obs", "latents"], ["action"]),
    ("inverse", ["obs", "action"], ["latents"]),
])  # fmt: skip
def test_names_and_shapes(method: str, inputs: list[str], outputs: list[str]) -> None:
    m = model(Doubled, method)
    assert interface(m, method) == (inputs, outputs)
    by_name = {x.name: x.shape for x in (*trace(m, method).inputs, *trace(m, method).outputs)}
    expected = {"obs": (4,), "key": (2,), "action": (3,), "latents": (3,), "log_prob": ()}
    assert by_name == {name: expected[name] for name in by_name}


def test_the_entry_points_share_their_weights_by_name() -> None:
    m = model(Doubled, "sample", "log_prob", "forward")
    assert {tuple(p.name for p in trace(m, name).params) for name in m.entry_points} == {("params.w",)}


def test_parameters_without_values_are_enough() -> None:
    abstract = jax.tree_util.tree_map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), PARAMS)
    m = Model("m", abstract, distribution_entry_points(policy(Doubled), ARGS, ["log_prob", "forward"]))
    assert [e.args[1].shape for e in m.entry_points.values()] == [(3,), (3,)]


def test_a_dict_of_distributions() -> None:
    m = model(heads, "sample", "log_prob")
    assert interface(m, "sample") == (["obs", "key"], ["action.a", "action.b", "log_prob.a", "log_prob.b"])
    assert interface(m, "log_prob") == (["obs", "action.a", "action.b"], ["log_prob.a", "log_prob.b"])
    action, log_prob = call(m, "sample", jax.random.key(5))
    mean = ARGS[0] @ PARAMS["w"]
    for head, key in zip("ab", jax.random.split(jax.random.key(5), 2), strict=True):
        np.testing.assert_allclose(action[head], heads(mean)[head].sample(key), rtol=1e-6)
    assert log_prob == {"a": 8, "b": 7}
    (given,) = call(m, "log_prob", action)
    np.testing.assert_allclose(given["a"], heads(mean)["a"].log_prob(action["a"]), rtol=1e-5)


def test_verification_gets_actions_that_the_distribution_draws() -> None:
    def far(mean: Any) -> Any:
        return {"far": Doubled(mean + 1000), "near": Doubled(mean)}

    m = model(far, "log_prob", "forward")
    for entry in m.entry_points.values():
        assert entry.inputs is not None
        obs, drawn = entry.inputs(np.random.default_rng(0))
        assert obs.shape == (4,)
        assert np.all(np.abs(drawn["far"] - 1000) < 50)
        assert np.all(np.abs(drawn["near"]) < 50)


def test_the_users_own_inputs_are_used() -> None:
    m = model(Doubled, "sample", "log_prob", "mode", inputs=lambda rng: (np.full(4, 100.0, np.float32),))
    for entry in m.entry_points.values():
        assert entry.inputs is not None
        values = entry.inputs(np.random.default_rng(0))
        assert len(values) == len(entry.args)
        assert np.all(values[0] == 100)
    assert m.entry_points["log_prob"].inputs(np.random.default_rng(0))[1][2] > 50  # type: ignore[misc]


@pytest.mark.parametrize(("of", "method", "message"), [
    (LikeDistrax, "entropy", r"LikeDistrax has no entropy: no closed.*\['sample', 'log_prob', 'mode'\], which it has"),
    (LikeDistrax, "stddev", "LikeDistrax fails at stddev: ValueError: parts; next: ask for methods="),
    (LikeDistrax, "variance", "LikeDistrax has no variance: there is no variance; next"),
    (LikeTfp, "forward", "LikeTfp has no forward: there is no bijector; next"),
    (heads, "mode", r"LikeTfp under 'a' has no mode: .*methods=\['sample', 'log_prob'\], which every head has"),
    (heads, "inverse", "LikeTfp under 'a' has no inverse: there is no bijector.inverse"),
    (lambda mean: mean, "sample", "returns .*Tracer.*, which is no distribution; next"),
    (lambda mean: {"x": Plain(mean), "y": 3}, "sample", "returns int under 'y', which is no distribution; next"),
    (lambda _: {}, "sample", "returns an empty dict; next"),
    (lambda mean: Plain(mean @ mean.T @ mean), "log_prob", "log_prob: the policy fails on its example arguments: "),
])  # fmt: skip
def test_what_a_distribution_lacks_is_refused(of: Any, method: str, message: str) -> None:
    entry_points = distribution_entry_points(policy(of), ARGS, [method])
    with pytest.raises(ConfigError, match=message):
        Model("m", PARAMS, entry_points)


@pytest.mark.parametrize(("changes", "message"), [
    ({"methods": ["sample", "kl"]}, "methods must be some of"),
    ({"methods": "sample"}, "methods must be some of"),
    ({"methods": []}, "methods must be some of"),
    ({"args": jnp.ones(4)}, "args must be a tuple"),
    ({"names": ("key",)}, "sample takes 'key', but an argument .* has that name; next: .* names="),
    ({"names": ("a", "b")}, "1 example arguments but 2 argument names"),
])  # fmt: skip
def test_wrong_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        distribution_entry_points(**{"fn": policy(Plain), "args": ARGS, "methods": ["sample"], **changes})


def test_an_entry_point_may_wait_for_the_params() -> None:
    def complete(entry: EntryPoint, params: Any) -> EntryPoint:
        return EntryPoint(entry.function, (params["w"][0],))

    waiting = EntryPoint(lambda p, x: x, complete=complete)
    m = Model("m", PARAMS, {"f": waiting})
    assert m.entry_points["f"].args[0].shape == (3,)
    assert Model("again", PARAMS, m.entry_points).entry_points == m.entry_points


def test_neither_library_is_imported() -> None:
    code = "import sys, opcompat.distributions as d; d.distribution_entry_points(lambda p: 0, ()); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"distrax", "tensorflow_probability"} & set(modules)
