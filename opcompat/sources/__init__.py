"""From what the user names on the command line to a Model: one loader per kind of source.

This version reads Python factories. Files and other kinds are recognized, and refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opcompat import config
from opcompat.errors import SourceError
from opcompat.model import Model
from opcompat.sources import factory

_SUFFIXES = {
    ".onnx": "an ONNX file",
    ".tflite": "a TFLite file",
    ".mlir": "a StableHLO file",
    ".mlirbc": "a StableHLO file",
}
_MARKERS = {
    "saved_model.pb": "a TensorFlow SavedModel",
    "manifest.json": "a bundle, by its manifest.json (`opcompat verify` reads bundles)",
}
_EXAMPLE = 'with the line\n\n    factory = "policy:make"\n\nwhere make() in policy.py returns an opcompat.Model'
_READABLE = f'this version reads a folder with {config.FILE} (factory = "module:function") or module:function'
_PYTHON = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


@dataclass(frozen=True)
class Loaded:
    """A model, its source as the user wrote it, and the folder that it was imported from."""

    model: Model
    name: str
    root: Path


def folder_of(source: str) -> Path:
    """The folder whose settings hold for `source`: itself, or the working directory for module:function."""
    path = Path(source)
    if path.is_dir():
        return path
    return path.parent if path.is_file() else Path.cwd()


def load(source: str, *, factory_args: Mapping[str, Any] | None = None) -> Loaded:
    """The model that `source` names: a folder with opcompat.toml, or "module:function".

    `factory_args` are keyword arguments for the factory, and win over those in the configuration. JAX's
    configuration is left as the factory leaves it. Raises SourceError and ConfigError.
    """
    arguments = dict(factory_args or {})
    path = Path(source)
    if path.is_dir():
        return _load_folder(source, path, arguments)
    if path.exists():
        raise SourceError(_refuse_file(source, path))
    if _PYTHON.match(source):
        settings = config.find(Path.cwd())
        # The table belongs to the configured factory, not to whichever function is named here.
        defaults = settings.factory_args if settings.factory == source else {}
        root = Path.cwd()
        return Loaded(factory.call(source, {**defaults, **arguments}, root), source, root)
    hint = " (a Python factory is written module:function)" if re.fullmatch(r"[\w.]+", source) else ""
    raise SourceError(f"no such folder or file: {source}{hint}")


def _load_folder(source: str, folder: Path, arguments: Mapping[str, Any]) -> Loaded:
    settings = config.read_folder(folder)
    if settings is None:
        for marker, kind in _MARKERS.items():
            if (folder / marker).is_file():
                raise SourceError(f"{source} is {kind}; as a source it is not readable yet: {_READABLE}")
        raise SourceError(f"{source} has no {config.FILE}: write one {_EXAMPLE}")
    if settings.factory is None:
        raise SourceError(f"{settings.path} names no factory: begin it {_EXAMPLE}")
    root = folder.resolve()
    model = factory.call(settings.factory, {**settings.factory_args, **arguments}, root)
    return Loaded(model, source, root)


def _refuse_file(source: str, path: Path) -> str:
    if path.name == config.FILE:
        return f"{source} is the configuration: give its folder, {path.parent}"
    if path.suffix == ".py":
        return f"{source} is a Python file: give {path.stem}:FUNCTION, and run from {path.parent.resolve()}"
    kind = _SUFFIXES.get(path.suffix.lower(), "a file of a kind that opcompat does not know (jax.export?)")
    return f"{source} is {kind}; that is not readable yet: {_READABLE}"
