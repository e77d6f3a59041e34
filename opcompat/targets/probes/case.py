"""One question to a runtime: a model of one op, its inputs, and what numpy says the results are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTS, "bool")

Bodies = Callable[[Sequence[Tensor]], dict[str, Graph]]


@dataclass(frozen=True)
class Case:
    """A model of one op, with its inputs (True: a constant) and the results that numpy gives.

    `kind`: of shapes, "same" or "broadcast". `deciding`: attributes that the answer is about. `special`: values at the
    ends of the dtype, infinities and NaN are among the inputs. `tolerance`: relative.
    """

    op: str
    kind: str
    rank: int
    inputs: tuple[tuple[np.ndarray, bool], ...]
    expected: tuple[np.ndarray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    deciding: tuple[str, ...] = ()
    special: bool = False
    bodies: Bodies | None = None

    @property
    def node(self) -> tuple[Node, list[Tensor]]:
        """The op, and those of its operands that are inputs of the model, named x0, x1, ..."""
        operands = [
            Tensor(a.shape, a.dtype.name, "" if constant else f"x{i}", data=a if constant else None)
            for i, (a, constant) in enumerate(self.inputs)
        ]
        results = tuple(Tensor(e.shape, e.dtype.name) for e in self.expected)
        bodies = self.bodies(operands) if self.bodies else {}
        node = Node(self.op, tuple(operands), results, self.attrs, bodies)
        return node, [x for x in operands if not x.is_constant]

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{i}": array for i, (array, constant) in enumerate(self.inputs) if not constant}

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The deciding attributes, with their values."""
        return {name: self.attrs[name] for name in self.deciding if name in self.attrs}


def difference(case: Case, results: Sequence[np.ndarray]) -> str:
    """How a runtime's results differ from numpy's, or ""."""
    for got, expected in zip(results, case.expected, strict=True):
        if got.shape != expected.shape:
            return f"wrong: shape {got.shape}, not {expected.shape}"
        if got.dtype.itemsize == expected.dtype.itemsize and got.dtype != expected.dtype:
            got = got.view(expected.dtype)  # some interfaces give the bits of a dtype that they do not know
        right = _agree(got, expected, case.tolerance)
        if not right.all():
            place = tuple(int(i) for i in np.argwhere(~right)[0])
            fed = ", ".join(_shown(x, place) for x in case.feeds.values() if x.shape == expected.shape)
            return f"wrong: {_shown(got, place)}, not {_shown(expected, place)}" + (f", for {fed}" if fed else "")
    return ""


def _shown(x: np.ndarray, place: tuple[int, ...]) -> str:
    value = x[place]
    return f"{float(value):g}" if x.dtype.name in FLOATS else str(value)


def _agree(got: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    if expected.dtype.name in FLOATS:
        a, b = got.astype(np.float64), expected.astype(np.float64)
        return np.isclose(a, b, rtol=tolerance, atol=0, equal_nan=True)
    return np.asarray(got == expected)


Family = Callable[[str, int], Iterable[Case]]
"""(dtype, rank) -> the questions about a kind of ops."""


def swept(families: Sequence[Family], dtypes: Iterable[str], ranks: Iterable[int], special: bool) -> Iterator[Case]:
    """Every question of the families, rank by rank. `special`: all have special values, not only those that say so."""
    ranks = list(ranks)
    for dtype in dtypes:
        for rank in ranks:
            for family in families:
                for case in family(dtype, rank):
                    yield replace(case, special=special or case.special)
