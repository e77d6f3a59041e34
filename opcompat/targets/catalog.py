"""The targets by name, and which target judges which format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial

from opcompat.errors import ConfigError
from opcompat.targets.base import Target
from opcompat.targets.table import Table


def _onnxruntime(opset: int | None = None) -> Target:
    import onnx

    from opcompat.lowering.onnx.table import OPSET
    from opcompat.targets import onnxruntime

    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not OPSET <= opset <= newest:
        raise ConfigError(f"opset {opset} cannot be written: {OPSET} to {newest} can, and {OPSET} runs most widely")
    return onnxruntime.target(opset)


def _litert(opset: int | None = None) -> Target:
    from opcompat.targets import litert

    return litert.target(opset)


def _stored(file: str, opset: int | None = None) -> Target:
    """A target that is all data: `data/FILE.json`."""
    from opcompat.targets import table

    return table.target(table.load(file), opset)


FILES: Mapping[str, str] = {
    "onnxruntime@1.18": "onnxruntime-1.18",
    "onnxruntime@1.22": "onnxruntime-1.22",
    "onnxruntime@1.26": "onnxruntime-1.26",
    "onnxruntime@1.30": "onnxruntime-1.30",
    "onnxruntime@1.32": "onnxruntime-1.32",
    "onnxruntime-mobile": "onnxruntime-mobile",
    "coreml": "coreml",
    "nnapi": "nnapi",
    "tensorrt": "tensorrt",
    "litert-gpu": "litert-gpu",
    "openvino": "openvino",
    "tflite-micro": "tflite-micro",
    "ethos-u55": "ethos-u55",
    "ethos-u85": "ethos-u85",
    "onnxruntime-web": "onnxruntime-web",
    "onnxruntime-web-webgpu": "onnxruntime-web-webgpu",
    "litert-web": "litert-web",
    "tfjs": "tfjs",
}
"""Name -> the table that is the whole target."""

TARGETS: Mapping[str, Callable[..., Target]] = {
    "onnxruntime": _onnxruntime,
    "litert": _litert,
    **{name: partial(_stored, file) for name, file in FILES.items()},
}
"""Name -> target, for an ONNX opset (by default the newest that the project writes)."""

FORMATS: Mapping[str, str] = {"onnx": "onnxruntime", "tflite": "litert"}
"""Format -> the target that an artifact of this format is written for and proven on."""


def target(name: str, opset: int | None = None) -> Target:
    """The target of this name. Raises ConfigError, with the nearest name, if there is none."""
    if name not in TARGETS:
        near = get_close_matches(name, TARGETS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"no target {name!r}: there are {', '.join(TARGETS)}{hint}")
    return TARGETS[name](opset)


def candidates(name: str, opset: int | None = None) -> tuple[Target, ...]:
    """The target of this name in its forms, the preferred one first: without an `opset`, that which runs most widely,
    then the first that shows the bits of floats, if the target loads it. Raises ConfigError, as `target`.
    """
    preferred = target(name, opset)
    if preferred.backend.name != "onnx" or opset is not None:
        return (preferred,)
    from opcompat.lowering.onnx.builder import BITS_OPSET

    newest = preferred.limits.opset
    return (preferred,) if newest and newest < BITS_OPSET else (preferred, target(name, BITS_OPSET))


NEWEST = 10_000
"""No opset is newer: a number in a file may be anything."""


def reader(name: str, opset: int) -> Target:
    """The target, for an ONNX file that has this opset already: the newest that it loads, if it does not load that."""
    from opcompat.targets import onnxruntime

    if name == "onnxruntime":
        return onnxruntime.target(min(opset, NEWEST), isolated=True)
    newest = target(name).limits.opset
    return target(name, min(opset, newest or NEWEST))


def stored(name: str) -> Table:
    """The table behind a target. Raises ConfigError if there is no such target."""
    from opcompat.targets import onnxruntime, table

    target(name)
    if name == "onnxruntime":
        return onnxruntime.live()
    return table.load(FILES.get(name, name))


def describe(name: str) -> list[tuple[str, str]]:
    """(op, what is known of it) for every op in a target's table."""
    from opcompat.targets import table

    return table.describe(stored(name))


def provenance(name: str) -> list[tuple[str, str]]:
    """(what, text): the runtime, how its table is known, and what it asks of a model."""
    from dataclasses import asdict

    found, content = target(name), stored(name).content
    rows = [
        ("runtime", f"{found.runtime} {found.version}"),
        ("reads", found.backend.name),
        ("evidence", f"{found.evidence}, {found.date}" if found.date else found.evidence),
        ("from", found.origin),
        ("tried", f"{content['tried']} one-op models" if content.get("tried") else ""),
        ("not listed", "does not run" if content.get("complete") else "unknown"),
    ]
    for limit, value in asdict(found.limits).items():
        shown = ", ".join(value) if limit == "interface" else " ".join(value) if limit == "notes" else str(value)
        rows.append((limit, shown if value else ""))
    return [(what, text) for what, text in rows if text]
