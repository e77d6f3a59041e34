"""Control flow: while and scan become Loop, cond becomes If. Bodies use tensors of the graphs around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opcompat import jaxcompat
from opcompat.lowering.graph import Graph, Tensor
from opcompat.lowering.onnx.builder import OnnxBuilder


def _fresh(xs: Sequence[Tensor]) -> list[Tensor]:
    return [Tensor(x.shape, x.dtype) for x in xs]


def while_(b: OnnxBuilder, eqn: Any, *operands: Tensor) -> Sequence[Tensor]:
    """Loop whose condition is computed before it and at the end of each step, as ONNX wants it."""
    p = eqn.params
    n, m = int(p["cond_nconsts"]), int(p["body_nconsts"])
    cond_consts, body_consts, init = operands[:n], operands[n : n + m], operands[n + m :]
    (first,) = b.inline(p["cond_jaxpr"], [*cond_consts, *init])

    graph = Graph("while")
    step, going, *carry = [Tensor((), "int64"), Tensor((), "bool"), *_fresh(init)]
    graph.inputs = [step, going, *carry]
    inner = b.nested(graph)
    carried = inner.inline(p["body_jaxpr"], [*body_consts, *carry])
    (again,) = inner.inline(p["cond_jaxpr"], [*cond_consts, *carried])
    graph.outputs = [again, *carried]
    return b.op("Loop", [None, first, *init], [(x.shape, x.dtype) for x in init], {}, {"body": graph})


def cond(b: OnnxBuilder, eqn: Any, index: Tensor, *operands: Tensor) -> Sequence[Tensor]:
    """Chooses a branch by an int32 index, clamped to the branches that there are, or by a bool."""
    branches = eqn.params["branches"]
    if len(branches) == 1:
        return b.inline(branches[0], operands)
    if index.data is not None:
        which = int(np.clip(int(index.data), 0, len(branches) - 1))
        return b.inline(branches[which], operands)
    outputs = [(tuple(v.aval.shape), v.aval.dtype.name) for v in eqn.outvars]
    return _chain(b, index, branches, operands, outputs, 0)


def _chain(
    b: OnnxBuilder,
    index: Tensor,
    branches: Sequence[Any],
    operands: Sequence[Tensor],
    outputs: list[tuple[tuple[int, ...], str]],
    skipped: int,
) -> Sequence[Tensor]:
    """An If between the first branch and the rest, which is a branch or an If again."""
    first = b.body("branch", branches[0], operands)
    if len(branches) == 2:
        rest = b.body("branch", branches[1], operands)
    else:
        rest = Graph("branch")
        inner = b.nested(rest)
        rest.outputs = list(_chain(inner, index, branches[1:], operands, outputs, skipped + 1))
    bodies = {"then_branch": rest, "else_branch": first}
    return b.op("If", [_exceeds(b, index, skipped)], outputs, {}, bodies)


def _exceeds(b: OnnxBuilder, index: Tensor, limit: int) -> Tensor:
    """index > limit. lax.cond converts its bool to the index: that bool is the answer already."""
    if index.dtype == "bool":
        return index
    for node in reversed(b.graph.nodes[-8:]):
        if index in node.outputs and node.op == "Cast" and limit == 0:
            source = node.inputs[0]
            if source is not None and source.dtype == "bool":
                return source
    return b.elementwise("Greater", index, b.scalar(limit, index.dtype), dtype="bool")


def scan(b: OnnxBuilder, eqn: Any, *operands: Tensor) -> Sequence[Tensor]:
    """Loop over `length` steps: step i takes xs[i] and gives ys[i], or from the last to the first."""
    p = eqn.params
    length, reverse = int(p["length"]), bool(p["reverse"])
    n_consts, n_carry = jaxcompat.scan_counts(eqn)
    consts, init = operands[:n_consts], operands[n_consts : n_consts + n_carry]
    xs, ys = operands[n_consts + n_carry :], eqn.outvars[n_carry:]
    stacked = [(tuple(v.aval.shape), v.aval.dtype.name) for v in ys]
    if length == 0:
        return [*init, *(b.full(shape, 0, dtype) for shape, dtype in stacked)]

    graph = Graph("scan")
    step, going, *carry = [Tensor((), "int64"), Tensor((), "bool"), *_fresh(init)]
    graph.inputs = [step, going, *carry]
    inner = b.nested(graph)
    at = inner.elementwise("Sub", inner.scalar(length - 1, "int64"), step) if reverse and xs else step
    taken = [inner.gather(x, at, 0) for x in xs]
    graph.outputs = [going, *inner.inline(p["jaxpr"], [*consts, *carry, *taken])]
    results = b.op(
        "Loop",
        [b.scalar(length, "int64"), b.scalar(True, "bool"), *init],
        [(x.shape, x.dtype) for x in init] + stacked,
        {},
        {"body": graph},
    )
    # Loop stacks in the order of its steps.
    ordered = [b.flip(y, [0]) if reverse else y for y in results[n_carry:]]
    return [*results[:n_carry], *ordered]


CONTROL: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "scan": scan,
    "while": while_,
}
