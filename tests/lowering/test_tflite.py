"""Every TFLite lowering, run in LiteRT and compared with jax.jit on the same inputs, boundary values included."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from jax import lax

from opcompat.errors import OutputError
from opcompat.lowering.builder import Unsupported
from opcompat.lowering.graph import Graph, Node, Tensor, Weight
from opcompat.lowering.lower import PLACEHOLDER, lower_jaxpr
from opcompat.lowering.tflite.builder import TfliteBuilder, interface
from opcompat.lowering.tflite.table import BROADCASTING, TABLE, backend
from opcompat.lowering.tflite.writer import write
from opcompat.targets import litert

TARGET = litert.target()
NAN, INF = np.nan, np.inf
F32 = np.array(
    [0, -0.0, 1, -1, 0.5, -0.5, 1.5, -2.5, 2.5, 7, -7, 1e-3, 3.1e4, 1e20, -1e20, 3e38, -3e38, INF, -INF, NAN],
    np.float32,
)
I32 = np.array([0, 1, -1, 2, -2, 3, 7, -7, 31, 32, 33, 65537, 2**31 - 1, -(2**31), -(2**31) + 1], np.int32)
U32 = I32.view(np.uint32)
BOOL = np.array([True, False])
LITERALS = {
    "float32": np.array([0, -0.0, 1, -1, 2.5, 7, 0.5, INF, -INF, NAN], np.float32),
    "int32": np.array([0, 1, -1, -7, 31, 32, 2**31 - 1, -(2**31)], np.int32),
    "uint32": np.array([0, 1, 31, 32, 2**31, 2**32 - 1], np.uint32),
    "bool": BOOL,
}
ZERO, ONE, TWO = np.int32(0), np.int32(1), np.int32(2)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(values, values)
    return a.ravel().copy(), b.ravel().copy()


def program(fn: Callable[..., Any], args: Sequence[np.ndarray], name: str = "main") -> Graph:
    """The graph of `fn` with its interface, as convert builds it: inputs in.0, in.1, ..."""
    closed = jax.make_jaxpr(fn)(*args)

    def no_bodies(graph: Graph, jaxpr: Any, inputs: Sequence[Tensor]) -> None:
        raise AssertionError("the interface has no bodies")

    edge = TfliteBuilder(Graph(name), no_bodies)
    kinds = [np.asarray(a).dtype.name for a in args]
    edge.graph.inputs = [
        Tensor(np.shape(a), interface(k), f"in.{i}") for i, (a, k) in enumerate(zip(args, kinds, strict=True))
    ]
    stored = [edge.from_interface(t, k) for t, k in zip(edge.graph.inputs, kinds, strict=True)]
    inner = lower_jaxpr(closed, backend(), stored, name)
    edge.graph.nodes += inner.nodes
    edge.graph.outputs = [
        edge.to_interface(t, a.dtype.name) for t, a in zip(inner.outputs, closed.out_avals, strict=True)
    ]
    for clean in backend().passes:
        edge.graph = clean(edge.graph)
    return edge.graph


def names(graph: Graph) -> list[str]:
    return [f"out.{i}" for i in range(len(graph.outputs))]


def problems(graph: Graph) -> list[str]:
    return [node.problem for node in graph.walk() if node.op == PLACEHOLDER]


def run(content: bytes, signature: str, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    runner = Interpreter(model_content=content, num_threads=1).get_signature_runner(signature)
    results = runner(**{f"in.{i}": np.asarray(a) for i, a in enumerate(args)})
    return [results[f"out.{i}"] for i in range(len(results))]


def check(fn: Callable[..., Any], *args: np.ndarray, rtol: float = 5e-6, judge: bool = True) -> Graph:
    """Asserts that `fn` lowers, that the target says yes to it, and that LiteRT and JAX agree."""
    args = tuple(np.asarray(a) for a in args)
    graph = program(fn, args)
    assert not problems(graph)
    for node in graph.walk():
        support = TARGET.check(node)
        assert not judge or support.status == "yes", (node.op, support)
    got = run(write({"main": graph}, {}, output_names={"main": names(graph)}), "main", args)
    expected = jax.tree.leaves(jax.jit(fn)(*args))
    for g, e in zip(got, expected, strict=True):
        same(g, np.asarray(e), rtol)
    return graph


def same(got: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if got.dtype.kind == "f":
        # The default delegate flushes denormals, and JAX does not: 1.2e-38 is the smallest normal number.
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=1.2e-38)
    else:
        np.testing.assert_array_equal(got, expected)


# --- elementwise ---------------------------------------------------------------------------------------

BINARY = {
    "add": (F32, I32, U32),
    "sub": (F32, I32, U32),
    "mul": (F32, I32, U32),
    "div": (F32, I32),
    "rem": (F32, I32),
    "max": (F32, I32, BOOL),
    "min": (F32, I32, BOOL),
    "pow": (F32,),
    "atan2": (F32,),
    "eq": (F32, I32, U32, BOOL),
    "ne": (F32, I32, U32, BOOL),
    "lt": (F32, I32, U32, BOOL),
    "le": (F32, I32, U32, BOOL),
    "gt": (F32, I32, U32, BOOL),
    "ge": (F32, I32, U32, BOOL),
    "bitwise_and": (BOOL,),
    "bitwise_or": (BOOL,),
    "bitwise_xor": (BOOL, I32, U32),
    "shift_right_logical": (I32, U32),
    "shift_right_arithmetic": (I32, U32),
}


def each(table: dict[str, tuple[np.ndarray, ...]]) -> list[Any]:
    return [pytest.param(n, v, id=f"{n}-{v.dtype}") for n, values in table.items() for v in values]


@pytest.mark.parametrize(("name", "values"), each(BINARY))
def test_binary(name: str, values: np.ndarray) -> None:
    fn = getattr(lax, name)
    a, b = pairs(values)
    check(fn, a, b)
    square = a[:4].reshape(2, 2)
    check(fn, square, b[-2:].reshape(1, 2))  # size-1 axes broadcast by themselves in newer jaxprs
    # Literals take other paths than tensors. XLA divides by them through their reciprocal, so 7 / 3e38 is 0.
    check(lambda x: [(fn(x, n), fn(n, x)) for n in LITERALS[values.dtype.name]], values)


UNARY = {
    "neg": (F32, I32, U32),
    "abs": (F32, I32),
    "sign": (F32, I32, U32),
    "square": (F32, I32, U32),
    "exp": (F32,),
    "exp2": (F32,),
    "log": (F32,),
    "sqrt": (F32,),
    "rsqrt": (F32,),
    "sin": (F32[np.abs(F32) < 1e5],),
    "cos": (F32[np.abs(F32) < 1e5],),
    "tanh": (F32,),
    "logistic": (F32,),
    "floor": (F32,),
    "ceil": (F32,),
    "is_finite": (F32,),
    "bitwise_not": (BOOL, I32, U32),
    "stop_gradient": (F32,),
    "optimization_barrier": (F32,),
}


@pytest.mark.parametrize(("name", "values"), each(UNARY))
def test_unary(name: str, values: np.ndarray) -> None:
    check(getattr(lax, name), values)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "rsqrt", "tanh", "logistic", "sin", "cos"])
def test_functions_over_their_range(name: str) -> None:
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(np.log(1e-30), np.log(80), 20000)).astype(np.float32)
    near_one = (1 + rng.uniform(-1e-3, 1e-3, 2000)).astype(np.float32)
    signed = name not in ("log", "sqrt", "rsqrt")
    x = np.concatenate([x, near_one, -x if signed else x * 1e30])
    check(getattr(lax, name), x)


def test_round() -> None:
    x = np.concatenate([F32, np.array([0.49999997, -0.49999997, 8388609, -4503599.5], np.float32)])
    for method in (lax.RoundingMethod.TO_NEAREST_EVEN, lax.RoundingMethod.AWAY_FROM_ZERO):
        check(lambda x, m=method: lax.round(x, m), x)


def test_tan() -> None:
    check(lax.tan, F32[np.abs(F32) < 1e5])


ZEROS = np.array([0.0, -0.0, 0.0, -0.0, -0.0, -0.0], np.float32)


def signed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, and the signs of its zeros."""
    return lambda *xs: (fn(*xs), lax.lt(lax.div(np.float32(1), fn(*xs)), np.float32(0)))


