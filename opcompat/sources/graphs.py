"""Files that hold a runtime's own ops: named here, and read when they are scanned (`opcompat.files`)."""

from __future__ import annotations

from pathlib import Path

from opcompat.sources import detect
from opcompat.sources.base import Graphs, Options


def load(source: str, options: Options) -> Graphs:
    """The file or bundle, unread. Options say how a model is made, and nothing of a file."""
    path = Path(source)
    form = "bundle" if detect.bundle(source) else "onnx" if path.suffix.lower() == ".onnx" else "tflite"
    return Graphs(form, path, source, path if form == "bundle" else path.parent)
