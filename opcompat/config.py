"""Settings from `opcompat.toml`, or `[tool.opcompat]` in `pyproject.toml`: the nearest one, looking upward.

In one folder `opcompat.toml` wins. Relative paths in a file are relative to its folder. The command line wins
over everything that stands here.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcompat.errors import ConfigError
from opcompat.manifest import SAMPLING

FILE = "opcompat.toml"
if TYPE_CHECKING:
    from opcompat.checking.settings import Settings

_FACTORY = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*\Z")


@dataclass(frozen=True)
class Wiring:
    """How an entry point of a model without Python source is used: what its file cannot say.

    Attributes:
      feedback: output name -> input name.
      init: input name -> "ENTRY_POINT.OUTPUT", a number for every element, or nested lists of numbers.
      keys: names of the inputs that are PRNG keys -> their implementations ("threefry2x32"; "" follows from the
        shape). None leaves it to the loader, which takes uint32[2] for threefry keys and uint32[4] for rbg keys.
      tolerance: largest absolute error allowed, for all float outputs or by output name.
    """

    feedback: Mapping[str, str] = field(default_factory=dict)
    init: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str] | None = None
    tolerance: float | Mapping[str, float] | None = None


@dataclass(frozen=True)
class Config:
    """The settings of one file; None, or an empty table, is what it does not set.

    Attributes:
      path: the file, or None where there is none.
      factory: "module:function", which returns an opcompat.Model. The module is imported from path's folder.
      factory_args: keyword arguments of the factory.
      source: the file or folder that holds the model, relative to path's folder, where there is no factory.
      dims: sizes of the source's symbolic dimensions.
      via: the route by which the source is read, where there are several.
      entry_points: how the source's entry points are used, by their names.
      targets: names of the targets that `scan` judges.
      to: formats that `convert` writes.
      out: folder for the bundle.
      sampling: how draws are exported.
      opset: ONNX opset version.
      batch: further batch sizes to write entry points for.
      steps, seeds: how long and from how many seeds artifacts are compared with JAX.
      check: what `check` accepts and limits; see `opcompat.checking.settings`.
    """

    path: Path | None = None
    factory: str | None = None
    factory_args: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    via: str | None = None
    entry_points: Mapping[str, Wiring] = field(default_factory=dict)
    targets: tuple[str, ...] | None = None
    to: tuple[str, ...] | None = None
    out: Path | None = None
    sampling: str | None = None
    opset: int | None = None
    batch: tuple[int, ...] | None = None
    steps: int | None = None
    seeds: int | None = None
    check: Settings | None = None


def find(start: Path) -> Config:
    """The settings that hold in `start`: those of the nearest file in it or above, else an empty Config."""
    folder = start.resolve()
    for parent in (folder, *folder.parents):
        config = read_folder(parent)
        if config is not None:
            return config
    return Config()


def read_folder(folder: Path) -> Config | None:
    """The settings in this very folder, or None if it has none."""
    own = folder / FILE
    if own.is_file():
        return _parse(own, own.name, _load(own))
    project = folder / "pyproject.toml"
    if project.is_file():
        table = _load(project).get("tool", {}).get("opcompat")
        if table is not None:
            return _parse(project, f"{project.name} [tool.opcompat]", table)
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'; did you mean "x"?' for the nearest known word, or nothing."""
    close = difflib.get_close_matches(word.lower(), sorted(known), n=1) or difflib.get_close_matches(
        word.upper(), sorted(known), n=1
    )
    return f"; did you mean {close[0]!r}?" if close else ""