def test_signs_of_zeros() -> None:
    a, b = pairs(np.array([0.0, -0.0, 1, -1, NAN], np.float32))
    for fn in (lax.max, lax.min, lax.rem):
        check(signed(fn), a, b)
    for number in (0.0, -0.0, 1.0):
        check(signed(lambda x, n=number: lax.max(x, np.float32(n))), a)
        check(signed(lambda x, n=number: lax.min(x, np.float32(n))), a)
    for fn in (lax.sign, lax.round, lax.neg):
        check(signed(fn), a)
    rows = np.stack([np.roll(ZEROS, k) for k in range(3)] + [ZEROS[[1] * 6], ZEROS[[0] * 6]])
    for fn in (lax.reduce_max, lax.reduce_min):
        check(signed(lambda x, f=fn: f(x, (1,))), rows)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3,), (33,), (5, 7), (2, 1, 3, 2), (2,) * 7], ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_in_extremum(name: str, shape: tuple[int, ...]) -> None:
    fn = getattr(lax, name)
    x = np.resize(np.array([NAN, 1, -1, NAN, 0, INF, -INF], np.float32), shape)
    y = np.resize(np.array([1, NAN, 2, NAN, -3], np.float32), shape)
    zero, one = np.float32(0), np.ones((1,) * len(shape), np.float32)
    check(lambda x, y: (fn(x, y), fn(y, x), fn(x, zero), fn(zero, x), fn(x, one), fn(one, x)), x, y)


