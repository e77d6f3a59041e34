"""StableHLO -> JAX: what comes back computes the same, from simpler parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from opcompat import jaxcompat
from opcompat.errors import OpcompatError
from opcompat.stablehlo import InvalidModule, Undecomposable, decompose, import_module

RNG = np.random.default_rng(0)
X = RNG.uniform(0.1, 0.9, (3, 5)).astype(np.float32)
Y = RNG.uniform(0.5, 4.0, (3, 5)).astype(np.float32)
Z = RNG.uniform(0.5, 4.0, (3, 5)).astype(np.float32)
SIGNED = RNG.normal(0, 2, (3, 5)).astype(np.float32)
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3e38, 1e-40, 5.5, -2.0, 7.0], np.float32)
INTS = RNG.integers(-(2**31), 2**31 - 1, (3, 5), dtype=np.int32)
KEY = np.array([12, 34], np.uint32)


def structs(args: tuple[Any, ...]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(np.shape(a), jnp.asarray(a).dtype) for a in args]


def primitive_names(closed: Any) -> Iterator[str]:
    for eqn in jaxcompat.parts(closed).eqns:
        yield eqn.primitive.name
        for param in eqn.params.values():
            for inner in param if isinstance(param, tuple | list) else (param,):
                if jaxcompat.is_jaxpr(inner):
                    yield from primitive_names(inner)


def assert_same(got: Any, want: Any, rtol: float = 1e-6) -> None:
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if jnp.issubdtype(a.dtype, jnp.inexact):
            wide = np.complex128 if jnp.issubdtype(a.dtype, jnp.complexfloating) else np.float64
            np.testing.assert_allclose(np.asarray(a, wide), np.asarray(b, wide), rtol=rtol, atol=1e-30)
        else:
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def check(fn: Callable[..., Any], *args: Any, rtol: float = 1e-6) -> set[str]:
    """Decomposes `fn`, compares it with jit, and returns the names of the primitives left."""
    flat = decompose(fn, *structs(args))
    closed = jax.make_jaxpr(flat)(*args)
    assert_same(jax.jit(flat)(*args), jax.jit(fn)(*args), rtol)
    return set(primitive_names(closed))


SPECIAL = [
    ("erf_inv", lax.erf_inv, (SIGNED / 8,)),
    ("erf", lax.erf, (SIGNED,)),
    ("erfc", lax.erfc, (SIGNED,)),
    ("lgamma", lax.lgamma, (Y,)),
    ("digamma", lax.digamma, (Y,)),
    ("igamma", lax.igamma, (Y, Z)),
    ("igammac", lax.igammac, (Y, Z)),
    ("regularized_incomplete_beta", lax.betainc, (Y, Z, X)),
    ("bessel_i0e", lax.bessel_i0e, (SIGNED,)),
    ("bessel_i1e", lax.bessel_i1e, (SIGNED,)),
    ("nextafter", lax.nextafter, (SIGNED, Y)),
    ("random_gamma", lambda k, a: jax.random.gamma(jax.random.wrap_key_data(k), a), (KEY, Y)),
    ("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 1), (SIGNED,)),
    ("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 0, reverse=True), (SIGNED,)),
    ("cumsum", lambda x: lax.cumsum(x, 1), (X,)),
    ("cumsum", lambda x: lax.cumsum(x, 1, reverse=True), (INTS,)),
    ("cumprod", lambda x: lax.cumprod(x, 0), (X,)),
    ("cummax", lambda x: lax.cummax(x, 1), (SIGNED,)),
    ("cummin", lambda x: lax.cummin(x, 1), (INTS,)),
    ("threefry2x32", lambda k: jax.random.bits(jax.random.wrap_key_data(k), (7,)), (KEY,)),
    ("top_k", lambda x: lax.top_k(x, 3), (SIGNED,)),
    ("top_k", lambda x: lax.top_k(x, 8), (EDGES,)),
    ("top_k", lambda x: lax.top_k(x, 3), (INTS,)),
    ("argmax", lambda x: lax.argmax(x, 1, np.int32), (SIGNED,)),
    ("argmin", lambda x: lax.argmin(x, 0, np.int32), (EDGES,)),
    ("atanh", lax.atanh, (X,)),
    ("asinh", lax.asinh, (SIGNED,)),
    ("acosh", lax.acosh, (Y + 1,)),
    ("acos", lax.acos, (X,)),
    ("asin", lax.asin, (X,)),
    ("atan", lax.atan, (SIGNED,)),
    ("sinh", lax.sinh, (SIGNED,)),
    ("cosh", lax.cosh, (SIGNED,)),
    ("square", lax.square, (SIGNED,)),
    ("polygamma", lambda m, x: lax.polygamma(m, x), (np.floor(Y), Z)),
    ("zeta", lax.zeta, (Y + 1, Z)),
    ("population_count", lax.population_count, (INTS,)),
    ("population_count", lax.population_count, (INTS.astype(np.uint8),)),
    ("clz", lax.clz, (INTS,)),
    ("clz", lax.clz, (np.arange(5, dtype=np.int16),)),
]


@pytest.mark.parametrize(("name", "fn", "args"), SPECIAL)
def test_a_special_function_comes_apart(name: str, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    # A different order of additions, and XLA's own fusion of the two programs, cost a few ulp.
    left = check(fn, *args, rtol=2e-6 if name in ("polygamma", "zeta", "cumlogsumexp") else 1e-6)
    assert name not in left


def test_what_a_gaussian_draw_becomes_is_basic() -> None:
    left = check(lambda k: jax.random.normal(jax.random.wrap_key_data(k), (5,)), KEY)
    assert not left & {"random_bits", "threefry2x32", "erf_inv", "random_wrap", "composite"}


@pytest.mark.parametrize("partitionable", [True, False])
def test_random_bits_of_several_dimensions(partitionable: bool) -> None:
    with jax.threefry_partitionable(partitionable):
        check(lambda k: jax.random.bits(jax.random.wrap_key_data(k), (3, 4, 5)), KEY)
        check(lambda k: jax.random.key_data(jax.random.split(jax.random.wrap_key_data(k), (2, 3))), KEY)


TABLE = {
    "sort several operands": (lambda x, i: lax.sort((x, i), num_keys=2), SIGNED, INTS),
    "sort edges": (lambda x, i: lax.sort((x, i), num_keys=1), EDGES, np.arange(12)),
    "sort unstable bool": (lambda x: lax.sort(x, is_stable=False), INTS > 0),
    "argsort descending": (lambda x: jnp.argsort(x, descending=True), EDGES),
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, x)), X),
    "fori with data dependent end": (lambda n, x: lax.fori_loop(0, n, lambda i, c: c + x[i], 0.0), 3, X[0]),
    "cond": (lambda p, x: lax.cond(p > 0, jnp.sin, jnp.cos, x), -1.0, X),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan, lambda v: v * 0 + i], x), 2, X),
    "switch out of range": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x), -7, X),
    "scan": (lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c.sum()), jnp.zeros(5), x), X),
    "scan reversed": (lambda x: lax.scan(lambda c, v: (c + v, c), 0.0, x[0], reverse=True), X),
    "take": (lambda x, i: jnp.take(x, i, axis=1), X, np.array([0, 4, -1, 9])),
    "take clip": (lambda x, i: jnp.take(x, i, axis=0, mode="clip"), X, np.array([[0, 4], [-1, 9]])),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, 1), X, np.array([[0], [9], [-2]])),
    "gather batched": (jax.vmap(lambda x, i: x[i]), X, np.array([[0, 1], [2, 9], [4, -1]])),
    "gather fill": (lambda x, i: x.at[i].get(mode="fill", fill_value=7), X, np.array([0, 5, -1])),
    "scatter add": (lambda x, i: x.at[i].add(1.0), X, np.array([0, 0, 9, -1])),
    "scatter set": (lambda x, i: x.at[:, i].set(2.0), X, np.array([0, 3, 9])),
    "scatter clip": (lambda x, i: x.at[i].set(2.0, mode="clip"), X, np.array([9, -9])),
    "scatter max": (lambda x, i: x.at[i].max(0.5), X, np.array([0, 0, 1])),
    "scatter min": (lambda x, i: x.at[i].min(0.5), X, np.array([0, 0, 1])),
    "scatter mul": (lambda x, i: x.at[i].mul(3.0), X, np.array([0, 2, 1])),
    "scatter apply": (lambda x, i: x.at[i].apply(jnp.sqrt), X, np.array([0, 2, 7])),
    "scatter batched": (jax.vmap(lambda x, i: x.at[i].add(1.0)), X, np.array([[0, 1], [2, 9], [4, -1]])),
    "scatter bool": (lambda x, i: x.at[i].max(True), INTS > 0, np.array([0, 2])),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, i), (2, 2)), X, -5),
    "dynamic_update_slice": (lambda x, i: lax.dynamic_update_slice(x, X[:2, :2], (i, i)), X, 9),
    "reduce custom": (
        lambda x: lax.reduce(x, np.float32(0), lambda a, b: jnp.sqrt(a * a + b * b), (1,)), SIGNED),
    "reduce two": (lambda x, i: lax.reduce(
        (x, i), (np.float32(0), np.int32(0)), lambda a, b: (a[0] + b[0], a[1] ^ b[1]), (0,)), X, INTS),
    "reduce from 3": (lambda x: lax.reduce(x, np.float32(3), lax.add, (0,)), X),
    "sums": (lambda x: (x.sum(0), x.max(1), x.min(), x.prod(1), (x > 0).all(0), (x > 0).any(1)), SIGNED),
    "argmax": (lambda x: (jnp.argmax(x), jnp.argmin(x)), EDGES),
    "reduce_window max": (
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 2), "SAME"), SIGNED),
    "reduce_window sum dilated": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID", (1, 2), (1, 2)), X),
    "reduce_window custom": (
        lambda x: lax.reduce_window(x, 1.0, lambda a, b: a * b + a * 0, (2, 2), (1, 1), "VALID"), X),
    "max pool gradient": (jax.grad(lambda x: jnp.sum(
        lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID") ** 2)), X),
    "convolution": (lambda x, k: lax.conv_general_dilated(
        x, k, (1, 2), "SAME", rhs_dilation=(2, 1), dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=2), RNG.normal(size=(2, 7, 6, 4)).astype(np.float32),
        RNG.normal(size=(3, 3, 2, 6)).astype(np.float32)),
    "convolution transposed": (lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"),
        RNG.normal(size=(2, 5, 5, 3)).astype(np.float32), RNG.normal(size=(3, 3, 3, 4)).astype(np.float32)),
    "dot_general": (lambda a, b: jnp.einsum("bij,bkj->bik", a, b, precision="highest"),
        RNG.normal(size=(2, 3, 4)).astype(np.float32), RNG.normal(size=(2, 5, 4)).astype(np.float32)),
    "dot int8": (lambda a, b: lax.dot(a, b, preferred_element_type=np.int32),
        np.ones((2, 3), np.int8), np.full((3, 2), 100, np.int8)),
    "fft": (lambda x: (jnp.fft.rfft(x), jnp.fft.ifft(x)), X),
    "rng_bit_generator": (lambda k: lax.rng_bit_generator(k, (5,)), np.arange(4, dtype=np.uint32)),
    "rbg key": (lambda k: jax.random.uniform(jax.random.wrap_key_data(k, impl="rbg"), (5,)),
        np.arange(4, dtype=np.uint32)),
    "complex": (lambda x, y: (lax.complex(x, y) * np.complex64(1 + 2j), abs(lax.complex(x, y))), X, Y),
    "complex parts": (lambda x, y: (lax.complex(x, y).real, lax.complex(x, y).conj()), X, Y),
    "bool constant": (lambda x: jnp.where(np.array([True, False, True, True, False]), x, 0), X),
    "logic": (lambda a, b: (a & b, a | b, a ^ b, ~a, a << 3, a >> 2, lax.shift_right_logical(a, 5)),
        INTS, INTS.T.reshape(3, 5).copy()),
    "integers": (lambda a: (jnp.sign(a), lax.rem(a, 7), a // 7, a**3, lax.clamp(-5, a, 5)), INTS),
    "rounding": (lambda x: (lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), lax.round(x),
        jnp.floor(x), jnp.ceil(x), lax.reduce_precision(x, 5, 10), lax.is_finite(x)), EDGES),
    "bitcast": (lambda x: (lax.bitcast_convert_type(x, np.int32), lax.bitcast_convert_type(x, np.uint16)), X),
    "pad, concatenate, reverse": (lambda x: jnp.concatenate(
        [lax.pad(x, 1.0, ((1, 0, 2), (-1, 2, 0))), lax.pad(x, 1.0, ((1, 0, 2), (-1, 2, 0)))[:, ::-1]]), X),
    "transpose, iota, slice": (lambda x: x.T[1:5:2] + lax.broadcasted_iota(np.float32, (2, 3), 1), X),
    "elementwise": (lambda x, y: (x / y, x**y, jnp.arctan2(x, y), jnp.cbrt(x), jnp.expm1(x), jnp.log1p(x),
        jax.nn.sigmoid(x), lax.rsqrt(x), jnp.tanh(x), jnp.fmod(y, x), jnp.tan(x)), X, Y),
    "bfloat16": (lambda x: (x.astype(jnp.bfloat16) * jnp.bfloat16(1.5)).max(1), SIGNED),
    "float16": (lambda x: x.astype(np.float16) + np.array([1, 2, 3, 4, 5], np.float16), SIGNED),
    "empty": (lambda x: jnp.concatenate([x[:0], np.zeros((0, 5), np.float32)]), X),
    "unused argument": (lambda x, y, z: x + z, X, INTS, Z),
    "no argument used": (lambda x: jnp.float32(2), X),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_an_op_keeps_its_meaning(case: str) -> None:
    fn, *args = TABLE[case]
    check(fn, *args)


def test_reductions_come_back_as_their_own_primitives() -> None:
    def fn(x: jax.Array) -> Any:
        return x.sum(), x.max(0), (x > 0).all(), jnp.argmax(x, 1), lax.cumsum(x, 1)

    imported = import_module(export.export(jax.jit(fn))(SIGNED).mlir_module_serialized)
    assert_same(jax.jit(imported)(SIGNED), jax.jit(fn)(SIGNED))
    left = set(primitive_names(jax.make_jaxpr(imported)(SIGNED)))
    assert {"reduce_sum", "reduce_max", "reduce_and", "argmax", "cumsum"} <= left
    assert not {"reduce", "reduce_window", "reduce_window_sum"} & left


def test_scalars_stay_scalars() -> None:
    # A broadcast for each constant would double the nodes of every decomposition.
    assert check(lambda x: jnp.maximum(x * 2 + 1, 0.5), X) == {"mul", "add", "max"}


@pytest.mark.parametrize("mode", ["promotion", "rank", "x64"])
def test_under_strict_configurations(mode: str) -> None:
    context = {
        "promotion": lambda: jax.numpy_dtype_promotion("strict"),
        "rank": lambda: jax.numpy_rank_promotion("raise"),
        "x64": lambda: jax.enable_x64(True),
    }[mode]
    with context():
        check(lax.erf_inv, X)
        check(lambda x: lax.cumlogsumexp(x, 1), SIGNED)
        check(lambda x: lax.top_k(x, 2), SIGNED)
        check(lambda k: lax.rng_bit_generator(k, (5,)), np.arange(4, dtype=np.uint32))
        if mode == "x64":
            check(lax.digamma, Y.astype(np.float64), rtol=1e-12)
            check(lax.population_count, INTS.astype(np.int64))


def mlp(params: Any, x: jax.Array) -> dict[str, jax.Array]:
    hidden = jax.nn.gelu(x @ params["w"] + params["b"], approximate=False)
    hidden = (hidden - hidden.mean(-1, keepdims=True)) * lax.rsqrt(hidden.var(-1, keepdims=True) + 1e-5)
    return {"logits": jax.nn.log_softmax(hidden @ params["v"]), "best": jnp.argmax(hidden @ params["v"], -1)}


def exported_mlp(dtype: Any = np.float32) -> tuple[Any, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    shapes = {"w": (8, 16), "b": (16,), "v": (16, 4)}
    params = {k: jnp.asarray(rng.normal(size=s), dtype) for k, s in shapes.items()}
    x = jnp.asarray(rng.normal(size=(3, 8)), dtype)
    return export.export(jax.jit(lambda x: mlp(params, x)))(x), x


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_an_exported_mlp_comes_back(dtype: Any) -> None:
    artifact, x = exported_mlp(dtype)
    restored = export.deserialize(artifact.serialize())
    fn = import_module(restored.mlir_module_serialized)
    assert_same(jax.jit(fn)(x), restored.call(x), rtol=1e-6 if dtype is np.float32 else 0.02)
    left = set(primitive_names(jax.make_jaxpr(fn)(x)))
    assert {"dot_general", "argmax", "reduce_sum", "reduce_max", "rsqrt"} <= left


@pytest.mark.parametrize("form", ["bytes", "text", "text as bytes", "module"])
def test_every_form_of_a_module(form: str) -> None:
    lowered = jax.jit(lambda x: lax.top_k(x, 2)[0] * 2).lower(X)
    text = lowered.as_text()
    source = {
        "bytes": export.export(jax.jit(lambda x: lax.top_k(x, 2)[0] * 2))(X).mlir_module_serialized,
        "text": text,
        "text as bytes": text.encode(),
        "module": lowered.compiler_ir("stablehlo"),
    }[form]
    assert_same(import_module(source)(X), lax.top_k(X, 2)[0] * 2)


CONSTANTS = """
func.func public @main() -> (tensor<2xbf16>, tensor<bf16>, tensor<2xi1>, tensor<3xi1>, tensor<2xcomplex<f32>>,
    tensor<2xcomplex<f32>>, tensor<0x3xf32>, tensor<2xf16>, tensor<2xf8E4M3FN>, tensor<2xi4>,
    tensor<2x2xui8>) {
  %0 = stablehlo.constant dense<[1.5, 0xFFC1]> : tensor<2xbf16>
  %1 = stablehlo.constant dense<0xFF80> : tensor<bf16>
  %2 = stablehlo.constant dense<true> : tensor<2xi1>
  %3 = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
  %4 = stablehlo.constant dense<[(1.0, -2.5), (0x7F800000, 3.0)]> : tensor<2xcomplex<f32>>
  %5 = stablehlo.constant dense<(1.0, -2.0)> : tensor<2xcomplex<f32>>
  %6 = stablehlo.constant dense<> : tensor<0x3xf32>
  %7 = stablehlo.constant dense<[1.5, 65504.0]> : tensor<2xf16>
  %8 = stablehlo.constant dense<[1.5, -448.0]> : tensor<2xf8E4M3FN>
  %9 = stablehlo.constant dense<[7, -8]> : tensor<2xi4>
  %10 = stablehlo.constant dense<[[1, 255], [3, 4]]> : tensor<2x2xui8>
  return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10 : tensor<2xbf16>, tensor<bf16>, tensor<2xi1>,
    tensor<3xi1>, tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>, tensor<0x3xf32>, tensor<2xf16>,
    tensor<2xf8E4M3FN>, tensor<2xi4>, tensor<2x2xui8>
}
"""


def test_constants_of_every_dtype() -> None:
    bf16 = jnp.bfloat16
    want = [
        np.array([1.5, np.nan], bf16), np.array(-np.inf, bf16), np.array([True, True]),
        np.array([True, False, True]), np.array([1 - 2.5j, complex(np.inf, 3)], np.complex64),
        np.array([1 - 2j, 1 - 2j], np.complex64), np.zeros((0, 3), np.float32),
        np.array([1.5, 65504], np.float16), np.array([1.5, -448], jnp.float8_e4m3fn),
        np.array([7, -8], jnp.int4), np.array([[1, 255], [3, 4]], np.uint8),
    ]  # fmt: skip
    got = import_module(CONSTANTS)()
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        # Bits, because numpy cannot compare the NaN of a type that it does not know.
        assert np.asarray(a).tobytes() == b.tobytes() or b.dtype == bf16
        np.testing.assert_array_equal(np.asarray(a, np.complex64), b.astype(np.complex64))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64", "int4", "float8_e5m2", "bool", "uint8"])
def test_large_constants(dtype: str) -> None:
    # Above 100 elements MLIR writes hexadecimal.
    table = np.asarray(jnp.asarray(RNG.integers(-8, 8, 300)).astype(dtype))
    fn = import_module(export.export(jax.jit(lambda: jnp.asarray(table)))().mlir_module_serialized)
    np.testing.assert_array_equal(np.asarray(fn()[0]), table)


def op_module(body: str, signature: str) -> Callable[..., tuple[jax.Array, ...]]:
    return import_module(f"func.func public @main{signature} {{\n{body}\n}}")


def test_case_out_of_range_takes_the_last_branch() -> None:
    branches = ",".join(
        f"{{ %c{i} = stablehlo.constant dense<{i}> : tensor<i32>\n stablehlo.return %c{i} : tensor<i32> }}"
        for i in range(3)
    )
    fn = op_module(
        f'%0 = "stablehlo.case"(%i) ({branches}) : (tensor<i32>) -> tensor<i32>\n return %0 : tensor<i32>',
        "(%i: tensor<i32>) -> tensor<i32>",
    )
    assert [int(fn(np.int32(i))[0]) for i in (-9, -1, 0, 1, 2, 3, 99)] == [2, 2, 0, 1, 2, 2, 2]


def test_gather_with_the_index_vector_first() -> None:
    fn = op_module(
        """%0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
             collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 0>,
             slice_sizes = array<i64: 1, 5>}> : (tensor<3x5xf32>, tensor<1x4xi32>) -> tensor<4x5xf32>
           return %0 : tensor<4x5xf32>""",
        "(%x: tensor<3x5xf32>, %i: tensor<1x4xi32>) -> tensor<4x5xf32>",
    )
    assert_same(fn(X, np.array([[0, 2, 9, -4]], np.int32)), X[[0, 2, 2, 0]])


def test_total_order_comparison() -> None:
    fn = op_module(
        """%0 = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
           return %0 : tensor<4xi1>""",
        "(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xi1>",
    )
    small = np.array([-0.0, 0.0, np.inf, -np.nan], np.float32)
    large = np.array([0.0, -0.0, np.nan, -np.inf], np.float32)
    small[3] = np.uint32(0xFFC00000).view(np.float32)
    assert fn(small, large)[0].tolist() == [True, False, True, True]


@pytest.mark.parametrize(("fn", "target"), [(jnp.linalg.cholesky, "lapack_spotrf"), (jnp.linalg.eigh, "lapack_ssyevd")])
def test_a_library_call_is_refused_by_its_name(fn: Callable[..., Any], target: str) -> None:
    with pytest.raises(Undecomposable, match=target) as raised:
        decompose(fn, jax.ShapeDtypeStruct((3, 3), np.float32))
    assert "custom call" in raised.value.reason
    assert isinstance(raised.value, OpcompatError)


def test_a_callback_is_refused() -> None:
    def calls_python(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((3, 5), np.float32), x)

    with pytest.raises(Undecomposable, match="callback"):
        decompose(calls_python, *structs((X,)))


def test_an_unknown_op_is_refused_with_its_place() -> None:
    text = """func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<0> : tensor<1x1xi64>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %1 = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %1 : tensor<f32>
      }) : (tensor<2xf32>) -> tensor<2xf32> loc("policy.py":12:3)
      return %0 : tensor<2xf32> }"""
    with pytest.raises(Undecomposable, match=r"stablehlo\.all_reduce at policy\.py:12: no JAX equivalent"):
        import_module(text)


def test_dynamic_shapes_are_refused() -> None:
    with pytest.raises(Undecomposable, match="dynamic shape"):
        op_module("return %x : tensor<?xf32>", "(%x: tensor<?xf32>) -> tensor<?xf32>")


def test_64_bit_arguments_need_x64() -> None:
    with pytest.raises(Undecomposable, match="jax_enable_x64"):
        op_module("return %x : tensor<2xi64>", "(%x: tensor<2xi64>) -> tensor<2xi64>")


@pytest.mark.parametrize("source", [b"", b"ML\xefRgarbage", b"ML\xefR\rStableHLO_v1.0.0\0", "module {", b"\xff\xfe", 3])
def test_what_is_no_module_is_refused(source: Any) -> None:
    with pytest.raises(InvalidModule):
        import_module(source)


def test_a_missing_entry_names_those_there_are() -> None:
    with pytest.raises(InvalidModule, match=r"no function @policy; the module has .*main"):
        import_module(exported_mlp()[0].mlir_module_serialized, entry="policy")


def test_recursion_and_explosion_are_refused() -> None:
    recursive = """func.func public @main(%x: tensor<f32>) -> tensor<f32> {
        %0 = call @main(%x) : (tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32> }"""
    with pytest.raises(InvalidModule, match="calls itself"):
        import_module(recursive)
    doubling = "\n".join(
        f"""func.func @f{i}(%x: tensor<f32>) -> tensor<f32> {{
        %0 = call @f{i + 1}(%x) : (tensor<f32>) -> tensor<f32>
        %1 = call @f{i + 1}(%0) : (tensor<f32>) -> tensor<f32>
        return %1 : tensor<f32> }}"""
        for i in range(40)
    )
    last = "func.func @f40(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
    with pytest.raises(InvalidModule, match="unfolds"):
        import_module(f"{doubling}\n{last}", entry="f0")


def test_wrong_arguments_are_named() -> None:
    fn = import_module(exported_mlp()[0].mlir_module_serialized)
    with pytest.raises(TypeError, match="takes 1 arrays, got 2"):
        fn(X, X)
    with pytest.raises(TypeError, match=r"argument 0 of @main must be float32\[3,8\], got float32\[3,5\]"):
        fn(X)


def test_the_function_outlives_the_context_and_differentiates() -> None:
    flat = decompose(lax.erf, *structs((X,)))
    got = jax.grad(lambda x: flat(x)[0].sum())(X)
    np.testing.assert_allclose(got, jax.grad(lambda x: lax.erf(x).sum())(X), rtol=1e-5)
    assert_same(jax.vmap(flat)(X[None])[0], lax.erf(X)[None])


SQUARE = RNG.standard_normal((2, 3, 3)).astype(np.float32)
DEFINITE = (SQUARE @ SQUARE.transpose(0, 2, 1) + np.eye(3)).astype(np.float32)
ON_EVERY_PLATFORM = [
    (jnp.linalg.cholesky, (DEFINITE,)),
    (jnp.linalg.cholesky, (-DEFINITE,)),
    (lax.linalg.lu, (SQUARE,)),
    (jnp.linalg.solve, (DEFINITE, SQUARE)),
    (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True, transpose_a=True), (DEFINITE, SQUARE)),
    (lambda a, b: lax.linalg.triangular_solve(a, b, lower=False, unit_diagonal=True), (DEFINITE, SQUARE)),
    (lambda key: jax.random.normal(jax.random.wrap_key_data(key), (5,)), (KEY,)),
    (lambda x: lax.top_k(x, 2), (X,)),
    (lax.atan2, (SIGNED, Y)),
]


@pytest.mark.parametrize("platform", ["cpu", "tpu", "cuda"])
@pytest.mark.parametrize(("fn", "args"), ON_EVERY_PLATFORM)
def test_what_was_exported_for_another_platform(fn: Callable[..., Any], args: tuple[Any, ...], platform: str) -> None:
    made = export.export(jax.jit(fn), platforms=(platform,))(*structs(args))
    got = jax.jit(import_module(made.mlir_module_serialized))(*args)
    for a, b in zip(got, jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("op", "fn"),
    [
        ("custom_call @mhlo.erf(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : ($T) -> $T", lax.erf),
        ("custom_call @mhlo.tan(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : ($T) -> $T", lax.tan),
        ("get_dimension_size %x, dim = 1 : ($T) -> tensor<i32>", lambda x: np.int32(5)),
        ("replica_id : tensor<ui32>", lambda x: np.uint32(0)),
    ],
)
def test_ops_of_other_exporters(op: str, fn: Callable[..., Any]) -> None:
    result = op.rpartition("->" if "->" in op else ":")[2].strip()
    text = f"func.func public @main(%x: $T) -> {result} {{ %r = stablehlo.{op}\n return %r : {result} }}"
    (got,) = import_module(text.replace("$T", "tensor<3x5xf32>"))(X)
    np.testing.assert_allclose(got, fn(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("custom_call @mhlo.nothing(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : ($T) -> $T", "none of JAX's"),
        ("custom_call @ApproxTopK(%x) : ($T) -> $T", "an approximate top k differs between devices"),
        ("custom_call @my_kernel(%x) : ($T) -> $T", "opaque: a library's code"),
    ],
)
def test_custom_calls_that_are_refused(op: str, message: str) -> None:
    text = f"func.func public @main(%x: $T) -> $T {{ %r = stablehlo.{op}\n return %r : $T }}"
    with pytest.raises(Undecomposable, match=message):
        import_module(text.replace("$T", "tensor<3x5xf32>"))
