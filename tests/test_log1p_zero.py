"""log1p keeps the sign of zero in both runtimes: geometric and binomial draws divide by it."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import opcompat.runtime
from opcompat import api
from opcompat.model import EntryPoint, Model


@pytest.mark.parametrize("form", ["onnx", "tflite"])
def test_a_quotient_by_log1p_of_zero(form: str, tmp_path: Path) -> None:
    entry = EntryPoint(lambda params, p: jnp.log(0.3) / jnp.log1p(-p), (jnp.zeros(4),), outputs=("failures",))
    api.convert(Model("m", {}, {"wait": entry}), tmp_path / "dist", to=(form,), steps=10)
    p = np.array([0, -0.0, 0.5, 1], np.float32)
    waits = opcompat.runtime.load(tmp_path / "dist").entry_point("wait").step({"p": p})["failures"]
    np.testing.assert_allclose(waits, [np.inf, -np.inf, np.log(0.3) / np.log(0.5), 0], rtol=1e-6)