@pytest.mark.parametrize("power", [0, 1, 2, 3, 5, 8, -1, -3])
def test_integer_pow(power: int) -> None:
    check(lambda x: lax.integer_pow(x, power), F32)
    if power >= 0:
        check(lambda x: lax.integer_pow(x, power), I32)


@pytest.mark.parametrize("values", [F32, I32], ids=str)
@pytest.mark.parametrize("bounds", [(-1, 2), (2, -1)])
def test_clamp(values: np.ndarray, bounds: tuple[int, int]) -> None:
    low, high = (values.dtype.type(v) for v in bounds)
    check(lambda x: lax.clamp(low, x, high), values)
    a, b = pairs(values)
    check(lax.clamp, a, b, a[::-1].copy())


@pytest.mark.parametrize("values", [F32, I32, U32, np.tile(BOOL, 10)], ids=str)
def test_select(values: np.ndarray) -> None:
    n = len(values)
    predicate = np.arange(n) % 3 == 0
    check(lax.select_n, predicate, values, values[::-1].copy())
    check(lax.select_n, np.array(True), values, values[::-1].copy())
    which = (np.arange(n) % 5 - 1).astype(np.int32)
    check(lax.select_n, np.clip(which, 0, 2), values, values[::-1].copy(), np.roll(values, 1))


CONVERSIONS = [
    (F32, np.int32),
    *((F32, t) for t in (np.uint32, np.int8, np.uint8, np.int16, np.uint16)),
    (np.array([2147483648, 4294967040, 4294967296, -0.5, 255.9, 256, -129, 65535.5], np.float32), np.uint32),
    (np.array([127.9, 128, -128.9, -129, 255.9, 256, 32767.9, 65536], np.float32), np.int8),
    (F32, np.bool_),
    (I32, np.float32),
    (I32, np.uint32),
    (I32, np.bool_),
    (U32, np.int32),
    (U32, np.bool_),
    (BOOL, np.float32),
    (BOOL, np.int32),
    (BOOL, np.uint32),
]


@pytest.mark.parametrize(("values", "dtype"), CONVERSIONS, ids=str)
def test_convert(values: np.ndarray, dtype: Any) -> None:
    check(lambda x: lax.convert_element_type(x, dtype), values)


@pytest.mark.parametrize("half", [jnp.float16, jnp.bfloat16])
def test_convert_through_half_precision(half: Any) -> None:
    x = np.random.default_rng(0).normal(size=500).astype(np.float32) * 10
    fn = lambda x: lax.convert_element_type(lax.convert_element_type(x, half), np.float32)  # noqa: E731
    check(fn, np.concatenate([x, F32]), judge=True)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (F32, np.int32),
        (F32, np.uint32),
        (I32, np.float32),
        (U32, np.float32),
        (I32, np.uint32),
        (U32, np.int32),
    ],
    ids=str,
)
def test_bitcast(values: np.ndarray, dtype: Any) -> None:
    check(lambda x: lax.bitcast_convert_type(x, dtype), values)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "uint32 max": (lax.max, (U32, U32)),
    "uint32 div": (lax.div, (U32, U32)),
    "uint32 to float": (lambda x: lax.convert_element_type(x, np.float32), (U32,)),
    "uint32 reduce_max": (lambda x: lax.reduce_max(x, (0,)), (U32,)),
    "uint32 argmax": (lambda x: lax.argmax(x, 0, np.int32), (U32,)),
    "int or": (lax.bitwise_or, (I32, I32)),
    "int and": (lax.bitwise_and, (I32, I32)),
    "shift_left": (lax.shift_left, (I32, I32)),
    "log1p": (lax.log1p, (F32,)),
    "expm1": (lax.expm1, (F32,)),
    "erf_inv": (lax.erf_inv, (F32,)),
    "int dot": (lambda x: lax.dot(x, x), (I32,)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason(case: str) -> None:
    fn, args = REFUSED[case]
    (reason,) = problems(program(fn, args))
    assert reason
    assert reason != "no lowering"


# --- structure -----------------------------------------------------------------------------------------

CUBES = [
    np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    np.arange(24, dtype=np.int32).reshape(2, 3, 4),
    np.arange(24, dtype=np.uint32).reshape(2, 3, 4) - np.uint32(12),
    (np.arange(24) % 3 == 0).reshape(2, 3, 4),
]

STRUCTURE: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: lax.reshape(x, (4, 6)),
    "squeeze": lambda x: lax.squeeze(x[:1], (0,)),
    "expand_dims": lambda x: lax.expand_dims(x, (1,)),
    "transpose": lambda x: lax.transpose(x, (2, 0, 1)),
    "broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (2, 5, 3, 4), (0, 2, 3)),
    "broadcast large": lambda x: lax.broadcast_in_dim(x, (100, 2, 3, 4), (1, 2, 3)),
    "rev": lambda x: lax.rev(x, (0, 2)),
    "concatenate": lambda x: lax.concatenate([x, x[:, :1], x], 1),
    "concatenate empty": lambda x: lax.concatenate([x[:, :0], x], 1),
    "stack": lambda x: jnp.stack([x, x], -1),
    "split": lambda x: lax.split(x, (1, 3), 2),
    "slice": lambda x: lax.slice(x, (0, 1, 0), (2, 3, 2)),
    "slice strided": lambda x: lax.slice(x, (0, 1, 0), (2, 3, 4), (1, 2, 3)),
    "slice empty": lambda x: lax.slice(x, (0, 1, 0), (2, 1, 4)),
    "pad": lambda x: lax.pad(x, x.dtype.type(1), ((0, 0, 0), (1, 2, 0), (3, 0, 0))),
    "pad negative": lambda x: lax.pad(x, x.dtype.type(1), ((0, 0, 0), (-1, 2, 0), (3, -2, 0))),
    "pad of nothing": lambda x: lax.pad(x[:, :0], x.dtype.type(1), ((0, 0, 0), (1, 2, 0), (0, 0, 0))),
    "input as output": lambda x: (x, x, lax.full((2,), 3, x.dtype)),
    "iota": lambda x: (
        x,
        lax.broadcasted_iota(np.int32, (3, 4), 1),
        lax.broadcasted_iota(np.uint32, (70, 80), 0),
    ),
    "cumsum": lambda x: x if x.dtype == bool else (lax.cumsum(x, 1), lax.cumsum(x, 0, reverse=True)),
}


