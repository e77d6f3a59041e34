"""Asks the installed LiteRT what it runs: one-op models, each run in a child process and checked by value.

`python -m opcompat.targets.litert_probe [DATE]` writes `data/litert.json`, which targets/litert.py reads:

    ops -> op -> signature -> kind of shapes ("same" or "broadcast") -> {"yes": ranks, "no": {rank: why}}

A signature lists operand and result dtypes ("float32 int32 -> float32"). "no" covers a refused model, a
crash, and a result that is not numpy's.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor

TABLE_FILE = Path(__file__).parent / "data" / "litert.json"
RANKS = range(10)
TIMEOUT = 20.0
"""Seconds that one model may take before it counts as hanging."""

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTS, "bool")


@dataclass(frozen=True)
class Case:
    """A model of one op, with its inputs (True: a constant) and the results that numpy gives."""

    op: str
    kind: str
    rank: int
    inputs: tuple[tuple[np.ndarray, bool], ...]
    expected: tuple[np.ndarray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0

    @property
    def node(self) -> tuple[Node, list[Tensor]]:
        operands = [
            Tensor(a.shape, a.dtype.name, "" if constant else f"x{i}", data=a if constant else None)
            for i, (a, constant) in enumerate(self.inputs)
        ]
        results = tuple(Tensor(e.shape, e.dtype.name) for e in self.expected)
        bodies = _BODIES[self.op](operands) if self.op in _BODIES else {}
        node = Node(self.op, tuple(operands), results, self.attrs, bodies)
        return node, [x for x in operands if not x.is_constant]


def signature(node: Node) -> str:
    """The dtypes that decide. Repeated neighbours (CONCATENATION's parts, SPLIT's results) count once."""
    inputs = _distinct([x.dtype for x in node.inputs if x is not None], node.op in _VARIADIC)
    outputs = _distinct([x.dtype for x in node.outputs], node.op in _VARIADIC)
    return f"{' '.join(inputs)} -> {' '.join(outputs)}"


_VARIADIC = frozenset({"CONCATENATION", "PACK", "UNPACK", "SPLIT", "SPLIT_V"})


def _distinct(dtypes: Sequence[str], variadic: bool) -> list[str]:
    return [d for i, d in enumerate(dtypes) if not (variadic and i and dtypes[i - 1] == d)]


# --- what is asked -------------------------------------------------------------------------------------


def _dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def _shape(rank: int) -> tuple[int, ...]:
    return (2, 1, 3, 2, 1, 2, 1, 2, 1, 2)[:rank]


def _values(rank: int, dtype: str, start: int = 1) -> np.ndarray:
    """Small positive numbers, all exact in every dtype."""
    size = int(np.prod(_shape(rank), dtype=int))
    counts = start + np.arange(size) % 7
    values = counts % 2 == 0 if dtype == "bool" else counts / 2 if dtype in FLOATS else counts
    typed: np.ndarray = np.asarray(values).astype(_dtype(dtype)).reshape(_shape(rank))
    return typed


def _with_infinity(x: np.ndarray) -> np.ndarray:
    """A first element of inf: at ranks that the delegate leaves to them, some kernels clip it."""
    if x.dtype.kind == "f" and x.dtype.itemsize > 2:
        x = x.copy()
        x.reshape(-1)[0] = np.inf
    return x


def _logistic(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.reciprocal(1 + np.exp(-x))
    return result


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
    "DIV": lambda x, y: x // y if np.asarray(x).dtype.kind in "iu" else x / y,
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
        if arrays[0].dtype.name in FLOATS:
            return np.asarray(function(*[a.astype(np.float64) for a in arrays]))
        return np.asarray(function(*arrays))


def _elementwise(dtype: str, rank: int) -> Iterator[Case]:
    x, y = _values(rank, dtype), _values(rank, dtype, 2)
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
            first = _with_infinity(a) if op in _KEEPS_INFINITY else a
            result = _computed(function, first, c).astype(np.bool_ if op in COMPARE else x.dtype)
            yield Case(op, kind, rank, ((first, False), (c, False)), (result,), {}, _tolerance(op, dtype))
        predicate = _values(rank, "bool")
        choice = np.where(predicate, a, c)
        inputs = ((predicate, False), (a, False), (c, False))
        yield Case("SELECT_V2", kind, rank, inputs, (choice,))


def _tolerance(op: str, dtype: str) -> float:
    return _EPSILON.get(dtype, 0.0) if op in _INEXACT else 0.0


def _casts(dtype: str, rank: int) -> Iterator[Case]:
    x = _values(rank, dtype)
    for other in DTYPES:
        target = _dtype(other)
        if other != dtype:
            yield Case("CAST", "same", rank, ((x, False),), (x.astype(target),))
        if target.itemsize == x.dtype.itemsize and "bool" not in (dtype, other):
            yield Case("BITCAST", "same", rank, ((x, False),), (x.view(target),))


def _reductions(dtype: str, rank: int) -> Iterator[Case]:
    if not rank:
        return
    x, last = _values(rank, dtype), rank - 1
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


def _structure(dtype: str, rank: int) -> Iterator[Case]:
    x = _values(rank, dtype)
    given = (x, False)
    shape = np.asarray(x.shape, np.int32).reshape(-1)
    wide = np.asarray([n if n != 1 else 2 for n in x.shape], np.int32)
    yield Case("BROADCAST_TO", "same", rank, (given, (wide, True)), (np.broadcast_to(x, tuple(wide)).copy(),))
    one = np.ones((), x.dtype)
    yield Case("BROADCAST_TO", "same", rank, ((one, False), (shape, True)), (np.ones_like(x),))
    yield Case("RESHAPE", "same", rank, (given, _ints([x.size])), (x.reshape(-1),))
    yield Case("RESHAPE", "same", rank, ((x.reshape(-1), False), (shape, True)), (x,))
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
    strided = (given, _ints(first), (shape, True), _ints([2] * rank))
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
    front = _shape(rank - 2)
    x = np.resize(_values(3, dtype), (*front, 2, 3))
    y = np.resize(_values(3, dtype, 2), (*front, 3, 2))
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
    x = np.resize(_values(3, dtype), (1, 3, 3, 2))
    options = {"padding": "VALID", "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    full = np.resize(_values(3, dtype), (3, 2, 2, 2))
    deep = np.resize(_values(3, dtype), (1, 2, 2, 2))
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


_BODIES: dict[str, Callable[[Sequence[Tensor]], dict[str, Graph]]] = {
    "WHILE": _loop_bodies,
    "IF": _branch_bodies,
}


def _control(dtype: str, rank: int) -> Iterator[Case]:
    x, two = _values(rank, dtype), np.asarray(2, np.int32)
    zero = (np.asarray(0, np.int32), False)
    yield Case("WHILE", "same", rank, (zero, (x, False)), (two, x))
    yield Case("IF", "same", rank, ((np.asarray(True), False), (x, False)), (x,))


FAMILIES = (_elementwise, _casts, _reductions, _structure, _products, _control)


def cases(dtypes: Iterable[str] = DTYPES, ranks: Iterable[int] = RANKS) -> Iterator[Case]:
    """Every question, rank by rank."""
    ranks = list(ranks)
    for dtype in dtypes:
        for rank in ranks:
            for family in FAMILIES:
                yield from family(dtype, rank)


# --- how it is asked -----------------------------------------------------------------------------------


def ask(case: Case) -> str:
    """Runs a case here. Returns "" where the result is right, else why not. May crash the process."""
    from ai_edge_litert.interpreter import Interpreter

    from opcompat.lowering.tflite.writer import write

    node, inputs = case.node
    outputs = [f"y{i}" for i in range(len(node.outputs))]
    graph = Graph("main", inputs, list(node.outputs), [node])
    content = write({"main": graph}, {}, output_names={"main": outputs})
    stage = "load"
    try:
        interpreter = Interpreter(model_content=content, num_threads=1)
        stage = "allocate"
        runner = interpreter.get_signature_runner("main")
        stage = "run"
        results = runner(**{x.name: case.inputs[int(x.name[1:])][0] for x in inputs})
    except (RuntimeError, ValueError, TypeError) as error:
        return f"{stage}: {_short(str(error))}"
    return _difference(case, [results[name] for name in outputs])


def _short(message: str) -> str:
    """The first line, without file names, line numbers and node numbers, which change with versions."""
    line = (message.strip().splitlines() or ["no message"])[0]
    words = [w for w in line.split() if not w.startswith(("tflite/", "external/", "third_party/"))]
    return " ".join(words).split("Node number")[0].strip()[:160]


def _difference(case: Case, results: Sequence[np.ndarray]) -> str:
    for got, expected in zip(results, case.expected, strict=True):
        if got.shape != expected.shape:
            return f"wrong: shape {got.shape}, not {expected.shape}"
        if got.dtype.itemsize == expected.dtype.itemsize and got.dtype != expected.dtype:
            got = got.view(expected.dtype)  # bfloat16 arrives as its bits
        if not _agree(got, expected, case.tolerance):
            return f"wrong: {got.reshape(-1)[:3].tolist()}, not {expected.reshape(-1)[:3].tolist()}"
    return ""


def _agree(got: np.ndarray, expected: np.ndarray, tolerance: float) -> bool:
    if expected.dtype.name in FLOATS:
        a, b = got.astype(np.float64), expected.astype(np.float64)
        return bool(np.allclose(a, b, rtol=tolerance, atol=0, equal_nan=True))
    return bool(np.array_equal(got, expected))


def _serve(connection: Any) -> None:
    """The child: answers cases until the pipe closes. What the runtime prints is nobody's concern."""
    import os
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected, and dumps take long
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        connection.send(ask(case))


