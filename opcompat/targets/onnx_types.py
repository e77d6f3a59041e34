"""ONNX operator schemas: how a node's dtypes bind to type parameters, and whether a node is valid at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from opcompat.lowering.graph import Node, Tensor

_ONNX_NAMES = {"float32": "float", "float64": "double"}
_NUMPY_NAMES = {v: k for k, v in _ONNX_NAMES.items()}


@cache
def schema(op: str, opset: int) -> Any:
    """The operator's schema in an opset of the default domain, or None."""
    import onnx

    try:
        return onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None


def numpy_name(type_string: str) -> str:
    """ONNX's "tensor(float)" -> numpy's "float32"; a type that is no tensor stays as it is."""
    inner = type_string.removeprefix("tensor(").removesuffix(")")
    return _NUMPY_NAMES.get(inner, inner) if type_string.startswith("tensor(") else type_string


def bound(schema: Any, node: Node) -> Mapping[str, frozenset[str]]:
    """The dtypes that a node gives to each type parameter, and to each operand's own name."""
    types: dict[str, set[str]] = {}
    for formal, x in (*_pairs(schema.inputs, node.inputs), *_pairs(schema.outputs, node.outputs)):
        types.setdefault(formal.type_str, set()).add(x.dtype)
        types.setdefault(formal.name, set()).add(x.dtype)
    return {name: frozenset(dtypes) for name, dtypes in types.items()}


def _pairs(formals: Any, actuals: tuple[Tensor | None, ...]) -> Iterator[tuple[Any, Tensor]]:
    """(formal parameter, tensor) pairs; the last formal takes what a variadic one may."""
    for i, x in enumerate(actuals):
        if x is not None and formals:
            yield formals[min(i, len(formals) - 1)], x


def violation(schema: Any, node: Node, types: Mapping[str, frozenset[str]]) -> str:
    """How a node breaks its schema, or ""."""
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        return f"{node.op} takes {schema.min_input} to {schema.max_input} inputs"
    for constraint in schema.type_constraints:
        allowed = {numpy_name(t) for t in constraint.allowed_type_strs}
        wrong = types.get(constraint.type_param_str, frozenset()) - allowed
        if wrong:
            return f"{node.op}({schema.since_version}) is not defined for {plain(wrong)}"
    homogeneous = {f.type_str for f in (*schema.inputs, *schema.outputs) if f.is_homogeneous}
    mixed = sorted(p for p in homogeneous if len(types.get(p, ())) > 1)
    return f"{node.op} mixes {plain(types[mixed[0]])}" if mixed else ""


def plain(dtypes: Iterable[str]) -> str:
    return " and ".join(sorted(dtypes))
