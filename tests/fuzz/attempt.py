"""What the tool does with a file, once for each format. Runs in a worker with the limits of the tool's own child."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from opcompat.errors import OpcompatError
from opcompat.files import judge, program
from opcompat.files.onnx_reader import read as read_onnx
from opcompat.files.tflite_reader import read as read_tflite
from opcompat.sources import trial
from opcompat.sources.base import Options
from opcompat.targets import catalog


def onnx(path: str) -> str:
    """Reads, then judges by the file's opset."""
    return _judged(path, read_onnx(path))


def tflite(path: str) -> str:
    return _judged(path, read_tflite(path))


def _judged(path: str, told: dict[str, Any]) -> str:
    def run() -> None:
        found = program.made(Path(path), told)
        target = catalog.target(catalog.FORMATS[found.format])
        opset = found.facts.get("opsets", {}).get("ai.onnx")
        if opset:
            target = catalog.reader(target.name, opset)
        list(judge.judged(found, target))

    return _own(run)


def stablehlo(path: str) -> str:
    return _traced("opcompat.sources.stablehlo_file", path)


def exported(path: str) -> str:
    return _traced("opcompat.sources.exported", path)


def saved_model(path: str) -> str:
    """Not traced: that takes seconds, and the payload in it is what `mlirbc` mutates."""
    trial.read("opcompat.sources.jax2tf", str(Path(path).parent), {}, "")
    return ""


def _traced(module: str, path: str) -> str:
    """Loads it as the tool's child does; then what the tool does in its own process: loads again, and traces."""
    from opcompat.conversion import trace_all

    trial.read(module, path, {}, "")
    return _own(lambda: trace_all(import_module(module).load(path, Options()).model))


def bundle(path: str) -> str:
    """The manifest is read in the tool's own process."""
    from opcompat.bundle import Bundle

    return _own(lambda: Bundle.open(Path(path).parent))


def config(path: str) -> str:
    from opcompat import config as module

    return _own(lambda: module.read_folder(Path(path).parent))


def _own(function: Callable[[], Any]) -> str:
    """ "" if it returns; the traceback of anything that would be a crash of the tool. Raises opcompat's own errors."""
    try:
        function()
    except OpcompatError:
        raise
    except Exception:  # noqa: BLE001  # that is what is looked for
        return traceback.format_exc()
    return ""
