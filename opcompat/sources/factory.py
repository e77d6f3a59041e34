"""Calls a user's Python function that returns a Model.

The folder goes to the front of `sys.path` and stays there: the model's functions run later, when they are
traced, and may import their siblings only then. Modules keep their own names, as under `python -m`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from opcompat import config
from opcompat.config import did_you_mean
from opcompat.errors import SourceError
from opcompat.model import Model
from opcompat.sources.base import Loaded, Options


def load(source: str, options: Options) -> Loaded:
    """The model of a folder whose configuration names a factory, or of "module:function" below the working directory.

    Arguments in the configuration belong to the factory that it names, and to no other. Raises SourceError.
    """
    options.check(source, "factory_args")
    path = Path(source)
    settings = config.find(path if path.is_dir() else Path.cwd())
    name, root = (str(settings.factory), path.resolve()) if path.is_dir() else (source, Path.cwd())
    defaults = settings.factory_args if settings.factory == name else {}
    return Loaded(call(name, {**defaults, **options.factory_args}, root), source, root)


def call(name: str, arguments: Mapping[str, Any], root: Path) -> Model:
    """The Model that the function `name`, "module:function" below the folder `root`, returns.

    Raises SourceError if it cannot be found, raises, or returns anything else.
    """
    module_name, _, attribute = name.partition(":")
    function = _find(_import(module_name, root), module_name, attribute)
    _check_arguments(name, function, arguments)
    try:
        model = function(**arguments)
    except (Exception, SystemExit) as error:
        raise SourceError(f"the factory {name} raised{_place(error, root)}: {_last_line(error)}") from error
    if not isinstance(model, Model):
        raise SourceError(f"the factory {name} returned {_kind(model)}, not an opcompat.Model")
    return model


def _import(name: str, root: Path) -> ModuleType:
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _import_failed(name, error, root) from error
        raise SourceError(f"no module {name!r} in {root} or among the installed packages") from error
    except (Exception, SystemExit) as error:
        raise _import_failed(name, error, root) from error
    _check_origin(module, name, root)
    return module


def _import_failed(name: str, error: BaseException, root: Path) -> SourceError:
    return SourceError(f"importing {name} failed{_place(error, root)}: {_last_line(error)}")


def _check_origin(module: ModuleType, name: str, root: Path) -> None:
    """A module of that name that was loaded from elsewhere before would silently be the wrong model."""
    expected = root.joinpath(*name.split("."))
    here = expected.with_suffix(".py").is_file() or (expected / "__init__.py").is_file()
    file = getattr(module, "__file__", None)
    if here and (file is None or not Path(file).resolve().is_relative_to(root.resolve())):
        raise SourceError(
            f"module {name!r} of {root} cannot be imported: {file or 'a built-in module'} is already loaded "
            "under that name; rename it, or load one source per process"
        )


def _find(module: ModuleType, module_name: str, attribute: str) -> Callable[..., Any]:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            names = [n for n, v in vars(value).items() if callable(v) and not n.startswith("_")]
            raise SourceError(
                f"module {module_name!r} ({getattr(module, '__file__', None)}) has no function {attribute!r}"
                f"{did_you_mean(part, names)}"
            )
        value = getattr(value, part)
    if not callable(value):
        raise SourceError(f"{module_name}:{attribute} is {_kind(value)}, not a function that returns a Model")
    return value  # type: ignore[no-any-return]  # callable() says no more than that


def _check_arguments(name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a function without a readable signature answers for itself when it is called
    try:
        signature.bind(**arguments)
    except TypeError as error:
        unknown = [key for key in arguments if key not in signature.parameters]
        hint = did_you_mean(unknown[0], signature.parameters) if unknown else ""
        raise SourceError(
            f"the factory {name}{signature} does not take these arguments: {error}{hint} "
            "(they come from factory_args and --arg NAME=VALUE)"
        ) from error


def _place(error: BaseException, root: Path) -> str:
    """' at FILE:LINE': the innermost line of the user's own code that the error came through."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {_short(error.filename)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if Path(f.filename).is_relative_to(root)]
    outside = [f for f in frames if f.filename != __file__ and "importlib" not in f.filename]
    for frame in reversed(inside or outside):
        return f" at {_short(frame.filename)}:{frame.lineno}"
    return ""


def _short(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _last_line(error: BaseException) -> str:
    text = str(error.msg if isinstance(error, SyntaxError) else error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
