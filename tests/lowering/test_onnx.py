"""Every primitive of the ONNX backend, run in ONNX Runtime and compared with jax.jit at boundary inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from jax import lax

from opcompat.errors import OutputError
from opcompat.inline import inline
from opcompat.lowering.graph import Graph, Node, Tensor, Weight
from opcompat.lowering.lower import PLACEHOLDER, lower_equation, lower_jaxpr
from opcompat.lowering.onnx.builder import BROADCASTING, OPSET, OnnxBuilder
from opcompat.lowering.onnx.fuse import fuse_gemm, guard_reciprocals
from opcompat.lowering.onnx.table import REASONS, TABLE, backend
from opcompat.lowering.onnx.writer import write
from opcompat.targets.onnxruntime import check

OPTIONS = {"xla_allow_excess_precision": False}
F32, I32, U32 = np.float32, np.int32, np.uint32


# -- how a case runs


def lowered(fn: Callable[..., Any], args: tuple[Any, ...], opset: int = OPSET, passes: bool = False) -> Graph:
    closed = inline(jax.make_jaxpr(fn)(*args))
    inputs = [Tensor(np.shape(a), np.asarray(a).dtype.name, f"x.{i}") for i, a in enumerate(args)]
    graph = lower_jaxpr(closed, backend(opset), inputs, "main")
    graph.inputs = inputs
    return fuse_gemm(graph) if passes else graph


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def save(folder: Path, graph: Graph, weights: dict[str, np.ndarray] | None = None, opset: int = OPSET) -> Path:
    names = [f"y.{i}" for i in range(len(graph.outputs))]
    return write({"main": graph}, weights or {}, folder, output_names={"main": names}, opset=opset)[0]


def run(folder: Path, graph: Graph, args: tuple[Any, ...], opset: int = OPSET) -> list[np.ndarray]:
    path = save(folder, graph, opset=opset)
    onnx.checker.check_model(str(path), full_check=True)
    feeds = {x.name: np.asarray(a) for x, a in zip(graph.inputs, args, strict=True)}
    return session(path).run(None, feeds)


def problems(graph: Graph, opset: int = OPSET) -> list[str]:
    verdicts = [check(node, opset) for node in graph.walk()]
    return [v.reason for v in verdicts if v.status != "yes"]


def same(got: np.ndarray, want: Any, rtol: float = 2e-6, atol: float = 0.0, signs: bool = True) -> None:
    want = np.asarray(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind in "bui":
        np.testing.assert_array_equal(got, want)
        return
    tiny = np.finfo(want.dtype).tiny
    flushed = (np.abs(want) < tiny) & (np.abs(got) < tiny)  # XLA flushes denormals, ONNX Runtime does not
    np.testing.assert_allclose(np.where(flushed, 0, got), np.where(flushed, 0, want), rtol=rtol, atol=atol)
    if signs:
        zeros = (got == 0) & (want == 0)
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


def agrees(folder: Path, fn: Callable[..., Any], *args: Any, opset: int = OPSET, **tolerance: Any) -> Graph:
    """The graph of `fn`, once it is supported throughout and its results are JAX's."""
    graph = lowered(fn, args, opset)
    assert problems(graph, opset) == []
    got = run(folder, graph, args, opset)
    want = jax.tree.leaves(jax.jit(fn, compiler_options=OPTIONS)(*args))
    for g, w in zip(got, want, strict=True):
        same(g, w, **tolerance)
    return graph


# -- inputs

nan, inf = np.nan, np.inf
FLOATS = np.array(
    [
        "0",
        "-0",
        "1",
        "-1",
        "0.5",
        "-0.5",
        "1.5",
        "-1.5",
        "2.5",
        "-2.5",
        "0.49999997",
        "-0.49999997",
        "0.3",
        "-0.3",
        "inf",
        "-inf",
        "nan",
        "1e-30",
        "-1e-30",
        "3e38",
        "-3e38",
        "88",
        "-88",
        "20",
        "-20",
        "100",
        "-100",
        "1e10",
        "8388609",
        "2147483648",
        "-2147483648",
        "4e9",
        "4294967296",
        "1e-7",
        "16777217",
    ],
    F32,
)
RANGE = np.concatenate(
    [
        np.logspace(-15, 15, 301),
        -np.logspace(-15, 15, 301),
        np.linspace(-4, 4, 301),
        np.linspace(-100, 100, 301),
    ]
).astype(F32)
INTS = np.array([0, 1, -1, 2, -2, 3, 5, -5, 7, 31, 32, 33, 2**31 - 1, -(2**31), -(2**31) + 1, 16777217], I32)
UNSIGNED = INTS.view(U32)
BOOLS = np.array([True, False])


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(values, values)
    return x.ravel().copy(), y.ravel().copy()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(F32)


def whole(*shape: int, seed: int = 0, dtype: Any = I32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, size=shape, dtype=np.uint64).astype(U32).view(dtype)


class Unary(NamedTuple):
    fn: Callable[..., Any]
    kinds: str = "f"
    rtol: float = 2e-6