def check_sampling(value: str) -> str:
    """`value`, if it is a way of exporting draws that exists. Raises ConfigError."""
    if value not in SAMPLING:
        raise ConfigError(
            f"sampling {value!r} does not exist{did_you_mean(value, SAMPLING)} (there are exact: keys stay inputs, and "
            "the artifact draws what JAX draws; noise: each draw is an input; greedy: its mode or mean)"
        )
    return value


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _parse(path: Path, where: str, table: Any) -> Config:
    label = str(path.parent / where)
    if not isinstance(table, dict):
        raise ConfigError(f"{label} must be a table, not {_describe(table)}")
    for key in table:
        if key not in _READERS:
            raise ConfigError(
                f"{label}: unknown key {key!r}{did_you_mean(key, _READERS)} (known keys: {', '.join(_READERS)})"
            )
    values: dict[str, Any] = {}
    for key, value in table.items():
        try:
            values[key] = _READERS[key](value)
        except ConfigError as error:
            raise ConfigError(f"{label}: {key}: {error}") from error
    if "factory" in values and "source" in values:
        raise ConfigError(f"{label}: factory and source both name the model; keep one")
    if "out" in values:
        values["out"] = path.parent / values["out"]
    if "check" in values:
        values["check"] = _check(f"{label}: check", values["check"], path.parent)
    return Config(path=path, **values)


def _check(label: str, table: Mapping[str, Any], folder: Path) -> Settings:
    from opcompat.checking import settings

    try:
        return settings.parse(table, folder)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from error


def _describe(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"must be a string, not {_describe(value)}")
    return value


def _factory(value: Any) -> str:
    if not _FACTORY.match(_text(value)):
        raise ConfigError(f'must be "module:function", not {value!r}')
    return str(value)


def _table(value: Any, of: str = "keyword arguments") -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"must be a table of {of}, not {_describe(value)}")
    return value


def _dims(value: Any) -> Mapping[str, int]:
    return {name: _positive(size) for name, size in _table(value, "sizes by the names of dimensions").items()}


def _entry_points(value: Any) -> Mapping[str, Wiring]:
    return {name: _wiring(name, table) for name, table in _table(value, "tables, one per entry point").items()}


def _wiring(name: str, value: Any) -> Wiring:
    table = _table(value, "settings of an entry point")
    for key in table:
        if key not in _WIRING:
            raise ConfigError(f"{name}: unknown key {key!r}{did_you_mean(key, _WIRING)} (known: {', '.join(_WIRING)})")
    return Wiring(**{key: _WIRING[key](item) for key, item in table.items()})


def _links(value: Any) -> Mapping[str, str]:
    return {name: _text(target) for name, target in _table(value, "names of inputs by names of outputs").items()}


def key_names(value: Any) -> Mapping[str, str]:
    """Names of keys, or a table from names to implementations, as that table. Raises ConfigError."""
    if isinstance(value, dict):
        return {name: _text(implementation) for name, implementation in value.items()}
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"keys must be a list of inputs, or a table from inputs to kinds of keys, not {value!r}")
    return dict.fromkeys(value, "")


def _tolerance(value: Any) -> Any:
    numbers = list(value.values()) if isinstance(value, dict) else [value]
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        raise ConfigError(f"tolerance must be a number, or numbers by output, not {_describe(value)}")
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"must be a list of names, not {_describe(value)}")
    return tuple(dict.fromkeys(value))


def _positive(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"must be a whole number from 1, not {_describe(value)}")
    return value


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"must be a list of batch sizes, not {_describe(value)}")
    return tuple(dict.fromkeys(_positive(item) for item in value))


_WIRING: Mapping[str, Callable[[Any], Any]] = {
    "feedback": _links,
    "init": lambda value: _table(value, "first values by names of inputs"),
    "keys": key_names,
    "tolerance": _tolerance,
}

_READERS: Mapping[str, Callable[[Any], Any]] = {
    "factory": _factory,
    "factory_args": _table,
    "source": _text,
    "dims": _dims,
    "via": _text,
    "entry_points": _entry_points,
    "targets": _names,
    "to": _names,
    "out": lambda value: Path(_text(value)),
    "sampling": lambda value: check_sampling(_text(value)),
    "opset": _positive,
    "batch": _sizes,
    "steps": _positive,
    "seeds": _positive,
    "check": lambda value: _table(value, "settings of check"),
}
