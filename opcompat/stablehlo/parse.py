"""MLIR -> Program. Only this file, `module` and `attributes` touch MLIR objects; none of them leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jax.extend.mlir import ir

from opcompat.stablehlo.attributes import attributes, tensor_type
from opcompat.stablehlo.module import opened
from opcompat.stablehlo.program import (
    Argument,
    Interface,
    InvalidModule,
    Op,
    Program,
    Region,
    Undecomposable,
)

# A module of unknown origin can double its size with every call. No real policy comes near this.
MAX_OPS = 2_000_000

_PLACE = re.compile(r'"([^"]+)":(\d+)')
_LIBRARY = ("site-packages/", "dist-packages/", "/lib/python3")
_NAMED = re.compile(r'loc\("([^"]*)"\)\Z')
_STEP = re.compile(r"\[(?:'([^']*)'|(\d+)|[^\]]*)\]|\.([^.\[\]]+)")


def parse(source: bytes | str | Any, entry: str) -> Program:
    """Reads what the function `entry` of a module needs.

    Args:
        source: a portable artifact (what `jax.export` stores), MLIR bytecode, MLIR text, or an `ir.Module`.
        entry: the name of the function to start from.

    Raises:
        InvalidModule: it does not parse, has no function `entry`, calls itself, or unfolds beyond MAX_OPS.
        Undecomposable: a type that no array has (tokens, tuples, dynamic shapes).
    """
    with opened(source) as module:
        bodies = {name: function.regions[0] for name, function in _functions(module)}
        program = _Parser().program(bodies, entry)
    _check_size(program)
    return program


def interfaces(source: bytes | str | Any) -> tuple[str, dict[str, Interface]]:
    """The name of a module ("jit_policy", or ""), and what its public functions take and return.

    Raises InvalidModule if it does not parse, Undecomposable for an argument or result that is no array.
    """
    with opened(source) as module:
        found = {
            n: _interface(n, f) for n, f in _functions(module) if _attribute_text(f, "sym_visibility") != "private"
        }
        return _attribute_text(module.operation, "sym_name"), found


def _functions(module: Any) -> Iterator[tuple[str, Any]]:
    for function in module.body.operations:
        if function.operation.name == "func.func":
            yield ir.StringAttr(function.attributes["sym_name"]).value, function


def _attribute_text(op: Any, name: str) -> str:
    return str(ir.StringAttr(op.attributes[name]).value) if name in op.attributes else ""


def _interface(name: str, function: Any) -> Interface:
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    takes = _dictionaries(function, "arg_attrs", len(kind.inputs))
    gives = _dictionaries(function, "res_attrs", len(kind.results))
    block = function.regions[0].blocks[0] if len(function.regions[0].blocks) else None
    arguments = []
    for number, (type_, said) in enumerate(zip(kind.inputs, takes, strict=True)):
        location = _NAMED.match(str(block.arguments[number].location)) if block else None
        arguments.append(
            Argument(
                name=dotted(location[1]) if location else "",
                type=tensor_type(type_, f"argument {number} of @{name}"),
                constant=said.get("jax.global_constant", ""),
            )
        )
    results = tuple(
        Argument(dotted(said.get("jax.result_info", "")), tensor_type(type_, f"result {number} of @{name}"))
        for number, (type_, said) in enumerate(zip(kind.results, gives, strict=True))
    )
    return Interface(tuple(arguments), results)


def _dictionaries(function: Any, name: str, count: int) -> list[dict[str, str]]:
    """The textual attributes of each argument or result."""
    if name not in function.attributes:
        return [{} for _ in range(count)]
    each: Any = ir.ArrayAttr(function.attributes[name])
    return [{a.name: a.attr.value for a in d if isinstance(a.attr, ir.StringAttr)} for d in each]


def dotted(path: str) -> str:
    """ "obs['vector'][0]" as "obs.vector.0"."""
    start = re.match(r"[^.\[]*", path)
    steps = [a or b or c for a, b, c in _STEP.findall(path[start.end() if start else 0 :])]
    return ".".join(part for part in (start[0] if start else "", *steps) if part)


class _Parser:
    """Numbers the values of one module while reading it."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._definitions: dict[int, Op] = {}

    def program(self, bodies: Mapping[str, Any], entry: str) -> Program:
        functions: dict[str, Region] = {}
        waiting = [entry]
        while waiting:
            name = waiting.pop()
            if name in functions:
                continue
            if name not in bodies or not len(bodies[name].blocks):
                others = ", ".join(sorted(bodies)) or "none"
                raise InvalidModule(f"no function @{name}; the module has {others}")
            functions[name] = self._region(bodies[name])
            waiting.extend(callee for op in walk(functions[name]) for callee in callees(op))
        return Program(entry, functions, self._definitions)

    def _region(self, region: Any) -> Region:
        if len(region.blocks) != 1:
            raise InvalidModule(f"a region has {len(region.blocks)} blocks, StableHLO has one")
        block = region.blocks[0]
        arguments = tuple(self._define(a) for a in block.arguments)
        types = tuple(_static(a.type, "an argument") for a in block.arguments)
        *body, terminator = block.operations
        ops = tuple(self._op(o.operation) for o in body)
        return Region(arguments, types, ops, tuple(self._numbers[v] for v in terminator.operation.operands))

    def _op(self, op: Any) -> Op:
        location = _location(op.location)
        where = f"{op.name} at {location}" if location else str(op.name)
        operands = tuple(self._numbers[v] for v in op.operands)
        regions = tuple(self._region(r) for r in op.regions)
        result_types = tuple(_static(r.type, where) for r in op.results)
        parsed = Op(
            name=op.name,
            operands=operands,
            results=tuple(self._define(r) for r in op.results),
            result_types=result_types,
            attrs=attributes(op, result_types, where),
            regions=regions,
            location=location,
        )
        self._definitions.update(dict.fromkeys(parsed.results, parsed))
        return parsed

    def _define(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))


def _static(type_: Any, where: str) -> Any:
    found = tensor_type(type_, where)
    if None in found.shape:
        raise Undecomposable(f"{where}: dynamic shape {type_}; bind the symbolic dimensions first")
    return found


def callees(op: Op) -> tuple[str, ...]:
    """The functions that `op` needs."""
    return tuple(op.attrs[key] for key in ("callee", "decomposition") if key in op.attrs)


def walk(region: Region) -> Iterator[Op]:
    """Every op of a region, bodies included."""
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from walk(inner)


def _check_size(program: Program) -> None:
    """Refuses recursion and call trees that unfold beyond MAX_OPS, before anybody walks them."""
    sizes: dict[str, int] = {}

    def size(name: str, callers: tuple[str, ...]) -> int:
        if name in callers:
            raise InvalidModule(f"function @{name} calls itself")
        if name not in sizes:
            ops = list(walk(program.functions[name]))
            sizes[name] = len(ops) + sum(size(c, (*callers, name)) for op in ops for c in callees(op))
        if sizes[name] > MAX_OPS:
            raise InvalidModule(f"function @{name} unfolds into more than {MAX_OPS} operations")
        return sizes[name]

    size(program.entry, ())


def _location(location: Any) -> str:
    """ "file:line" of the innermost frame outside installed libraries, else of the innermost one, else ""."""
    # The innermost frame comes first in a call site's text.
    places = [(m[1], m[2]) for m in _PLACE.finditer(str(location))]
    own = [p for p in places if not any(mark in p[0] for mark in _LIBRARY)]
    return ":".join((own or places)[0]) if places else ""
