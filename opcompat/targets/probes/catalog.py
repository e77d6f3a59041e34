"""What can be probed on the user's machine, and how a table is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import chain
from typing import Any

from opcompat.errors import ConfigError
from opcompat.targets.probes.answers import probe, rows
from opcompat.targets.probes.case import Case
from opcompat.targets.probes.sandbox import Runtime, Sandbox

_PLACE = "opcompat.targets.probes.runtimes"


@dataclass(frozen=True)
class Probe:
    """A runtime, the questions to it (`special`: those with special values too), and what the table says beside."""

    runtime: Runtime
    summary: str
    limits: Mapping[str, Any]
    cases: Callable[..., Iterator[Case]]
    has_64_bit: bool = True
    complete: bool = False
    finish: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def _ethos(unit: str) -> Probe:
    from opcompat.targets.probes import ethos

    return Probe(
        Runtime(f"opcompat.targets.probes.ethos:{unit}", "ethos-u-vela", "ethosu.vela.vela", "tflite", compares=False),
        f"Arm Ethos-{unit.upper()} accelerator, as Vela places ops",
        {
            "signatures": 1,
            "quantized": "int8 (or int16)",
            "fallback": "TensorFlow Lite for Microcontrollers on the CPU",
            "state": "a value that is fed back needs one scale and zero point in its output and its input",
            "notes": ["Known is where Vela places an op, not what it computes: compare on the device."],
        },
        ethos.cases,
        has_64_bit=False,
        complete=True,
        finish=ethos.finished,
    )


def _tflite() -> Iterator[Case]:
    from opcompat.targets.probes.tflite_cases import cases

    return cases()


def _onnx_and_special() -> Iterator[Case]:
    from opcompat.targets.probes.onnx_cases import cases

    dtypes = ("float32", "int32", "uint32", "bool", "float16", "bfloat16", "int64", "int8", "uint8", "int16")
    for dtype in dtypes:
        ranks = range(5) if dtype == "float32" else range(4)
        yield from cases([dtype], ranks, special=True)
        yield from cases([dtype], ranks)


def _tflite_and_special() -> Iterator[Case]:
    from opcompat.targets.probes.tflite_cases import cases

    return chain(cases(), cases(special=True))


_OPENVINO_DOUBTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Cast": (("float32 -> float16", "dropped where it is cast back: values are not rounded, and 1e8 stays 1e8"),),
    "Clip": (("float32 float32 float32 -> float32", "NaN comes out as the lower bound"),),
    "Max": (("float32 -> float32", "NaN comes out wrong"),),
    "Min": (("float32 -> float32", "NaN comes out wrong"),),
    "Mod": (("float32 float32 -> float32", "among other ops it gives NaN for infinite divisors"),),
}
"""Op -> (dtypes, what models of several ops showed): one-op models do not show what the compiler does between ops."""


def _doubted(content: dict[str, Any]) -> dict[str, Any]:
    """The table with those doubts first, where they decide."""
    for op, doubts in _OPENVINO_DOUBTS.items():
        rows_ = [{"is": "conditional", "dtypes": dtypes, "when": [{"text": text}]} for dtypes, text in doubts]
        content["ops"][op] = [*rows_, *content["ops"].get(op, [])]
    return content


PROBES: Mapping[str, Probe] = {
    # Its lowerings are proven on the runtime itself with boundary values, so ordinary values are asked alone.
    "litert": Probe(
        Runtime(f"{_PLACE}:litert", "ai-edge-litert", "ai_edge_litert.interpreter", "tflite"),
        "LiteRT (TFLite) on the CPU, default delegate",
        {},
        _tflite,
        has_64_bit=False,
    ),
    "tflite-micro": Probe(
        Runtime(f"{_PLACE}:tflite_micro", "tflite-micro", "tflite_micro.python.tflite_micro.runtime", "tflite"),
        "TensorFlow Lite for Microcontrollers, reference kernels",
        {
            "signatures": 1,
            "state": "an int8 value that is fed back needs one scale and zero point in its output and its input",
            "notes": ["Inputs and outputs have no names: they come in the order of the manifest."],
        },
        _tflite_and_special,
        has_64_bit=False,
    ),
    "openvino": Probe(
        Runtime(f"{_PLACE}:openvino", "openvino", "openvino", "onnx", opset=21),
        "OpenVINO on the CPU, in float32",
        {
            "notes": [
                "Set INFERENCE_PRECISION_HINT to f32: on CPUs with bfloat16 units the default rounds to bfloat16.",
            ],
        },
        _onnx_and_special,
        finish=_doubted,
    ),
    "ethos-u55": _ethos("u55"),
    "ethos-u85": _ethos("u85"),
}
"""Name -> how to ask it."""


def make(name: str, date: str, questions: Iterable[Case] | None = None) -> dict[str, Any]:
    """Asks the installed runtime, and returns the content of its table.

    Raises ConfigError if the runtime is not installed.
    """
    found = PROBES[name]
    sandbox = Sandbox(found.runtime)
    try:
        answers, tried = probe(found.cases() if questions is None else questions, sandbox)
    finally:
        sandbox.close()
    content = {
        "schema_version": 1,
        "target": name,
        "runtime": found.runtime.package,
        "version": metadata.version(found.runtime.package),
        "date": date,
        "format": found.runtime.form,
        "evidence": "probed",
        "generator": f"opcompat probe {name}",
        "summary": found.summary,
        "tried": tried,
        "complete": found.complete,
        "has_64_bit": found.has_64_bit,
        "limits": dict(found.limits),
        "ops": rows(answers),
    }
    return found.finish(content) if found.finish else content


def derive(name: str, date: str) -> dict[str, Any]:
    """The content of a target's table, from what is installed here, or from its document if it can only be read.

    Raises ConfigError if the runtime is not installed, or is another version than the target's.
    """
    from opcompat.targets.probes import documented, ort_registry
    from opcompat.targets.probes.web import engines

    if name in PROBES:
        return make(name, date)
    if name in engines.ENGINES:
        return engines.make(name, date)
    if name in documented.MAKERS:
        return documented.make(name)
    content = ort_registry.content(name, date, f"opcompat probe {name}")
    wanted = name.partition("@")[2]
    if wanted and not content["version"].startswith(f"{wanted}."):
        raise ConfigError(
            f"{name}: onnxruntime {content['version']} is installed; next: pip install 'onnxruntime=={wanted}.*' "
            "in an environment of its own, and probe there"
        )
    return content