UNARY = {
    "abs": Unary(lax.abs, "fi"),
    "acos": Unary(lax.acos),
    "acosh": Unary(lax.acosh),
    "asin": Unary(lax.asin),
    "asinh": Unary(lax.asinh),
    "atan": Unary(lax.atan),
    "atanh": Unary(lax.atanh),
    "ceil": Unary(lax.ceil),
    "cos": Unary(lax.cos),
    "erf": Unary(lax.erf),
    "exp": Unary(lax.exp),
    "exp2": Unary(lax.exp2),
    "floor": Unary(lax.floor),
    "is_finite": Unary(lax.is_finite),
    "log": Unary(lax.log),
    "logistic": Unary(lax.logistic),
    "neg": Unary(lax.neg, "fiu"),
    "not": Unary(lax.bitwise_not, "iub"),
    "round": Unary(lax.round),
    "rsqrt": Unary(lax.rsqrt),
    "sign": Unary(lax.sign, "fiu"),
    "sin": Unary(lax.sin),
    "sqrt": Unary(lax.sqrt),
    "square": Unary(lax.square, "fiu"),
    "tan": Unary(lax.tan),
    "tanh": Unary(lax.tanh),
    "copy": Unary(jnp.copy, "fiub"),
    "stop_gradient": Unary(lax.stop_gradient, "fiub"),
    "optimization_barrier": Unary(lax.optimization_barrier, "fiub"),
    "round_even": Unary(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)),
    "integer_pow_2": Unary(lambda x: lax.integer_pow(x, 2), "fiu"),
    "integer_pow_7": Unary(lambda x: lax.integer_pow(x, 7), "fiu"),
    "integer_pow_-3": Unary(lambda x: lax.integer_pow(x, -3)),
    "shift_left_13": Unary(lambda x: lax.shift_left(x, x.dtype.type(13)), "iu"),
    "shift_right_logical_9": Unary(lambda x: lax.shift_right_logical(x, x.dtype.type(9)), "iu"),
    "shift_right_logical_32": Unary(lambda x: lax.shift_right_logical(x, x.dtype.type(32)), "iu"),
    "shift_right_arithmetic_9": Unary(lambda x: lax.shift_right_arithmetic(x, x.dtype.type(9)), "iu"),
    "shift_right_arithmetic_40": Unary(lambda x: lax.shift_right_arithmetic(x, x.dtype.type(40)), "iu"),
    "div_-1": Unary(lambda x: lax.div(x, x.dtype.type(-1)), "i"),
    "div_7": Unary(lambda x: lax.div(x, x.dtype.type(7)), "fiu"),
    "rem_7": Unary(lambda x: lax.rem(x, x.dtype.type(7)), "fiu"),
    "clamp": Unary(lambda x: lax.clamp(x.dtype.type(1), x, x.dtype.type(5)), "fiu"),
    "reduce_precision": Unary(lambda x: lax.reduce_precision(x, 8, 7)),
    **{
        f"to_{d}": Unary(lambda x, d=d: lax.convert_element_type(x, d), "fiub")
        for d in [
            "float32",
            "int32",
            "uint32",
            "bool",
            "int8",
            "uint8",
            "int16",
            "uint16",
            "float16",
            "bfloat16",
        ]
    },
}

KINDS = {"f": np.concatenate([FLOATS, RANGE]), "i": INTS, "u": UNSIGNED, "b": BOOLS}


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, u in UNARY.items() for k in u.kinds])
def test_unary(tmp_path: Path, name: str, kind: str) -> None:
    def fn(x: Any) -> Any:
        y = UNARY[name].fn(x)
        # numpy cannot take bfloat16 from ONNX Runtime.
        return y.astype(F32) if y.dtype in (jnp.bfloat16, jnp.float16) else y

    x = KINDS[kind]
    if name == "integer_pow_-3":
        # Where x**3 is a denormal or overflows, flushing decides what its reciprocal is.
        x = x[~((np.abs(x) < 1e-12) & (x != 0)) & ~((np.abs(x) > 1e12) & np.isfinite(x))]
    agrees(tmp_path, fn, x, rtol=UNARY[name].rtol)


BINARY = {
    "add": (lax.add, "fiu"),
    "and": (lax.bitwise_and, "iub"),
    "div": (lax.div, "fiu"),
    "eq": (lax.eq, "fiub"),
    "ge": (lax.ge, "fiub"),
    "gt": (lax.gt, "fiub"),
    "le": (lax.le, "fiub"),
    "lt": (lax.lt, "fiub"),
    "max": (lax.max, "fiub"),
    "min": (lax.min, "fiub"),
    "mul": (lax.mul, "fiu"),
    "ne": (lax.ne, "fiub"),
    "or": (lax.bitwise_or, "iub"),
    "pow": (lax.pow, "f"),
    "rem": (lax.rem, "fiu"),
    "shift_left": (lax.shift_left, "iu"),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, "iu"),
    "shift_right_logical": (lax.shift_right_logical, "iu"),
    "sub": (lax.sub, "fiu"),
    "xor": (lax.bitwise_xor, "iub"),
    "clamp_dynamic": (lambda x, y: lax.clamp(y, x, lax.rev(y, (0,))), "fiu"),
    "select_n": (lambda x, y: lax.select_n(lax.lt(x, y), x, y), "fiub"),
    "select_scalar": (lambda x, y: lax.select_n(lax.lt(x[0], y[1]), x, y), "fiub"),
    "select_int": (lambda x, y: lax.select_n(x, y, y + y, y * y, y - y), "i"),
}


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, (_, kinds) in BINARY.items() for k in kinds])
def test_binary(tmp_path: Path, name: str, kind: str) -> None:
    values = FLOATS if kind == "f" else KINDS[kind]
    # Of -0 and +0 either may come out of Max and Min, and ONNX Runtime's Where gives +0 for a chosen -0.
    signs = name not in ("max", "min", "clamp_dynamic") and not name.startswith("select")
    agrees(tmp_path, BINARY[name][0], *pairs(values), signs=signs)


