"""What would make a model run on a target: one step for each kind of obstacle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from opcompat.report import Finding, Report, TargetReport
from opcompat.targets.needs import needs, summary


def finding(primitive: str = "add", reason: str = "", verdict: str = "unsupported", operands: str = "") -> Finding:
    return Finding(verdict, primitive, operands, "", 0, "", 2, ("policy",), reason=reason)  # type: ignore[arg-type]


def report(target: str, *found: Finding) -> Report:
    counts = {"native": 5, "unsupported": sum(f.count for f in found if f.verdict == "unsupported")}
    return Report("scan", "m", "", ("policy",), targets=(TargetReport(target, "r", "1", counts, found, ()),))


def nowhere(names: Sequence[str]) -> Report:
    one = report("x", finding()).targets[0]
    return replace(report("x"), targets=tuple(replace(one, target=n) for n in names))


def everywhere(names: Sequence[str]) -> Report:
    one = report("x").targets[0]
    return replace(report("x"), targets=tuple(replace(one, target=n) for n in names))


@pytest.mark.parametrize(
    ("target", "found", "step"),
    [
        ("onnxruntime@1.22", finding(), "write this part in other operations"),
        ("onnxruntime@1.22", finding(operands="float64[2]"), "32 bits"),
        ("coreml", finding(), "leave it to ONNX Runtime on the CPU"),
        ("ethos-u55", finding(reason="ADD: floats stay; quantized to int8 it runs"), "quantize to int8"),
        ("tflite-micro", finding(reason="only if: ADD: right", verdict="unknown"), "holds for your inputs"),
        ("litert", finding(verdict="unknown"), "probe it on your machine"),
        ("tflite-micro", finding("signatures"), "a Model of its own"),
        ("onnxruntime-mobile", finding("opset"), "loads this opset"),
    ],
)
def test_each_obstacle_has_its_step(target: str, found: Finding, step: str) -> None:
    (need,) = needs(report(target, found), target, nowhere)
    assert step in need.step
    assert need.count == 2


def test_versions_that_run_the_model_come_first() -> None:
    (need,) = needs(report("onnxruntime@1.18", finding()), "onnxruntime@1.18", everywhere)
    assert "onnxruntime@1.32" in need.step
    assert "onnxruntime@1.18" not in need.step


def test_what_runs_needs_nothing() -> None:
    assert not list(needs(report("litert"), "litert", nowhere))
    assert summary(report("litert", finding()).targets[0]) == "5 of 7 equations run on litert (r 1)"
