"""Entry points from the distributions of distrax and TFP: what they give is what the libraries give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import opcompat
import opcompat.runtime
from opcompat import api
from opcompat.errors import ConfigError

distrax = pytest.importorskip("distrax")
tfp = pytest.importorskip("tensorflow_probability.substrates.jax")
tfd, tfb = tfp.distributions, tfp.bijectors
pytestmark = pytest.mark.zoo

BATCH, OBSERVATIONS, WIDTH = 2, 5, 6
PARAMS = {"w": jax.random.normal(jax.random.key(0), (OBSERVATIONS, WIDTH)) / 2}
OBS = jax.random.normal(jax.random.key(1), (BATCH, OBSERVATIONS))
KEY = jax.random.key(2)


@dataclass(frozen=True)
class Case:
    """`make` gives a distribution of means and scales [B, 3]; `lacks` are methods that it does not have."""

    make: Callable[[Any, Any], Any]
    event: tuple[int, ...]
    lacks: tuple[str, ...]
    dtype: Any = jnp.float32


NO_BIJECTOR = ("forward", "inverse")
MOMENTS = ("mean", "stddev", "variance")

CASES = {
    "distrax-categorical": Case(lambda m, _: distrax.Categorical(logits=m), (), (*NO_BIJECTOR, *MOMENTS), jnp.int32),
    "distrax-independent": Case(lambda m, s: distrax.Independent(distrax.Normal(m, s), 1), (3,), NO_BIJECTOR),
    "distrax-diagonal": Case(lambda m, s: distrax.MultivariateNormalDiag(m, s), (3,), ()),
    "distrax-beta": Case(lambda m, s: distrax.Independent(distrax.Beta(jnp.exp(m) + 1, s + 1), 1), (3,), NO_BIJECTOR),
    "distrax-tanh": Case(
        lambda m, s: distrax.Transformed(distrax.MultivariateNormalDiag(m, s), distrax.Block(distrax.Tanh(), 1)),
        (3,),
        ("mode", "entropy", *MOMENTS),
    ),
    "tfp-categorical": Case(lambda m, _: tfd.Categorical(logits=m), (), NO_BIJECTOR, jnp.int32),
    "tfp-independent": Case(lambda m, s: tfd.Independent(tfd.Normal(m, s), 1), (3,), NO_BIJECTOR),
    "tfp-diagonal": Case(lambda m, s: tfd.MultivariateNormalDiag(m, s), (3,), ()),
    "tfp-beta": Case(lambda m, s: tfd.Independent(tfd.Beta(jnp.exp(m) + 1, s + 1), 1), (3,), NO_BIJECTOR),
    "tfp-tanh": Case(
        lambda m, s: tfd.TransformedDistribution(tfd.MultivariateNormalDiag(m, s), tfb.Tanh()),
        (3,),
        ("mode", "entropy", *MOMENTS),
    ),
    "tfp-mixture": Case(
        lambda m, s: tfd.MixtureSameFamily(tfd.Categorical(logits=m), tfd.Normal(m, s)),
        (),
        (*NO_BIJECTOR, "mode", "entropy"),
    ),
    "tfp-shifted-scalar": Case(
        lambda m, _: tfd.TransformedDistribution(tfd.Logistic(0.0, 1.0), tfb.Shift(m[:, 0])), (), ()
    ),
}
METHODS = ("sample", "log_prob", "mode", "mean", "stddev", "variance", "entropy", "forward", "inverse")
ALL = [(name, method) for name, case in CASES.items() for method in METHODS if method not in case.lacks]
LACKING = [(name, method) for name, case in CASES.items() for method in case.lacks]


def policy(case: Case) -> Callable[..., Any]:
    def fn(params: Any, obs: jax.Array) -> Any:
        mean, raw = jnp.split(obs @ params["w"], 2, -1)
        return case.make(mean, jax.nn.softplus(raw) + 0.1)

    return fn


def model(case: Case, *methods: str) -> opcompat.Model:
    return opcompat.Model("m", PARAMS, opcompat.distribution_entry_points(policy(case), (OBS,), methods))


def by_hand(method: str, distribution: Any, *extra: Any) -> Any:
    """What a user writes for the method."""
    if method == "sample":
        draw = getattr(distribution, "experimental_sample_and_log_prob", None) or distribution.sample_and_log_prob
        return draw(seed=extra[0])
    owner = distribution.bijector if method in NO_BIJECTOR else distribution
    return (getattr(owner, method)(*extra),)


@pytest.mark.parametrize(("name", "method"), ALL)
def test_jitted_it_gives_what_the_library_gives(name: str, method: str) -> None:
    case = CASES[name]
    entry = model(case, method).entry_points[method]
    extra: tuple[Any, ...] = (KEY,) if method == "sample" else ()
    if entry.inputs is not None:
        extra = entry.inputs(np.random.default_rng(0))[1:]
        assert extra[0].shape == entry.args[1].shape == (BATCH, *case.event)
        assert extra[0].dtype == entry.args[1].dtype == case.dtype
    found = jax.jit(entry.function)(PARAMS, OBS, *extra)
    expected = jax.jit(lambda p, o, *x: by_hand(method, policy(case)(p, o), *x))(PARAMS, OBS, *extra)
    assert len(found) == len(entry.outputs or ())
    for a, b in zip(found, expected, strict=True):
        assert np.all(np.isfinite(a))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("name", "method"), LACKING)
def test_what_it_lacks_is_refused_by_name(name: str, method: str) -> None:
    case = CASES[name]
    kind = type(case.make(jnp.zeros((1, 3)), jnp.ones((1, 3)))).__name__
    with pytest.raises(ConfigError, match=f"{kind} has no {method}: ") as caught:
        model(case, "sample", method)
    advice = str(caught.value).partition("next: ask for methods=")[2]
    assert [m for m in METHODS if f"'{m}'" in advice] == [m for m in METHODS if m not in case.lacks]


def test_forward_is_what_sample_does_to_its_latents() -> None:
    """TFP widens a base to the batch of the whole distribution, so the latents have that shape."""
    case = CASES["tfp-shifted-scalar"]
    m = model(case, "sample", "forward", "inverse")
    action, _ = m.entry_points["sample"].function(PARAMS, OBS, KEY)
    (latents,) = m.entry_points["inverse"].function(PARAMS, OBS, action)
    assert m.entry_points["forward"].args[1].shape == latents.shape
    (again,) = m.entry_points["forward"].function(PARAMS, OBS, latents)
    np.testing.assert_allclose(again, action, rtol=1e-6)


def heads(mean: Any, scale: Any) -> dict[str, Any]:
    return {
        "gripper": distrax.Categorical(logits=mean),
        "arm": distrax.Transformed(distrax.MultivariateNormalDiag(mean, scale), distrax.Block(distrax.Tanh(), 1)),
        "wheels": tfd.Independent(tfd.Beta(scale + 1, scale + 1), 1),
    }


def test_heads_of_both_libraries_in_one_dict(tmp_path: Path) -> None:
    m = model(Case(heads, (), ()), "sample", "log_prob")
    bundle, report = api.convert(m, tmp_path / "dist", to=("onnx", "tflite"), steps=20)
    assert all(check.passed for check in report.checks if check.binding)
    names = ["arm", "gripper", "wheels"]
    keys = dict(zip(names, jax.random.split(KEY, 3), strict=True))
    for form in ("onnx", "tflite"):
        loaded = opcompat.runtime.load(bundle.path, form)
        out = loaded.entry_point("sample")({"obs": np.asarray(OBS), "key": np.asarray(jax.random.key_data(KEY))})
        assert sorted(out) == [f"{kind}.{name}" for kind in ("action", "log_prob") for name in names]
        given = {k: v for k, v in out.items() if k.startswith("action.")}
        again = loaded.entry_point("log_prob")({"obs": np.asarray(OBS), **given})
        for name, distribution in policy(Case(heads, (), ()))(PARAMS, OBS).items():
            action = distribution.sample(seed=keys[name])
            np.testing.assert_allclose(out[f"action.{name}"], action, atol=1e-5)
            np.testing.assert_allclose(out[f"log_prob.{name}"], distribution.log_prob(action), atol=1e-4)
            np.testing.assert_allclose(again[f"log_prob.{name}"], out[f"log_prob.{name}"], atol=1e-4)


@pytest.mark.parametrize(("method", "message"), [
    ("mode", r"Transformed under 'arm' has no mode: .*next: ask for methods=\['sample', 'log_prob'\], which every"),
    ("forward", "Categorical under 'gripper' has no forward: there is no bijector"),
])  # fmt: skip
def test_a_head_that_lacks_a_method_is_named(method: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model(Case(heads, (), ()), method)


def test_a_joint_distribution_has_its_parts_as_actions() -> None:
    def joint(mean: Any, scale: Any) -> Any:
        return distrax.Joint({"move": distrax.MultivariateNormalDiag(mean, scale), "jump": distrax.Categorical(mean)})

    m = model(Case(joint, (), ()), "sample", "log_prob", "mode")
    action, log_prob = m.entry_points["sample"].function(PARAMS, OBS, KEY)
    assert {name: x.shape for name, x in action.items()} == {"move": (BATCH, 3), "jump": (BATCH,)}
    (again,) = m.entry_points["log_prob"].function(PARAMS, OBS, action)
    np.testing.assert_allclose(again, log_prob, rtol=1e-5)


@pytest.mark.parametrize("key", [jax.random.PRNGKey(0), jax.random.key(0, impl="rbg")], ids=["raw", "rbg"])
@pytest.mark.parametrize("name", ["distrax-tanh", "tfp-tanh"])
def test_other_keys(name: str, key: jax.Array) -> None:
    entry_points = opcompat.distribution_entry_points(policy(CASES[name]), (OBS,), ["sample", "log_prob"], key=key)
    m = opcompat.Model("m", PARAMS, entry_points)
    assert m.entry_points["sample"].args[1].dtype == key.dtype
    assert all(target.ok for target in opcompat.scan(m).targets)
