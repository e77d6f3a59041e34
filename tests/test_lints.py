"""Every lint on its own examples: it speaks about each, and keeps quiet about those that are right."""

from __future__ import annotations

import importlib
import json
import pkgutil
from contextlib import nullcontext
from importlib.resources import files
from typing import Any

import jax
import jsonschema
import numpy as np
import pytest

import opcompat.rewrites.lints
from opcompat import api, packs
from opcompat.contract import contracts
from opcompat.conversion import trace_all
from opcompat.lint import Example, Lint, advise
from opcompat.model import EntryPoint, Model
from opcompat.report import Advice

LINTS = packs.lints()


def advice(model: Model, lints: tuple[Lint, ...] = LINTS, half: tuple[str, ...] = ()) -> tuple[Advice, ...]:
    traces = trace_all(model)
    return advise(model, traces, contracts(model, traces), lints, half)


def ids(model: Model) -> list[str]:
    return [found.id for found in advice(model)]


def of(example: Example, lint: Lint) -> tuple[Advice, ...]:
    with jax.enable_x64(True) if example.x64 else nullcontext():
        return advice(example.build(), (lint,), ("gpu",) if example.half else ())


@pytest.mark.parametrize(
    ("lint", "example"), [pytest.param(x, e, id=f"{x.id}-{e.name}") for x in LINTS for e in x.examples]
)
def test_it_speaks_about_its_examples(lint: Lint, example: Example) -> None:
    found = of(example, lint)
    assert found
    file = lint.module.rpartition(".")[2]
    for one in found:
        assert (one.id, one.title) == (lint.id, lint.title)
        assert one.file.endswith(f"lints/{file}.py")
        assert one.line > 0
        assert one.message
        assert one.next_step
        assert one.entry_points == ("act",)


@pytest.mark.parametrize(
    ("lint", "example"), [pytest.param(x, e, id=f"{x.id}-{e.name}") for x in LINTS for e in x.declines]
)
def test_it_keeps_quiet_about_what_is_right(lint: Lint, example: Example) -> None:
    assert of(example, lint) == ()


def test_every_lint_file_is_in_lints() -> None:
    found = {m.name for m in pkgutil.iter_modules(opcompat.rewrites.lints.__path__)}
    assert found == {lint.module.rpartition(".")[2] for lint in LINTS}
    for name in found:
        assert importlib.import_module(f"opcompat.rewrites.lints.{name}").LINT in LINTS


@pytest.mark.parametrize("lint", LINTS, ids=lambda lint: lint.id)
def test_page_says_what_a_reader_needs(lint: Lint) -> None:
    for part in ("Finds", "Why:", "Next:"):
        assert part in lint.page
    assert lint.examples
    assert lint.declines
    assert lint.id.startswith(("OC55", "OC56", "OC7"))
    assert lint.id not in {rule.id for rule in packs.rules()}


def test_of_the_example_only_what_training_alone_needs(at_root: Any) -> None:
    make = importlib.import_module("dreamer").model
    for settings in ({}, {"action": "continuous"}, {"observation": "image"}, {"dtype": "float16"}, {"batch": 3}):
        found = advice(make(size="small", **settings))
        assert [(a.id, a.message, a.entry_points) for a in found] == [
            ("OC704", "no output depends on obs.is_last and obs.is_terminal", ("policy",))
        ]


@pytest.mark.parametrize("deterministic", [False, True])
def test_of_brax_only_a_key_that_is_not_used(deterministic: bool) -> None:
    from tests.test_brax import brax_model

    assert [(a.id, a.function) for a in advice(brax_model(deterministic))] == (
        [("OC701", "act")] if deterministic else []
    )


