"""Names for the inputs, outputs and dimensions of models whose files may or may not tell them."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opcompat.config import did_you_mean
from opcompat.errors import SourceError

_CALLS: Mapping[str, Callable[..., int]] = {
    "mod": operator.mod,
    "floordiv": operator.floordiv,
    "max": max,
    "min": min,
    "non_negative": lambda x: max(x, 0),
}
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def entry_name(*candidates: str) -> str:
    """The first that can name an entry point, with what cannot stand in a name left out."""
    for candidate in candidates:
        name = re.sub(r"\W+", "_", candidate, flags=re.ASCII).strip("_")[:100]
        if name and not name[0].isdigit():
            return name
    return "main"


def model_name(source: str) -> str:
    return entry_name(Path(source).resolve().stem, "model")


def unique(names: Sequence[str], stem: str) -> tuple[str, ...]:
    """The names, with STEM0, STEM1, ... by position where there is none, or where one stands twice."""
    return tuple(
        name if name and names.count(name) == 1 else f"{name or stem}{'_' if name else ''}{index}"
        for index, name in enumerate(names)
    )


def results(names: Sequence[str]) -> tuple[str, ...]:
    """Output names from JAX's paths into a result: "result.state.deter" is "state.deter", "result.0" is "output0".

    Older versions of JAX leave the word "result" out.
    """
    bare = [re.sub(r"\Aresult(\.|\Z)", "", name) for name in names]
    if len(bare) == 1 and not bare[0]:
        return ("output",)
    return unique([f"output{name}" if name[:1].isdigit() else name for name in bare], "output")


def size(dimension: Any, dims: Mapping[str, int], where: str) -> int:
    """A size that may be an expression of symbols ("2*b + 1", as `jax.export` writes them), with `dims` put in.

    Raises SourceError for a symbol that is not bound.
    """
    text = str(dimension)
    if text.isdecimal():
        return int(text)
    if text in dims:
        return dims[text]
    if text.endswith("]"):
        raise unbound(text, dims, where)
    if len(text) > 1000:
        raise SourceError(f"{where}: the size {text[:40]}... is too long an expression")
    try:
        tree = ast.parse(text.replace("^", "**"), mode="eval")
        return _evaluate(tree.body, dims, where)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, OverflowError, TypeError) as error:
        raise SourceError(f"{where}: the size {text!r} cannot be computed: {error}") from error


def _evaluate(node: ast.AST, dims: Mapping[str, int], where: str) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in dims:
            raise unbound(node.id, dims, where)
        return dims[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, dims, where)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluate(node.left, dims, where), _evaluate(node.right, dims, where)
        if isinstance(node.op, ast.Pow) and (not 0 <= right <= 8 or abs(left) > 2**31):
            raise ValueError("the power is too large")
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        return _CALLS[node.func.id](*(_evaluate(a, dims, where) for a in node.args))
    raise ValueError(f"{ast.unparse(node)!r} is no size")


def unbound(symbol: str, dims: Mapping[str, int], where: str) -> SourceError:
    hint = did_you_mean(symbol, dims) if dims else ""
    return SourceError(
        f"{where}: the size {symbol!r} is open, and shapes in bundles are fixed{hint}; next: --dim {symbol}=1, or "
        f"dims = {{{symbol!r} = 1}} in opcompat.toml"
    )