CONSTANTS: dict[str, list[Any]] = {
    "f": [0.0, -0.0, 1.0, -2.5, inf, -inf, nan],
    "i": [0, 1, -1, 7, 32, -(2**31)],
    "u": [0, 1, 7, 31, 32, 2**32 - 1],
    "b": [False, True],
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, k) for n, (_, kinds) in BINARY.items() for k in kinds if n not in ("clamp_dynamic", "select_scalar")],
)
def test_constant_operands(tmp_path: Path, name: str, kind: str) -> None:
    """Known operands take short forms: on either side, as scalars and broadcast."""
    x = FLOATS if kind == "f" else KINDS[kind]

    def fn(x: Any) -> list[Any]:
        full = [lax.full(x.shape, x.dtype.type(c)) for c in CONSTANTS[kind]]
        return [y for c in full for y in (BINARY[name][0](x, c), BINARY[name][0](c, x))]

    # XLA takes x + 0.0 for x, which keeps -0; by IEEE 754, and in ONNX Runtime, the sum is +0.
    signs = name not in ("add", "sub", "max", "min") and not name.startswith("select")
    agrees(tmp_path, fn, x, signs=signs)


@pytest.mark.parametrize("kind", "fiu")
def test_constant_bounds(tmp_path: Path, kind: str) -> None:
    x = FLOATS if kind == "f" else KINDS[kind]

    def fn(x: Any) -> list[Any]:
        values = [x.dtype.type(c) for c in CONSTANTS[kind]]
        return [lax.clamp(low, x, high) for low in values for high in values]

    agrees(tmp_path, fn, x, signs=False)


def test_pow_integer_exponent(tmp_path: Path) -> None:
    agrees(tmp_path, lax.pow, np.array([2, -3, 1.5, 0, -0.0, inf], F32), np.array([3, 3, 0, -1, -3, 2], I32))


@pytest.mark.parametrize("shapes", [((3, 4), (1, 1)), ((1, 4), (3, 1)), ((2, 1, 4), (2, 3, 1))])
def test_size_one_broadcasting(tmp_path: Path, shapes: Any) -> None:
    agrees(tmp_path, lambda x, y: jnp.maximum(x * y, y), normal(*shapes[0]), normal(*shapes[1], seed=1))


# -- reductions, sorting

TABLEAU = np.array(
    [
        [1, nan, 3, 2],
        [nan, 1, 2, nan],
        [5, 5, 1, 0],
        [-inf, nan, inf, 1],
        [inf, nan, 2, inf],
        [-inf, -inf, inf, 3],
        [inf, inf, 1, 2],
        [3, 3, 3, 3],
        [-1, -2, -3, -4],
    ],
    F32,
)

REDUCTIONS = {
    "reduce_sum": (lax.reduce_sum, "fiu"),
    "reduce_prod": (lax.reduce_prod, "fiu"),
    "reduce_max": (lax.reduce_max, "fiu"),
    "reduce_min": (lax.reduce_min, "fiu"),
    "reduce_and": (lax.reduce_and, "iub"),
    "reduce_or": (lax.reduce_or, "iub"),
    "reduce_xor": (lax.reduce_xor, "iub"),
}


def matrix(kind: str) -> np.ndarray:
    if kind == "f":
        return TABLEAU
    if kind == "b":
        return np.random.default_rng(0).random((9, 3)) < 0.5
    return whole(9, 40, dtype=I32 if kind == "i" else U32)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, (_, kinds) in REDUCTIONS.items() for k in kinds])
def test_reduce(tmp_path: Path, name: str, kind: str, axes: tuple[int, ...]) -> None:
    agrees(tmp_path, lambda x: REDUCTIONS[name][0](x, axes), matrix(kind))


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "reduce_min"])
def test_reduce_wide(tmp_path: Path, name: str) -> None:
    x = normal(3, 5, 67)
    x[0, 1, 66], x[1, 0, 3] = nan, -inf
    agrees(tmp_path, lambda x: REDUCTIONS[name][0](x, (0, 2)), x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, (_, kinds) in REDUCTIONS.items() for k in kinds])
def test_reduce_empty(tmp_path: Path, name: str, kind: str) -> None:
    x = np.zeros((3, 0), KINDS[kind].dtype)
    agrees(tmp_path, lambda x: [REDUCTIONS[name][0](x, (1,)), REDUCTIONS[name][0](x, (0,))], x)


@pytest.mark.parametrize("kind", "fiu")
@pytest.mark.parametrize("operator", [lax.max, lax.min, lax.add])
def test_reduce_window(tmp_path: Path, operator: Any, kind: str) -> None:
    initial = {lax.max: (-inf, -(2**31), 0), lax.min: (inf, 2**31 - 1, 2**32 - 1), lax.add: (0, 0, 0)}[operator]
    x = matrix(kind)
    start = x.dtype.type(initial["fiu".index(kind)])

    def fn(x: Any) -> Any:
        pads = ((1, 0), (1, 2))
        plain = lax.reduce_window(x, start, operator, (2, 3), (1, 2), pads)
        return plain, lax.reduce_window(x, start, operator, (2, 1), (1, 1), pads, (1, 2), (2, 1))

    agrees(tmp_path, fn, x, signs=False)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", "fiub")
@pytest.mark.parametrize("fn", [lax.argmax, lax.argmin])
def test_arg(tmp_path: Path, fn: Callable[..., Any], kind: str, axis: int) -> None:
    agrees(tmp_path, lambda x: fn(x, axis, np.int32), matrix(kind))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", "fiu")
def test_cumsum(tmp_path: Path, kind: str, reverse: bool) -> None:
    agrees(tmp_path, lambda x: lax.cumsum(x, 1, reverse), matrix(kind), rtol=1e-5)


@pytest.mark.parametrize("kind", "fiu")
def test_top_k(tmp_path: Path, kind: str) -> None:
    agrees(tmp_path, lambda x: lax.top_k(x, 3), matrix(kind), opset=26 if kind == "f" else OPSET)


