"""The targets by name, and which target judges which format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from opcompat.errors import ConfigError
from opcompat.targets.base import Target


def _onnxruntime(opset: int | None = None) -> Target:
    import onnx

    from opcompat.lowering.onnx.table import OPSET
    from opcompat.targets import onnxruntime

    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not OPSET <= opset <= newest:
        raise ConfigError(f"opset {opset} cannot be written: {OPSET} to {newest} can, and {OPSET} runs most widely")
    return onnxruntime.target() if opset is None else onnxruntime.target(opset)


def _litert(opset: int | None = None) -> Target:
    from opcompat.targets import litert

    return litert.target()


TARGETS: Mapping[str, Callable[..., Target]] = {"onnxruntime": _onnxruntime, "litert": _litert}
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


def describe(name: str) -> list[tuple[str, str]]:
    """(op, what is known of it) for every op in a target's table."""
    if name == "onnxruntime":
        from opcompat.targets import onnxruntime

        return onnxruntime.describe()
    from opcompat.targets import litert

    target(name)
    return litert.describe()
