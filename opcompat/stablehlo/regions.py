"""What a body computes: recognises reducers, comparators and arg-reductions by their expressions.

A body becomes one nested tuple per result, `(op, attributes, operand...)`, so that recognising is comparing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from opcompat.stablehlo.program import Op, Region, Splat

Expr = tuple[Any, ...]
Definitions = Mapping[int, Op]


@dataclass(frozen=True)
class SortKey:
    """One key of a sort.

    `total`: -NaN < -inf < -0 < +0 < inf < NaN; else JAX's own order, in which -0 = +0 and every NaN is last.
    """

    operand: int
    descending: bool
    total: bool


def argument(index: int) -> Expr:
    return ("argument", index)


def expressions(region: Region, definitions: Definitions) -> tuple[Expr, ...]:
    """One expression per result of `region`, in terms of its arguments and of constants around it."""
    known: dict[int, Expr] = {value: argument(i) for i, value in enumerate(region.arguments)}

    def expression(value: int) -> Expr:
        op = definitions.get(value)
        if value not in known and op is not None and op.name == "stablehlo.constant":
            known[value] = _expression(op, 0, ())
        return known.get(value, ("free", value))

    for op in region.ops:
        operands = tuple(expression(value) for value in op.operands)
        for position, result in enumerate(op.results):
            known[result] = _expression(op, position, operands)
    return tuple(expression(value) for value in region.returns)


def _expression(op: Op, position: int, operands: tuple[Expr, ...]) -> Expr:
    name = op.name.removeprefix("stablehlo.")
    if name == "constant":
        value = op.attrs["value"]
        return ("constant", repr((value.value if isinstance(value, Splat) else value).tolist()))
    if name == "compare":
        return (name, (op.attrs["comparison_direction"], op.attrs.get("compare_type", "NOTYPE")), *operands)
    if op.regions or op.attrs or position:
        return ("opaque", op.results[position])
    return (name, None, *operands)


def binary(region: Region, definitions: Definitions) -> str | None:
    """The op's name if the body is `op(a, b)` (or `op(b, a)` of a commutative one), else None."""
    results = expressions(region, definitions)
    if len(results) != 1 or len(results[0]) != 4:
        return None
    name, _, *operands = results[0]
    if operands == [argument(0), argument(1)]:
        return str(name)
    commutative = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
    return str(name) if name in commutative and operands == [argument(1), argument(0)] else None


def returns_update(region: Region) -> bool:
    """Whether a scatter's body is `lambda old, update: update`."""
    return region.returns == region.arguments[1:]


def ignores_update(region: Region) -> bool:
    """Whether a scatter's body never looks at the update."""
    used = {value for op in region.ops for value in op.operands} | set(region.returns)
    return region.arguments[1] not in used and not any(op.regions for op in region.ops)


def arg_reduction(region: Region, definitions: Definitions) -> str | None:
    """ "argmax" or "argmin" if the body is JAX's: NaN wins, ties go to the lower index."""
    a, index_a, b, index_b = (argument(i) for i in range(4))
    results = _without_kinds(expressions(region, definitions))
    for name, direction in (("argmax", "GT"), ("argmin", "LT")):
        better = ("or", None, ("compare", direction, a, b), ("compare", "NE", a, a))
        tie = ("and", None, ("compare", "EQ", a, b), ("compare", "LT", index_a, index_b))
        first = ("or", None, better, tie)
        if results == (("select", None, better, a, b), ("select", None, first, index_a, index_b)):
            return name
    return None


def _without_kinds(expr: Any) -> Any:
    """The expression with only the directions of its comparisons: the kind follows from the dtype."""
    if not isinstance(expr, tuple):
        return expr
    if expr and expr[0] == "compare":
        direction, kind = expr[1]
        kept = (direction, kind) if kind == "TOTALORDER" else direction
        return ("compare", kept, *(_without_kinds(e) for e in expr[2:]))
    return tuple(_without_kinds(e) for e in expr)


def sort_keys(region: Region, definitions: Definitions) -> tuple[SortKey, ...] | None:
    """The keys, most significant first, if the comparator is lexicographic over pairs of its arguments."""
    results = expressions(region, definitions)
    return _lexicographic(results[0]) if len(results) == 1 else None


def _lexicographic(expr: Expr) -> tuple[SortKey, ...] | None:
    """`k0 < k0' or (k0 == k0' and rest)`."""
    if expr[0] == "compare":
        key = _key(expr, ("LT", "GT"))
        return None if key is None else (key,)
    if expr[0] != "or" or expr[2][0] != "compare" or expr[3][0] != "and":
        return None
    (_, _, less, (_, _, equal, rest)) = expr
    key, same = _key(less, ("LT", "GT")), _key(equal, ("EQ",))
    keys = _lexicographic(rest)
    if key is None or same is None or keys is None or (key.operand, key.total) != (same.operand, same.total):
        return None
    return (key, *keys)


def _key(expr: Expr, directions: tuple[str, ...]) -> SortKey | None:
    if expr[0] != "compare" or expr[1][0] not in directions:
        return None
    (_, (direction, kind), lhs, rhs) = expr
    (left, canonical), (right, also_canonical) = _compared(lhs), _compared(rhs)
    if left is None or right is None or canonical != also_canonical:
        return None
    if left // 2 != right // 2 or left == right:
        return None
    swapped = left > right
    return SortKey(left // 2, (direction == "GT") != swapped, kind == "TOTALORDER" and not canonical)


def _compared(expr: Expr) -> tuple[int | None, bool]:
    """(which argument is compared, whether JAX's canonicalisation of -0 and NaN stands before it)."""
    if expr[0] == "argument":
        return expr[1], False
    if expr[0] != "select" or len(expr) != 5:
        return None, False
    inner = expr[4]
    if inner[0] != "select" or inner[4][0] != "argument":
        return None, False
    x = inner[4]
    zero = ("constant", repr(np.float32(0).tolist()))
    no_zero = ("select", None, ("compare", ("EQ", "FLOAT"), x, zero), zero, x)
    wanted = ("select", None, ("compare", ("NE", "FLOAT"), x, x), ("constant", "nan"), no_zero)
    return (x[1], True) if expr == wanted else (None, False)
