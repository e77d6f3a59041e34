"""Loops and branches. TFLite's bodies cannot see the graph around them, so what they use is passed in.

Constants and weights are used directly inside (a buffer is stored once, wherever it is used); every other
value becomes an input of the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opcompat import jaxcompat
from opcompat.lowering.builder import Spec
from opcompat.lowering.graph import Graph, Tensor
from opcompat.lowering.tflite.builder import TfliteBuilder, storage
from opcompat.lowering.tflite.common import refuse


class _Captures:
    """The values from outside that a body needs as inputs, each once."""

    def __init__(self, *groups: Sequence[Tensor]) -> None:
        self.outer: list[Tensor] = []
        for value in (v for group in groups for v in group):
            if value.size and not value.is_constant and value not in self.outer:
                self.outer.append(value)

    def bind(self) -> tuple[list[Tensor], dict[Tensor, Tensor]]:
        """Fresh body inputs, and the map from outer values to them."""
        inner = [_fresh(x) for x in self.outer]
        return inner, dict(zip(self.outer, inner, strict=True))


def _fresh(x: Tensor) -> Tensor:
    return Tensor(x.shape, x.dtype)


def _seen(values: Sequence[Tensor], inside: dict[Tensor, Tensor]) -> list[Tensor]:
    return [inside.get(x, x) for x in values]


def while_(b: TfliteBuilder, eqn: Any, *operands: Tensor) -> Sequence[Tensor]:
    """WHILE over [captured..., carried...]: both bodies take all of them, the loop returns all of them."""
    p = eqn.params
    n_cond, n_body = int(p["cond_nconsts"]), int(p["body_nconsts"])
    cond_consts, body_consts = operands[:n_cond], operands[n_cond : n_cond + n_body]
    init = operands[n_cond + n_body :]
    captures = _Captures(cond_consts, body_consts)

    inputs, inside = captures.bind()
    carried = [_fresh(x) for x in init]
    cond = b.body("while_cond", p["cond_jaxpr"], [*_seen(cond_consts, inside), *carried])
    cond.inputs = [*inputs, *carried]
    if cond.outputs[0].shape != ():
        refuse("while with a predicate that is not a scalar")

    inputs, inside = captures.bind()
    carried = [_fresh(x) for x in init]
    body = b.body("while_body", p["body_jaxpr"], [*_seen(body_consts, inside), *carried])
    body.inputs = [*inputs, *carried]
    body.outputs = [*inputs, *body.outputs]
    return _loop(b, [*captures.outer, *init], cond, body)[len(captures.outer) :]


def _loop(b: TfliteBuilder, start: Sequence[Tensor], cond: Graph, body: Graph) -> Sequence[Tensor]:
    """The WHILE. Values without elements stay outside: there is nothing to carry, and the runtime trips."""
    carried = [i for i, x in enumerate(start) if x.size]
    cond.inputs, body.inputs, body.outputs = (
        [values[i] for i in carried] for values in (cond.inputs, body.inputs, body.outputs)
    )
    specs = [(start[i].shape, start[i].dtype) for i in carried]
    results = b.op("WHILE", [start[i] for i in carried], specs, bodies={"cond": cond, "body": body})
    return _with_empty(b, results, [(x.shape, x.dtype) for x in start])


def _with_empty(b: TfliteBuilder, results: Sequence[Tensor], specs: Sequence[Spec]) -> Sequence[Tensor]:
    """Puts constants without elements among the results, where `specs` have them."""
    rest = iter(results)
    return [b.const(np.zeros(shape, dtype)) if 0 in shape else next(rest) for shape, dtype in specs]


def scan(b: TfliteBuilder, eqn: Any, *operands: Tensor) -> Sequence[Tensor]:
    """WHILE over [step, captured..., carried..., xs..., ys...].

    Each ys is one [length, elements] matrix, whose row is replaced in each step.
    """
    p = eqn.params
    length, reverse = int(p["length"]), bool(p["reverse"])
    n_consts, n_carry = jaxcompat.scan_counts(eqn)
    consts, init, xs = (
        operands[:n_consts],
        operands[n_consts : n_consts + n_carry],
        operands[n_consts + n_carry :],
    )
    ys = [(tuple(v.aval.shape), storage(v.aval.dtype.name)) for v in eqn.outvars[n_carry:]]
    rows = [b.broadcast_to(b.scalar(0, d), _matrix(shape)) for shape, d in ys]
    if length == 0:
        return [*init, *(b.reshape(r, shape) for r, (shape, _) in zip(rows, ys, strict=True))]
    captures = _Captures(consts, xs)
    start = [b.int32(0), *captures.outer, *init, *rows]

    def inputs() -> tuple[Tensor, dict[Tensor, Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        captured, inside = captures.bind()
        step, carried, written = _fresh(start[0]), [_fresh(x) for x in init], [_fresh(x) for x in rows]
        return step, inside, carried, written, [step, *captured, *carried, *written]

    cond = b.inner("scan_cond")
    step, _, _, _, cond.graph.inputs = inputs()
    cond.graph.outputs = [cond.compare("LESS", step, cond.int32(length))]

    body = b.inner("scan_body")
    step, inside, carried, written, body.graph.inputs = inputs()
    place = body.sub(body.int32(length - 1), step) if reverse else step
    slices = [_row(body, x, place) for x in _seen(xs, inside)]
    results = body.inline(p["jaxpr"], [*_seen(consts, inside), *carried, *slices])
    updated = [_replace(body, w, y, place) for w, y in zip(written, results[n_carry:], strict=True)]
    captured = list(inside.values())
    after = body.add(step, body.int32(1))
    body.graph.outputs = [after, *captured, *results[:n_carry], *updated]

    results = list(_loop(b, start, cond.graph, body.graph))[1 + len(captured) :]
    stacked = zip(results[n_carry:], ys, strict=True)
    return [*results[:n_carry], *(b.reshape(r, shape) for r, (shape, _) in stacked)]


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    elements = 1
    for n in shape[1:]:
        elements *= n
    return shape[0], elements


def _row(b: TfliteBuilder, x: Tensor, place: Tensor) -> Tensor:
    """x[place] for a scalar that is in range."""
    if x.size == 0:
        return b.broadcast_to(b.scalar(0, x.dtype), x.shape[1:])
    flat = b.reshape(x, _matrix(x.shape))
    return b.reshape(b.gather(flat, b.reshape(place, (1,)), 0), x.shape[1:])


def _replace(b: TfliteBuilder, rows: Tensor, row: Tensor, place: Tensor) -> Tensor:
    if rows.size == 0:
        return rows
    start = b.concat([b.reshape(place, (1,)), b.ints([0])], 0)
    update = b.reshape(row, (1, rows.shape[1]))
    return b.op1("DYNAMIC_UPDATE_SLICE", [rows, update, start], rows.shape, rows.dtype)


def cond(b: TfliteBuilder, eqn: Any, index: Tensor, *operands: Tensor) -> Sequence[Tensor]:
    """A chain of IFs: branch 0, or else branch 1, or else ... An index out of range takes the nearest."""
    branches = list(eqn.params["branches"])
    if len(branches) == 1:
        return b.inline(branches[0], operands)
    specs = [(tuple(v.aval.shape), storage(v.aval.dtype.name)) for v in eqn.outvars]
    return _choose(b, index, branches, 0, operands, specs)


def _choose(
    b: TfliteBuilder,
    index: Tensor,
    branches: Sequence[Any],
    first: int,
    operands: Sequence[Tensor],
    specs: Sequence[Spec],
) -> Sequence[Tensor]:
    """Among branches[first:]: `first` unless the index is beyond it."""
    last = len(branches) - first == 2
    beyond = index if index.dtype == "bool" else b.compare("GREATER", index, b.int32(first))
    captures = _Captures(operands, () if last else (index,))

    here = b.inner(f"branch_{first}")
    here.graph.inputs, inside = captures.bind()
    here.graph.outputs = here.inline(branches[first], _seen(operands, inside))

    rest = b.inner(f"after_branch_{first}")
    rest.graph.inputs, inside = captures.bind()
    values = _seen(operands, inside)
    if last:
        rest.graph.outputs = rest.inline(branches[first + 1], values)
    else:
        onwards = _seen([index], inside)[0]
        rest.graph.outputs = list(_choose(rest, onwards, branches, first + 1, values, specs))
    bodies = {"then": rest.graph, "else": here.graph}
    solid = [i for i, (shape, _) in enumerate(specs) if 0 not in shape]
    for graph in bodies.values():
        graph.outputs = [graph.outputs[i] for i in solid]
    results = b.op("IF", [beyond, *captures.outer], [specs[i] for i in solid], bodies=bodies)
    return _with_empty(b, results, specs)
