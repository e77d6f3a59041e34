"""What a table is asked about a node: its dtypes, the rank that counts, and whether shapes are broadcast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opcompat.lowering.graph import Node, Tensor


@dataclass(frozen=True)
class Question:
    """`dtypes`: "float32 int32 -> float32". `shapes`: "same" or "broadcast"."""

    dtypes: str
    rank: int
    shapes: str

    def __str__(self) -> str:
        return f"{self.dtypes} at rank {self.rank}"


VARIADIC = frozenset({"CONCATENATION", "PACK", "UNPACK", "SPLIT", "SPLIT_V", "Concat", "Max", "Min", "Split", "Sum"})
"""Ops with any number of equal operands or results: repeated neighbours count once."""

_CARRYING: Mapping[str, str] = {"WHILE": "int32 {0} -> int32 {0}", "IF": "bool {0} -> {0}"}
"""Ops that carry any number of values: each is judged alone, by the signature it was probed with."""

_ONNX_CARRYING: Mapping[str, tuple[str, int]] = {"Loop": ("int64 bool {0} -> {0}", 2), "If": ("bool -> {0}", 1)}
"""The same for ONNX, with the number of operands that are no carried values."""

_BROADCASTING = frozenset(
    {
        "ADD", "ATAN2", "BITWISE_XOR", "DIV", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GREATER", "GREATER_EQUAL", "LESS",
        "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM", "MUL", "NOT_EQUAL", "POW", "RIGHT_SHIFT",
        "SELECT_V2", "SQUARED_DIFFERENCE", "SUB",
        "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Where", "Xor",
    }
)  # fmt: skip

_DATA_OPERAND: Mapping[str, int] = {"SPLIT": 1, "GATHER": 0, "PACK": 0}


def questions(node: Node) -> Iterator[Question]:
    """What has to run for the node to run."""
    if node.op in _CARRYING:
        for value in (*operands(node)[1:], *node.outputs):
            yield Question(_CARRYING[node.op].format(value.dtype), value.rank, "same")
        return
    if node.op in _ONNX_CARRYING:
        words, count = _ONNX_CARRYING[node.op]
        for value in (*operands(node)[count:], *node.outputs):
            yield Question(words.format(value.dtype), value.rank, "same")
        return
    differs = node.op in _BROADCASTING and len({x.shape for x in operands(node)}) > 1
    yield Question(signature(node), rank(node), "broadcast" if differs else "same")


def signature(node: Node) -> str:
    """The dtypes that decide, operands before results."""
    inputs = _distinct([x.dtype for x in operands(node)], node.op in VARIADIC)
    outputs = _distinct([x.dtype for x in node.outputs], node.op in VARIADIC)
    return f"{' '.join(inputs)} -> {' '.join(outputs)}"


def _distinct(dtypes: Sequence[str], variadic: bool) -> list[str]:
    return [d for i, d in enumerate(dtypes) if not (variadic and i and dtypes[i - 1] == d)]


def operands(node: Node) -> list[Tensor]:
    return [x for x in node.inputs if x is not None]


def rank(node: Node) -> int:
    """The rank that counts: the data operand's, or the largest of several."""
    inputs = operands(node)
    if node.op in ("RESHAPE", "Reshape"):
        ends = inputs[0].rank, node.outputs[0].rank
        return max(ends) if all(ends) else 0
    if node.op in ("EXPAND_DIMS", "Unsqueeze"):
        return max(inputs[0].rank, node.outputs[0].rank - 1)
    if node.op in ("BROADCAST_TO", "Expand"):
        return node.outputs[0].rank
    if node.op in _DATA_OPERAND:
        return inputs[_DATA_OPERAND[node.op]].rank
    return max((x.rank for x in inputs), default=0)


def write_ranks(ranks: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> "0-2 5"."""
    runs: list[list[int]] = []
    for number in ranks:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def read_ranks(text: str) -> list[int]:
    ranks: list[int] = []
    for run in text.split():
        first, _, last = run.partition("-")
        ranks += range(int(first), int(last or first) + 1)
    return ranks
