"""Walks a Program and calls `jax.lax` for each op. Everything is inlined; bodies become lax control flow."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FunctionType

import jax

from opcompat.stablehlo.ops import Call, Handler
from opcompat.stablehlo.program import Op, Program, Region, TensorType, Undecomposable
from opcompat.stablehlo.values import Value, array, type_of
from opcompat.stablehlo.wide import x64_enabled

Results = tuple[Value, ...]


@dataclass(frozen=True)
class Evaluator:
    """Evaluates `program` by `table`.

    `avoid` holds the names of primitives that may not come back (the ones being decomposed). `places`: the equations
    that JAX makes of an op stand at the op's own file and line.
    """

    program: Program
    table: Mapping[str, Handler]
    avoid: frozenset[str] = frozenset()
    places: bool = False

    def function(self, name: str, args: Sequence[Value]) -> tuple[Value, ...]:
        return self._region(self.program.functions[name], args, ChainMap())

    def entry(self, args: Sequence[Value]) -> tuple[jax.Array, ...]:
        return tuple(array(v) for v in self.function(self.program.entry, args))

    def _region(self, region: Region, args: Sequence[Value], outer: ChainMap[int, Value]) -> tuple[Value, ...]:
        # A body may use the values around it: its own come into a layer above them.
        values = outer.new_child(dict(zip(region.arguments, args, strict=True)))
        for op in region.ops:
            values.update(zip(op.results, self._op(op, values), strict=True))
        return tuple(values[v] for v in region.returns)

    def _op(self, op: Op, values: ChainMap[int, Value]) -> tuple[Value, ...]:
        handler = self.table.get(op.name)
        if handler is None:
            raise Undecomposable(f"{op}: no JAX equivalent is known")
        call = Call(
            op=op,
            args=tuple(values[v] for v in op.operands),
            regions=tuple(self._body(region, values) for region in op.regions),
            function=self.function,
            definitions=self.program.definitions,
            avoid=self.avoid,
        )
        try:
            results = at(op.location, lambda: tuple(handler(call))) if self.places else tuple(handler(call))
        except (TypeError, ValueError, NotImplementedError) as error:
            # lax refuses what it has no primitive for: an integer power, a custom complex reduction.
            raise Undecomposable(f"{op}: {error}") from error
        for result, declared in zip(results, op.result_types, strict=True):
            _check(op, type_of(result), declared)
        return results

    def _body(self, region: Region, values: ChainMap[int, Value]) -> Callable[..., Results]:
        return lambda *args: self._region(region, args, values)


def at(location: str, function: Callable[[], Results]) -> Results:
    """Calls `function` from a frame at `location`, "file:line", of a source that need not be on this machine."""
    return _frame(location)(function) if location else function()


@lru_cache(maxsize=65536)
def _frame(location: str) -> Callable[[Callable[[], Results]], Results]:
    file, _, line = location.rpartition(":")
    code = _through.__code__.replace(co_filename=file, co_firstlineno=int(line), co_name=Path(file).stem)
    return FunctionType(code, {})


_through: Callable[[Callable[[], Results]], Results] = lambda function: function()  # noqa: E731  # all on one line


def _check(op: Op, actual: TensorType, declared: TensorType) -> None:
    """Nothing is believed: each result must have the type that the module declares."""
    if actual == declared:
        return
    if declared.dtype.itemsize > actual.dtype.itemsize and not x64_enabled():
        raise Undecomposable(f"{op}: {declared} needs 64-bit values; set jax_enable_x64")
    raise Undecomposable(f"{op}: the module declares {declared}, JAX computes {actual}")
