"""Policies that compute with complex numbers: linear recurrent units, state-space models, spectra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

import opcompat
from opcompat import runtime

SIZE, WIDTH = 6, 8


def recurrent_unit() -> opcompat.Model:
    """One step of a linear recurrent unit (Orvieto et al., 2023): a complex diagonal state, complex parameters."""
    rng = np.random.default_rng(0)

    def matrix(*shape: int) -> Any:
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64) / 3

    params = {
        "decay": np.linspace(0.1, 1, WIDTH).astype(np.float32),
        "turn": np.linspace(0, 3, WIDTH).astype(np.float32),
        "into": matrix(SIZE, WIDTH),
        "out": matrix(WIDTH, SIZE),
    }

    def step(params: Any, key: jax.Array, obs: jax.Array, hidden: jax.Array) -> dict[str, jax.Array]:
        rate = jnp.exp(lax.complex(-params["decay"], params["turn"]))
        hidden = rate * hidden + (1 - jnp.abs(rate)) * (obs @ params["into"])
        logits = jnp.real(hidden @ params["out"])
        return {"action": jax.random.categorical(key, logits), "logits": logits, "hidden": hidden}

    entry = opcompat.EntryPoint(
        step,
        args=(jax.random.key(0), jnp.zeros(SIZE), jnp.zeros(WIDTH, jnp.complex64)),
        names=("key", "obs", "hidden"),
        feedback={"hidden": "hidden"},
        init={"hidden": jnp.full(WIDTH, 0.5 - 0.25j, jnp.complex64)},
    )
    return opcompat.Model("lru", params, {"policy": entry})


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[opcompat.Model, Path]:
    model, out = recurrent_unit(), tmp_path_factory.mktemp("complex") / "dist"
    opcompat.convert(model, out, steps=50)
    return model, out


def test_a_complex_state_stays_right_in_a_closed_loop(converted: tuple[opcompat.Model, Path]) -> None:
    model, out = converted
    report = opcompat.verify(out, model, steps=100)
    assert report.ok
    loops = [c for c in report.checks if c.kind == "closed-loop"]
    assert {c.format for c in loops} == {"onnx", "tflite"}
    assert all(c.binding and not c.mismatched for c in loops)


@pytest.mark.parametrize("form", ["onnx", "tflite"])
def test_complex_values_are_pairs_in_files(converted: tuple[opcompat.Model, Path], form: str) -> None:
    model, out = converted
    policy = runtime.load(out, format=form).entry_point("policy")
    rng = np.random.default_rng(1)
    obs = rng.standard_normal(SIZE).astype(np.float32)
    hidden = (rng.standard_normal(WIDTH) + 1j * rng.standard_normal(WIDTH)).astype(np.complex64)
    key = np.array([3, 4], np.uint32)
    got = policy({"key": key, "obs": obs, "hidden": np.stack([hidden.real, hidden.imag], -1)})
    want = model.entry_points["policy"].function(model.params, jax.random.wrap_key_data(key), obs, hidden)
    assert got["action"] == want["action"]
    np.testing.assert_allclose(got["hidden"][..., 0] + 1j * got["hidden"][..., 1], want["hidden"], atol=1e-5)


def test_loops_and_branches_carry_complex_values(tmp_path: Path) -> None:
    def run(_: Any, x: jax.Array) -> dict[str, jax.Array]:
        def step(carry: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
            carry = lax.cond(jnp.abs(carry) > 2, lambda z: z / 2, lambda z: z * (1 + 0.5j) + y, carry)
            return carry, carry

        last, all_ = lax.scan(step, jnp.complex64(0), x)
        rounds = lax.while_loop(lambda s: jnp.abs(s) < 100, lambda s: s * (1.5 + 1j), last + 1)
        return {"angle": jnp.angle(all_), "rounds": jnp.abs(rounds)}

    model = opcompat.Model("m", {}, {"e": opcompat.EntryPoint(run, (jnp.zeros(5),), names=("x",))})
    _, report = opcompat.convert(model, tmp_path / "dist", steps=20)
    assert report.ok


def test_large_closures_are_stored_as_pairs(tmp_path: Path) -> None:
    table = np.exp(1j * np.arange(5000).reshape(50, 100) / 7).astype(np.complex64)

    def run(_: Any, x: jax.Array) -> dict[str, jax.Array]:
        return {"power": jnp.abs(table @ x)}

    model = opcompat.Model("m", {}, {"e": opcompat.EntryPoint(run, (jnp.zeros(100),), names=("x",))})
    _, report = opcompat.convert(model, tmp_path / "dist", ["onnx"], steps=20)
    assert report.ok
    assert (tmp_path / "dist/onnx/weights.bin").stat().st_size == table.nbytes


def test_what_has_no_form_is_found_at_its_line() -> None:
    def run(_: Any, x: jax.Array) -> dict[str, jax.Array]:
        return {"y": jnp.real(jnp.sort(lax.complex(x, x[::-1])))}

    model = opcompat.Model("m", {}, {"e": opcompat.EntryPoint(run, (jnp.zeros(4),), names=("x",))})
    report = opcompat.scan(model)
    assert not report.ok
    for target in report.targets:
        (found,) = [f for f in target.findings if f.verdict == "unsupported"]
        assert (found.primitive, found.operands) == ("sort", "complex64[4]")
        assert "pairs of real numbers" in found.reason
        assert found.file.endswith("test_complex.py")


def test_rewrite_keeps_complex_types() -> None:
    def function(z: jax.Array) -> jax.Array:
        return jnp.exp(z) * (2 - 1j)

    z = np.array([1 + 2j, -0.5j], np.complex64)
    got = jax.jit(opcompat.rewrite(function))(z)
    assert got.dtype == np.complex64
    np.testing.assert_allclose(got, function(z), rtol=1e-6)
