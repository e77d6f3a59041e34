"""Parameters as libraries make them: each kind has stable dotted names, and what is no array is left as it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.core import freeze
from flax.training.train_state import TrainState

from opcompat import api
from opcompat.errors import TraceError
from opcompat.model import EntryPoint, Model
from opcompat.reference import Reference
from opcompat.runtime import load
from opcompat.trace import Trace, trace

X = jnp.arange(3.0)


def model_of(params: Any, function: Any) -> Model:
    return Model("m", params, {"f": EntryPoint(function, (X,), names=("x",))})


def names(params: Any, function: Any) -> list[str]:
    """The names of the parameters, once the traced function is known to compute what the plain one does."""
    model = model_of(params, function)
    one = trace(model, "f")
    assert_same(model, one, function(params, X))
    return [leaf.name for leaf in one.params]


def assert_same(model: Model, one: Trace, want: Any) -> None:
    (got,) = Reference(model, one).step({"x": np.asarray(X)}).values()
    np.testing.assert_allclose(got, want, rtol=1e-6)


# Libraries


class Net(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(2)(nn.LayerNorm()(x))


@pytest.mark.parametrize("kind", [dict, freeze])
def test_flax_linen(kind: Any) -> None:
    variables = kind(Net().init(jax.random.key(0), X))
    assert names(variables, lambda p, x: Net().apply(p, x)) == [
        "params.params.Dense_0.bias",
        "params.params.Dense_0.kernel",
        "params.params.LayerNorm_0.bias",
        "params.params.LayerNorm_0.scale",
    ]


def test_a_flax_train_state() -> None:
    import optax

    variables = Net().init(jax.random.key(0), X)
    state = TrainState.create(apply_fn=Net().apply, params=variables["params"], tx=optax.sgd(0.1))
    found = names(state, lambda state, x: state.apply_fn({"params": state.params}, x))
    assert found[0] == "params.params.Dense_0.bias"


class Cell(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(11)])
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


CELL = ["params.dropout.rngs.count.value", "params.dropout.rngs.key.value"] + [
    f"params.layers.{i}.{part}.value" for i in range(11) for part in ("bias", "kernel")
]


def test_flax_nnx() -> None:
    graph, state = nnx.split(Cell(nnx.Rngs(0)))
    assert names(state, lambda state, x: nnx.merge(graph, state)(x)) == CELL
    assert names(Cell(nnx.Rngs(0)), lambda cell, x: cell(x)) == CELL
    pure = nnx.to_pure_dict(state)
    bare = [name.removesuffix(".value") for name in CELL]
    assert names(pure, lambda p, x: nnx.merge(graph, p)(x)) == bare


def test_haiku() -> None:
    hk = pytest.importorskip("haiku")
    net = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([4, 2])(x)))
    assert names(net.init(jax.random.key(0), X[None]), lambda p, x: net.apply(p, x[None])) == [
        "params.mlp/~/linear_0.b",
        "params.mlp/~/linear_0.w",
        "params.mlp/~/linear_1.b",
        "params.mlp/~/linear_1.w",
    ]


def test_equinox_modules_with_their_activations() -> None:
    eqx = pytest.importorskip("equinox")
    mlp = eqx.nn.MLP(3, 2, 4, 1, activation=jnp.sin, key=jax.random.key(0))
    weights = [f"params.layers.{i}.{part}" for i in (0, 1) for part in ("weight", "bias")]
    assert names(mlp, lambda mlp, x: mlp(x)) == weights
    arrays, static = eqx.partition(mlp, eqx.is_array)
    assert names(arrays, lambda p, x: eqx.combine(p, static)(x)) == weights


@pytest.mark.parametrize("inference", [True, False])
def test_an_equinox_switch_is_no_weight(inference: bool) -> None:
    eqx = pytest.importorskip("equinox")
    dropout = eqx.nn.Dropout(0.5, inference=inference)
    assert names(dropout, lambda d, x: d(x, key=jax.random.key(0))) == [], "its rate is a setting, too"


# What is no array


def test_an_equinox_module_that_looks_at_its_rates() -> None:
    """Attention compares its dropout's rate with zero, outside of any trace."""
    eqx = pytest.importorskip("equinox")
    attention = eqx.nn.MultiheadAttention(1, 3, key=jax.random.key(0))
    assert isinstance(attention.dropout.p, float)
    one = trace(model_of(attention, lambda module, x: module(x[None], x[None], x[None])), "f")
    assert [leaf.name for leaf in one.params] == [
        f"params.{name}_proj.weight" for name in ("query", "key", "value", "output")
    ]


