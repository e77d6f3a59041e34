"""A StableHLO program as plain frozen data: no MLIR object in it, so it outlives any `ir.Context`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from opcompat.errors import OpcompatError


class InvalidModule(OpcompatError):
    """The bytes or text are no StableHLO module, or the module has no such function."""


class Undecomposable(OpcompatError):
    """The module holds something that no basic JAX primitive expresses: a custom call, an unknown op."""

    exit_code = 1

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class TensorType:
    """The type of an array. In an interface, a size may be None: it is open until a dimension is bound."""

    shape: tuple[Any, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join('?' if n is None else str(n) for n in self.shape)}]"


@dataclass(frozen=True)
class Argument:
    """An argument or result of a function. `name` is dotted, "obs.vector", and "" if the module tells none.

    `constant` names what the caller has to pass that is none of the user's arguments ("_platform_index").
    """

    name: str
    type: TensorType
    constant: str = ""


@dataclass(frozen=True)
class Interface:
    """What a public function takes and returns."""

    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]


@dataclass(frozen=True)
class Splat:
    """A tensor of `shape` whose elements all equal the scalar `value` (rank 0)."""

    value: np.ndarray[Any, Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """One operation. Values are numbers, unique in the program; `location` is "file:line" or ""."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    result_types: tuple[TensorType, ...]
    attrs: Mapping[str, Any]
    regions: tuple[Region, ...]
    location: str

    def __str__(self) -> str:
        target = self.attrs.get("call_target_name")
        name = f"{self.name} @{target}" if target else self.name
        return f"{name} at {self.location}" if self.location else name


@dataclass(frozen=True)
class Region:
    """A block: what it takes, what it does, and which values its terminator returns."""

    arguments: tuple[int, ...]
    argument_types: tuple[TensorType, ...]
    ops: tuple[Op, ...]
    returns: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """The functions reachable from `entry`; `definitions` maps a value to the op that makes it."""

    entry: str
    functions: Mapping[str, Region]
    definitions: Mapping[int, Op]
