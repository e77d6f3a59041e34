"""The conditional RealNVP policies: weights stored once over three entry points, densities and draws as JAX's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import opcompat.runtime
from opcompat import api, conversion
from opcompat.bundle import Bundle
from opcompat.model import Model

pytestmark = pytest.mark.zoo

KEYS = 200
FORMATS = ("onnx", "tflite")
LIBRARIES = ("distrax", "tfp")
HIDDEN = 512
"""Wide enough that the weights, not the graphs, are the files."""


@dataclass(frozen=True)
class Exported:
    """A model, its bundle, and the distribution that JAX makes: `flow(params, condition)`."""

    model: Model
    bundle: Bundle
    flow: Callable[..., Any]
    condition: np.ndarray

    def inputs(self, index: int) -> tuple[np.ndarray, jax.Array]:
        condition = np.random.default_rng(index).standard_normal(self.condition.shape, dtype=np.float32)
        return condition, jax.random.fold_in(jax.random.key(1), index)

    def entry_point(self, form: str, name: str) -> Any:
        return opcompat.runtime.load(self.bundle.path, form).entry_point(name)


@pytest.fixture(scope="module", params=[f"{library}{kind}" for library in LIBRARIES for kind in ("", "_object")])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Proven by the zoo already, at a smaller size; here the artifacts are called directly."""
    policy = importlib.import_module(f"tests.zoo.policies.realnvp_{request.param}")
    library = importlib.import_module(f"tests.zoo.policies.realnvp_{request.param.removesuffix('_object')}")
    model = policy.build(HIDDEN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion, "run_checks", lambda *_, **__: ())
        patch.setattr(conversion, "record", lambda *_, **__: None)
        bundle, _ = api.convert(model, tmp_path_factory.mktemp(request.param) / "dist", to=FORMATS, steps=1)
    flow = partial(library.flow, hidden=HIDDEN)
    return Exported(model, bundle, flow, np.asarray(model.entry_points["sample"].args[0]))


def test_weights_are_stored_once(exported: Exported) -> None:
    assert {"sample", "log_prob", "forward"} <= set(exported.model.entry_points)
    weights = sum(x.nbytes for x in jax.tree.leaves(exported.model.params))
    for form in FORMATS:
        files = [x for x in (Path(exported.bundle.path) / form).rglob("*") if x.is_file()]
        assert weights < sum(x.stat().st_size for x in files) <= 1.05 * weights


@pytest.mark.parametrize("form", FORMATS)
def test_draws_and_their_densities_are_those_of_jax(exported: Exported, form: str) -> None:
    sample, log_prob = (exported.entry_point(form, name) for name in ("sample", "log_prob"))

    @jax.jit
    def expected(params: Any, condition: Any, key: Any) -> Any:
        flow = exported.flow(params, condition)
        action = flow.sample(seed=key)
        return action, flow.log_prob(action)

    @jax.jit
    def density(params: Any, condition: Any, action: Any) -> Any:
        return exported.flow(params, condition).log_prob(action)

    seen = []
    for index in range(KEYS):
        condition, key = exported.inputs(index)
        drawn = sample({"condition": condition, "key": np.asarray(jax.random.key_data(key))})
        action, value = expected(exported.model.params, condition, key)
        np.testing.assert_allclose(drawn["action"], action, rtol=0, atol=1e-5)
        np.testing.assert_allclose(drawn["log_prob"], value, rtol=0, atol=1e-4)
        again = log_prob({"condition": condition, "action": drawn["action"]})["log_prob"]
        np.testing.assert_allclose(again, density(exported.model.params, condition, drawn["action"]), rtol=0, atol=1e-4)
        np.testing.assert_allclose(again, drawn["log_prob"], rtol=0, atol=1e-4)
        seen.append(drawn["action"])
    assert len(np.unique(np.concatenate(seen), axis=0)) == KEYS


@pytest.mark.parametrize("form", FORMATS)
def test_forward_inverts(exported: Exported, form: str) -> None:
    forward = exported.entry_point(form, "forward")

    @jax.jit
    def there(params: Any, condition: Any, latents: Any) -> Any:
        return exported.flow(params, condition).bijector.forward(latents)

    @jax.jit
    def back(params: Any, condition: Any, action: Any) -> Any:
        return exported.flow(params, condition).bijector.inverse(action)

    for index in range(KEYS):
        condition, key = exported.inputs(index)
        latents = np.asarray(jax.random.normal(key, exported.model.entry_points["forward"].args[1].shape))
        action = forward({"condition": condition, "latents": latents})["action"]
        np.testing.assert_allclose(action, there(exported.model.params, condition, latents), rtol=0, atol=1e-5)
        np.testing.assert_allclose(back(exported.model.params, condition, action), latents, rtol=0, atol=1e-4)
        assert np.abs(action - latents).max() > 1e-2


@pytest.mark.parametrize("form", FORMATS)
def test_the_inverse_in_the_artifact_gives_the_latents_back(exported: Exported, form: str) -> None:
    if "inverse" not in exported.model.entry_points:
        assert set(exported.model.entry_points) == {"sample", "log_prob", "forward"}, "by hand: the three of the issue"
        return
    forward, inverse = (exported.entry_point(form, name) for name in ("forward", "inverse"))
    condition, key = exported.inputs(0)
    latents = np.asarray(jax.random.normal(key, exported.model.entry_points["forward"].args[1].shape))
    action = forward({"condition": condition, "latents": latents})["action"]
    found = inverse({"condition": condition, "action": action})["latents"]
    np.testing.assert_allclose(found, latents, rtol=0, atol=1e-5)
