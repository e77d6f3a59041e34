"""TFLite's words: the options table of each op, the codes of dtypes and enums, and operator versions.

Node attributes carry the schema's own field names (`keepDims`, `adjY`, `strideW`); enum values are written
as the enum's member names ("SAME", "RELU") and dtypes as numpy names. What follows from the node itself
(CAST's dtypes, PACK's count) is derived here, so no lowering function repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opcompat.lowering.graph import Node, Tensor

TENSOR_TYPES: Mapping[str, str] = {
    "float32": "FLOAT32",
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float64": "FLOAT64",
    "complex64": "COMPLEX64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "bool": "BOOL",
}
"""numpy dtype name -> member of the schema's TensorType."""

_NO_OPTIONS = (
    "CEIL",
    "ELU",
    "FLOOR",
    "LOG",
    "LOGISTIC",
    "RELU",
    "RELU6",
    "ROUND",
    "RSQRT",
    "SIN",
    "SQRT",
    "TANH",
)

OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(_NO_OPTIONS, ""),
    "ABS": "AbsOptions",
    "ADD": "AddOptions",
    "ARG_MAX": "ArgMaxOptions",
    "ARG_MIN": "ArgMinOptions",
    "ATAN2": "ATan2Options",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "BITCAST": "BitcastOptions",
    "BITWISE_XOR": "BitwiseXorOptions",
    "BROADCAST_TO": "BroadcastToOptions",
    "CAST": "CastOptions",
    "CONCATENATION": "ConcatenationOptions",
    "CONV_2D": "Conv2DOptions",
    "COS": "CosOptions",
    "CUMSUM": "CumsumOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "DIV": "DivOptions",
    "DYNAMIC_UPDATE_SLICE": "DynamicUpdateSliceOptions",
    "EQUAL": "EqualOptions",
    "EXP": "ExpOptions",
    "EXPAND_DIMS": "ExpandDimsOptions",
    "FILL": "FillOptions",
    "FLOOR_DIV": "FloorDivOptions",
    "FLOOR_MOD": "FloorModOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "GATHER": "GatherOptions",
    "GATHER_ND": "GatherNdOptions",
    "GELU": "GeluOptions",
    "GREATER": "GreaterOptions",
    "GREATER_EQUAL": "GreaterEqualOptions",
    "IF": "IfOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "LESS": "LessOptions",
    "LESS_EQUAL": "LessEqualOptions",
    "LOGICAL_AND": "LogicalAndOptions",
    "LOGICAL_NOT": "LogicalNotOptions",
    "LOGICAL_OR": "LogicalOrOptions",
    "LOG_SOFTMAX": "LogSoftmaxOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MUL": "MulOptions",
    "NEG": "NegOptions",
    "NOT_EQUAL": "NotEqualOptions",
    "PACK": "PackOptions",
    "PAD": "PadOptions",
    "PADV2": "PadV2Options",
    "POW": "PowOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "RESHAPE": "ReshapeOptions",
    "REVERSE_V2": "ReverseV2Options",
    "RIGHT_SHIFT": "RightShiftOptions",
    "SELECT_V2": "SelectV2Options",
    "SIGN": "SignOptions",
    "SLICE": "SliceOptions",
    "SOFTMAX": "SoftmaxOptions",
    "SPLIT": "SplitOptions",
    "SPLIT_V": "SplitVOptions",
    "SQUARE": "SquareOptions",
    "SQUARED_DIFFERENCE": "SquaredDifferenceOptions",
    "SQUEEZE": "SqueezeOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SUB": "SubOptions",
    "SUM": "ReducerOptions",
    "TILE": "TileOptions",
    "TOPK_V2": "TopKV2Options",
    "TRANSPOSE": "TransposeOptions",
    "UNPACK": "UnpackOptions",
    "WHILE": "WhileOptions",
}
"""op -> its table in the schema's BuiltinOptions; "" for an op that has none."""

