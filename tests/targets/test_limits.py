"""What targets ask of whole models: findings and advice, by the limits in their tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

import opcompat
from opcompat import packs
from opcompat.analyze import Analysis, analyze_all
from opcompat.contract import contracts
from opcompat.targets import catalog, limits
from opcompat.targets.base import Limits
from opcompat.trace import trace


def model() -> opcompat.Model:
    def step(params: Any, obs: Any, state: Any) -> dict[str, Any]:
        return {"action": obs + params["w"], "state": state + 1.0}

    def start(params: Any) -> dict[str, Any]:
        return {"state": jnp.zeros(2)}

    entry = opcompat.EntryPoint(
        step, (jnp.zeros(2), jnp.zeros(2)), feedback={"state": "state"}, init={"state": "start.state"}
    )
    return opcompat.Model("m", {"w": jnp.ones(2)}, {"policy": entry, "start": opcompat.EntryPoint(start, ())})


def analyses(name: str, **bounds: Any) -> list[Analysis]:
    target = replace(catalog.target(name), limits=Limits(**bounds))
    one = model()
    return list(analyze_all([trace(one, e) for e in one.entry_points], target, packs.rules()))


@pytest.mark.parametrize(
    ("name", "bounds", "reason"),
    [
        ("onnxruntime", {"opset": 15}, "onnxruntime loads ONNX opsets up to 15, and the file has opset 21"),
        ("litert", {"signatures": 1}, "litert reads one signature per file, and the model has 2 entry points"),
        ("litert", {"interface": ("int32",)}, "input obs is float32, and litert passes int32 only"),
    ],
)
def test_a_broken_limit_is_a_finding(name: str, bounds: dict[str, Any], reason: str) -> None:
    found = list(limits.findings(analyses(name, **bounds)))
    assert any(f.reason.startswith(reason) for f in found)
    assert all(f.verdict == "unsupported" for f in found)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("onnxruntime", {"opset": 21, "signatures": 1}),
        ("litert", {"opset": 1, "signatures": 2}),
        ("litert", {"interface": ("float32",)}),
    ],
)
def test_a_kept_limit_is_none(name: str, bounds: dict[str, Any]) -> None:
    assert not list(limits.findings(analyses(name, **bounds)))


def test_findings_count_as_unsupported() -> None:
    report = opcompat.scan(model(), ["onnxruntime-mobile"])
    assert not report.ok
    assert "opset" in {f.primitive for f in report.targets[0].findings}


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"precision": "float16"}, "rounded to float16"),
        ({"quantized": "int8", "fallback": "the CPU"}, "in int8 alone"),
        ({"state": "one scale"}, "one scale: state"),
        ({"notes": ("Mind this.",)}, "Mind this."),
    ],
)
def test_semantics_are_advice(bounds: dict[str, Any], words: str) -> None:
    found = analyses("litert", **bounds)
    one = model()
    connected = contracts(one, {e: trace(one, e) for e in one.entry_points})
    (advice,) = limits.advice(found[0].target, found, connected)
    assert words in advice.message
    assert advice.next_step


def test_no_state_no_advice() -> None:
    found = analyses("litert", state="one scale")
    assert not list(limits.advice(found[0].target, found, {}))