def test_functions_switches_sizes_and_objects_reach_the_function_as_they_are() -> None:
    params = {
        "w": X,
        "act": jnp.tanh,
        "on": True,
        "times": 2,
        "name": "a",
        "dtype": jnp.float32,
        "conf": SimpleNamespace(scale=2.0),
    }

    def f(p: Any, x: Any) -> Any:
        assert (p["on"], p["name"], p["dtype"]) == (True, "a", jnp.float32)
        for _ in range(p["times"]):
            x = p["act"](p["w"] * x).astype(p["dtype"]) * p["conf"].scale
        return x if p["on"] else jnp.zeros(p["times"])

    assert names(params, f) == ["params.w"]


def test_a_switch_is_part_of_the_function() -> None:
    def f(p: Any, x: Any) -> Any:
        return x * p["w"] if p["on"] else x

    def primitives(on: bool) -> list[str]:
        return [o.primitive for o in trace(model_of({"w": X, "on": on}, f), "f").originals.values()]

    assert (primitives(True), primitives(False)) == (["mul"], [])


@pytest.mark.parametrize("value", [np.array(["hello"]), np.array([object()]), np.datetime64("2020-01-01")])
def test_arrays_that_are_not_jax_s_are_refused(value: Any) -> None:
    with pytest.raises(TraceError, match=r"^params\.w: .*next: give arrays"):
        trace(model_of({"w": value}, lambda p, x: x), "f")


def test_python_floats_are_weights() -> None:
    assert names({"scale": 2.0, "shift": np.float32(1.0), "n": np.int32(3)}, lambda p, x: x * p["scale"] + p["n"]) == [
        "params.n",
        "params.scale",
        "params.shift",
    ]


def test_what_no_entry_point_uses_is_not_stored(tmp_path: Path) -> None:
    params = {"used": X, "optimizer": {"moments": jnp.ones((500, 500))}}
    _, report = api.convert(model_of(params, lambda p, x: {"y": x * p["used"]}), tmp_path / "dist", steps=5)
    assert sum(f.bytes for f in report.files if f.path.startswith(("onnx/", "tflite/"))) < 10_000


def test_a_module_with_settings_from_convert_to_the_runtime(tmp_path: Path) -> None:
    params = {"net": Net(), "variables": Net().init(jax.random.key(0), X), "act": jnp.tanh}

    def f(p: Any, x: Any) -> Any:
        return {"y": p["act"](p["net"].apply(p["variables"], x))}

    model = model_of(params, f)
    assert api.scan(model).parameters == 3 * 2 + 2 + 3 + 3
    bundle, report = api.convert(model, tmp_path / "dist", to=("onnx", "tflite"), steps=5)
    assert report.ok
    assert api.verify(bundle, model, steps=5).ok
    for form in ("onnx", "tflite"):
        got = load(tmp_path / "dist", form).entry_point("f")({"x": np.asarray(X)})["y"]
        np.testing.assert_allclose(got, f(params, X)["y"], atol=1e-5)


def test_a_first_state_of_another_batch_size_with_settings() -> None:
    from opcompat.batch import with_batches

    params = {"w": X, "act": jnp.tanh}
    model = Model(
        "m",
        params,
        {
            "start": EntryPoint(lambda p: p["act"](p["w"])[None], outputs=("state",)),
            "f": EntryPoint(
                lambda p, state, x: p["act"](state + x),
                (X[None], X[None]),
                names=("state", "x"),
                outputs=("state",),
                feedback={"state": "state"},
                init={"state": "start.state"},
            ),
        },
    )
    start = with_batches(model, (2,)).entry_points["f@2"].init["state"]
    np.testing.assert_allclose(start, jnp.tanh(jnp.stack([X, X])), rtol=1e-6)
