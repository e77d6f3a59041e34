"""What a loader gets, and what it hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opcompat.config import Wiring
from opcompat.errors import ConfigError
from opcompat.model import Model


@dataclass(frozen=True)
class Options:
    """What the user says about a source, beside its name.

    Attributes:
      factory_args: keyword arguments of a Python factory.
      dims: sizes of symbolic dimensions, by their names.
      via: the route, where a kind of source has several; "" is its own choice.
      wiring: feedback, first values and keys, for every entry point that has inputs and outputs of these names.
      trusted: the file is the user's own, so it is not read in a child process first, which takes some seconds.
    """

    factory_args: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    via: str = ""
    wiring: Wiring = field(default_factory=Wiring)
    trusted: bool = False

    def check(self, source: str, *takes: str) -> None:
        """Raises ConfigError for one of factory_args, dims and via that is given, and that this kind does not take."""
        spoken = {"factory_args": "--arg", "dims": "--dim", "via": "--via"}
        for name, option in spoken.items():
            if getattr(self, name) and name not in takes:
                raise ConfigError(f"{source}: this kind of source takes no {option}; next: leave it out")


@dataclass(frozen=True)
class Loaded:
    """A model, its source as the user wrote it, and the folder that it was read from.

    `guess_keys`: the source cannot tell PRNG keys from other words, so inputs that look like one are taken for keys
    unless the user names them.
    """

    model: Model
    name: str
    root: Path
    guess_keys: bool = False


@dataclass(frozen=True)
class Graphs:
    """A file that holds a runtime's own ops, and so can be scanned but not become a Model.

    `format` is "onnx", "tflite", or "bundle" for a folder with files of several formats; `name` and `root` are as in
    Loaded.
    """

    format: str
    path: Path
    name: str
    root: Path