class Sandbox:
    """A child process that runs cases, and is replaced when one kills or hangs it."""

    def __init__(self) -> None:
        self.context = get_context("forkserver")
        self.context.set_forkserver_preload(["opcompat.targets.litert_probe", "ai_edge_litert.interpreter"])
        self.start()

    def start(self) -> None:
        self.connection, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, case: Case) -> str:
        try:
            self.connection.send(case)
            if self.connection.poll(TIMEOUT):
                return str(self.connection.recv())
            self.process.kill()
            answer = "hangs"
        except (EOFError, ConnectionError):
            answer = "crashes the process"
        self.close()
        self.start()
        return answer

    def close(self) -> None:
        self.connection.close()
        self.process.join()


Answers = dict[str, dict[str, dict[str, dict[int, str]]]]
"""op -> signature -> kind -> rank -> "" or the first reason why not."""


def probe(questions: Iterable[Case]) -> Answers:
    """Asks every case in a sandbox. Of several cases with one key, all must succeed."""
    answers: Answers = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    sandbox = Sandbox()
    for case in questions:
        ranks = answers[case.op][signature(case.node[0])][case.kind]
        if not ranks.get(case.rank):
            ranks[case.rank] = sandbox.ask(case)
    sandbox.close()
    return answers


# --- the table -----------------------------------------------------------------------------------------


