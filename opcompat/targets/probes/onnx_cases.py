"""Questions to a runtime of ONNX files: every op that the project writes, by dtype and rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor
from opcompat.targets.probes import tflite_cases as shared
from opcompat.targets.probes.case import DTYPES, FLOATS, INTS, Case, swept
from opcompat.targets.probes.values import Values, finite, numbers, plain, shape, special

RANKS = range(7)

SAME: dict[str, str] = {
    "ABS": "Abs",
    "CEIL": "Ceil",
    "COS": "Cos",
    "EXP": "Exp",
    "FLOOR": "Floor",
    "LOG": "Log",
    "LOGICAL_NOT": "Not",
    "NEG": "Neg",
    "ROUND": "Round",
    "SIGN": "Sign",
    "SIN": "Sin",
    "SQRT": "Sqrt",
    "TANH": "Tanh",
    "LOGISTIC": "Sigmoid",
    "ADD": "Add",
    "DIV": "Div",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "MUL": "Mul",
    "POW": "Pow",
    "SUB": "Sub",
    "BITWISE_XOR": "BitwiseXor",
    "EQUAL": "Equal",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
    "SELECT_V2": "Where",
    "CAST": "Cast",
}
"""Ops that mean the same in both formats, operands in the same order: the same questions serve."""

UNARY: dict[str, Callable[[Any], Any]] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.invert,
    "Cosh": np.cosh,
    "Identity": lambda x: x,
    "IsNaN": np.isnan,
    "Reciprocal": lambda x: 1 / x,
    "Sinh": np.sinh,
    "Tan": np.tan,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or}
_ANGLES = frozenset({"Tan"})
_EXACT = frozenset({"BitwiseNot", "Identity", "IsNaN", "Reciprocal"})


def _fits(op: str, dtype: str) -> bool:
    if op.startswith("Bitwise"):
        return dtype in INTS
    return op == "Identity" or dtype in FLOATS


def _cast_attributes(case: Case) -> Case:
    if case.op == "Cast":
        return replace(case, attrs={"to": case.expected[0].dtype.name})
    return case


def _shared(dtype: str, rank: int, families: Sequence[Callable[[str, int], Iterator[Case]]]) -> Iterator[Case]:
    for family in families:
        for case in family(dtype, rank):
            if case.op in SAME:
                yield _cast_attributes(replace(case, op=SAME[case.op], attrs={}))


def _elementwise(dtype: str, rank: int) -> Iterator[Case]:
    yield from _shared(dtype, rank, (shared._elementwise, shared._casts))
    yield from _own(dtype, rank, plain, plain)


def _special_elementwise(dtype: str, rank: int) -> Iterator[Case]:
    yield from _shared(dtype, rank, (shared._special_elementwise, shared._special_casts))
    yield from _own(dtype, rank, special, finite)


def _own(dtype: str, rank: int, values: Values, angles: Values) -> Iterator[Case]:
    x, y = values(rank, dtype, 1), values(rank, dtype, 4)
    for op, single in UNARY.items():
        if _fits(op, dtype):
            given = angles(rank, dtype, 1) if op in _ANGLES else x
            result = shared._computed(single, given)
            near = 0.0 if op in _EXACT else shared._EPSILON[dtype]
            yield Case(op, "same", rank, ((given, False),), (result,), {}, near)
    for op, function in BINARY.items():
        if _fits(op, dtype):
            yield Case(op, "same", rank, ((x, False), (y, False)), (function(x, y),))
    if dtype == "bool":
        yield Case("Xor", "same", rank, ((x, False), (y, False)), (x ^ y,))
        return
    if dtype in INTS and dtype.startswith("u"):
        bits = np.asarray(np.arange(x.size).reshape(x.shape) % (8 * x.dtype.itemsize)).astype(x.dtype)
        for direction, move in (("LEFT", np.left_shift), ("RIGHT", np.right_shift)):
            inputs = ((x, False), (bits, False))
            yield Case("BitShift", "same", rank, inputs, (move(x, bits),), {"direction": direction}, 0, ("direction",))
    divisor = shared._second("FLOOR_MOD", dtype, rank) if values is special else y
    if divisor is not None:
        kinds = ((1, np.fmod),) if dtype in FLOATS else ((0, np.mod), (1, np.fmod))
        for fmod, rest in kinds:
            result = shared._computed(rest, x, divisor)
            near = shared._EPSILON.get(dtype, 0.0)
            yield Case("Mod", "same", rank, ((x, False), (divisor, False)), (result,), {"fmod": fmod}, near, ("fmod",))
    low, high = np.asarray(2, x.dtype), np.asarray(5, x.dtype)
    given = numbers(rank, dtype, 1) if values is special else x
    clipped = np.minimum(np.maximum(given, low), high)
    yield Case("Clip", "same", rank, ((given, False), (low, True), (high, True)), (clipped,))


def _ints(values: Sequence[int]) -> tuple[np.ndarray, bool]:
    return np.asarray(values, np.int64).reshape(-1), True


def _reductions(dtype: str, rank: int, values: Values = plain) -> Iterator[Case]:
    if not rank:
        return
    x, last = values(rank, dtype, 1), rank - 1
    for op, function in (("ReduceMax", np.max), ("ReduceMin", np.min), ("ReduceProd", np.prod), ("ReduceSum", np.sum)):
        sums = op in ("ReduceProd", "ReduceSum")
        if dtype == "bool" or (sums and dtype in FLOATS and values is not plain):
            continue
        result = shared._computed(lambda v, f=function: f(v, axis=last), x).astype(x.dtype)
        yield Case(op, "same", rank, ((x, False), _ints([last])), (result,), {"keepdims": 0})
    order_of = x.astype(np.float64) if dtype in FLOATS else x.astype(object)
    for op, pick in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
        places = np.asarray(pick(order_of, axis=last)).astype(np.int64)
        yield Case(op, "same", rank, ((x, False),), (places,), {"axis": last, "keepdims": 0})
    if dtype == "bool":
        return
    if values is plain or dtype in INTS:
        sums_ = shared._computed(lambda v: np.cumsum(v, last, dtype=v.dtype), x).astype(x.dtype)
        yield Case("CumSum", "same", rank, ((x, False), (np.asarray(last, np.int64), True)), (sums_,))
    order = np.argsort(-order_of, axis=last, kind="stable").astype(np.int64)
    top = np.take_along_axis(x, order, last)
    yield Case("TopK", "same", rank, ((x, False), _ints([x.shape[last]])), (top, order), {"axis": last})


def _special_reductions(dtype: str, rank: int) -> Iterator[Case]:
    return _reductions(dtype, rank, numbers)


def _structure(dtype: str, rank: int, values: Values = plain) -> Iterator[Case]:
    x = values(rank, dtype, 1)
    given = (x, False)
    wide = [n if n != 1 else 2 for n in x.shape]
    yield Case("Expand", "same", rank, (given, _ints(wide)), (np.broadcast_to(x, tuple(wide)).copy(),))
    yield Case("Reshape", "same", rank, (given, _ints([x.size])), (x.reshape(-1),))
    yield Case("Reshape", "same", rank, ((x.reshape(-1), False), _ints(x.shape)), (x,))
    if not rank:
        return
    last = rank - 1
    perm = tuple(reversed(range(rank)))
    yield Case("Transpose", "same", rank, (given,), (x.transpose(perm).copy(),), {"perm": list(perm)})
    strided = (given, _ints([0] * rank), _ints(x.shape), _ints(range(rank)), _ints([2] * rank))
    yield Case("Slice", "same", rank, strided, (x[tuple(slice(None, None, 2) for _ in perm)],))
    backward = (given, _ints([-1]), _ints([-(2**31)]), _ints([0]), _ints([-1]))
    yield Case("Slice", "same", rank, backward, (np.flip(x, 0).copy(),))
    yield Case("Concat", "same", rank, (given, given), (np.concatenate([x, x], last),), {"axis": last})
    halves = tuple(np.split(x, x.shape[0], 0))
    yield Case("Split", "same", rank, (given, _ints([1] * x.shape[0])), halves, {"axis": 0})
    edges = [1] + [0] * last + [2] + [0] * last
    padded = np.pad(x, [(1, 2)] + [(0, 0)] * last, constant_values=np.ones((), x.dtype))
    one = (np.ones((), x.dtype), True)
    yield Case("Pad", "same", rank, (given, _ints(edges), one), (padded,), {"mode": "constant"})
    yield from _indexing(x, rank)


def _indexing(x: np.ndarray, rank: int) -> Iterator[Case]:
    for index in (np.int32, np.int64):
        picks = np.asarray([1, 0, 1], index)
        yield Case("Gather", "same", rank, ((x, False), (picks, False)), (x[picks],), {"axis": 0})
        places = np.resize(np.asarray([1, 0], index), x.shape)
        taken = np.take_along_axis(x, places.astype(np.int64), 0)
        yield Case("GatherElements", "same", rank, ((x, False), (places, False)), (taken,), {"axis": 0})
    rows = np.asarray([[1], [0], [1]], np.int64)
    yield Case("GatherND", "same", rank, ((x, False), (rows, False)), (x[rows[:, 0]],))
    updated = x.copy()
    updated[1] = x[0]
    inputs = ((x, False), (np.asarray([[1]], np.int64), False), (x[:1], False))
    yield Case("ScatterND", "same", rank, inputs, (updated,), {"reduction": "none"}, 0, ("reduction",))


def _special_structure(dtype: str, rank: int) -> Iterator[Case]:
    return _structure(dtype, rank, special)


def _products(dtype: str, rank: int) -> Iterator[Case]:
    if rank < 2 or dtype == "bool":
        return
    near = shared._EPSILON.get(dtype, 0.0)
    front = shape(rank - 2)
    x = np.resize(plain(3, dtype), (*front, 2, 3))
    y = np.resize(plain(3, dtype, 2), (*front, 3, 2))
    result = shared._computed(np.matmul, x, y).astype(x.dtype)
    for constant in (False, True):
        yield Case("MatMul", "same", rank, ((x, False), (y, constant)), (result,), {}, near)
    if rank == 2:
        for constant in (False, True):
            bias = np.ones(2, x.dtype)
            summed = shared._computed(lambda a, b, c: a @ b + c, x, y, bias).astype(x.dtype)
            inputs = ((x, False), (y.T.copy(), constant), (bias, True))
            yield Case("Gemm", "same", rank, inputs, (summed,), {"transB": 1}, near)
            yield Case("Gemm", "same", rank, inputs[:2], (result,), {"transB": 1}, near)
    if rank == 4 and dtype in FLOATS:
        for case in shared._convolutions(dtype):
            if case.op == "CONV_2D":
                yield _conv(case)


def _conv(case: Case) -> Case:
    """TFLite's channels-last convolution as ONNX's channels-first one."""
    (x, _), (w, constant), (bias, _) = case.inputs
    image, kernel = np.moveaxis(x, 3, 1).copy(), np.moveaxis(w, 3, 1).copy()
    inputs = ((image, False), (kernel, constant), (bias, True))
    return Case("Conv", "same", 4, inputs, (np.moveaxis(case.expected[0], 3, 1).copy(),), {}, case.tolerance)


def _control(dtype: str, rank: int) -> Iterator[Case]:
    x = plain(rank, dtype)
    trips, go = np.asarray(3, np.int64), np.asarray(True)
    yield Case("Loop", "same", rank, ((trips, True), (go, True), (x, False)), (x,), bodies=_loop_body)
    yield Case("If", "same", rank, ((go, False),), (x,), bodies=_Branches(x))


def _loop_body(operands: Sequence[Tensor]) -> dict[str, Graph]:
    """Carries a value through, unchanged."""
    step, go = Tensor((), "int64", "step"), Tensor((), "bool", "go")
    value = Tensor(operands[2].shape, operands[2].dtype, "value")
    on, out = Tensor((), "bool"), Tensor(value.shape, value.dtype)
    nodes = [Node("Identity", (go,), (on,)), Node("Identity", (value,), (out,))]
    return {"body": Graph("body", [step, go, value], [on, out], nodes)}


class _Branches:
    """Both branches give a constant; the first one is what is expected."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def __call__(self, operands: Sequence[Tensor]) -> dict[str, Graph]:
        def branch(name: str, value: np.ndarray) -> Graph:
            held = Tensor(value.shape, value.dtype.name, data=value)
            out = Tensor(value.shape, value.dtype.name)
            return Graph(name, [], [out], [Node("Identity", (held,), (out,))])

        return {"then_branch": branch("then", self.x), "else_branch": branch("else", np.zeros_like(self.x))}


FAMILIES = (_elementwise, _reductions, _structure, _products, _control)
SPECIAL_FAMILIES = (_special_elementwise, _special_reductions, _special_structure)


def cases(dtypes: Iterable[str] = DTYPES, ranks: Iterable[int] = RANKS, *, special: bool = False) -> Iterator[Case]:
    """Every question, rank by rank. `special`: those with special values, in place of those with ordinary ones."""
    return swept(SPECIAL_FAMILIES if special else FAMILIES, dtypes, ranks, special)
