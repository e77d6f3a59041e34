"""Questions to a runtime of TFLite files: every op that the project writes, by dtype and rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor
from opcompat.targets.probes.case import DTYPES, FLOATS, INTS, Case, swept
from opcompat.targets.probes.values import Values, dtype_of, finite, numbers, plain, shape, special

RANKS = range(10)


def _with_infinity(x: np.ndarray) -> np.ndarray:
    """A first element of inf: at ranks that the delegate leaves to them, some kernels clip it."""
    if x.dtype.kind == "f" and x.dtype.itemsize > 2:
        x = x.copy()
        x.reshape(-1)[0] = np.inf
    return x


def _logistic(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.reciprocal(1 + np.exp(-x))
    return result


def _truncated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y of integers, rounded toward zero."""
    quotient = x // y
    return np.asarray(quotient + ((x % y != 0) & ((x < 0) != (y < 0)))).astype(np.asarray(x).dtype)


UNARY: dict[str, Callable[[Any], Any]] = {
    "ABS": np.abs,
    "CEIL": np.ceil,
    "COS": np.cos,
    "EXP": np.exp,
    "FLOOR": np.floor,
    "LOG": np.log,
    "LOGICAL_NOT": np.logical_not,
    "LOGISTIC": _logistic,
    "NEG": np.negative,
    "RELU": lambda x: np.maximum(x, 0),
    "ROUND": np.round,
    "RSQRT": lambda x: 1 / np.sqrt(x),
    "SIGN": np.sign,
    "SIN": np.sin,
    "SQRT": np.sqrt,
    "SQUARE": np.square,
    "TANH": np.tanh,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "ADD": np.add,
    "ATAN2": np.arctan2,
    "BITWISE_XOR": np.bitwise_xor,
    "DIV": lambda x, y: _truncated(x, y) if np.asarray(x).dtype.kind in "iu" else x / y,
    "FLOOR_DIV": np.floor_divide,
    "FLOOR_MOD": np.mod,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "MUL": np.multiply,
    "POW": np.power,
    "RIGHT_SHIFT": np.right_shift,
    "SQUARED_DIFFERENCE": lambda x, y: (x - y) * (x - y),
    "SUB": np.subtract,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "NOT_EQUAL": np.not_equal,
}
REDUCE: dict[str, Callable[..., Any]] = {
    "MEAN": np.mean,
    "REDUCE_ALL": np.all,
    "REDUCE_ANY": np.any,
    "REDUCE_MAX": np.max,
    "REDUCE_MIN": np.min,
    "REDUCE_PROD": np.prod,
    "SUM": np.sum,
}
_ONLY_BOOL = frozenset({"LOGICAL_NOT", "LOGICAL_AND", "LOGICAL_OR", "REDUCE_ALL", "REDUCE_ANY"})
_INEXACT = frozenset(
    {"COS", "EXP", "LOG", "LOGISTIC", "RSQRT", "SIN", "SQRT", "TANH", "ATAN2", "POW", "MEAN", "FLOOR_MOD"}
)
_KEEPS_INFINITY = frozenset({"ADD", "SUB", "MUL", "DIV"})
_EPSILON = {"float32": 1e-5, "float64": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def _ints(values: Sequence[int]) -> tuple[np.ndarray, bool]:
    return np.asarray(values, np.int32).reshape(-1), True


def _scalar(value: int) -> tuple[np.ndarray, bool]:
    return np.asarray(value, np.int32), True


def _fits(op: str, dtype: str) -> bool:
    """Whether numpy has a meaning for the op on the dtype."""
    if dtype == "bool":
        moves = op in ("EQUAL", "NOT_EQUAL", "ABS", "MAXIMUM", "MINIMUM")
        return op in _ONLY_BOOL or moves
    if op in _ONLY_BOOL:
        return False
    if op in ("BITWISE_XOR", "RIGHT_SHIFT"):
        return dtype in INTS
    return dtype in FLOATS or op not in (_INEXACT | {"CEIL", "FLOOR", "ROUND"}) - {"POW", "MEAN", "FLOOR_MOD"}


def _computed(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """numpy's result, through float64 for floats, in the operands' dtype."""
    with np.errstate(all="ignore"):
        if arrays[0].dtype.name not in FLOATS:
            return np.asarray(function(*arrays))
        result = np.asarray(function(*[a.astype(np.float64) for a in arrays]))
        return result.astype(arrays[0].dtype) if result.dtype == np.float64 else result


def _elementwise(dtype: str, rank: int) -> Iterator[Case]:
    x, y = plain(rank, dtype), plain(rank, dtype, 2)
    kinds = [("same", x, y)]
    if rank:
        kinds += [("broadcast", x[:1], y[..., :1]), ("broadcast", x, y.reshape(-1)[0])]
    for op, single in UNARY.items():
        if _fits(op, dtype):
            result = _computed(single, x).astype(x.dtype)
            yield Case(op, "same", rank, ((x, False),), (result,), {}, _tolerance(op, dtype))
    for kind, a, c in kinds:
        for op, function in (BINARY | COMPARE).items():
            if not _fits(op, dtype):
                continue
            kept = op in _KEEPS_INFINITY and dtype in ("float32", "float64")
            for first in (a, _with_infinity(a)) if kept else (a,):
                result = _computed(function, first, c).astype(np.bool_ if op in COMPARE else x.dtype)
                inputs = ((first, False), (c, False))
                yield Case(op, kind, rank, inputs, (result,), {}, _tolerance(op, dtype), special=first is not a)
        predicate = plain(rank, "bool")
        choice = np.where(predicate, a, c)
        yield Case("SELECT_V2", kind, rank, ((predicate, False), (a, False), (c, False)), (choice,))


def _tolerance(op: str, dtype: str) -> float:
    """Relative. A quotient may be one unit off: fast kernels multiply by a reciprocal."""
    if op == "DIV" and dtype in FLOATS:
        return 2.0 ** -{"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}[dtype]
    return _EPSILON.get(dtype, 0.0) if op in _INEXACT else 0.0


def _casts(dtype: str, rank: int) -> Iterator[Case]:
    x = plain(rank, dtype)
    for other in DTYPES:
        target = dtype_of(other)
        if other != dtype:
            yield Case("CAST", "same", rank, ((x, False),), (x.astype(target),))
        if target.itemsize == x.dtype.itemsize and "bool" not in (dtype, other):
            yield Case("BITCAST", "same", rank, ((x, False),), (x.view(target),))


def _reductions(dtype: str, rank: int) -> Iterator[Case]:
    if not rank:
        return
    x, last = plain(rank, dtype), rank - 1
    for op, function in REDUCE.items():
        if _fits(op, dtype):
            result = _computed(lambda v, f=function: f(v, axis=last), x)
            exact = result.astype(x.dtype)
            inputs = ((x, False), _ints([last]))
            yield Case(op, "same", rank, inputs, (exact,), {"keepDims": False}, _tolerance(op, dtype))
    for op, pick in (("ARG_MAX", np.argmax), ("ARG_MIN", np.argmin)):
        places = np.asarray(pick(x.astype(np.float64), axis=last)).astype(np.int32)
        yield Case(op, "same", rank, ((x, False), _scalar(last)), (places,))
    if dtype != "bool":
        sums = _computed(lambda v: np.cumsum(v, last), x).astype(x.dtype)
        options = {"exclusive": False, "reverse": False}
        yield Case("CUMSUM", "same", rank, ((x, False), _scalar(last)), (sums,), options)
        order = np.argsort(-x.astype(np.float64), axis=last, kind="stable").astype(np.int32)
        top = np.take_along_axis(x, order, last)
        yield Case("TOPK_V2", "same", rank, ((x, False), _scalar(x.shape[last])), (top, order))


def _structure(dtype: str, rank: int, values: Values = plain) -> Iterator[Case]:
    x = values(rank, dtype, 1)
    given = (x, False)
    whole = np.asarray(x.shape, np.int32).reshape(-1)
    wide = np.asarray([n if n != 1 else 2 for n in x.shape], np.int32)
    yield Case("BROADCAST_TO", "same", rank, (given, (wide, True)), (np.broadcast_to(x, tuple(wide)).copy(),))
    one = np.ones((), x.dtype)
    yield Case("BROADCAST_TO", "same", rank, ((one, False), (whole, True)), (np.ones_like(x),))
    yield Case("RESHAPE", "same", rank, (given, _ints([x.size])), (x.reshape(-1),))
    yield Case("RESHAPE", "same", rank, ((x.reshape(-1), False), (whole, True)), (x,))
    yield Case("EXPAND_DIMS", "same", rank, (given, _scalar(0)), (x[None],))
    yield Case("PACK", "same", rank, (given, given), (np.stack([x, x]),), {"axis": 0})
    if not rank:
        return
    first, last = (0,) * rank, rank - 1
    perm = tuple(reversed(range(rank)))
    yield Case("TRANSPOSE", "same", rank, (given, _ints(perm)), (x.transpose(perm).copy(),))
    sizes = [min(n, 1) for n in x.shape]
    window = tuple(slice(0, n) for n in sizes)
    yield Case("SLICE", "same", rank, (given, _ints(first), _ints(sizes)), (x[window],))
    strided = (given, _ints(first), (whole, True), _ints([2] * rank))
    yield Case("STRIDED_SLICE", "same", rank, strided, (x[tuple(slice(None, None, 2) for _ in first)],))
    yield Case("CONCATENATION", "same", rank, (given, given), (np.concatenate([x, x], last),), {"axis": last})
    yield Case("REVERSE_V2", "same", rank, (given, _ints([0])), (np.flip(x, 0).copy(),))
    yield Case("TILE", "same", rank, (given, _ints([2] * rank)), (np.tile(x, [2] * rank),))
    yield Case("UNPACK", "same", rank, (given,), tuple(np.asarray(v) for v in x), {"axis": 0})
    halves = tuple(np.split(x, x.shape[0], 0))
    yield Case("SPLIT", "same", rank, (_scalar(0), given), halves)
    edges = np.asarray([[1, 2]] + [[0, 0]] * last, np.int32)
    padded = np.pad(x, edges, constant_values=one)
    yield Case("PADV2", "same", rank, (given, (edges, True), (one, True)), (padded,))
    yield Case("PAD", "same", rank, (given, (edges, True)), (np.pad(x, edges),))
    yield from _indexing(x, rank)


def _indexing(x: np.ndarray, rank: int) -> Iterator[Case]:
    picks = np.asarray([1, 0, 1], np.int32)
    options = {"axis": 0, "batchDims": 0}
    yield Case("GATHER", "same", rank, ((x, False), (picks, False)), (x[picks],), options)
    if rank > 1:
        rows = np.zeros((x.shape[0], 2), np.int32)
        taken = np.stack([x[i][rows[i]] for i in range(len(x))])
        options = {"axis": 1, "batchDims": 1}
        yield Case("GATHER", "same", rank, ((x, False), (rows, False)), (taken,), options)
    start = np.zeros(rank, np.int32)
    start[0] = 1
    updated = x.copy()
    updated[1:2] = x[:1]
    yield Case("DYNAMIC_UPDATE_SLICE", "same", rank, ((x, False), (x[:1], False), (start, False)), (updated,))


def _products(dtype: str, rank: int) -> Iterator[Case]:
    if rank == 4:
        yield from _convolutions(dtype)
    if rank < 2:
        return
    front = shape(rank - 2)
    x = np.resize(plain(3, dtype), (*front, 2, 3))
    y = np.resize(plain(3, dtype, 2), (*front, 3, 2))
    result = _computed(np.matmul, x, y).astype(x.dtype)
    for constant in (False, True):
        for adj_x in (False, True):
            for adj_y in (False, True):
                left = np.swapaxes(x, -1, -2).copy() if adj_x else x
                right = np.swapaxes(y, -1, -2).copy() if adj_y else y
                inputs = ((left, False), (right, constant))
                options = {"adjX": adj_x, "adjY": adj_y}
                yield Case("BATCH_MATMUL", "same", rank, inputs, (result,), options, _EPSILON.get(dtype, 0))
    yield Case("SOFTMAX", "same", rank, ((x, False),), (_softmax(x),), {"beta": 1.0}, _EPSILON.get(dtype, 0))
    if rank == 2:
        weights = y.T.copy()
        for bias in ((), ((np.zeros(2, x.dtype), True),)):
            yield Case("FULLY_CONNECTED", "same", rank, ((x, False), (weights, True), *bias), (result,), {}, 1e-5)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64))
    return np.asarray(e / e.sum(-1, keepdims=True)).astype(x.dtype)


def _convolutions(dtype: str) -> Iterator[Case]:
    x = np.resize(plain(3, dtype), (1, 3, 3, 2))
    options = {"padding": "VALID", "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    full = np.resize(plain(3, dtype), (3, 2, 2, 2))
    deep = np.resize(plain(3, dtype), (1, 2, 2, 2))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (2, 2), axis=(1, 2))
    conv = np.einsum("nhwcij,oijc->nhwo", windows, full.astype(np.float64)).astype(x.dtype)
    depthwise = np.einsum("nhwcij,ijc->nhwc", windows, deep[0].astype(np.float64)).astype(x.dtype)
    bias3, bias2 = np.zeros(3, x.dtype), np.zeros(2, x.dtype)
    for constant in (True, False):
        yield Case("CONV_2D", "same", 4, ((x, False), (full, constant), (bias3, True)), (conv,), options, 1e-5)
        yield Case(
            "DEPTHWISE_CONV_2D",
            "same",
            4,
            ((x, False), (deep, constant), (bias2, True)),
            (depthwise,),
            {**options, "depthMultiplier": 1},
            1e-5,
        )


def _loop_bodies(operands: Sequence[Tensor]) -> dict[str, Graph]:
    """while step < 2: step += 1, the other value unchanged."""

    def ends() -> list[Tensor]:
        return [Tensor(x.shape, x.dtype) for x in operands]

    def number(value: int) -> Tensor:
        return Tensor((), "int32", data=np.asarray(value, np.int32))

    outside, inside = ends(), ends()
    go, after = Tensor((), "bool"), Tensor((), "int32")
    cond = Graph("cond", outside, [go], [Node("LESS", (outside[0], number(2)), (go,))])
    step = Node("ADD", (inside[0], number(1)), (after,))
    return {"cond": cond, "body": Graph("body", inside, [after, inside[1]], [step])}


def _branch_bodies(operands: Sequence[Tensor]) -> dict[str, Graph]:
    yes, no = (Tensor(operands[1].shape, operands[1].dtype) for _ in range(2))
    return {"then": Graph("then", [yes], [yes]), "else": Graph("else", [no], [no])}


def _control(dtype: str, rank: int) -> Iterator[Case]:
    x, two = plain(rank, dtype), np.asarray(2, np.int32)
    zero = (np.asarray(0, np.int32), False)
    yield Case("WHILE", "same", rank, (zero, (x, False)), (two, x), bodies=_loop_bodies)
    yield Case("IF", "same", rank, ((np.asarray(True), False), (x, False)), (x,), bodies=_branch_bodies)


# -- special values


def _special_elementwise(dtype: str, rank: int) -> Iterator[Case]:
    x = special(rank, dtype)
    for op, single in UNARY.items():
        if _fits(op, dtype):
            values = finite(rank, dtype) if op in _ANGLES else x
            result = _computed(single, values).astype(x.dtype)
            yield Case(op, "same", rank, ((values, False),), (result,), {}, _tolerance(op, dtype))
    for op, function in (BINARY | COMPARE).items():
        second = _second(op, dtype, rank) if _fits(op, dtype) else None
        if second is not None:
            first = numbers(rank, dtype) if op in _NO_NAN else x
            result = _computed(function, first, second).astype(np.bool_ if op in COMPARE else x.dtype)
            yield Case(op, "same", rank, ((first, False), (second, False)), (result,), {}, _tolerance(op, dtype))
    predicate, other = special(rank, "bool"), special(rank, dtype, 5)
    choice = np.where(predicate, x, other)
    yield Case("SELECT_V2", "same", rank, ((predicate, False), (x, False), (other, False)), (choice,))


_ANGLES = frozenset({"SIN", "COS"})
_NO_NAN = frozenset({"MAXIMUM", "MINIMUM"})
"""Lowerings treat NaN by themselves around these: what kernels make of it differs."""


def _second(op: str, dtype: str, rank: int) -> np.ndarray | None:
    """The second operand, where the op is defined with it; None if it has no special values."""
    y = special(rank, dtype, 4)
    kind = y.dtype
    if op in _NO_NAN:
        return numbers(rank, dtype, 4)
    if op == "RIGHT_SHIFT":
        bits = np.arange(y.size).reshape(y.shape) % (8 * kind.itemsize)
        return np.asarray(bits).astype(kind)
    if dtype in FLOATS:
        return finite(rank, dtype, 4) if op in ("POW", "FLOOR_MOD", "FLOOR_DIV") else y
    if op == "POW":
        return None
    if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        minus_one = np.asarray(-1).astype(kind)
        return np.where((y == 0) | (y == minus_one), np.asarray(3, kind), y)
    return y


def _special_casts(dtype: str, rank: int) -> Iterator[Case]:
    for other in DTYPES:
        target = dtype_of(other)
        x = special(rank, dtype)
        if dtype in FLOATS and other in INTS:
            low = 0 if other.startswith("u") else -100
            x = np.clip(finite(rank, dtype).astype(np.float64), low, 100).astype(x.dtype)
        if other != dtype:
            with np.errstate(all="ignore"):
                yield Case("CAST", "same", rank, ((x, False),), (x.astype(target),))
        if target.itemsize == x.dtype.itemsize and "bool" not in (dtype, other):
            bits = special(rank, dtype)
            yield Case("BITCAST", "same", rank, ((bits, False),), (bits.view(target),))


def _special_reductions(dtype: str, rank: int) -> Iterator[Case]:
    if not rank:
        return
    x, last = numbers(rank, dtype), rank - 1
    for op, function in REDUCE.items():
        exact = dtype not in FLOATS or op in ("REDUCE_MAX", "REDUCE_MIN")
        if _fits(op, dtype) and exact and op != "MEAN":
            result = _computed(lambda v, f=function: f(v, axis=last), x).astype(x.dtype)
            yield Case(op, "same", rank, ((x, False), _ints([last])), (result,), {"keepDims": False})
    order_of = x.astype(np.float64) if dtype in FLOATS else x.astype(object)
    for op, pick in (("ARG_MAX", np.argmax), ("ARG_MIN", np.argmin)):
        places = np.asarray(pick(order_of, axis=last)).astype(np.int32)
        yield Case(op, "same", rank, ((x, False), _scalar(last)), (places,))
    if dtype == "bool":
        return
    if dtype in INTS:
        sums = np.cumsum(x, last, dtype=x.dtype)
        yield Case("CUMSUM", "same", rank, ((x, False), _scalar(last)), (sums,), {"exclusive": False, "reverse": False})
    order = np.argsort(-order_of, axis=last, kind="stable").astype(np.int32)
    top = np.take_along_axis(x, order, last)
    yield Case("TOPK_V2", "same", rank, ((x, False), _scalar(x.shape[last])), (top, order))


def _special_structure(dtype: str, rank: int) -> Iterator[Case]:
    return _structure(dtype, rank, special)


FAMILIES = (_elementwise, _casts, _reductions, _structure, _products, _control)
SPECIAL_FAMILIES = (_special_elementwise, _special_casts, _special_reductions, _special_structure)


def cases(dtypes: Iterable[str] = DTYPES, ranks: Iterable[int] = RANKS, *, special: bool = False) -> Iterator[Case]:
    """Every question, rank by rank. `special`: those with special values, in place of those with ordinary ones."""
    return swept(SPECIAL_FAMILIES if special else FAMILIES, dtypes, ranks, special)
