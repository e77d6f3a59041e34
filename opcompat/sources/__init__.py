"""From what the user names on the command line to a Model: one loader per kind of source.

To add a kind, write a module with `load(source: str, options: Options) -> Loaded | Graphs` and a line in KINDS.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from opcompat import config
from opcompat.errors import SourceError
from opcompat.sources import detect
from opcompat.sources.base import Graphs, Loaded, Options

__all__ = ["KINDS", "Graphs", "Kind", "Loaded", "Options", "folder_of", "load", "load_model"]


@dataclass(frozen=True)
class Kind:
    """One kind of source: how a user calls it, how it is recognized, and the module whose `load` reads it.

    `foreign`: a parser that a hostile file could crash reads it, so it is read in a child process first.
    """

    name: str
    matches: Callable[[str], bool]
    module: str
    foreign: bool = False


KINDS: tuple[Kind, ...] = (
    Kind(
        f'a folder with {config.FILE} (factory = "module:function")', detect.factory_folder, "opcompat.sources.factory"
    ),
    Kind("a bundle that convert wrote", detect.bundle, "opcompat.sources.graphs"),
    Kind("an ONNX file", detect.suffix(".onnx"), "opcompat.sources.graphs"),
    Kind("a TFLite file", detect.tflite_file, "opcompat.sources.graphs"),
    Kind("a SavedModel of jax2tf", detect.jax2tf, "opcompat.sources.jax2tf", foreign=True),
    Kind("a SavedModel of TensorFlow or Keras", detect.saved_model, "opcompat.sources.saved_model"),
    Kind("StableHLO (.mlir, .mlirbc)", detect.stablehlo, "opcompat.sources.stablehlo_file", foreign=True),
    Kind("a jax.export file", detect.jax_export, "opcompat.sources.exported", foreign=True),
    Kind("a Python factory, module:function", detect.python_function, "opcompat.sources.factory"),
)
"""In the order in which they are tried: the first that matches reads the source."""

_EXAMPLE = 'with the line\n\n    factory = "policy:make"\n\nwhere make() in policy.py returns an opcompat.Model'


def folder_of(source: str) -> Path:
    """The folder whose settings hold for `source`: itself, or the working directory for module:function."""
    path = Path(source)
    if path.is_dir():
        return path
    return path.parent if path.is_file() else Path.cwd()


def load(source: str, options: Options | None = None) -> Loaded | Graphs:
    """What `source` names: a model, or the graphs of a file that can only be scanned.

    `options` win over the configuration that belongs to the source: `opcompat.toml` inside its folder, or one above
    whose `source` names it. JAX's configuration is left as the source leaves it. Raises SourceError and ConfigError.
    """
    options, name, source = options or Options(), source, _followed(source)
    kind = next((k for k in KINDS if k.matches(source)), None)
    if kind is None:
        raise SourceError(_refuse(source))
    settings = _settings_of(source)
    merged = replace(options, dims={**settings.dims, **options.dims}, via=options.via or settings.via or "")
    if kind.foreign and not options.trusted:
        from opcompat.sources import trial

        trial.attempt(kind.module, source, merged)
    found: Loaded | Graphs = replace(import_module(kind.module).load(source, merged), name=name)
    flags = options.wiring
    if isinstance(found, Loaded) and (found.guess_keys or settings.entry_points or flags != config.Wiring()):
        from opcompat.sources.wiring import connect

        model = connect(found.model, settings.entry_points, flags, guess_keys=found.guess_keys)
        return replace(found, model=model)
    return found


def load_model(source: str, options: Options | None = None) -> Loaded:
    """The model that `source` names. Raises SourceError for one that can only be scanned, and as `load` does."""
    found = load(source, options)
    if isinstance(found, Graphs):
        raise SourceError(
            f"{source} holds {found.format} ops, which a runtime runs and JAX does not: it can be scanned, not "
            "converted or verified; next: opcompat scan, or give the source that it was converted from"
        )
    return found


def _followed(source: str) -> str:
    """The model that a folder's configuration names with `source`, else the source itself."""
    settings = config.read_folder(Path(source)) if Path(source).is_dir() else None
    if settings is None or settings.source is None:
        return source
    named = Path(source) / settings.source
    if not named.exists():
        raise SourceError(f"{settings.path}: source names {settings.source!r}, and there is no such file or folder")
    return str(named)


def _settings_of(source: str) -> config.Config:
    """The configuration of this very source, else an empty one: tables that name entry points fit no other."""
    settings = config.find(folder_of(source))
    if settings.path is None:
        return config.Config()
    folder, path = settings.path.parent.resolve(), Path(source).resolve()
    named = folder if settings.source is None else (folder / settings.source).resolve()
    own = named == path or settings.factory == source
    return settings if own else config.Config()


def _refuse(source: str) -> str:
    path = Path(source)
    readable = "opcompat reads " + "; ".join(kind.name for kind in KINDS)
    if path.is_dir():
        settings = config.read_folder(path)
        if settings is None:
            return f"{source} has no {config.FILE}: write one {_EXAMPLE}\n\n({readable})"
        return f"{settings.path} names no factory: begin it {_EXAMPLE}"
    if not path.exists():
        hint = " (a Python factory is written module:function)" if re.fullmatch(r"[\w.]+", source) else ""
        return f"no such folder or file: {source}{hint}"
    if path.name == config.FILE:
        return f"{source} is the configuration: give its folder, {path.parent}"
    if path.suffix.lower() in (".keras", ".h5"):
        return (
            f"{source} is a Keras file, which can hold code; next: model.export(FOLDER) in Keras, and give the folder"
        )
    if path.suffix == ".py":
        return f"{source} is a Python file: give {path.stem}:FUNCTION, and run from {path.parent.resolve()}"
    kind = "a file of a kind that opcompat does not know"
    return f"{source} is {kind}; that is not readable yet: {readable}"
