"""Further questions to a runtime of ONNX files: forms of operators that the project's lowerings write beside the plain
ones, and operators that are common in files of other exporters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import erf
from typing import Any

import numpy as np

from opcompat.targets.probes.case import DTYPES, FLOATS, INTS, Case, swept
from opcompat.targets.probes.values import Values, numbers, plain, special

RANKS = range(7)

_UNARY: dict[str, Callable[[Any], Any]] = {
    "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "Erf": np.vectorize(erf, [np.float64]),
    "IsInf": np.isinf,
    "LeakyRelu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "Relu": lambda x: np.maximum(x, 0),
    "Softplus": lambda x: np.logaddexp(x, 0),
}
_REDUCE: dict[str, Callable[..., Any]] = {
    "ReduceL1": lambda x, axis: np.sum(np.abs(x), axis=axis),
    "ReduceL2": lambda x, axis: np.sqrt(np.sum(x * x, axis=axis)),
    "ReduceMean": np.mean,
}
_EPSILON = {"float32": 1e-5, "float64": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
_EXACT = frozenset({"IsInf", "Relu"})


def _computed(function: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    """Through float64 for floats, in the operand's dtype unless it is bool."""
    with np.errstate(all="ignore"):
        result = np.asarray(function(x.astype(np.float64) if x.dtype.name in FLOATS else x))
    return result if result.dtype == np.bool_ else result.astype(x.dtype)


def _ints(values: Sequence[int]) -> tuple[np.ndarray, bool]:
    return np.asarray(values, np.int64).reshape(-1), True


def _elementwise(dtype: str, rank: int, values: Values = plain) -> Iterator[Case]:
    if dtype not in FLOATS:
        return
    for op, function in _UNARY.items():
        x = (numbers if values is special and op == "Relu" else values)(rank, dtype, 1)
        near = 0.0 if op in _EXACT else _EPSILON[dtype]
        yield Case(op, "same", rank, ((x, False),), (_computed(function, x),), {}, near)


def _broadcast(dtype: str, rank: int) -> Iterator[Case]:
    """Operators that `onnx_cases` asks about with equal shapes."""
    if not rank:
        return
    x = plain(rank, dtype)
    y = plain(rank, dtype, 2).reshape(-1)[0]
    given = ((x, False), (y, False))
    if dtype == "bool":
        yield Case("Xor", "broadcast", rank, given, (x ^ y,))
    if dtype not in INTS:
        return
    yield Case("BitwiseAnd", "broadcast", rank, given, (x & y,))
    yield Case("BitwiseOr", "broadcast", rank, given, (x | y,))
    for fmod, rest in ((0, np.mod), (1, np.fmod)):
        yield Case("Mod", "broadcast", rank, given, (rest(x, y),), {"fmod": fmod}, 0.0, ("fmod",))
    if dtype.startswith("u"):
        for direction, move in (("LEFT", np.left_shift), ("RIGHT", np.right_shift)):
            yield Case(
                "BitShift", "broadcast", rank, given, (move(x, y),), {"direction": direction}, 0.0, ("direction",)
            )


def _special_elementwise(dtype: str, rank: int) -> Iterator[Case]:
    return _elementwise(dtype, rank, special)


def _reductions(dtype: str, rank: int) -> Iterator[Case]:
    if not rank:
        return
    x, last = plain(rank, dtype), rank - 1
    if dtype == "bool":
        for op, both in (("ReduceMax", np.any), ("ReduceMin", np.all)):
            yield Case(op, "same", rank, ((x, False), _ints([last])), (both(x, axis=last),), {"keepdims": 0})
        return
    for op, function in _REDUCE.items():
        if op == "ReduceL1" or dtype in FLOATS:
            result = _computed(lambda v, f=function: f(v, axis=last), x)
            near = _EPSILON.get(dtype, 0.0)
            yield Case(op, "same", rank, ((x, False), _ints([last])), (result,), {"keepdims": 0}, near)
    if dtype in FLOATS:
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(-1, keepdims=True))
        soft = e / e.sum(-1, keepdims=True)
        yield Case("Softmax", "same", rank, ((x, False),), (soft.astype(x.dtype),), {"axis": -1}, _EPSILON[dtype])
        logs = np.log(soft).astype(x.dtype)
        yield Case("LogSoftmax", "same", rank, ((x, False),), (logs,), {"axis": -1}, _EPSILON[dtype])


def _special_reductions(dtype: str, rank: int) -> Iterator[Case]:
    """The largest and the smallest with NaN, which lowerings count as above everything; of equal ones the first."""
    if not rank or dtype not in FLOATS:
        return
    x, last = special(rank, dtype), rank - 1
    for largest in (1, 0):
        order = _order(x.astype(np.float64), largest)
        inputs = ((x, False), _ints([x.shape[last]]))
        results = (np.take_along_axis(x, order, last), order)
        yield Case("TopK", "same", rank, inputs, results, {"axis": last, "largest": largest})


def _order(x: np.ndarray, largest: int) -> np.ndarray:
    """int64 indices along the last axis."""
    ranked = np.where(np.isnan(x), 0.0, x)
    sign = -1 if largest else 1
    return np.asarray(np.lexsort((sign * ranked, sign * np.isnan(x).astype(int)), axis=-1)).astype(np.int64)


def _structure(dtype: str, rank: int, values: Values = plain) -> Iterator[Case]:
    x = values(rank, dtype, 1)
    yield Case("Unsqueeze", "same", rank, ((x, False), _ints([0])), (x[None],))
    if rank:
        flat = x[:1].reshape(x.shape[1:])
        yield Case("Squeeze", "same", rank, ((x[:1], False), _ints([0])), (flat,))
        updated = x.copy()
        updated[1] = x[0]
        inputs = ((x, False), (np.asarray([[1]], np.int64), False), (x[:1], False))
        yield Case("ScatterND", "same", rank, inputs, (updated,))
        yield Case("Tile", "same", rank, ((x, False), _ints([2] * rank)), (np.tile(x, [2] * rank),))


def _special_structure(dtype: str, rank: int) -> Iterator[Case]:
    return _structure(dtype, rank, special)


FAMILIES = (_elementwise, _broadcast, _reductions, _structure)
SPECIAL_FAMILIES = (_special_elementwise, _special_reductions, _special_structure)


def cases(dtypes: Iterable[str] = DTYPES, ranks: Iterable[int] = RANKS, *, special: bool = False) -> Iterator[Case]:
    """Every question, rank by rank. `special`: those with special values, in place of those with ordinary ones."""
    return swept(SPECIAL_FAMILIES if special else FAMILIES, dtypes, ranks, special)
