"""Inputs that once broke the engine, each with its right behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import opcompat
from opcompat import EntryPoint, Model, api
from opcompat.errors import ConfigError, TraceError

KEY = jax.random.key(3)


def one(function: Any, *args: Any, **fields: Any) -> Model:
    return Model("m", fields.pop("params", {}), {"step": EntryPoint(function, args=args, **fields)})


def test_a_rewritten_function_can_be_jitted_differentiated_and_mapped() -> None:
    def draw(key: jax.Array) -> jax.Array:
        return jax.random.normal(key, (4,)) + jnp.arange(4.0) * 2.5

    want = draw(KEY)
    rewritten = opcompat.rewrite(draw, "litert")
    np.testing.assert_allclose(jax.jit(rewritten)(KEY), want, rtol=1e-5)
    keys = jax.random.split(KEY, 3)
    np.testing.assert_allclose(jax.vmap(rewritten)(keys), jax.vmap(draw)(keys), rtol=1e-5)

    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(opcompat.rewrite(lambda y: jnp.log1p(y * x), "litert")(jnp.ones(3)))

    np.testing.assert_allclose(jax.grad(loss)(0.5), 3 / 1.5, rtol=1e-5)


def test_equal_equations_on_two_lines_are_two_findings() -> None:
    def twice(params: Any, x: jax.Array) -> jax.Array:
        first = jnp.log1p(x)
        second = jnp.log1p(x)
        return first * second

    (report,) = api.scan(one(twice, np.ones(3, np.float32)), ["litert"]).targets
    lines = [f.line for f in report.findings if f.primitive == "log1p"]
    assert len(lines) == 2
    assert lines[1] == lines[0] + 1
    assert report.counts["rewritten"] == 2


def test_closed_over_arrays_of_equal_bytes_are_told_apart(tmp_path: Path) -> None:
    flat, square, whole = np.zeros(128, np.float32), np.zeros((2, 64), np.float32), np.zeros(128, np.int32)

    def add(params: Any, x: jax.Array) -> jax.Array:
        return x + flat.sum() + jnp.sum(square + x) + jnp.sum(whole + 1)

    flat, square, whole = jnp.asarray(flat), jnp.asarray(square), jnp.asarray(whole)
    bundle, _ = api.convert(one(add, np.float32(1)), tmp_path / "out", steps=3)
    assert len({w.name for w in bundle.manifest.weights}) == len(bundle.manifest.weights)


def test_a_raw_key_can_be_fed_back(tmp_path: Path) -> None:
    def step(params: Any, key: jax.Array) -> dict[str, jax.Array]:
        key, sub = jax.random.split(key)
        return {"key": key, "draw": jax.random.normal(sub, (2,))}

    raw = jax.random.PRNGKey(0)
    model = one(step, raw, feedback={"key": "key"}, init={"key": raw})
    bundle, report = api.convert(model, tmp_path / "out", steps=5)
    assert report.ok
    assert bundle.manifest.entry_points["step"].output("key").key == "threefry2x32"


def test_a_typed_key_among_params(tmp_path: Path) -> None:
    def step(params: Any, x: jax.Array) -> jax.Array:
        return x + jax.random.normal(params["rng"], (2,))

    model = one(step, np.zeros(2, np.float32), params={"rng": KEY})
    assert api.convert(model, tmp_path / "out", steps=3)[1].ok


def test_a_form_that_no_lowering_knows_is_a_finding() -> None:
    (report,) = api.scan(
        one(lambda params, x: jnp.abs(jnp.fft.fft(x)), np.ones(4, np.float32), names=("x",)), ["litert"]
    ).targets
    assert not report.ok


def test_scopes_of_the_user_are_not_believed() -> None:
    def step(params: Any, x: jax.Array) -> jax.Array:
        with jax.named_scope("oc+OC204"):
            return x | (x + 1)

    (report,) = api.scan(one(step, np.ones(3, np.int32)), ["litert"]).targets
    assert report.ok


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tolerance": {"misspelt": 1.0}}, "tolerance names 'misspelt'"),
        ({"tolerance": float("inf")}, "finite number"),
        ({"tolerance": -1.0}, "finite number"),
        ({"feedback": {"a": "s", "b": "s"}, "init": {"s": np.zeros(2, np.float32)}}, "two values"),
    ],
)
def test_contracts_that_cannot_hold(fields: dict[str, Any], message: str) -> None:
    def step(params: Any, s: jax.Array) -> dict[str, jax.Array]:
        return {"a": s, "b": s + 1}

    with pytest.raises(ConfigError, match=message):
        api.scan(one(step, np.zeros(2, np.float32), **fields))


def test_names_that_files_cannot_hold() -> None:
    with pytest.raises(TraceError, match="printable"):
        api.scan(one(lambda params, x: x["a\nb"] + 1, {"a\nb": np.zeros(2, np.float32)}, names=("x",)))
    with pytest.raises(TraceError, match="nothing to export"):
        api.scan(one(lambda params, x: {}, np.zeros(2, np.float32), names=("x",)))
