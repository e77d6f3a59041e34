"""A node as an ONNX file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor

_DTYPES = {("Cast", "to"), ("BitCast", "to")}
_PASSED_AS = {"bfloat16": "float32"}
"""Dtypes that interfaces of Python have no form for: such values enter and leave the model through casts."""


def one_op(node: Node, inputs: Sequence[Tensor], outputs: Sequence[str], opset: int, *, casts: bool = False) -> bytes:
    """The bytes of a model with this node alone; constants are initializers.

    `inputs`: those operands that are inputs, named; `outputs`: the names of the results. `casts`: bfloat16 values
    enter and leave as float32.
    """
    from onnx import helper

    file = _File()
    made = [file.node(node, {id(x): name for x, name in zip(node.outputs, outputs, strict=True)})]
    ins = [_info(x.name, x.dtype, x.shape) for x in inputs]
    outs = [_info(name, x.dtype, x.shape) for name, x in zip(outputs, node.outputs, strict=True)]
    if casts:
        made, ins, outs = _through_casts(made[0], inputs, ins, outs)
    graph = helper.make_graph(made, "main", ins, outs, file.constants)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    data: bytes = model.SerializeToString()
    return data


class _File:
    """Names of values, and the constants met so far."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.kept: list[Tensor] = []  # ids stay valid as long as their tensors live
        self.constants: list[Any] = []

    def name(self, x: Tensor | None) -> str:
        from onnx import numpy_helper

        if x is None:
            return ""
        if id(x) not in self.names:
            self.kept.append(x)
            self.names[id(x)] = x.name or f"v{len(self.names)}"
            if x.data is not None:
                array = np.ascontiguousarray(x.data).reshape(x.shape)
                self.constants.append(numpy_helper.from_array(array, self.names[id(x)]))
        return self.names[id(x)]

    def node(self, node: Node, outputs: dict[int, str]) -> Any:
        from onnx import helper

        self.names.update(outputs)
        attrs: dict[str, Any] = {k: element_type(v) if (node.op, k) in _DTYPES else v for k, v in node.attrs.items()}
        attrs |= {name: self.body(body) for name, body in node.bodies.items()}
        ins, outs = [self.name(x) for x in node.inputs], [self.name(x) for x in node.outputs]
        return helper.make_node(node.op, ins, outs, **attrs)

    def body(self, graph: Graph) -> Any:
        from onnx import helper

        ins = [_info(self.name(x), x.dtype, x.shape) for x in graph.inputs]
        nodes = [self.node(node, {}) for node in graph.nodes]
        outs = [_info(self.name(x), x.dtype, x.shape) for x in graph.outputs]
        return helper.make_graph(nodes, graph.name, ins, outs)


def _through_casts(node: Any, inputs: Sequence[Tensor], ins: Sequence[Any], outs: Sequence[Any]) -> tuple[Any, ...]:
    """The node between casts, wherever a value's dtype has no form in the interface."""
    from onnx import helper

    before, after, new_ins, new_outs = [], [], list(ins), list(outs)
    for i, x in enumerate(inputs):
        if x.dtype in _PASSED_AS:
            new_ins[i] = _info(x.name, _PASSED_AS[x.dtype], x.shape)
            before.append(helper.make_node("Cast", [x.name], [f"{x.name}_in"], to=element_type(x.dtype)))
            node.input[:] = [f"{n}_in" if n == x.name else n for n in node.input]
    for i, info in enumerate(outs):
        dtype = {element_type(name): name for name in _PASSED_AS}.get(info.type.tensor_type.elem_type)
        if dtype is not None:
            dims = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
            new_outs[i] = _info(info.name, _PASSED_AS[dtype], dims)
            after.append(
                helper.make_node("Cast", [f"{info.name}_out"], [info.name], to=element_type(_PASSED_AS[dtype]))
            )
            node.output[:] = [f"{n}_out" if n == info.name else n for n in node.output]
    return [*before, node, *after], new_ins, new_outs


def element_type(dtype: str) -> int:
    """ONNX's number of a dtype."""
    from onnx import helper

    from opcompat.lowering.onnx.dtypes import numpy_dtype

    return int(helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))


def _info(name: str, dtype: str, shape: Sequence[int]) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, element_type(dtype), shape)
