"""What a model file holds, whatever its format: the values that readers tell, as graphs that targets can judge.

Readers run in a child process and answer in JSON:

    format          "onnx" or "tflite"
    facts           what the file says of itself: opsets, versions, producer
    ops             op -> how often it occurs; ops of other domains and custom ops with their full names
    graphs          name (a path that ends in "/", "" for the outermost), values, nodes, inputs, outputs
      values        [name, dtype, shape or null, constant, data or null]; a dimension that varies is a string or null
      nodes         [op, name, inputs, outputs, attributes, bodies, [file, line, function] or null]
    entries         [name, graph]: what a user can call
    parameters, parameter_bytes
    external        [path, bytes, missing]: files beside it that hold weights

Inputs and outputs are numbers of values, -1 for none; bodies are numbers of graphs. Several nodes may share a body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from opcompat.isolation import Limits, call
from opcompat.lowering.graph import Graph, Node, Tensor, Weight

READERS: Mapping[str, str] = {
    "onnx": "opcompat.files.onnx_reader:read",
    "tflite": "opcompat.files.tflite_reader:read",
}
MAPPED = 1 << 31
"""Bytes of a TFLite file that its reader maps: no flatbuffer is larger."""

SOME = 1
"""What stands for a dimension that varies."""

Dimension = int | str | None


@dataclass(frozen=True)
class Value:
    """A value of a graph. `dtype` is "" if nothing tells it, `shape` None if not even its rank is known."""

    name: str
    dtype: str
    shape: tuple[Dimension, ...] | None
    constant: bool
    data: tuple[int, ...] | None
    quantized: bool = False

    @property
    def dynamic(self) -> bool:
        return self.shape is not None and not all(isinstance(n, int) for n in self.shape)

    def __str__(self) -> str:
        shape = "[?]" if self.shape is None else str([n if isinstance(n, int) else n or "?" for n in self.shape])
        return f"{self.dtype or 'unknown type '}{shape.replace(' ', '').replace(chr(39), '')}"


@dataclass(frozen=True)
class Op:
    """One op of the file. `place` is (file, line, function) in the user's code, where the file tells."""

    op: str
    name: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    attrs: Mapping[str, Any]
    bodies: Mapping[str, int]
    place: tuple[str, int, str] | None

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(x for x in self.inputs if x is not None)

    @property
    def touched(self) -> tuple[Value, ...]:
        return (*self.operands, *(x for x in self.outputs if x is not None))

    def node(self, rank: int | None = None) -> Node:
        """This op as a target judges it; values of unknown rank get `rank` dimensions.

        Dimensions that vary are SOME. Outputs that are left out before others have the first one's type. Bodies are
        judged on their own.
        """
        given = [x for x in self.outputs if x is not None]
        last = max((i for i, x in enumerate(self.outputs) if x is not None), default=-1)
        outputs = tuple(_tensor(x or given[0], rank) for x in self.outputs[: last + 1])
        inputs = tuple(None if x is None else _tensor(x, rank) for x in self.inputs)
        return Node(self.op, inputs, outputs, self.attrs, {key: Graph(key) for key in self.bodies}, source=self.name)


def _tensor(value: Value, rank: int | None) -> Tensor:
    shape = (SOME,) * (rank or 0) if value.shape is None else value.shape
    static = tuple(n if isinstance(n, int) else SOME for n in shape)
    if not value.constant:
        return Tensor(static, value.dtype, value.name)
    if value.data is None:
        return Tensor(static, value.dtype, value.name, weight=Weight(value.name))
    return Tensor(static, value.dtype, value.name, data=np.asarray(value.data, value.dtype).reshape(static))


@dataclass(frozen=True)
class Part:
    """One graph of the file."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Program:
    """A model file. `entries` are what a user can call, by name, with the number of its outermost graph."""

    path: Path
    format: str
    facts: Mapping[str, Any]
    ops: Mapping[str, int]
    parts: tuple[Part, ...]
    entries: tuple[tuple[str, int], ...]
    parameters: int
    parameter_bytes: int
    external: tuple[tuple[str, int, bool], ...]

    @cached_property
    def reached(self) -> Mapping[int, tuple[str, ...]]:
        """Number of each graph that an entry needs -> the entries that do."""
        found: dict[int, dict[str, None]] = {}
        for name, start in self.entries:
            for number in self._below(start):
                found.setdefault(number, {})[name] = None
        return {number: tuple(names) for number, names in found.items()}

    def _below(self, start: int) -> Iterator[int]:
        seen, waiting = {start}, [start]
        while waiting:
            number = waiting.pop()
            yield number
            below = {body for op in self.parts[number].ops for body in op.bodies.values()} - seen
            seen |= below
            waiting += sorted(below)


def read(path: Path, format: str) -> Program:
    """Reads a model file in a child process, without its weights.

    Raises SourceError for a file that is damaged, points outside its folder or is no file of this format, LimitError
    for one that takes too much time or memory to read, and CrashError if a parser dies of it.
    """
    size = path.stat().st_size if path.is_file() else 0
    limits = Limits(mapped=min(size, MAPPED) if format == "tflite" else 0)
    return made(path, call(READERS[format], str(path), what=f"reading {path}", limits=limits))


def made(path: Path, told: Mapping[str, Any]) -> Program:
    """What a reader told, as a Program."""
    return Program(
        path=path,
        format=told["format"],
        facts={**told["facts"], "bytes": path.stat().st_size},
        ops=told["ops"],
        parts=tuple(_part(graph) for graph in told["graphs"]),
        entries=tuple((name, number) for name, number in told["entries"]),
        parameters=told["parameters"],
        parameter_bytes=told["parameter_bytes"],
        external=tuple((name, count, missing) for name, count, missing in told["external"]),
    )


def _part(graph: Mapping[str, Any]) -> Part:
    values = [_value(*told) for told in graph["values"]]
    some = [values[i] for i in graph["inputs"]], [values[i] for i in graph["outputs"]]
    ops = [_op(told, values) for told in graph["nodes"]]
    return Part(graph["name"], tuple(some[0]), tuple(some[1]), tuple(ops))


def _value(name: str, dtype: str, shape: Any, constant: bool, data: Any, quantized: bool = False) -> Value:
    return Value(
        name,
        dtype,
        None if shape is None else tuple(shape),
        constant,
        None if data is None else tuple(data),
        quantized,
    )


def _op(told: Any, values: list[Value]) -> Op:
    op, name, inputs, outputs, attrs, bodies, place = told
    return Op(
        op,
        name,
        tuple(values[i] if i >= 0 else None for i in inputs),
        tuple(values[i] if i >= 0 else None for i in outputs),
        {key: tuple(value) if isinstance(value, list) else value for key, value in attrs.items()},
        bodies,
        None if place is None else (place[0], place[1], place[2]),
    )