def test_top_k_of_floats_needs_their_bits() -> None:
    """NaN comes first or last, by its sign, which no older opset shows."""
    graph = lowered(lambda x: lax.top_k(x, 3), (matrix("f"),), opset=25)
    (problem,) = (node.problem for node in graph.walk() if node.op == "?")
    assert "opset 26" in problem
    assert "argsort" in problem


def test_top_k_ranks_zeros(tmp_path: Path) -> None:
    x = np.array([[-0.0, 0, -0.0, 0], [0, -0.0, 1, -0.0], [-1, -0.0, -2, 0]], F32)
    agrees(tmp_path, lambda x: lax.top_k(x, 4), x, opset=26)


def test_top_k_ranks_nan_by_sign(tmp_path: Path) -> None:
    """From opset 26 on, which shows the bits."""
    negative = np.copysign(np.nan, F32(-1)).astype(F32)
    x = np.array([0, negative, -0.0, nan, inf, 1, -inf, negative, nan, -0.0, 0, -1, 1, 3e38, 1e-30], F32)
    agrees(tmp_path, lambda x: lax.top_k(x, x.shape[-1]), np.stack([x, np.roll(x, 4), -x]), opset=26)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", "fiub")
def test_sort(tmp_path: Path, kind: str, axis: int) -> None:
    agrees(tmp_path, lambda x: lax.sort(x, axis), matrix(kind))


@pytest.mark.parametrize("kind", "fiub")
def test_sort_several(tmp_path: Path, kind: str) -> None:
    x = np.sort(matrix(kind), 1)[:, ::-1] if kind != "b" else matrix(kind)
    agrees(tmp_path, lambda x: lax.sort((x, lax.broadcasted_iota(I32, x.shape, 1)), num_keys=1), x)


# -- structure

WINDOWS = lax.GatherDimensionNumbers((1,), (), (0,))

I = np.int32  # noqa: E741
STRUCTURE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "iota": (lambda x: x + lax.broadcasted_iota(F32, (3, 4), 1), (normal(3, 4),)),
    "iota_out": (lambda x: (lax.iota(I32, 5), lax.broadcasted_iota(U32, (100, 3), 0)), (normal(1),)),
    "full": (lambda x: (lax.full((100, 3), 2.5, F32), lax.full((2, 2), True), x), (normal(1),)),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1, 2)), (normal(3, 1),)),
    "broadcast_concat": (lambda x: lax.concatenate([x, lax.full((50, 3), 1.0)], 0), (normal(2, 3),)),
    "reshape": (lambda x: lax.reshape(x, (6, 2)), (normal(3, 4),)),
    "reshape_reordered": (lambda x: lax.reshape(x, (6, 2), (1, 0)), (normal(3, 4),)),
    "reshape_empty": (lambda x: lax.reshape(x, (2, 0)), (normal(0, 4),)),
    "squeeze": (lambda x: lax.squeeze(x, (0, 2)), (normal(1, 4, 1),)),
    "expand_dims": (lambda x: lax.expand_dims(x, (0, 2)), (normal(3, 4),)),
    "transpose": (lambda x: lax.transpose(x, (2, 0, 1)), (normal(2, 3, 4),)),
    "rev": (lambda x: lax.rev(x, (0, 2)), (normal(2, 3, 4),)),
    "concatenate": (lambda x, y: lax.concatenate([x, y, x], 1), (normal(2, 3), normal(2, 0))),
    "stack": (lambda x, y: jnp.stack([x, y], 1), (normal(2, 3), normal(2, 3, seed=1))),
    "split": (lambda x: lax.split(x, (1, 3, 2), 1), (normal(2, 6),)),
    "unstack": (lambda x: [*jnp.unstack(x), *jnp.unstack(x, axis=1)], (normal(2, 3),)),
    "slice": (lambda x: lax.slice(x, (1, 0), (6, 4), (2, 3)), (normal(7, 5),)),
    "pad": (lambda x: lax.pad(x, np.float32(7), ((1, 2, 0), (0, 3, 0))), (normal(2, 3),)),
    "pad_negative": (lambda x: lax.pad(x, np.float32(7), ((-1, 2, 0), (1, -2, 0))), (normal(3, 4),)),
    "pad_interior": (lambda x: lax.pad(x, np.float32(7), ((1, -1, 2), (-2, 1, 1))), (normal(3, 4),)),
    "pad_away": (lambda x: lax.pad(x, np.float32(7), ((-4, 3, 0),)), (normal(3),)),
    "pad_int": (lambda x: lax.pad(x, np.int32(-3), ((1, 2, 1),)), (whole(3),)),
    "pad_bool": (lambda x: lax.pad(x, True, ((1, 2, 1),)), (np.array([True, False, False]),)),
    "dynamic_slice": (lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 3)), (normal(4, 7), I(1), I(3))),
    "dynamic_slice_low": (lambda x, i, j: lax.dynamic_slice(x, (i, j), (1, 3)), (normal(4, 7), I(-5), I(-1))),
    "dynamic_slice_high": (
        lambda x, i, j: lax.dynamic_slice(x, (i, j), (1, 3)),
        (normal(4, 7), I(9), I(2**31 - 1)),
    ),
    "dynamic_slice_unsigned": (
        lambda x, i: lax.dynamic_slice(x, (i, i), (1, 3)),
        (normal(4, 7), U32(2**32 - 1)),
    ),
    "update_row": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)),
        (normal(4, 3), normal(1, 3, seed=1), I(9)),
    ),
    "update_window": (
        lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)),
        (normal(5, 6), normal(2, 3, seed=1), I(1), I(-2)),
    ),
    "update_middle": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (0, i, 0)),
        (whole(3, 4, 2), whole(3, 2, 2, seed=1), I(1)),
    ),
    "update_large": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (0, i)),
        (normal(5000, 3), normal(5000, 1, seed=1), I(1)),
    ),
    "update_static": (
        lambda x, u: lax.dynamic_update_slice(x, u, (1, 1)),
        (normal(4, 3), normal(2, 2, seed=1)),
    ),
    "take": (lambda x, i: x[i], (normal(4, 3), np.array([0, 3, -1, 2], I32))),
    "take_clip": (lambda x, i: x.at[:, i].get(mode="clip"), (normal(4, 3), np.array([[0, 9], [-9, 2]], I32))),
    "take_out_of_bounds": (
        lambda x, i: x.at[i].get(mode="promise_in_bounds"),
        (normal(4, 3), np.array([7, -9], I32)),
    ),
    "take_unsigned": (lambda x, i: x.at[i].get(mode="clip"), (normal(4), np.array([0, 2**32 - 1], U32))),
    "take_two": (
        lambda x, i, j: x.at[i, :, j].get(mode="clip"),
        (normal(4, 3, 5), np.array([0, 9, 2], I32), np.array([4, 1, -99], I32)),
    ),
    "take_along_axis": (
        lambda x, i: jnp.take_along_axis(x, i, 1, mode="clip"),
        (normal(4, 3), np.array([[0], [2], [1], [5]], I32)),
    ),
    "take_constant": (lambda x: x[np.array([2, 0, 2])], (normal(4, 3),)),
    "take_vmapped": (jax.vmap(lambda x, i: x[:, i]), (normal(4, 2, 3), np.array([0, 2, 1, 1], I32))),
    "take_windows": (
        jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 1), (3, 2))),
        (normal(4, 5, 6), np.array([0, 2, 4, -1], I32)),
    ),
    "take_windows_shared": (
        lambda x, i: jax.vmap(lambda i: lax.dynamic_slice(x, (i, i), (2, 1)))(i),
        (normal(4, 5), np.array([0, 2, 9, -1], I32)),
    ),
    "set": (lambda x, i, u: x.at[i].set(u), (normal(4, 3), np.array([0, 9, -1], I32), normal(3, 3, seed=1))),
    "set_column": (
        lambda x, i, u: x.at[:, i].set(u),
        (normal(4, 3), np.array([1, 7], I32), normal(4, 2, seed=1)),
    ),
    "set_two": (
        lambda x, i, j, u: x.at[i, j].set(u),
        (normal(4, 3), np.array([0, 9, 2], I32), np.array([1, 1, -9], I32), normal(3, seed=1)),
    ),
    "set_promised": (
        lambda x, i, u: x.at[i].set(u, mode="promise_in_bounds"),
        (normal(4), np.array([0, 9], I32), normal(2, seed=1)),
    ),
    "set_vmapped": (
        jax.vmap(lambda x, i, u: x.at[i].set(u)),
        (normal(4, 3), np.array([0, 9, 2, -1], I32), normal(4, seed=1)),
    ),
    "set_windows": (
        jax.vmap(lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1))),
        (normal(4, 5, 6), normal(4, 2, 1, seed=1), np.array([0, 9, 2, -1], I32)),
    ),
    "scatter_add_column": (lambda x, i, u: x.at[:, i].add(u), (normal(4, 3), I(2), normal(4, seed=1))),
    "scatter_add": (
        lambda x, i, u: x.at[i].add(u),
        (normal(4, 3), np.array([0, 0, 9], I32), normal(3, 3, seed=1)),
    ),
    "scatter_mul": (lambda x, i, u: x.at[i].mul(u), (normal(4), np.array([1, 1, 9], I32), normal(3, seed=1))),
    "bitcast": (lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, U32), I32), (INTS,)),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_structure(tmp_path: Path, name: str) -> None:
    fn, args = STRUCTURE[name]
    agrees(tmp_path, fn, *args)