ENUM_FIELDS: Mapping[str, str] = {
    "padding": "Padding",
    "fusedActivationFunction": "ActivationFunctionType",
    "inDataType": "TensorType",
    "outDataType": "TensorType",
    "outputType": "TensorType",
}
"""Options field -> the schema enum that its value, a member's name, belongs to."""

DERIVED: Mapping[str, Callable[[Node], Mapping[str, Any]]] = {
    "CAST": lambda n: {
        "inDataType": TENSOR_TYPES[_dtype(n, 0)],
        "outDataType": TENSOR_TYPES[n.outputs[0].dtype],
    },
    "ARG_MAX": lambda n: {"outputType": TENSOR_TYPES[n.outputs[0].dtype]},
    "ARG_MIN": lambda n: {"outputType": TENSOR_TYPES[n.outputs[0].dtype]},
    "PACK": lambda n: {"valuesCount": len(n.inputs)},
    "UNPACK": lambda n: {"num": len(n.outputs)},
    "SPLIT": lambda n: {"numSplits": len(n.outputs)},
    "SPLIT_V": lambda n: {"numSplits": len(n.outputs)},
    "RESHAPE": lambda n: {"newShape": list(n.outputs[0].shape)} if n.outputs[0].rank <= 8 else {},
}
"""op -> the options that follow from its operands and results. (A RESHAPE option of 9 numbers is refused;
the shape operand says the same.)"""

BODY_FIELDS: Mapping[str, Mapping[str, str]] = {
    "WHILE": {"cond": "condSubgraphIndex", "body": "bodySubgraphIndex"},
    "IF": {"then": "thenSubgraphIndex", "else": "elseSubgraphIndex"},
}
"""op -> body name in `Node.bodies` -> the options field that holds its subgraph index."""

_DATA_OPERAND: Mapping[str, int] = {"SPLIT": 1, "FILL": 1}
"""Ops whose version depends on another operand than the first."""

_BY_DTYPE: Mapping[str, Mapping[str, int]] = {
    "ABS": {"int8": 2, "uint8": 2, "int16": 4, "int32": 5},
    "ADD": {"int8": 2, "int64": 4, "int16": 5, "float16": 6},
    "ARG_MAX": {"int8": 2, "bool": 3},
    "ARG_MIN": {"int8": 2, "bool": 3},
    "BATCH_MATMUL": {"int8": 2, "int16": 3},
    "BROADCAST_TO": {"int8": 3, "int16": 3},
    "CONCATENATION": {"int8": 2, "int16": 3, "uint32": 4},
    "DYNAMIC_UPDATE_SLICE": {"float16": 3, "int16": 4, "bfloat16": 6},
    "EQUAL": {"int8": 2, "int16": 5},
    "FILL": {"bool": 2, "int8": 3, "int16": 3, "float16": 4},
    "FLOOR_DIV": {"float32": 2, "int8": 3, "int16": 3},
    "FLOOR_MOD": {"int8": 2, "int16": 2},
    "GATHER": {"int8": 2, "bool": 3, "int16": 4},
    "GATHER_ND": {"int16": 3, "bool": 5},
    "GREATER": {"int8": 2},
    "GREATER_EQUAL": {"int8": 2, "int16": 3},
    "LESS": {"int8": 2, "int16": 3},
    "LESS_EQUAL": {"int8": 2},
    "LOGISTIC": {"int8": 2, "int16": 3},
    "MAXIMUM": {"int8": 2, "int16": 4},
    "MINIMUM": {"int8": 2, "int16": 4},
    "MUL": {"int8": 2, "int64": 5, "complex64": 6, "int16": 7, "uint32": 7, "float16": 8},
    "NOT_EQUAL": {"int8": 2, "int16": 4},
    "PACK": {"int8": 2, "int16": 3, "uint32": 4},
    "PAD": {"int8": 2, "int16": 3, "bool": 5},
    "PADV2": {"int8": 2, "int16": 3, "bool": 5},
    "REDUCE_MAX": {"int8": 2, "int16": 3},
    "REDUCE_MIN": {"int8": 2, "int16": 3},
    "REDUCE_PROD": {"int8": 2, "int16": 2},
    "REVERSE_V2": {"bool": 2, "int8": 3},
    "SIGN": {"int32": 2},
    "SLICE": {"int8": 2, "int16": 4, "uint32": 6},
    "SPLIT": {"int8": 2, "int32": 3, "int16": 4},
    "SPLIT_V": {"int8": 2},
    "STRIDED_SLICE": {"int8": 2, "bool": 3, "uint32": 7},
    "SUB": {"int8": 2, "int64": 4, "int16": 5},
    "SUM": {"int8": 2},
    "TANH": {"int8": 2, "int16": 3},
    "TILE": {"int8": 3},
    "TOPK_V2": {"int8": 2, "int16": 3},
    "TRANSPOSE": {"int8": 2, "bool": 3, "int16": 5, "bfloat16": 8},
    "UNPACK": {"int8": 2, "uint8": 2, "bool": 3, "int16": 4, "float16": 5, "bfloat16": 5},
}
"""op -> dtype of its data operand -> the first version that serves it (1 where not listed)."""