def table(answers: Answers, version: str, date: str = "") -> dict[str, Any]:
    """The answers as they stand in the file: sorted, runs of equal ranks written as ranges."""
    ops = {
        op: {
            signature: {kind: _entry(ranks) for kind, ranks in sorted(kinds.items())}
            for signature, kinds in sorted(signatures.items())
        }
        for op, signatures in sorted(answers.items())
    }
    head = {"runtime": "ai-edge-litert", "version": version}
    return {**head, **({"date": date} if date else {}), "ops": ops}


def _entry(ranks: dict[int, str]) -> dict[str, Any]:
    """{"yes": "0-6", "no": {"7-9": reason}}"""
    reasons: dict[str, list[int]] = defaultdict(list)
    for rank, reason in sorted(ranks.items()):
        reasons[reason].append(rank)
    no = {write_ranks(found): reason for reason, found in reasons.items() if reason}
    return {**({"yes": write_ranks(reasons[""])} if "" in reasons else {}), **({"no": no} if no else {})}


def write_ranks(ranks: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> "0-2 5"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return " ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def read_ranks(text: str) -> list[int]:
    ranks: list[int] = []
    for run in text.split():
        first, _, last = run.partition("-")
        ranks += range(int(first), int(last or first) + 1)
    return ranks


def dump(content: dict[str, Any]) -> str:
    """JSON with one signature per line, so that a diff between versions reads well."""
    head = {k: v for k, v in content.items() if k != "ops"}
    lines = [f"{json.dumps(k)}: {json.dumps(v)}," for k, v in head.items()]
    lines.append('"ops": {')
    ops = list(content["ops"].items())
    for i, (op, signatures) in enumerate(ops):
        lines.append(f"  {json.dumps(op)}: {{")
        rows = [f"    {json.dumps(s)}: {json.dumps(kinds)}" for s, kinds in signatures.items()]
        lines.append(",\n".join(rows))
        lines.append("  }" + ("," if i + 1 < len(ops) else ""))
    return "{\n" + "\n".join(lines) + "\n}\n}\n"


def main(arguments: Sequence[str]) -> None:
    warnings.simplefilter("ignore", RuntimeWarning)
    version = metadata.version("ai-edge-litert")
    content = table(probe(cases()), version, *arguments[:1])
    TABLE_FILE.parent.mkdir(exist_ok=True)
    TABLE_FILE.write_text(dump(content), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