@pytest.mark.parametrize("dtype", [np.uint32, np.bool_])
@pytest.mark.parametrize("name", ["rev", "transpose", "slice", "split", "stack", "concatenate", "broadcast_in_dim"])
def test_structure_dtypes(tmp_path: Path, name: str, dtype: Any) -> None:
    fn, args = STRUCTURE[name]
    agrees(tmp_path, fn, *((np.asarray(a) > 0).astype(dtype) for a in args))


# -- products


DOTS = {
    "matrix": ((3, 4), (4, 5), (((1,), (0,)), ((), ()))),
    "transposed": ((3, 4), (5, 4), (((1,), (1,)), ((), ()))),
    "left": ((4, 3), (4, 5), (((0,), (0,)), ((), ()))),
    "vector_matrix": ((4,), (4, 5), (((0,), (0,)), ((), ()))),
    "matrix_vector": ((3, 4), (4,), (((1,), (0,)), ((), ()))),
    "inner": ((4,), (4,), (((0,), (0,)), ((), ()))),
    "outer": ((4,), (3,), (((), ()), ((), ()))),
    "leading": ((2, 3, 4), (4, 5), (((2,), (0,)), ((), ()))),
    "batch": ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))),
    "batch_last": ((3, 4, 2), (4, 5, 2), (((1,), (0,)), ((2,), (2,)))),
    "two": ((2, 3, 4), (4, 3, 5), (((1, 2), (1, 0)), ((), ()))),
    "tensor": ((2, 3, 4), (5, 4, 6), (((2,), (1,)), ((), ()))),
    "batch_vectors": ((2, 4), (2, 4), (((1,), (1,)), ((0,), (0,)))),
    "empty": ((3, 0), (0, 5), (((1,), (0,)), ((), ()))),
}