@pytest.mark.parametrize("x", CUBES, ids=lambda x: x.dtype.name)
@pytest.mark.parametrize("case", STRUCTURE)
def test_structure(case: str, x: np.ndarray) -> None:
    check(STRUCTURE[case], x)


def test_transpose_of_many_axes() -> None:
    x = np.arange(2 * 3 * 2 * 3 * 1 * 2, dtype=np.float32).reshape(2, 3, 2, 3, 1, 2)
    check(lambda x: lax.transpose(x, (4, 2, 3, 0, 1, 5)), x)
    check(lambda x: lax.transpose(x, (3, 1, 4, 5, 0, 2)), x)


@pytest.mark.parametrize("rank", range(1, 10))
def test_elementwise_at_every_rank(rank: int) -> None:
    shape = (2, 1, 3, 2, 1, 2, 1, 2, 2)[:rank]
    x = np.resize(F32, shape)
    row = x.reshape(-1)[: shape[-1]].reshape((1,) * (rank - 1) + (shape[-1],))
    check(lambda x, y: (lax.add(x, x), lax.mul(x, y), lax.max(x, y), lax.select(x > y, x, -x)), x, row)
    check(lambda x: (lax.reduce_max(x, (rank - 1,)), lax.reduce_sum(x, (0,))), x)
    check(lambda x: (lax.exp(x), x * np.float32(2), lax.concatenate([x, x], rank - 1)), x)


# --- indexing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", CUBES, ids=lambda x: x.dtype.name)
@pytest.mark.parametrize("start", [(0, 0), (1, 2), (-5, 9), (-(2**31), 2**31 - 1)])
def test_dynamic_slices(x: np.ndarray, start: tuple[int, int]) -> None:
    i, j = (np.int32(n) for n in start)
    zero = np.int32(0)
    check(lambda x, i, j: lax.dynamic_slice(x, (i, zero, j), (1, 3, 2)), x, i, j)
    check(lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, zero, j)), x, x[:1, :2, :2], i, j)


MODES = ["promise_in_bounds", "clip"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("x", CUBES, ids=lambda x: x.dtype.name)
def test_take(x: np.ndarray, mode: str) -> None:
    inside = mode == "promise_in_bounds"
    indices = np.array([[0, 2], [1, 1]] if inside else [[0, -1], [3, 7], [-(2**31), 2**31 - 1]], np.int32)
    for axis in (0, 1, 2):
        picks = np.minimum(indices, x.shape[axis] - 1) if inside else indices
        check(lambda x, i, a=axis: _gather(x, i, a, mode), x, picks)


def _gather(x: Any, indices: Any, axis: int, mode: str) -> Any:
    """lax.gather in the form that `take` gives it, without the jit around it."""
    rest = indices.ndim
    offset = tuple(d if d < axis else d + rest for d in range(x.ndim - 1))
    numbers = lax.GatherDimensionNumbers(offset, (axis,), (axis,))
    sizes = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    return lax.gather(x, indices[..., None], numbers, sizes, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_take_along_axis(mode: str) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    indices = np.array([[0, 3], [2, 2], [1, 0]], np.int32)
    numbers = lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,))
    fn = lambda x, i: lax.gather(x, i[..., None], numbers, (1, 1), mode=mode)  # noqa: E731
    check(fn, x, indices if mode == "promise_in_bounds" else indices * 3 - 2)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint16, np.uint32])
