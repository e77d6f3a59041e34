"""A node as an ONNX file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor


def one_op(node: Node, inputs: Sequence[Tensor], outputs: Sequence[str], opset: int) -> bytes:
    """The bytes of a model with this node alone; constants are initializers.

    `inputs`: those operands that are inputs, named; `outputs`: the names of the results.
    """
    from onnx import helper, numpy_helper

    made, names = [], []
    for i, x in enumerate(node.inputs):
        name = "" if x is None else x.name or f"c{i}"
        names.append(name)
        if x is not None and x.data is not None:
            made.append(numpy_helper.from_array(np.ascontiguousarray(x.data).reshape(x.shape), name))
    attrs: dict[str, Any] = {k: _element_type(v) if (node.op, k) in _DTYPES else v for k, v in node.attrs.items()}
    bodies = {name: _body(body) for name, body in node.bodies.items()}
    graph = helper.make_graph(
        [helper.make_node(node.op, names, list(outputs), **attrs, **bodies)],
        "main",
        [_info(x.name, x) for x in inputs],
        [_info(name, x) for name, x in zip(outputs, node.outputs, strict=True)],
        made,
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    data: bytes = model.SerializeToString()
    return data


_DTYPES = {("Cast", "to"), ("BitCast", "to")}


def _element_type(dtype: str) -> int:
    from onnx import helper

    from opcompat.lowering.onnx.dtypes import numpy_dtype

    return int(helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))


def _info(name: str, x: Tensor) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, _element_type(x.dtype), x.shape)


def _body(graph: Graph) -> Any:
    raise NotImplementedError(f"{graph.name}: bodies are not probed in ONNX files")
