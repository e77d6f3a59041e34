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
from opcompat.errors import BundleError, ConfigError, TraceError

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
        one(lambda params, x: jnp.abs(jnp.sort(x + 0j)), np.ones(4, np.float32), names=("x",)), ["litert"]
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


def test_a_mask_times_infinity(tmp_path: Path) -> None:
    """XLA turns a mask's product into a select, which gives 0 where the product is NaN: both are JAX's answers."""

    def masked(params: Any, x: jax.Array, on: jax.Array) -> jax.Array:
        return x * on.astype(jnp.float32) + x * (x > 0)

    model = one(masked, np.ones(4, np.float32), np.ones(4, bool))
    assert api.convert(model, tmp_path / "out", steps=3)[1].ok


def test_sums_of_large_values(tmp_path: Path) -> None:
    model = one(lambda params, x: x @ x.T, np.ones((4, 130), np.float32), names=("x",))
    assert api.convert(model, tmp_path / "out", steps=3)[1].ok


def test_a_loop_as_long_as_an_input_says(tmp_path: Path) -> None:
    def count(params: Any, n: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, n, lambda i, total: total + i, 0)

    assert api.convert(one(count, np.int32(3)), tmp_path / "out", steps=3)[1].ok


def test_an_output_named_like_an_input(tmp_path: Path) -> None:
    def step(params: Any, s: jax.Array, q: jax.Array) -> dict[str, jax.Array]:
        return {"s": s + q, "s.next": s - q}

    zeros = np.zeros(2, np.float32)
    bundle, report = api.convert(one(step, zeros, zeros), tmp_path / "out", steps=3)
    assert report.ok
    assert set(opcompat.runtime.load(bundle.path).entry_point("step")({"s": zeros, "q": zeros})) == {"s", "s.next"}


def test_results_that_are_python_numbers(tmp_path: Path) -> None:
    model = one(lambda params, x: {"a": 1, "x": x + 1}, np.zeros(2, np.float32), names=("x",))
    assert api.convert(model, tmp_path / "out", steps=2)[1].ok


def test_strict_promotion_with_64_bit_types(tmp_path: Path) -> None:
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        model = one(lambda params, x: jnp.tanh(x), np.zeros(2, np.float32), names=("x",))
        assert api.convert(model, tmp_path / "out", steps=2)[1].ok


def test_a_first_state_of_python_numbers(tmp_path: Path) -> None:
    def step(params: Any, s: jax.Array) -> dict[str, jax.Array]:
        return {"s": s * 0.5 + 1}

    model = one(step, np.float32(0), feedback={"s": "s"}, init={"s": 0})
    assert api.convert(model, tmp_path / "out", steps=2)[1].ok


def test_wiring_that_is_not_the_model_s_is_refused(tmp_path: Path) -> None:
    def step(params: Any, s: jax.Array, t: jax.Array) -> dict[str, jax.Array]:
        return {"s": s + 1, "t": t - 1}

    def wired(**feedback: str) -> Model:
        return one(step, *[np.zeros(2, np.float32)] * 2, feedback=feedback, init={"s": np.ones(2), "t": np.zeros(2)})

    bundle, _ = api.convert(wired(s="s", t="t"), tmp_path / "out", steps=3)
    assert api.verify(bundle, wired(s="s", t="t"), steps=3).ok
    with pytest.raises(BundleError, match="feedback or init"):
        api.verify(bundle, wired(s="t", t="s"), steps=3)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, out: api.convert(m, out, "onnx"),
        lambda m, out: api.convert(m, out, []),
        lambda m, out: api.convert(m, out, ["onnx"], opset=99),
        lambda m, out: api.scan(m, []),
        lambda m, out: api.scan(m, "litert"),
        lambda m, out: EntryPoint(lambda p: p, outputs="action"),  # type: ignore[arg-type]
        lambda m, out: EntryPoint(lambda p: p, feedback=("s",)),  # type: ignore[arg-type]
        lambda m, out: Model("n" * 101, {}, dict(m.entry_points)),
    ],
)
def test_wrong_arguments_are_named(call: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        call(one(lambda params, x: x + 1, np.zeros(2, np.float32), names=("x",)), tmp_path / "out")


@pytest.mark.parametrize("fn", ["min", "max"])
def test_scatter_keeps_nan(fn: str, tmp_path: Path) -> None:
    def write(params: Any, x: jax.Array, i: jax.Array) -> jax.Array:
        return getattr(x.at[i], fn)(0.0)

    model = one(write, np.zeros(4, np.float32), np.zeros(2, np.int32))
    assert api.convert(model, tmp_path / "out", steps=3)[1].ok
