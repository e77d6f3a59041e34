"""64-bit values: kept where the runtime has them, refused where it has not, narrowed where the user allows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opcompat import EntryPoint, Model, api
from opcompat.errors import BundleError, UnsupportedError


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def policy(params: Any, obs: jax.Array, count: jax.Array) -> tuple[jax.Array, ...]:
    hidden = jnp.tanh(obs @ params["w"] + params["b"])
    best = jnp.argmax(hidden, axis=-1)

    def step(total: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = total * 0.5 + row
        return total, jnp.exp(-total)

    total, traces = jax.lax.scan(step, jnp.zeros(hidden.shape[-1]), hidden)
    return hidden, best, count + best[0], total, traces


def model() -> Model:
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((6, 8)) / 3, "b": rng.standard_normal(8)}
    args = (np.zeros((4, 6)), np.int64(0))
    names = ("hidden", "best", "count", "total", "traces")
    return Model("wide", params, {"policy": EntryPoint(policy, args=args, outputs=names)})


def test_onnx_keeps_64_bits(tmp_path: Path) -> None:
    bundle, report = api.convert(model(), tmp_path / "out", ["onnx"], steps=30, allow_narrowing=True)
    outputs = {o.name: o for c in report.checks if c.kind == "step" for o in c.outputs}
    assert outputs["hidden"].dtype == "float64"
    assert outputs["hidden"].error < 1e-14
    assert bundle.manifest.entry_points["policy"].output("best").file_dtype == "int64"
    assert not report.targets[0].findings


def test_litert_refuses_64_bits(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=r"litert: dot_general float64\[4,6\], float64\[6,8\] at .*test_narrowing"
    ):
        api.convert(model(), tmp_path / "out", ["tflite"], steps=5)
    assert not (tmp_path / "out").exists()


def test_litert_computes_in_32_bits_where_allowed(tmp_path: Path) -> None:
    bundle, report = api.convert(model(), tmp_path / "out", ["tflite"], steps=30, allow_narrowing=True)
    (check,) = (c for c in report.checks if c.kind == "step")
    errors = {o.name: o.error for o in check.outputs}
    assert check.passed
    assert 1e-9 < errors["hidden"] < 1e-6
    assert errors["best"] == errors["count"] == 0
    assert "OC211" in {rule.id for rule in report.targets[0].rules}
    info = bundle.manifest.entry_points["policy"]
    assert info.input("obs").file_dtype == "float64"
    assert info.output("count").file_dtype == "int64"


def test_the_configuration_is_part_of_the_policy(tmp_path: Path) -> None:
    bundle, _ = api.convert(model(), tmp_path / "out", ["onnx"], steps=3)
    assert bundle.manifest.config["x64"] is True
    with jax.enable_x64(False), pytest.raises(BundleError, match="x64: True, now False"):
        api.verify(bundle, model(), steps=3)


def test_bits_of_64_bit_values_are_not_narrowed() -> None:
    def odd(params: Any, x: jax.Array) -> jax.Array:
        return jax.lax.shift_right_logical(x, jnp.int64(33))

    bits = Model("bits", {}, {"odd": EntryPoint(odd, args=(np.zeros(3, np.int64),))})
    (litert,) = api.scan(bits, ["litert"], allow_narrowing=True).targets
    assert not litert.ok