def test_indices_of_any_width(kind: Any) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for at in (0, 1, np.iinfo(kind).max):
        start = (kind(at), kind(1))
        options = {"allow_negative_indices": False}
        check(lambda x, i, j, o=options: lax.dynamic_slice(x, (i, j), (2, 2), **o), x, *start)
        check(lambda x, u, i, j, o=options: lax.dynamic_update_slice(x, u, (i, j), **o), x, -x[:1, :2], *start)
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    picks = np.array([[0], [2], [np.iinfo(kind).max]], kind)
    check(lambda x, i: lax.gather(x, i, numbers, (1, 4), mode="clip"), x, picks)


def test_pad_along_eight_axes() -> None:
    x = np.arange(72, dtype=np.float32).reshape(2, 1, 3, 2, 1, 3, 2, 1)
    for config in (((1, 2, 1),) * 8, ((0, 1, 0), (0, 0, 0)) * 4):
        check(lambda x, c=config: lax.pad(x, np.float32(7), c), x)


@pytest.mark.parametrize("x", CUBES, ids=lambda x: x.dtype.name)
def test_pad_between_elements(x: np.ndarray) -> None:
    value = x[-1, -1, -1]
    for config in (((1, 2, 1), (0, -1, 2), (-1, 1, 0)), ((0, 0, 3), (-2, -2, 1), (0, 0, 0)), ((-1, -2, 1),) * 3):
        check(lambda x, v, c=config: lax.pad(x, v, c), x, value)


# --- reductions ----------------------------------------------------------------------------------------

ROWS = np.array(
    [[1, NAN, 2], [NAN, 1, 2], [INF, NAN, 2], [-INF, -INF, -INF], [INF, -INF, 1], [5, 5, 1], [0, -0.0, -1]],
    np.float32,
)
INT_ROWS = np.array([[1, 3, 3], [-(2**31), -(2**31), -(2**31)], [2**31 - 1, 2, 2**31 - 1]], np.int32)
REDUCTIONS = {
    "reduce_sum": (ROWS, INT_ROWS, INT_ROWS.view(np.uint32)),
    "reduce_prod": (ROWS, INT_ROWS, INT_ROWS.view(np.uint32)),
    "reduce_max": (ROWS, INT_ROWS, INT_ROWS > 2),
    "reduce_min": (ROWS, INT_ROWS, INT_ROWS > 2),
    "reduce_and": (INT_ROWS > 2,),
    "reduce_or": (INT_ROWS > 2,),
}


@pytest.mark.parametrize(("name", "x"), each(REDUCTIONS))
def test_reduce(name: str, x: np.ndarray) -> None:
    fn = getattr(lax, name)
    for axes in ((0,), (1,), (0, 1)):
        check(lambda x, a=axes: fn(x, a), x)
    check(lambda x: fn(x, (0, 2)), np.stack([x, x[::-1]], 1))
    check(lambda x: fn(x[:0], (0,)), x)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("x", [ROWS, INT_ROWS, INT_ROWS > 2], ids=lambda x: x.dtype.name)
def test_arg_extremum(name: str, x: np.ndarray) -> None:
    fn = getattr(lax, name)
    check(lambda x: (fn(x, 0, np.int32), fn(x, 1, np.int32)), x)


def test_arg_extremum_of_long_rows() -> None:
    x = np.round(np.random.default_rng(0).normal(size=(40, 300)) * 3).astype(np.float32)
    check(lambda x: (lax.argmax(x, 1, np.int32), lax.argmin(x, 1, np.int32)), x)


ORDERED = [
    np.array([[3, NAN, 1, 3, -0.0, 0, -NAN, INF, -INF, 3], [1, 2, 2, 2, 1, 1, 0, 0, -0.0, 0]], np.float32),
    np.array([[3, 1, 3, 2**31 - 1, -(2**31), 0, -1]], np.int32),
]


@pytest.mark.parametrize("x", ORDERED, ids=lambda x: x.dtype.name)
def test_order(x: np.ndarray) -> None:
    check(lambda x: lax.top_k(x, 4), x)
    check(lambda x: lax.sort(x), x)
    places = np.tile(np.arange(x.shape[1], dtype=np.int32), (x.shape[0], 1))
    check(lambda x, i: lax.sort((x, i), num_keys=1), x, places)


def test_windows() -> None:
    x = np.random.default_rng(0).normal(size=(2, 6, 7, 3)).astype(np.float32)
    x[0, 2, 3, 1] = NAN
    for padding in ("VALID", "SAME"):
        check(lambda x, p=padding: lax.reduce_window(x, -INF, lax.max, (1, 2, 3, 1), (1, 2, 2, 1), p), x)
        check(lambda x, p=padding: lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 2, 2, 1), p), x)


# --- products ------------------------------------------------------------------------------------------

