"""The example's variants, image and half precision, from scan to verify on both formats."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opcompat import api

EXAMPLE = Path(__file__).parents[1] / "examples" / "dreamer"
STEPS = 60


@pytest.fixture(autouse=True)
def example_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    return


@pytest.mark.parametrize(
    ("observation", "dtype"),
    [("image", "float32"), ("vector", "bfloat16"), ("vector", "float16"), ("image", "bfloat16")],
)
def test_variant_acts_like_jax(observation: str, dtype: str, tmp_path: Path) -> None:
    import dreamer

    model = dreamer.model(size="small", observation=observation, dtype=dtype)
    bundle, report = api.convert(model, tmp_path / "dist", steps=STEPS)
    half = dtype != "float32"
    steps = [c for c in report.checks if c.kind == "step" and c.draws]
    assert {(c.format, c.entry_point) for c in steps} == {
        (f, e) for f in ("onnx", "tflite") for e in ("policy", "imagine")
    }
    for check in steps:
        assert check.passed
        assert check.mismatched <= check.draws / 1000 if half else check.mismatched == 0
    assert {c.entry_point for c in report.checks if c.kind == "default-jit"} == (
        set(model.entry_points) if half else set()
    )
    parameters = {w.name: w for w in bundle.manifest.weights}
    kernel = parameters["params.recurrence.gates.kernel"]
    assert kernel.dtype == dtype
    width = 2 if half else 4
    stored = (bundle.path / "onnx" / "weights.bin").stat().st_size
    assert stored <= 1.1 * width * report.parameters