_BY_RANK: Mapping[str, tuple[tuple[int, int], ...]] = {
    "PAD": ((5, 4),),
    "PADV2": ((5, 4),),
    "SLICE": ((5, 5),),
    "STRIDED_SLICE": ((5, 4),),
    "TRANSPOSE": ((5, 4), (6, 6), (7, 8)),
}
"""op -> (lowest rank, first version that serves it)."""

_BROADCAST_RANK_5: Mapping[str, int] = {"DIV": 2, "MAXIMUM": 3, "MINIMUM": 3, "SUB": 3}
"""op -> the first version that broadcasts at rank 5 and above."""

_CAST_VERSIONS: Mapping[str, int] = {
    "uint32": 2,
    "int8": 3,
    "uint16": 4,
    "float64": 5,
    "float16": 5,
    "bfloat16": 7,
}


def _dtype(node: Node, index: int) -> str:
    operand = node.inputs[index]
    assert operand is not None
    return operand.dtype


def _broadcasts(inputs: tuple[Tensor | None, ...]) -> bool:
    return len({x.shape for x in inputs if x is not None}) > 1


def version(node: Node) -> int:
    """The lowest operator version whose kernel serves the node's dtypes and ranks."""
    if node.op == "CAST":
        dtypes = (_dtype(node, 0), node.outputs[0].dtype)
        return max(_CAST_VERSIONS.get(d, 1) for d in dtypes)
    if node.op == "CONV_2D" and _in_groups(node):
        return 6
    if node.op == "FULLY_CONNECTED":
        return _fully_connected_version(node)
    lowest = 2 if node.op == "BROADCAST_TO" else 1  # version 1 was withdrawn
    if not node.inputs:
        return lowest
    data = node.inputs[_DATA_OPERAND.get(node.op, 0)]
    assert data is not None
    candidates = [lowest, _BY_DTYPE.get(node.op, {}).get(data.dtype, 1)]
    candidates += [v for rank, v in _BY_RANK.get(node.op, ()) if data.rank >= rank]
    rank = max(x.rank for x in node.inputs if x is not None)
    if rank > 4 and _broadcasts(node.inputs):
        candidates.append(_BROADCAST_RANK_5.get(node.op, 1))
    return max(candidates)


def _in_groups(node: Node) -> bool:
    image, window = node.inputs[:2]
    return image is not None and window is not None and image.shape[-1] != window.shape[-1]


def _fully_connected_version(node: Node) -> int:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return 6  # the first version that may do without a bias
    return 5 if node.attrs.get("keepNumDims") else 1