DOTS = {
    "vector vector": ((5,), (5,), (((0,), (0,)), ((), ()))),
    "matrix vector": ((3, 5), (5,), (((1,), (0,)), ((), ()))),
    "vector matrix": ((5,), (5, 4), (((0,), (0,)), ((), ()))),
    "matrix matrix": ((3, 5), (5, 4), (((1,), (0,)), ((), ()))),
    "transposed left": ((5, 3), (5, 4), (((0,), (0,)), ((), ()))),
    "transposed right": ((3, 5), (4, 5), (((1,), (1,)), ((), ()))),
    "both transposed": ((5, 3), (4, 5), (((0,), (1,)), ((), ()))),
    "outer": ((3,), (4,), (((), ()), ((), ()))),
    "batch": ((2, 3, 5), (2, 5, 4), (((2,), (1,)), ((0,), (0,)))),
    "batch behind": ((3, 5, 2), (5, 4, 2), (((1,), (0,)), ((2,), (2,)))),
    "two contracted": ((3, 5, 6), (5, 6, 4), (((1, 2), (0, 1)), ((), ()))),
    "crossed": ((5, 3, 6), (6, 4, 5), (((0, 2), (2, 0)), ((), ()))),
    "two batches": ((2, 3, 4, 5), (2, 3, 5, 6), (((3,), (2,)), ((0, 1), (0, 1)))),
    "free axes": ((2, 3, 5), (4, 5, 6), (((2,), (1,)), ((), ()))),
    "empty": ((3, 0), (0, 4), (((1,), (0,)), ((), ()))),
}


@pytest.mark.parametrize("case", DOTS)
@pytest.mark.parametrize("constant", ["none", "left", "right"])
def test_dot_general(case: str, constant: str) -> None:
    left, right, numbers = DOTS[case]
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.5, 1.5, size=s).astype(np.float32) for s in (left, right))
    if constant == "none":
        check(lambda x, y: lax.dot_general(x, y, numbers), x, y)
    elif constant == "left":
        check(lambda y: lax.dot_general(x, y, numbers), y)
    else:
        check(lambda x: lax.dot_general(x, y, numbers), x)