def linen(train: bool) -> Model:
    """Convolutions, batch norm and dropout by flax, as its users write them."""
    import flax.linen as nn
    import jax.numpy as jnp

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, train: bool) -> jax.Array:
            for width in (8, 16):
                x = nn.Conv(width, (3, 3))(x)
                x = nn.BatchNorm(use_running_average=not train)(x)
                x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
            x = nn.GroupNorm(4)(x).reshape(x.shape[0], -1)
            x = nn.Dropout(0.3, deterministic=not train)(nn.LayerNorm()(nn.Dense(32)(x)))
            return nn.Dense(4)(x)

    net, obs = Net(), jnp.zeros((2, 8, 8, 3))
    variables = net.init(jax.random.key(0), obs, False)

    def act(params: Any, key: jax.Array, obs: jax.Array) -> jax.Array:
        logits, _ = net.apply(params, obs, train, rngs={"dropout": key}, mutable=["batch_stats"])
        return jax.random.categorical(key, logits)

    return Model("linen", variables, {"act": EntryPoint(act, (jax.random.key(0), obs), outputs=("action",))})


def nnx_model(train: bool) -> Model:
    """A recurrent nnx policy; the mode is a switch on the module."""
    import jax.numpy as jnp
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.dense, self.norm = nnx.Linear(6, 32, rngs=rngs), nnx.BatchNorm(32, rngs=rngs)
            self.cell, self.dropout = nnx.GRUCell(32, 32, rngs=rngs), nnx.Dropout(0.2, rngs=rngs)
            self.head = nnx.Linear(32, 4, rngs=rngs)

        def __call__(self, state: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            state, x = self.cell(state, nnx.relu(self.norm(self.dense(x))))
            return state, self.head(self.dropout(x))

    net = Net(nnx.Rngs(0))
    (net.train if train else net.eval)()
    definition, params = nnx.split(net)

    def act(params: Any, obs: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        state, logits = nnx.merge(definition, params)(state, obs)
        return logits, state

    state = jnp.zeros((1, 32))
    entry = EntryPoint(act, (jnp.zeros((1, 6)), state), ("logits", "state"), None, {"state": "state"}, {"state": state})
    return Model("nnx", params, {"act": entry})


@pytest.mark.parametrize("make", [linen, nnx_model])
def test_flax_in_train_mode(make: Any) -> None:
    found = advice(make(train=True))
    assert {a.id for a in found} == {"OC710", "OC711"}
    assert [a.message for a in found if a.id == "OC711"] == [f"dropout with rate 0.{3 if make is linen else 2} is on"]
    assert all(a.file.endswith("test_lints.py") for a in found)
    assert ids(make(train=False)) == []


class _Switch:
    """A policy that is an object, with a leaf of a dict that nothing reads, and a constant among its outputs."""

    def __call__(self, params: Any, key: jax.Array, obs: Any, hidden: jax.Array) -> dict[str, jax.Array]:
        return {"action": obs["used"] @ params, "hidden": hidden + 1, "scale": params[0]}


def test_advice_has_places_and_is_data() -> None:
    args = (np.zeros(2, np.uint32), {"used": np.zeros((1, 4), np.float32), "b": np.float32(0)}, np.float32(0))
    entry = EntryPoint(_Switch(), args, names=("key", "obs", "hidden"))
    model = Model("switch", np.ones((4, 2), np.float32), {"act": entry, "again": entry})
    report = api.scan(model, ["litert"])
    assert report.ok
    assert [(a.id, a.message) for a in report.advice] == [
        ("OC701", "the key 'key' reaches no output: the policy does not sample"),
        ("OC702", "scale is the same whatever obs.b, obs.used and hidden are: it is a constant of the policy"),
        ("OC703", "hidden comes out as it went in, and nothing says that it is fed back"),
        ("OC704", "no output depends on obs.b"),
    ]
    assert {a.entry_points for a in report.advice} == {("act", "again")}
    assert all(a.file.endswith("test_lints.py") and a.line and "__call__" in a.function for a in report.advice)
    schema = json.loads(files("opcompat").joinpath("schema/report.json").read_text())
    data = json.loads(packs.renderers()["json"](report))
    jsonschema.Draft202012Validator(schema).validate(data)
    assert data["advice"][0]["id"] == "OC701"
    for form in ("text", "html"):
        assert "OC704" in packs.renderers()[form](report)
