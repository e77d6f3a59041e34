"""Rows of reductions, running reductions, sorting and products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .harness import EXACT, SUMS, Case, Closeness, case, vmapped
from .values import BF16, DTYPES, F32, I32, NAMES, data, inf, nan, small

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
        [0, -0.0, 0, -0.0],
        [-0.0, -0.0, -0.0, -0.0],
    ],
    F32,
)

REDUCE: dict[str, tuple[Callable[..., Any], str, Closeness]] = {
    "reduce_and": (lax.reduce_and, "iub", EXACT),
    "reduce_max": (lax.reduce_max, "fiubhg", EXACT),
    "reduce_min": (lax.reduce_min, "fiubhg", EXACT),
    "reduce_or": (lax.reduce_or, "iub", EXACT),
    "reduce_prod": (lax.reduce_prod, "fiuhg", SUMS),
    "reduce_sum": (lax.reduce_sum, "fiuhg", SUMS),
    "reduce_xor": (lax.reduce_xor, "iub", EXACT),
}
HALF_SUMS = Closeness(rtol=2**-6, atol=2**-6)
"""Sums of bfloat16 whose partial sums XLA rounds, too."""
AXES = ((0,), (1,), (0, 1), ())


def _all_axes(function: Callable[..., Any], axes: tuple[tuple[int, ...], ...] = AXES) -> Callable[..., Any]:
    return lambda x: [function(x, a) for a in axes]


def _table(letter: str) -> np.ndarray:
    """A matrix of boundary values."""
    return (
        TABLEAU.astype(np.dtype(BF16 if letter == "g" else np.float16))
        if letter in "hg"
        else (TABLEAU if letter == "f" else data(letter, 9, 5))
    )


def _reduce(name: str) -> Iterator[Case]:
    function, letters, near = REDUCE[name]
    for letter in letters:
        table = _table(letter)
        # A product of halves is rounded after every factor, in an order that is XLA's own.
        if name == "reduce_prod" and letter in "hg":
            table = np.clip(np.nan_to_num(table.astype(F32)), -2, 2).astype(table.dtype)
        yield case(f"table-{NAMES[letter]}", _all_axes(function), table, near=near)
        if letter in "hg":
            continue
        wide = _all_axes(function, ((0, 2), (1,), (2,)))
        one = case(f"wide-{NAMES[letter]}", wide, data(letter, 3, 5, 67), near=near)
        yield one
        if letter in "fi":
            yield vmapped(one)
        empty = data(letter, 3, 0, 2)
        yield case(f"empty-{NAMES[letter]}", _all_axes(function, ((1,), (0,), (0, 1, 2))), empty, near=near)
        deep = data(letter, 1, 2, 1, 3, 2, 1, 1, 2)
        yield case(f"rank8-{NAMES[letter]}", _all_axes(function, ((3,), (1, 7))), deep, near=near)


def _arg(function: Callable[..., Any]) -> Iterator[Case]:
    def run(x: Any) -> list[Any]:
        return [function(x, axis, np.int32) for axis in (0, 1)]

    for letter in "fiubhg":
        yield case(f"table-{NAMES[letter]}", run, _table(letter))
        if letter in "fiub":
            one = case(f"ties-{NAMES[letter]}", run, small(letter, 5, 7))
            yield one
            yield vmapped(one)
    for index in (np.uint32, np.int8, np.uint16):
        yield case(f"{index.__name__}-index", lambda x, i=index: function(x, 1, i), small("f", 5, 7))
    # JAX compares such indices after they have wrapped around: of equals the lowest wrapped one wins.
    yield case("int8-index-wrapped", lambda x: function(x, 0, np.int8), np.abs(small("f", 300, 2)) > 5)
    yield case("rank1", lambda x: function(x, 0, np.int32), small("f", 9, seed=3))
    yield case("rank8", lambda x: function(x, 3, np.int32), data("f", 1, 2, 1, 3, 2, 1, 1, 2))


CUMULATIVE: dict[str, tuple[Callable[..., Any], str, Closeness]] = {
    "cumlogsumexp": (lax.cumlogsumexp, "f", Closeness(rtol=1e-5, atol=1e-6)),
    "cummax": (lax.cummax, "fiug", EXACT),
    "cummin": (lax.cummin, "fiug", EXACT),
    "cumprod": (lax.cumprod, "fiu", SUMS),
    "cumsum": (lax.cumsum, "fiug", SUMS),
}


def _cumulative(name: str) -> Iterator[Case]:
    function, letters, near = CUMULATIVE[name]

    def run(x: Any) -> list[Any]:
        return [function(x, axis=axis, reverse=reverse) for axis in (0, 1) for reverse in (False, True)]

    for letter in letters:
        ordinary = name == "cumlogsumexp" or (letter == "g" and name == "cumsum")
        table = data(letter, 9, 5) if ordinary else _table(letter)
        # XLA rounds the partial sums of halves, in an order of its own.
        one = case(f"table-{NAMES[letter]}", run, table, near=HALF_SUMS if letter == "g" and near == SUMS else near)
        yield one
        if letter in "fi":
            yield vmapped(one)
    yield case("rank1-empty", lambda x: function(x, axis=0), data("f", 0), near=near)
    yield case("rank3", lambda x: function(x, axis=1, reverse=True), data("f", 2, 5, 3), near=near)
    yield case("long", lambda x: function(x, axis=0), data("f", 300) * F32(0.01) + F32(1), near=near)


def _window(operator: Callable[..., Any], initial: tuple[Any, ...]) -> Iterator[Case]:
    pads = ((1, 0), (1, 2))
    near = SUMS if operator is lax.add else EXACT
    for letter, first in zip("fiu", initial, strict=True):
        start = np.asarray(first, {"f": F32, "i": I32, "u": np.uint32}[letter])[()]
        table = data(letter, 9, 5) if operator is lax.add else _table(letter)
        for kind, config in {
            "plain": ((2, 3), (1, 2), pads),
            "dilated": ((2, 1), (1, 1), pads, (1, 2), (2, 1)),
            "valid": ((2, 2), (2, 2), "VALID"),
        }.items():
            yield case(
                f"{kind}-{NAMES[letter]}",
                lambda x, start=start, config=config: lax.reduce_window(x, start, operator, *config),
                table,
                near=near,
            )
    image = data("f", 2, 8, 8, 3)
    start = np.asarray(initial[0], F32)[()]
    yield case(
        "image", lambda x: lax.reduce_window(x, start, operator, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), image, near=near
    )


def _any_window() -> Iterator[Case]:
    """Windowed reductions by other functions than sum, maximum and minimum."""

    def product(x: Any) -> Any:
        return lax.reduce_window(x, np.ones((), x.dtype)[()], lax.mul, (2, 3), (1, 2), ((1, 0), (1, 1)))

    for letter in "fiu":
        yield case(f"product-{NAMES[letter]}", product, data(letter, 6, 7), near=SUMS)
    for name, function, start in (("or", lax.bitwise_or, False), ("and", lax.bitwise_and, True)):
        yield case(
            f"{name}-bool",
            lambda x, f=function, s=start: lax.reduce_window(x, s, f, (2, 2), (1, 1), "SAME"),
            data("b", 6, 7),
        )

    # No NaN and no ties: JAX takes a window's elements in an order that depends on strides and padding.
    table = data("f", 6, 7, seed=2)
    for kind, (strides, dilations) in {"plain": ((1, 2), (1, 1)), "dilated": ((1, 1), (2, 3))}.items():
        yield case(
            f"pairs-{kind}",
            lambda x, y, s=strides, d=dilations: lax.reduce_window(
                (x, y), (F32(inf), F32(0)), _first_smaller, (2, 2), s, ((1, 0), (1, 1)), d
            ),
            table,
            data("f", 6, 7),
        )
    yield case(
        "sum-from-3",
        lambda x: lax.reduce_window(x, F32(3), lax.add, (2, 2), (1, 1), ((1, 1), (0, 1)), (1, 2)),
        data("f", 6, 7),
        near=SUMS,
    )


def _first_smaller(x: Any, y: Any) -> Any:
    keep = x[0] <= y[0]
    return tuple(jnp.where(keep, a, b) for a, b in zip(x, y, strict=True))


def _any_reduce() -> Iterator[Case]:
    """Reductions by functions of their own, of one operand or two."""

    def largest(x: Any, y: Any) -> Any:
        keep = (x[0] > y[0]) | ((x[0] == y[0]) & (x[1] < y[1]))
        return tuple(jnp.where(keep, a, b) for a, b in zip(x, y, strict=True))

    def joined(x: Any, y: Any) -> Any:
        return (x[0] + y[0] + x[0] * y[0],)

    def apart(x: Any, y: Any) -> Any:
        return lax.max(x[0], y[0]), lax.add(x[1], y[1])

    for letter in "iufg":
        x, y = small(letter, 5, 7), data("i", 5, 7)
        low = np.asarray(0 if letter == "u" else -100).astype(x.dtype)[()]
        finite = np.where(np.isfinite(x.astype(F32)), x, np.ones((), x.dtype))
        for axes in ((0,), (0, 1)):
            label = f"{NAMES[letter]}-{len(axes)}"
            yield case(
                f"largest-{label}", lambda x, y, s=low, a=axes: lax.reduce((x, y), (s, I32(0)), largest, a), finite, y
            )
            yield case(f"apart-{label}", lambda x, y, s=low, a=axes: lax.reduce((x, y), (s, I32(5)), apart, a), x, y)
    for letter in "iu":
        one = case(
            f"joined-{NAMES[letter]}",
            lambda x: lax.reduce((x,), (np.asarray(3, x.dtype)[()],), joined, (1,)),
            data(letter, 5, 7),
        )
        yield one
        yield vmapped(one)
    yield case("from-input", lambda x: lax.reduce((x,), (x[0, 0],), joined, (1,)), data("i", 5, 7))
    yield case("last", lambda x: lax.reduce(x, F32(0), lambda _, b: b, (0,)), data("f", 6, 7))
    yield case("bool", lambda x: lax.reduce(x, False, lambda a, b: a ^ b, (0,)), data("b", 6, 7))
    yield case("empty", lambda x: lax.reduce((x,), (F32(3),), joined, (0,)), data("f", 0, 3))


def _poolings() -> dict[str, list[Case]]:
    """Gradients and derivatives of poolings."""
    found: dict[str, list[Case]] = {"select_and_scatter_add": [], "select_and_gather_add": []}

    def pooled(x: Any, operator: Any, start: Any) -> Any:
        return lax.reduce_window(x, start, operator, (2, 3), (1, 2), ((1, 0), (1, 2)))

    for letter in "fg":
        x, y = small(letter, 5, 8), data(letter, 5, 8, seed=1)
        for name, operator, start in (("max", lax.max, -inf), ("min", lax.min, inf)):
            first = np.asarray(start).astype(x.dtype)[()]

            def pool(x: Any, operator: Any = operator, first: Any = first) -> Any:
                return pooled(x, operator, first)

            def back(x: Any, y: Any, pool: Any = pool) -> Any:
                return jax.vjp(pool, x)[1](pool(y))[0]

            label = f"{name}-{NAMES[letter]}"
            found["select_and_scatter_add"].append(case(label, back, x, y))
            # JAX picks one of several equal elements in an order that depends on strides and padding.
            distinct = np.random.default_rng(0).permutation(40).reshape(5, 8).astype(x.dtype)
            found["select_and_gather_add"].append(
                case(label, lambda x, y, f=pool: jax.jvp(f, (x,), (y,))[1], distinct, y)
            )
    for cases in found.values():
        cases.append(vmapped(cases[0]))
    return found


def _sort() -> Iterator[Case]:
    for letter in "fiubg":
        x = small(letter, 5, 7)
        for axis in (0, 1):
            yield case(f"axis{axis}-{NAMES[letter]}", lambda x, a=axis: lax.sort(x, dimension=a), x)
        yield case(f"pair-{NAMES[letter]}", _with_places, x)
        yield case(f"two-{NAMES[letter]}", _two_keys, x, small("i", 5, 7, seed=1), data("f", 5, 7))
    yield vmapped(case("values-float32", _with_places, small("f", 5, 7)))
    yield case("argsort", lambda x: (jnp.argsort(x, -1), jnp.argsort(x, 0, descending=True)), small("f", 5, 7))
    yield case("unsigned", lambda x: lax.sort(x), data("u", 40))
    yield case("whole-int32", lambda x: lax.sort(x), data("i", 40))
    yield case("empty", lambda x: lax.sort(x, dimension=0), data("f", 0, 3))
    yield case("rank4", lambda x: lax.sort(x, dimension=1), small("f", 2, 5, 2, 3))
    yield case("unstable", lambda x: lax.sort(x, is_stable=False), data("f", 9))


def _with_places(x: Any) -> Any:
    return lax.sort((x, lax.broadcasted_iota(np.int32, x.shape, 1)), dimension=1, num_keys=1)


def _two_keys(x: Any, y: Any, z: Any) -> Any:
    places = lax.broadcasted_iota(np.int32, x.shape, 1)
    return lax.sort((x, y, places, z), dimension=1, num_keys=2)


def _top_k() -> Iterator[Case]:
    for letter in "fiug":
        yield case(f"ties-{NAMES[letter]}", lambda x: lax.top_k(x, 3), small(letter, 5, 7))
        yield case(f"values-{NAMES[letter]}", lambda x: lax.top_k(x, 4), data(letter, 5, 40))
    yield vmapped(case("stacked", lambda x: lax.top_k(x, 2), small("f", 5, 7)))
    yield case("all", lambda x: lax.top_k(x, 7), small("f", 7))
    yield case("one", lambda x: lax.top_k(x, 1), small("f", 3, 7))


def _approximate_top_k() -> Iterator[Case]:
    """Of distinct numbers: of equal ones, JAX gives any."""
    for letter in "fhg":
        x = np.random.default_rng(0).permutation(3 * 40).reshape(3, 40).astype(DTYPES[letter]) - DTYPES[letter](60)
        yield case(f"largest-{NAMES[letter]}", lambda x: lax.approx_max_k(x, 4), x)
        yield case(f"smallest-{NAMES[letter]}", lambda x: lax.approx_min_k(x, 4, reduction_dimension=0), x[:, :20].T)
    yield vmapped(case("stacked", lambda x: lax.approx_max_k(x, 2), np.arange(12, dtype=F32).reshape(3, 4)))


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
    "nothing": ((0, 3), (3, 5), (((1,), (0,)), ((), ()))),
    "scalars": ((), (), (((), ()), ((), ()))),
    "rank6": ((2, 1, 2, 3, 2, 4), (2, 2, 4, 3), (((3, 5), (3, 2)), ((0, 4), (0, 1)))),
}


def _dot() -> Iterator[Case]:
    for letter in "fiug":
        for kind, (left, right, numbers) in DOTS.items():
            if letter not in "fi" and kind not in ("matrix", "batch", "transposed", "inner"):
                continue
            x, y = data(letter, *left), data(letter, *right, seed=1)
            one = case(f"{kind}-{NAMES[letter]}", lambda x, y, n=numbers: lax.dot_general(x, y, n), x, y, near=SUMS)
            yield one
            if letter in "fi" and kind in ("matrix", "batch", "transposed", "matrix_vector"):
                yield vmapped(one)
    large = (data("i", 3, 300), data("i", 300, 2, seed=1))
    yield case("wrap-int32", lambda x, y: x @ y, *large)
    for x, to in (("g", F32), ("h", F32)):
        args = data(x, 3, 4), data(x, 4, 5, seed=1)
        yield case(
            f"wider-{NAMES[x]}", lambda x, y, to=to: jnp.matmul(x, y, preferred_element_type=to), *args, near=SUMS
        )
    bytes_ = [data("i", *s, seed=k).astype(np.int8) for k, s in enumerate(((3, 4), (4, 5)))]
    yield case("wider-int8", lambda x, y: jnp.matmul(x, y, preferred_element_type=np.int32), *bytes_)
    batched = data("f", 2, 3, 4), data("f", 2, 5, 4)
    yield case("einsum", lambda x, y: jnp.einsum("bij,bkj->bik", x, y), *batched, near=SUMS)
    yield case("weights", lambda x: x @ data("f", 16, 8), data("f", 3, 16), near=SUMS)
    yield case("weights-transposed", lambda x: x @ data("f", 8, 16).T, data("f", 3, 16), near=SUMS)


CONVS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[str, str, str], dict[str, Any]]] = {
    "nhwc": ((2, 8, 9, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME"}),
    "nchw": ((2, 3, 8, 9), (4, 3, 3, 2), ("NCHW", "OIHW", "NCHW"), {"padding": "VALID", "window_strides": (2, 1)}),
    "1d": ((2, 8, 3), (3, 3, 4), ("NWC", "WIO", "NWC"), {"padding": [(2, 0)], "rhs_dilation": (2,)}),
    "3d": ((1, 4, 5, 6, 2), (2, 2, 2, 2, 3), ("NDHWC", "DHWIO", "NDHWC"), {"padding": "SAME"}),
    "strided": ((1, 16, 16, 3), (4, 4, 3, 8), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME", "window_strides": (2, 2)}),
    "groups": ((2, 8, 9, 4), (3, 3, 2, 6), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME", "feature_group_count": 2}),
    "depthwise": ((2, 8, 9, 4), (3, 3, 1, 4), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME", "feature_group_count": 4}),
    "batch_groups": ((4, 8, 9, 3), (3, 3, 3, 6), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME", "batch_group_count": 2}),
    "transposed": (
        (1, 4, 4, 3),
        (4, 4, 3, 5),
        ("NHWC", "HWIO", "NHWC"),
        {"padding": [(2, 2), (2, 2)], "lhs_dilation": (2, 2)},
    ),
    "negative": ((1, 6, 6, 3), (2, 2, 3, 5), ("NHWC", "HWIO", "NHWC"), {"padding": [(-1, 2), (0, -2)]}),
    "0d": ((2, 3), (3, 4), ("NC", "IO", "NC"), {"padding": []}),
}


def _conv() -> Iterator[Case]:
    near = Closeness(rtol=1e-5, atol=1e-5)
    for kind, (x, w, layout, options) in CONVS.items():

        def fn(x: Any, w: Any, layout: Any = layout, options: Any = options) -> Any:
            settings = {"window_strides": (1,) * (x.ndim - 2), **options}
            return lax.conv_general_dilated(x, w, dimension_numbers=layout, **settings)

        one = case(f"{kind}-float32", fn, data("f", *x), data("f", *w, seed=1), near=near)
        yield one
        if kind in ("nhwc", "1d", "groups"):
            yield vmapped(one)
    yield case("nhwc-bfloat16", _plain_conv, data("g", 2, 8, 9, 3), data("g", 3, 2, 3, 4, seed=1), near=near)
    yield case("nhwc-int32", _plain_conv, data("i", 1, 5, 5, 3), data("i", 3, 2, 3, 4, seed=1))
    yield case(
        "shared-weights", jax.vmap(_plain_conv, (0, None)), data("f", 2, 2, 5, 5, 3), data("f", 3, 3, 3, 4), near=near
    )


def _plain_conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _opaque() -> dict[str, list[Case]]:
    """What JAX itself hands to libraries: refused, with the name of the call."""
    square = data("f", 4, 4)
    return {
        "eigh": [case("matrix", lambda x: lax.linalg.eigh(x @ x.T)[1], square, near=SUMS)],
        "fft": [case("real", lambda x: jnp.fft.rfft(x).real, square, near=SUMS)],
    }


def rows() -> dict[str, list[Case]]:
    found = {name: list(_reduce(name)) for name in REDUCE}
    found |= {name: list(_cumulative(name)) for name in CUMULATIVE}
    found |= _opaque() | _poolings()
    found |= {
        "approx_top_k": list(_approximate_top_k()),
        "argmax": list(_arg(lax.argmax)),
        "argmin": list(_arg(lax.argmin)),
        "conv_general_dilated": list(_conv()),
        "dot_general": list(_dot()),
        "reduce": list(_any_reduce()),
        "reduce_window": list(_any_window()),
        "reduce_window_max": list(_window(lax.max, (-inf, -(2**31), 0))),
        "reduce_window_min": list(_window(lax.min, (inf, 2**31 - 1, 2**32 - 1))),
        "reduce_window_sum": list(_window(lax.add, (0, 0, 0))),
        "sort": list(_sort()),
        "top_k": list(_top_k()),
    }
    return found