def test_dot_keeps_infinities() -> None:
    x = np.array([[INF, 1], [2, 3], [NAN, 1], [3e38, 3e38]], np.float32)
    check(lambda x: lax.dot(x, np.array([[1, 2], [1, 1]], np.float32)), x)
    check(lax.dot, x, np.array([[1, 2], [1, 1]], np.float32))


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[str, str, str], dict[str, Any]]] = {
    "valid": ((2, 8, 9, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NHWC"), {"padding": "VALID"}),
    "same": ((2, 8, 9, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME"}),
    "strided same": (
        (2, 8, 9, 3),
        (4, 4, 3, 4),
        ("NHWC", "HWIO", "NHWC"),
        {"padding": "SAME", "window_strides": (2, 2)},
    ),
    "explicit": ((2, 8, 9, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NHWC"), {"padding": [(2, 0), (0, 3)]}),
    "NCHW": ((2, 3, 8, 9), (4, 3, 3, 2), ("NCHW", "OIHW", "NCHW"), {"padding": "SAME"}),
    "dilated": (
        (2, 8, 9, 3),
        (3, 2, 3, 4),
        ("NHWC", "HWIO", "NHWC"),
        {"padding": "VALID", "rhs_dilation": (2, 3)},
    ),
    "depthwise": (
        (2, 8, 9, 3),
        (3, 2, 1, 6),
        ("NHWC", "HWIO", "NHWC"),
        {"padding": "SAME", "feature_group_count": 3},
    ),
    "groups": (
        (2, 8, 9, 4),
        (3, 2, 2, 6),
        ("NHWC", "HWIO", "NHWC"),
        {"padding": "SAME", "feature_group_count": 2},
    ),
    "one-dimensional": ((2, 9, 3), (2, 3, 4), ("NWC", "WIO", "NWC"), {"padding": "SAME"}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case: str) -> None:
    image, window, layout, options = CONVOLUTIONS[case]
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(0.5, 1.5, size=s).astype(np.float32) for s in (image, window))
    options = {"window_strides": (1,) * (len(image) - 2), **options}
    check(lambda x: lax.conv_general_dilated(x, w, dimension_numbers=layout, **options), x)
    check(lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=layout, **options), x, w)


# --- control -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_scan(length: int, reverse: bool) -> None:
    xs = np.arange(length * 4, dtype=np.float32).reshape(length, 4)
    bits = np.arange(length, dtype=np.uint32) + np.uint32(0xFFFFFFF0)

    def fn(bias: Any, start: Any, xs: Any, bits: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            total, count, key = carry
            row, word, table = x
            total = total * np.float32(0.5) + row + bias
            return (total, count + 1, key ^ word), (total * 2, count, key, row > total, table[0])

        table = np.arange(length * 2, dtype=np.float32).reshape(length, 2)
        init = (start, np.int32(3), np.uint32(7))
        return lax.scan(step, init, (xs, bits, table), reverse=reverse)

    check(fn, np.ones(4, np.float32), np.zeros(4, np.float32), xs, bits)


def test_while_swaps_its_carry() -> None:
    def fn(a: Any, b: Any, limit: Any) -> Any:
        body = lambda s: (s[0] + ONE, s[2], s[1], s[3])  # noqa: E731
        return lax.while_loop(lambda s: s[0] < limit, body, (ZERO, a, b, a))

    for limit in (0, 3, 4):
        check(fn, F32, F32[::-1].copy(), np.int32(limit))


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 3, 9])
def test_switch(index: int) -> None:
    branches = [
        lambda x, y: (x + y, x),
        lambda x, y: (y, x),
        lambda x, y: (jnp.zeros(3), y),
        lambda x, y: (x * 2, x * y),
    ]
    x, y = np.ones(3, np.float32), np.arange(3, dtype=np.float32)
    check(lambda i, x, y: lax.switch(i, branches, x, y), np.int32(index), x, y)
    bind = lambda i, x, y: lax.cond(i > 0, *branches[:2], x, y)  # noqa: E731
    check(bind, np.int32(index), x, y)


def test_while_in_cond_in_while() -> None:
    def inner(n: Any, x: Any) -> Any:
        body = lambda s: (s[0] + ONE, s[1] * np.float32(2) + x)  # noqa: E731
        return lax.while_loop(lambda s: s[0] < n, body, (ZERO, x))[1]

    def fn(x: Any, n: Any) -> Any:
        def body(state: Any) -> Any:
            i, y = state
            return i + ONE, lax.cond(lax.rem(i, TWO) == ZERO, lambda: inner(n, y), lambda: y - x)

        return lax.while_loop(lambda s: s[0] < n, body, (ZERO, x))

    check(fn, np.array([0.5, -1, INF], np.float32), np.int32(3))


def test_infinity_survives_in_bodies() -> None:
    def fn(x: Any) -> Any:
        return lax.scan(lambda y, _: (y * np.float32(2) + x, y), x, None, 3)

    check(fn, np.array([3e38, -3e38, INF, NAN], np.float32))


def test_bodies_without_elements_captures_or_arithmetic() -> None:
    nothing = np.zeros((0, 3), np.float32)

    def fn(x: Any, empty: Any, flag: Any) -> Any:
        state = lax.while_loop(lambda s: s[2], lambda s: (s[0], s[1], jnp.zeros((), bool)), (x, empty, flag))
        row = np.zeros((0,), np.float32)
        carry, ys = lax.scan(lambda c, r: (c, (row, c[0], r)), x, np.zeros((4, 0), np.float32))
        chosen = lax.cond(flag, lambda: (np.float32(3), empty), lambda: (np.float32(4), empty))
        return state, carry, ys, chosen

    for flag in BOOL:
        check(fn, np.ones(2, np.float32), nothing, flag)


def test_nested_scan_with_weights_inside() -> None:
    rng = np.random.default_rng(0)
    w, v = (rng.uniform(-0.5, 0.5, size=(4, 4)).astype(np.float32) for _ in "wv")

    def fn(h: Any, xs: Any) -> Any:
        def inner(c: Any, x: Any) -> Any:
            c = jnp.tanh(lax.dot(c, w) + x)
            return c, lax.reduce_sum(c, (0,))

        def outer(c: Any, x: Any) -> Any:
            c, y = lax.scan(inner, lax.dot(c, v), xs)
            return c + x, y

        return lax.scan(outer, h, xs)

    check(fn, np.ones(4, np.float32), rng.normal(size=(3, 4)).astype(np.float32), rtol=2e-5)


# --- memory --------------------------------------------------------------------------------------------

FORKS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda b: lax.reshape(b, (24,)),
    "bits": lambda b: lax.reshape(lax.bitcast_convert_type(lax.bitcast_convert_type(b, jnp.float32), b.dtype), (24,)),
}


@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_nothing_is_overwritten_before_its_last_use(kind: Any, fork: str) -> None:
    def fn(x: Any) -> Any:
        b = lax.reshape(x * kind(2), (4, 6))
        other = FORKS[fork](b)
        place = np.int32(0)
        return (
            other + kind(1),
            lax.dynamic_update_slice(FORKS[fork](-b), other[:1], (place,)),
            lax.convert_element_type(b, np.int32) + 1,
            lax.reduce_max(-b, (0,)),
        )

    check(fn, np.arange(24).reshape(2, 3, 4).astype(kind))


def test_copies_only_what_is_read_elsewhere() -> None:
    x = np.arange(24, dtype=np.int32)
    plain = program(lambda x: lax.reshape(lax.reshape(x * TWO, (4, 6)) + ONE, (3, 8)) * TWO, [x])
    assert "BROADCAST_TO" not in [n.op for n in plain.walk()]

    def forked(x: Any) -> Any:
        b = lax.reshape(x * TWO, (4, 6))
        return lax.reshape(b, (24,)) + ONE, lax.neg(b)

    assert [n.op for n in program(forked, [x]).walk()].count("BROADCAST_TO") == 1


# --- files ---------------------------------------------------------------------------------------------


def test_weights_are_stored_once() -> None:
    graphs, weights = _plain_signatures()
    outputs = {"policy": ["action.mean", "w"], "init.policy": ["h"]}
    content = write(graphs, weights, output_names=outputs)
    w = weights["params.w"]
    assert content.count(w.tobytes()) == 1
    assert content == write(graphs, weights, output_names=outputs)
    interpreter = Interpreter(model_content=content)
    signatures = interpreter.get_signature_list()
    assert signatures["policy"] == {"inputs": ["obs.vector"], "outputs": ["action.mean", "w"]}
    x = np.ones((1, 64), np.float32)
    result = interpreter.get_signature_runner("policy")(**{"obs.vector": x})
    np.testing.assert_allclose(result["action.mean"], x @ w, rtol=1e-5)
    np.testing.assert_array_equal(result["w"], w)
    result = interpreter.get_signature_runner("init.policy")(**{"obs.vector": x})
    np.testing.assert_allclose(result["h"], x @ w + 1, rtol=1e-5)


def _plain_signatures() -> tuple[dict[str, Graph], dict[str, np.ndarray]]:
    w = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    zeros = np.zeros((1, 64), np.float32)
    one, h0 = np.float32(1), np.zeros((1, 32), np.float32)
    functions: dict[str, Callable[..., Any]] = {
        "policy": lambda w, x: (lax.dot(x, w), w),
        "init.policy": lambda w, x: lax.scan(lambda h, _: (lax.dot(x, w) + one, None), h0, None, 2)[0],
    }
    graphs = {}
    for name, fn in functions.items():
        leaf = Tensor((64, 32), "float32", "params.w", weight=Weight("params.w"))
        x = Tensor((1, 64), "float32", "obs.vector")
        graphs[name] = lower_jaxpr(jax.make_jaxpr(fn)(w, zeros), backend(), [leaf, x], name)
        graphs[name].inputs = [x]
        assert not problems(graphs[name])
    return graphs, {"params.w": w}


def test_buffers_are_aligned() -> None:
    graphs, weights = _plain_signatures()
    content = write(graphs, weights, output_names={"policy": ["a", "b"], "init.policy": ["c"]})
    assert content.index(weights["params.w"].tobytes()) % 16 == 0


def test_forty_megabytes_are_packed_fast() -> None:
    w = np.zeros((2560, 4096), np.float32)
    w[0, 0] = 1
    leaf = Tensor(w.shape, "float32", weight=Weight("w"))
    x = Tensor((4096,), "float32", "x")
    builder = TfliteBuilder(Graph("g"), lambda *a: None)
    builder.graph.inputs = [x]
    builder.graph.outputs = [builder.add(leaf, x)]
    start = time.perf_counter()
    content = write({"g": builder.graph}, {"w": w}, output_names={"g": ["y"]})
    assert time.perf_counter() - start < 2
    assert len(content) > w.nbytes


def test_too_many_bytes_are_refused() -> None:
    huge = np.broadcast_to(np.float32(0), (600_000_000,))
    with pytest.raises(OutputError, match="2 GiB"):
        _write_one(huge)


def _write_one(value: np.ndarray) -> bytes:
    leaf = Tensor(value.shape, value.dtype.name, weight=Weight("w"))
    graph = Graph("g", [], [leaf], [])
    return write({"g": graph}, {"w": value}, output_names={"g": ["y"]})


@pytest.mark.parametrize("problem", ["missing weight", "shape", "names", "capture", "op"])
def test_writer_errors(problem: str) -> None:
    x = Tensor((2,), "float32", "x")
    y = Tensor((2,), "float32")
    leaf = Tensor((2,), "float32", weight=Weight("w"))
    graph = Graph("g", [x], [y], [Node("ADD", (x, leaf), (y,))])
    weights = {"w": np.zeros(2, np.float32)}
    outputs = ["y"]
    if problem == "missing weight":
        weights = {}
    elif problem == "shape":
        weights = {"w": np.zeros(3, np.float32)}
    elif problem == "names":
        outputs = ["y", "z"]
    elif problem == "capture":
        graph.inputs = []
    else:
        graph.nodes[0] = dataclasses.replace(graph.nodes[0], op="NONSENSE")
    with pytest.raises(OutputError):
        write({"g": graph}, weights, output_names={"g": outputs})


def test_transposed_weights_stay_weights() -> None:
    builder = TfliteBuilder(Graph("g"), lambda *a: None)
    leaf = Tensor((2, 3, 4), "float32", "w", weight=Weight("w"))
    moved = builder.reshape(builder.transpose(leaf, (2, 0, 1)), (8, 3))
    assert not builder.graph.nodes
    assert moved.weight == Weight("w", (("transpose", (2, 0, 1)), ("reshape", (8, 3))))
    value = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(moved.weight.apply(value), value.transpose(2, 0, 1).reshape(8, 3))


def test_table_is_whole() -> None:
    assert BROADCASTING
    assert set(backend().table) == set(TABLE)
    with pytest.raises(Unsupported):
        TABLE["erf_inv"](None, None)