@pytest.mark.parametrize("dtype", [F32, I32, U32])
@pytest.mark.parametrize("name", DOTS)
def test_dot_general(tmp_path: Path, name: str, dtype: Any) -> None:
    left, right, numbers = DOTS[name]
    x, y = (
        (normal(*left), normal(*right, seed=1))
        if dtype == F32
        else (whole(*left, dtype=dtype), whole(*right, dtype=dtype))
    )
    agrees(tmp_path, lambda x, y: lax.dot_general(x, y, numbers), x, y, rtol=1e-5, atol=1e-6)


class Conv(NamedTuple):
    x: tuple[int, ...]
    w: tuple[int, ...]
    layout: tuple[str, str, str]
    kwargs: dict[str, Any]


CONVS = {
    "nhwc": Conv((2, 8, 9, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME"}),
    "nchw": Conv((2, 3, 8, 9), (4, 3, 3, 2), ("NCHW", "OIHW", "NCHW"), {"padding": "VALID", "window_strides": (2, 1)}),
    "1d": Conv((2, 8, 3), (3, 3, 4), ("NWC", "WIO", "NWC"), {"padding": [(2, 0)], "rhs_dilation": (2,)}),
    "3d": Conv((1, 4, 5, 6, 2), (2, 2, 2, 2, 3), ("NDHWC", "DHWIO", "NDHWC"), {"padding": "SAME"}),
    "groups": Conv((2, 8, 9, 4), (3, 3, 2, 6), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME", "feature_group_count": 2}),
    "depthwise": Conv(
        (2, 8, 9, 4), (3, 3, 1, 4), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME", "feature_group_count": 4}
    ),
    "transposed": Conv(
        (1, 4, 4, 3),
        (4, 4, 3, 5),
        ("NHWC", "HWIO", "NHWC"),
        {"padding": [(2, 2), (2, 2)], "lhs_dilation": (2, 2)},
    ),
    "negative": Conv((1, 6, 6, 3), (2, 2, 3, 5), ("NHWC", "HWIO", "NHWC"), {"padding": [(-1, 2), (0, -2)]}),
}


@pytest.mark.parametrize("name", CONVS)
def test_conv(tmp_path: Path, name: str) -> None:
    case = CONVS[name]
    kwargs = {"window_strides": (1,) * (len(case.x) - 2), **case.kwargs}

    def fn(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, dimension_numbers=case.layout, **kwargs)

    agrees(tmp_path, fn, normal(*case.x), normal(*case.w, seed=1), rtol=1e-4, atol=1e-5)


# -- control flow


def test_while_in_cond(tmp_path: Path) -> None:
    def fn(x: Any, n: Any) -> Any:
        def many(x: Any) -> Any:
            return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2 + x), (I(0), x))[1]

        return lax.cond(n > 2, many, lambda x: x, x)

    for n in (0, 3, 5):
        agrees(tmp_path, fn, normal(3), I(n))


def test_cond_in_while_swaps(tmp_path: Path) -> None:
    def fn(n: Any) -> Any:
        def step(c: Any) -> Any:
            i, a, b = c
            a, b = lax.cond(i % 3 == 0, lambda: (b, a), lambda: (a + b, b))
            return i + 1, a, b

        return lax.while_loop(lambda c: c[0] < n, step, (I(0), F32(1), F32(2)))

    for n in (-1, 0, 1, 6):
        agrees(tmp_path, fn, I(n))


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 3, 9])
def test_switch_clamps(tmp_path: Path, index: int) -> None:
    def fn(i: Any, x: Any) -> Any:
        return lax.switch(i, [lambda x: x, lambda x: x * 2, lambda x: x - 1, lambda x: x * x], x)

    agrees(tmp_path, fn, I(index), normal(3))


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(tmp_path: Path, reverse: bool) -> None:
    w = normal(4, 4, seed=2)

    def fn(state: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            h, count = c
            h = jnp.tanh(h @ w + x["a"]) * jnp.where(x["stop"], 0.0, 1.0)
            return (h, count + 1), (h, x["stop"], count)

        return lax.scan(step, (state, I(0)), xs, reverse=reverse)

    xs = {"a": normal(5, 4, seed=1), "stop": np.array([False, True, False, False, True])}
    flat = lambda s, a, stop: jax.tree.leaves(fn(s, {"a": a, "stop": stop}))  # noqa: E731
    agrees(tmp_path, flat, normal(4), xs["a"], xs["stop"], rtol=1e-5, atol=1e-6)


def test_scan_without_steps_or_inputs(tmp_path: Path) -> None:
    agrees(tmp_path, lambda c, x: lax.scan(lambda c, x: (c + x, c), c, x), F32(3), normal(0))
    agrees(tmp_path, lambda c: lax.scan(lambda c, _: (c * 2, c), c, None, length=3), F32(3))


def test_body_hands_values_through(tmp_path: Path) -> None:
    def fn(a: Any, b: Any) -> Any:
        return lax.scan(lambda c, _: ((c[1], c[0], c[0]), (c[1], F32(2), b)), (a, b, b), None, length=3)

    agrees(tmp_path, fn, F32(1), F32(5))


# -- what is refused, and how


def test_table_is_whole() -> None:
    seen = {*TABLE}
    listed = """
        abs add and argmax atanh bitcast_convert_type broadcast_in_dim concatenate conv_general_dilated
        convert_element_type copy cos cumsum div dot_general dynamic_slice dynamic_update_slice eq erf exp gather
        ge gt integer_pow iota is_finite le log logistic lt max min mul name ne neg not or reduce_and reduce_max
        reduce_min reduce_sum rem reshape rsqrt scan scatter select_n shift_right_logical sign sin slice sort split
        sqrt square squeeze stack stop_gradient sub tanh top_k transpose while xor
    """
    assert set(listed.split()) <= seen
    assert not set(REASONS) & (set(listed.split()))


REFUSED = {
    "log1p": (lax.log1p, F32),
    "expm1": (lax.expm1, F32),
    "bitcast_float": (lambda x: lax.bitcast_convert_type(x, I32), F32),
    "reduce_precision_half": (lambda x: lax.reduce_precision(x, 5, 10), F32),
    "sort_two_keys": (lambda x: lax.sort((x, x), num_keys=2), F32),
    "digamma": (lax.digamma, F32),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    fn, dtype = REFUSED[name]
    graph = lowered(fn, (np.ones(6, dtype),))
    placeholders = [n for n in graph.walk() if n.op == PLACEHOLDER]
    assert len(placeholders) == 1
    assert placeholders[0].problem
    assert check(placeholders[0], OPSET).status == "no"


def test_float_bitcast_with_newer_opset(tmp_path: Path) -> None:
    if check(Node("BitCast", (Tensor((), "float32"),), (Tensor((), "int32"),)), 26).status != "yes":
        pytest.skip("BitCast is newer than this runtime")
    agrees(tmp_path, lambda x: lax.bitcast_convert_type(x, I32), FLOATS[:14], opset=26)


def test_threefry_counters() -> None:
    def fn(key: Any) -> Any:
        with jax.threefry_partitionable(True):
            return jax.extend.random.threefry_prng_impl.random_bits(key, 32, (3, 50))

    eqns = jax.make_jaxpr(fn)(np.zeros(2, U32)).jaxpr.eqns
    (counters,) = (e for e in eqns if e.primitive.name == "iota_2x32_shape")
    high, low = lower_equation(counters, backend()).outputs
    np.testing.assert_array_equal(high.data, np.zeros((3, 50), U32))
    np.testing.assert_array_equal(low.data, np.arange(150, dtype=U32).reshape(3, 50))


# -- the builder


def builder() -> OnnxBuilder:
    return OnnxBuilder(Graph("g"), lambda graph, jaxpr, inputs: None)


def test_weight_steps_are_folded() -> None:
    b = builder()
    w = Tensor((3, 4), "float32", weight=Weight("w"))
    folded = b.reshape(b.transpose(w, (1, 0)), (2, 6))
    assert folded.weight == Weight("w", (("transpose", (1, 0)), ("reshape", (2, 6))))
    assert b.graph.nodes == []
    value = normal(3, 4)
    np.testing.assert_array_equal(folded.weight.apply(value), value.T.reshape(2, 6))


def test_weight_enters_products_untouched() -> None:
    for name, transposed in (
        ("matrix", False),
        ("transposed", True),
        ("batch", False),
        ("vector_matrix", False),
    ):
        left, right, numbers = DOTS[name]
        closed = jax.make_jaxpr(lambda x, y, n=numbers: lax.dot_general(x, y, n))(
            np.ones(left, F32), np.ones(right, F32)
        )
        w = Tensor(right, "float32", weight=Weight("w"))
        graph = lower_jaxpr(closed, backend(), [Tensor(left, "float32"), w], "main")
        (node,) = graph.nodes
        assert node.inputs[1] is w
        assert node.op == ("Gemm" if transposed else "MatMul")


def test_broadcast_constants_stay_small(tmp_path: Path) -> None:
    graph = agrees(tmp_path, lambda x: x * jnp.full((300, 50), 2.0, F32), normal(300, 50))
    (node,) = graph.nodes
    assert node.op == "Mul"
    assert [x.shape for x in node.inputs if x is not None] == [(300, 50), ()]
    assert node.op in BROADCASTING


def test_elementwise_of_constants_keeps_its_shape(tmp_path: Path) -> None:
    def fn(x: Any) -> Any:
        return lax.concatenate(
            [x, lax.exp(lax.full((90,), 0.5, F32)), lax.add(lax.full((70,), 0.5), lax.full((70,), 1.0))], 0
        )

    agrees(tmp_path, fn, normal(2))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Identity", "Expand", "Cast"])
@pytest.mark.parametrize("stored", ["constant", "weight"])
@pytest.mark.parametrize("flip", [False, True])
def test_a_reciprocal_after_an_op_that_the_runtime_takes_out(tmp_path: Path, op: str, stored: str, flip: bool) -> None:
    """ONNX Runtime does not load such a file by itself; the pass keeps the bits."""
    x, z = Tensor((2, 3), "float32", "x"), Tensor((2, 3), "float32", "z")
    t, e, y, r, out = (Tensor((2, 3), "float32") for _ in range(5))
    neutral = np.float32(op in ("Mul", "Div"))
    small = Tensor((), "float32", weight=Weight("w")) if stored == "weight" else Tensor((), "float32", data=neutral)
    more: dict[str, Any] = {
        "Expand": (Tensor((2,), "int64", data=np.array([2, 3])),),
        "Identity": (),
        "Cast": (),
    }
    nodes = [
        Node("Tanh", (x,), (t,)),
        Node("Exp", (z,), (e,)),
        Node(op, (t, *more.get(op, (small,))), (y,), {"to": "float32"} if op == "Cast" else {}),
        Node("Div", (Tensor((), "float32", data=np.float32(1)), e), (r,)),
        Node("Mul", (r, y) if flip else (y, r), (out,)),
    ]
    graph = guard_reciprocals(Graph("main", [x, z], [out], nodes))
    assert [n.op for n in graph.nodes] == ["Tanh", "Exp", op, "Neg", "Div", "Mul"]
    given = {"x": np.linspace(-3, 3, 6, dtype=F32).reshape(2, 3), "z": np.linspace(-9, 80, 6, dtype=F32).reshape(2, 3)}
    (got,) = session(save(tmp_path, graph, {"w": neutral})).run(None, given)
    np.testing.assert_allclose(got, np.tanh(given["x"]) * (F32(1) / np.exp(given["z"])), rtol=1e-5)


def test_other_reciprocals_stay(tmp_path: Path) -> None:
    graph = guard_reciprocals(lowered(lambda x, z: jnp.tanh(x) * (1 / z) + (x + 2) * (3 / z), (FLOATS, FLOATS)))
    assert "Neg" not in [n.op for n in graph.nodes]


def test_bias_goes_into_gemm(tmp_path: Path) -> None:
    args = normal(3, 4), normal(4, 5, seed=1), normal(5, seed=2)

    def fn(x: Any, w: Any, c: Any) -> Any:
        return jnp.tanh(lax.add(lax.dot_general(x, w, DOTS["matrix"][2]), c[None]))

    graph = lowered(fn, args, passes=True)
    assert [n.op for n in graph.nodes if n.op != "Reshape"] == ["Gemm", "Tanh"]
    same(run(tmp_path, graph, args)[0], fn(*args), rtol=1e-5, atol=1e-6)


# -- the writer


def model(names: list[str], params: dict[str, np.ndarray], fn: Callable[..., Any], x: Any) -> Graph:
    closed = inline(jax.make_jaxpr(fn)(x, *params.values()))
    inputs = [Tensor(x.shape, "float32", names[0])]
    weights = [Tensor(v.shape, "float32", k, weight=Weight(k)) for k, v in params.items()]
    graph = lower_jaxpr(closed, backend(), [*inputs, *weights], "main")
    graph.inputs = inputs
    return graph


def test_weights_are_shared_and_bytes_repeat(tmp_path: Path) -> None:
    params = {"params.a/b.w": normal(64, 64, seed=1), "params.a/b.bias": normal(64, seed=2)}
    x = normal(2, 64)

    def first(x: Any, w: Any, c: Any) -> Any:
        return lax.dot_general(x, w, DOTS["matrix"][2]) + c

    def second(x: Any, w: Any, c: Any) -> Any:
        return first(first(x, w, c), w, c), w, c, x, x

    def files(folder: Path) -> dict[str, bytes]:
        folder.mkdir()
        graphs = {"init": model(["obs.x"], params, first, x), "policy": model(["obs.x"], params, second, x)}
        names = {"init": ["out.y"], "policy": ["out.y", "w", "c", "x again", "x twice"]}
        paths = write(graphs, params, folder, output_names=names, opset=OPSET)
        assert [p.name for p in paths] == ["init.onnx", "policy.onnx", "weights.bin"]
        return {p.name: p.read_bytes() for p in paths}

    one, two = files(tmp_path / "1"), files(tmp_path / "2")
    assert one == two
    for value in params.values():
        assert one["weights.bin"].count(value.tobytes()) == 1
    assert all(value.tobytes() not in one[n] for value in params.values() for n in ("init.onnx", "policy.onnx"))
    path = tmp_path / "1" / "policy.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    s = session(path)
    assert [i.name for i in s.get_inputs()] == ["obs.x"]
    assert [o.name for o in s.get_outputs()] == ["out.y", "w", "c", "x again", "x twice"]
    got = s.run(None, {"obs.x": x})
    for g, w in zip(got, second(x, *params.values()), strict=True):
        same(g, w, rtol=1e-5, atol=1e-5)
    assert onnx.load(str(path), load_external_data=False).producer_name == "opcompat"


def test_folded_weight_is_stored_transposed(tmp_path: Path) -> None:
    params = {"k": normal(3, 3, 4, 8)}
    x = normal(1, 6, 6, 4)

    def fn(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    graph = model(["x"], params, fn, x)
    assert [n.op for n in graph.nodes] == ["Transpose", "Conv", "Transpose"]
    same(
        session(save(tmp_path, graph, params)).run(None, {"x": x})[0],
        fn(x, params["k"]),
        rtol=1e-4,
        atol=1e-5,
    )


def test_large_constants_leave_the_model(tmp_path: Path) -> None:
    table = normal(100, 100)
    graph = agrees(tmp_path, lambda x: x + table, normal(100, 100, seed=1))
    assert graph.nodes[0].op == "Add"
    assert (tmp_path / "weights.bin").read_bytes() == table.tobytes()


def test_names_must_differ(tmp_path: Path) -> None:
    graph = lowered(lambda x: x + 1, (normal(2),))
    for names in (["x.0"], [""], []):
        with pytest.raises(OutputError, match="names of their own"):
            write({"main": graph}, {}, tmp_path, output_names={"main": names}, opset=OPSET)


def test_node_names_tell_their_source(tmp_path: Path) -> None:
    x = Tensor((2,), "float32", "x")
    y = Tensor((2,), "float32")
    graph = Graph("g", [x], [y], [Node("Neg", (x,), (y,), source="12.3")])
    path = save(tmp_path, graph)
    (node,) = onnx.load(str(path)).graph.node
    assert node.name.startswith("12.3/Neg")


def test_half_precision_is_float32_in_files(tmp_path: Path) -> None:
    b = builder()
    x = Tensor((3,), "float32", "x.0")
    inside = b.from_interface(x, "bfloat16")
    b.graph.inputs, b.graph.outputs = [x], [b.to_interface(inside, "bfloat16")]
    value = np.array([1.00390625, 3.1, -0.0], F32)
    same(run(tmp_path, b.graph, (value,))[0], value.astype(jnp.bfloat16).astype(F32), rtol=0)
    i = Tensor((3,), "int32")
    assert b.from_interface(i, "int32") is i
    assert b.to_interface(i, "int32") is i


def test_no_warnings_from_numpy() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered(lambda x: lax.full((2,), 300.7).astype(np.int32) + x, (np.ones(2, I32),))
