"""How each kind of source is recognized: by what it is named and by its first bytes, never by reading all of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path

from opcompat import config

_BYTECODE = b"ML\xefR"
_TFLITE = b"TFL3"
_MOST = 1 << 31
"""Bytes that are looked through: neither MLIR nor protobuf reads larger files."""

_PYTHON = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


def factory_folder(source: str) -> bool:
    """A folder whose own configuration names a factory."""
    path = Path(source)
    settings = config.read_folder(path) if path.is_dir() else None
    return settings is not None and settings.factory is not None


def python_function(source: str) -> bool:
    return not Path(source).exists() and _PYTHON.match(source) is not None


def suffix(*endings: str) -> Callable[[str], bool]:
    """Recognizes files by how their names end."""

    def matches(source: str) -> bool:
        return Path(source).is_file() and Path(source).suffix.lower() in endings

    return matches


def stablehlo(source: str) -> bool:
    """A file of StableHLO: text by its name, bytecode by its first bytes."""
    path = Path(source)
    return path.is_file() and (path.suffix.lower() in (".mlir", ".mlirbc") or _begins(path, _BYTECODE))


def jax_export(source: str) -> bool:
    """A file that `jax.export` wrote: a flatbuffer with bytecode of StableHLO in it."""
    path = Path(source)
    return path.is_file() and _holds(path, _BYTECODE + b"\rStableHLO_v")


def jax2tf(source: str) -> bool:
    """A SavedModel with StableHLO in it, as jax2tf has written them since jax 0.4.8."""
    path = Path(source) / "saved_model.pb"
    return path.is_file() and _holds(path, b"XlaCallModule")


def saved_model(source: str) -> bool:
    """A SavedModel's folder, whoever wrote it."""
    return (Path(source) / "saved_model.pb").is_file()


def _holds(path: Path, text: bytes) -> bool:
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap(file.fileno(), min(path.stat().st_size, _MOST), access=ACCESS_READ) as data:
        return data.find(text) >= 0


def _begins(path: Path, magic: bytes, offset: int = 0) -> bool:
    with path.open("rb") as file:
        return file.read(offset + len(magic))[offset:] == magic


def bundle(source: str) -> bool:
    return (Path(source) / "manifest.json").is_file()


def tflite_file(source: str) -> bool:
    path = Path(source)
    return path.is_file() and (path.suffix.lower() == ".tflite" or _begins(path, _TFLITE, 4))
