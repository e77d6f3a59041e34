"""Rows of elementwise primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint
from jax.extend.core import primitives as prims

from .harness import ELEMENTARY, EXACT, ROUNDED, SUMS, Case, Closeness, case
from .values import (
    BF16,
    DENORMALS,
    DTYPES,
    F32,
    FLOATS,
    I32,
    NAMES,
    SHAPES,
    U32,
    boundary,
    data,
    elements,
    inf,
    nan,
    pairs,
)


class Unary(NamedTuple):
    function: Callable[..., Any]
    letters: str = "fhg"
    near: Closeness = EXACT
    values: np.ndarray | None = None


ARITHMETIC = "fiuhg"
ALL = "fiubhg"

UNARY: dict[str, Unary] = {
    "abs": Unary(lax.abs, "fihg"),
    "acos": Unary(lax.acos, "fg", ELEMENTARY),
    "acosh": Unary(lax.acosh, "fg", ELEMENTARY),
    "asin": Unary(lax.asin, "fg", ELEMENTARY),
    "asinh": Unary(lax.asinh, "fg", ELEMENTARY),
    "atan": Unary(lax.atan, "fg", ELEMENTARY),
    "atanh": Unary(lax.atanh, "fg", ELEMENTARY),
    "cbrt": Unary(lax.cbrt, "fg", ELEMENTARY),
    "ceil": Unary(lax.ceil),
    "clz": Unary(lax.clz, "iu"),
    "copy": Unary(jnp.copy, ALL),
    "cos": Unary(lax.cos, "fhg", ELEMENTARY),
    "cosh": Unary(lax.cosh, "fg", ELEMENTARY),
    "device_put": Unary(jax.device_put, "fi"),
    "digamma": Unary(lax.digamma, "f", SUMS, np.linspace(0.25, 20, 80, dtype=F32)),
    "erf": Unary(lax.erf, "fhg", ELEMENTARY),
    "erf_inv": Unary(
        lax.erf_inv,
        "fhg",
        ELEMENTARY,
        np.concatenate(
            [
                np.array([0, -0.0, 1, -1, 0.99999994, -0.99999994, 1.5, inf, nan, 1e-30, 1e-7], F32),
                np.linspace(-1, 1, 201, dtype=F32),
            ]
        ),
    ),
    "erfc": Unary(lax.erfc, "fg", ELEMENTARY),
    "exp": Unary(lax.exp, "fhg", ELEMENTARY),
    "exp2": Unary(lax.exp2, "fhg", ELEMENTARY),
    "expm1": Unary(lax.expm1, "fhg", ELEMENTARY),
    "floor": Unary(lax.floor),
    "is_finite": Unary(lax.is_finite),
    "lgamma": Unary(lax.lgamma, "f", SUMS, np.linspace(0.25, 20, 80, dtype=F32)),
    "log": Unary(lax.log, "fhg", ELEMENTARY),
    "log1p": Unary(lax.log1p, "fhg", ELEMENTARY),
    "logistic": Unary(lax.logistic, "fhg", ELEMENTARY),
    "name": Unary(lambda x: checkpoint_name(x, "x"), ALL),
    "neg": Unary(lax.neg, ARITHMETIC),
    "not": Unary(lax.bitwise_not, "iub"),
    "layout_constraint": Unary(lambda x: with_layout_constraint(x, Layout(tuple(range(x.ndim)))), "fi"),
    "optimization_barrier": Unary(lax.optimization_barrier, ALL),
    "population_count": Unary(lax.population_count, "iu"),
    "rsqrt": Unary(lax.rsqrt, "fhg", ELEMENTARY),
    "sharding_constraint": Unary(
        lambda x: lax.with_sharding_constraint(x, jax.sharding.SingleDeviceSharding(jax.devices()[0])), "fi"
    ),
    "sign": Unary(lax.sign, ARITHMETIC),
    "sin": Unary(lax.sin, "fhg", ELEMENTARY),
    "sinh": Unary(lax.sinh, "fg", ELEMENTARY),
    "sqrt": Unary(lax.sqrt, "fhg", ROUNDED),
    "square": Unary(lax.square, ARITHMETIC),
    "stop_gradient": Unary(lax.stop_gradient, ALL),
    "tan": Unary(lax.tan, "fg", ELEMENTARY),
    "tanh": Unary(lax.tanh, "fhg", ELEMENTARY),
}


def _over_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: [function(x) for x in xs]


def unary_row(name: str) -> Iterator[Case]:
    spec = UNARY[name]
    for letter in spec.letters:
        values = elements(letter) if spec.values is None else spec.values.astype(DTYPES[letter])
        yield case(f"values-{NAMES[letter]}", spec.function, values, near=spec.near)
    for letter in (x for x in spec.letters if x not in "hg"):
        arrays = [data(letter, *shape) for shape in SHAPES]
        yield case(f"ranks-{NAMES[letter]}", _over_shapes(spec.function), *arrays, near=spec.near)
    # Of denormals, XLA's own cube root is none.
    if "f" in spec.letters and spec.values is None and name != "cbrt":
        yield case("denormals", spec.function, DENORMALS, near=spec.near, denormals=True, signs=False)


class Binary(NamedTuple):
    function: Callable[..., Any]
    letters: str
    near: Closeness = EXACT


BINARY: dict[str, Binary] = {
    "add": Binary(lax.add, ARITHMETIC),
    "and": Binary(lax.bitwise_and, "iub"),
    "atan2": Binary(lax.atan2, "fg", ELEMENTARY),
    "div": Binary(lax.div, ARITHMETIC, ROUNDED),
    "eq": Binary(lax.eq, ALL),
    "ge": Binary(lax.ge, ALL),
    "gt": Binary(lax.gt, ALL),
    "le": Binary(lax.le, ALL),
    "lt": Binary(lax.lt, ALL),
    "max": Binary(lax.max, ALL),
    "min": Binary(lax.min, ALL),
    "mul": Binary(lax.mul, ARITHMETIC),
    "ne": Binary(lax.ne, ALL),
    "nextafter": Binary(lax.nextafter, "fhg"),
    "or": Binary(lax.bitwise_or, "iub"),
    "pow": Binary(lax.pow, "fg", ELEMENTARY),
    "rem": Binary(lax.rem, "fiu"),
    "shift_left": Binary(lax.shift_left, "iu"),
    "shift_right_arithmetic": Binary(lax.shift_right_arithmetic, "iu"),
    "shift_right_logical": Binary(lax.shift_right_logical, "iu"),
    "sub": Binary(lax.sub, ARITHMETIC),
    "xor": Binary(lax.bitwise_xor, "iub"),
    "eq_to": Binary(prims.eq_to_p.bind, "fiu"),
    "le_to": Binary(prims.le_to_p.bind, "fiu"),
    "lt_to": Binary(prims.lt_to_p.bind, "fiu"),
}

CONSTANTS: dict[str, list[Any]] = {
    "f": [0.0, -0.0, 1.0, -2.5, inf, -inf, nan],
    "i": [0, 1, -1, 7, 32, -(2**31)],
    "u": [0, 1, 7, 31, 32, 2**32 - 1],
    "b": [False, True],
}


def _with_constants(function: Callable[..., Any], letter: str) -> Callable[..., Any]:
    """The function with known operands on either side, as scalars and broadcast."""

    def run(x: Any) -> list[Any]:
        scalars = [np.asarray(c, x.dtype)[()] for c in CONSTANTS[letter]]
        full = [lax.full(x.shape, c, x.dtype) for c in scalars]
        return [y for c in full for y in (function(x, c), function(c, x))]

    return run


def _pairwise(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: [function(a, b) for a, b in zip(xs[::2], xs[1::2], strict=True)]


def _with_scalar(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: (function(x, y[:, None]), function(y[:1], x))


def binary_row(name: str) -> Iterator[Case]:
    spec = BINARY[name]
    for letter in spec.letters:
        yield case(f"pairs-{NAMES[letter]}", spec.function, *pairs(boundary(letter)), near=spec.near)
    for letter in (x for x in spec.letters if x not in "hg"):
        values = FLOATS if letter == "f" else boundary(letter)
        # XLA takes x + 0 and x - 0 for x, which keeps -0; by IEEE 754 the sum is +0.
        signs = name not in ("add", "sub")
        yield case(
            f"constants-{NAMES[letter]}", _with_constants(spec.function, letter), values, near=spec.near, signs=signs
        )
        arrays = [data(letter, *shape, seed=k) for shape in SHAPES for k in (0, 1)]
        yield case(f"ranks-{NAMES[letter]}", _pairwise(spec.function), *arrays, near=spec.near)
    if "f" in spec.letters and not name.endswith("_to"):
        x, y = pairs(np.concatenate([DENORMALS, np.array([0, 1, -2.5], F32)]))
        yield case("denormals", spec.function, x, y, near=spec.near, denormals=True, signs=False)


def _floors(x: Any, y: Any) -> tuple[Any, Any]:
    return jnp.floor_divide(x, y), jnp.mod(x, y)


def extra() -> dict[str, list[Case]]:
    """Rows, and parts of rows, that are not one function of one or two arrays."""
    nonzero = [a[pairs(boundary("i"))[1] != 0] for a in pairs(boundary("i"))]
    floats = [a[np.isfinite(pairs(FLOATS)[1])] for a in pairs(FLOATS)]
    classes = np.array([0, 1, 4, 5, -1, -5, 2**31 - 1, -(2**31)], I32)
    rows: dict[str, list[Case]] = {
        "div": [case("floor-int32", _floors, *nonzero)],
        "rem": [case("mod-float32", jnp.mod, *floats, near=ROUNDED)],
        "eq": [
            case("one_hot", lambda i: [jax.nn.one_hot(i, 5), jax.nn.one_hot(i, 5, dtype=np.int32, axis=0)], classes),
            case("one_hot-uint32", lambda i: jax.nn.one_hot(i, 5), classes.view(U32)),
        ],
        "add_any": [
            case(
                f"gradient-{NAMES[x]}",
                jax.grad(lambda v: jnp.sum(v * jnp.tanh(v), dtype=np.float32)),
                data(x, 7),
                near=ELEMENTARY,
            )
            for x in "fg"
        ],
        "integer_pow": [
            case(f"{y}-{NAMES[x]}", lambda v, y=y: lax.integer_pow(v, y), _powers(x), near=ROUNDED)
            for y in (0, 1, 2, 3, 7, -1, -2)
            for x in ("fiu" if y >= 0 else "f")
        ]
        + [case("3-bfloat16", lambda v: lax.integer_pow(v, 3), _powers("g"), near=ROUNDED)],
        "round": [
            case(f"{method.name.lower()}-{NAMES[x]}", lambda v, m=method: lax.round(v, m), elements(x))
            for method in (lax.RoundingMethod.AWAY_FROM_ZERO, lax.RoundingMethod.TO_NEAREST_EVEN)
            for x in "fhg"
        ],
        "pow": [
            case(
                "integers",
                lax.pow,
                np.array([2, -3, 1.5, 0, -0.0, inf, 10], F32),
                np.array([3, 3, 0, -1, -3, 2, -2], I32),
                near=ELEMENTARY,
            )
        ],
        "clamp": list(_clamp()),
        "select_n": list(_select()),
        "convert_element_type": list(_convert()),
        "bitcast_convert_type": [
            case("float32-int32", lambda x: lax.bitcast_convert_type(x, I32), elements("f")),
            case("float32-uint32", lambda x: lax.bitcast_convert_type(x, U32), elements("f")),
            case("int32-float32", lambda x: lax.bitcast_convert_type(x, F32), data("i", 64)),
            case("uint32-float32", lambda x: lax.bitcast_convert_type(x, F32), data("u", 64)),
            case("int32-uint32", lambda x: lax.bitcast_convert_type(x, U32), boundary("i")),
            case("uint32-int32", lambda x: lax.bitcast_convert_type(x, I32), boundary("u")),
            case("float16-uint16", lambda x: lax.bitcast_convert_type(x, np.uint16), boundary("h"), slow=True),
            case("unit", lambda x: lax.bitcast_convert_type(x >> U32(9) | U32(0x3F800000), F32) - 1, data("u", 64)),
        ],
        "reduce_precision": [
            case(f"{e}-{m}", lambda x, e=e, m=m: lax.reduce_precision(x, e, m), elements("f"))
            for e, m in ((8, 7), (8, 23), (5, 10))
        ],
        **_special(),
        "expand_dims": [case(f"ones-{NAMES[x]}", lambda v: v[None, :, None], data(x, 3)) for x in "fiub"],
    }
    return rows


def _special() -> dict[str, list[Case]]:
    """Functions that JAX itself takes apart, into loops of up to thousands of steps."""
    x, a = np.linspace(0.1, 6, 40, dtype=F32), np.linspace(0.5, 4, 40, dtype=F32)
    near = Closeness(rtol=1e-4, atol=1e-6)
    return {
        "bessel_i0e": [case("range", lax.bessel_i0e, x, near=near, slow=True)],
        "bessel_i1e": [case("range", lax.bessel_i1e, x, near=near, slow=True)],
        "igamma": [case("range", lax.igamma, a, x, near=near, slow=True)],
        "igammac": [case("range", lax.igammac, a, x, near=near, slow=True)],
        "regularized_incomplete_beta": [case("range", lax.betainc, a, x, x / F32(7), near=near, slow=True)],
    }


def _powers(letter: str) -> np.ndarray:
    """Values whose powers neither are denormals nor overflow where an order of products would show."""
    if letter in "iu":
        return boundary(letter)
    kept = [0, -0.0, 1, -1, 0.5, -2.5, 3, 1e-3, 100, inf, -inf, nan]
    return np.array(kept, F32).astype(DTYPES[letter])


def _clamp() -> Iterator[Case]:
    for letter in "fiuhg":
        values = boundary(letter)
        x, y = pairs(values)
        yield case(f"arrays-{NAMES[letter]}", lambda x, y: lax.clamp(y, x, lax.rev(y, (0,))), x, y)
    for letter in "fiu":
        yield case(f"constants-{NAMES[letter]}", _clamps(letter), boundary(letter))
        low, high = (boundary(letter)[k] for k in (4, 1))
        yield case(f"crossed-{NAMES[letter]}", lambda x, a, b: lax.clamp(a, x, b), boundary(letter), high, low)


def _clamps(letter: str) -> Callable[..., Any]:
    def run(x: Any) -> list[Any]:
        values = [np.asarray(c, x.dtype)[()] for c in CONSTANTS[letter]]
        return [lax.clamp(low, x, high) for low in values for high in values]

    return run


def _select() -> Iterator[Case]:
    for letter in "fiubhg":
        x, y = pairs(boundary(letter))
        yield case(f"mask-{NAMES[letter]}", lambda m, x, y: lax.select_n(m, x, y), data("b", x.size), x, y)
    for letter in "fiub":
        arrays = [data(letter, 2, 3, seed=k) for k in range(3)]
        which = np.array([[0, 1, 2], [2, 1, 0]], I32)
        yield case(f"index-{NAMES[letter]}", lambda w, *xs: lax.select_n(w, *xs), which, *arrays)
        yield case(f"scalar-{NAMES[letter]}", lambda w, x, y, _: lax.select_n(w[0, 0] == 0, x, y), which, *arrays)
        groups = [(data("b", *shape), data(letter, *shape), data(letter, *shape, seed=1)) for shape in SHAPES]
        yield case(f"ranks-{NAMES[letter]}", _selects, *(x for group in groups for x in group))


def _selects(*xs: Any) -> list[Any]:
    return [lax.select_n(*xs[i : i + 3]) for i in range(0, len(xs), 3)]


CONVERSIONS = {
    "common": (np.float32, np.int32, np.uint32, np.bool_),
    "half": (np.float16, BF16),
    "bytes": (np.int8, np.uint8),
    "words": (np.int16, np.uint16),
}


def _convert() -> Iterator[Case]:
    for letter in "fiubhg":
        values = boundary(letter)
        if letter in "fg":
            edges = [256, -129, 127.9, 255.9, 65536, -32769, 4.2e9, -0.9, 0.99999, 2147483520, 4294967040]
            values = np.concatenate([values, np.array(edges, F32).astype(DTYPES[letter])])
        for kind, dtypes in CONVERSIONS.items():
            yield case(
                f"{kind}-{NAMES[letter]}",
                lambda x, dtypes=dtypes: [lax.convert_element_type(x, d) for d in dtypes],
                values,
            )
    for kind, dtype in (("int8", np.int8), ("uint8", np.uint8), ("int16", np.int16), ("uint16", np.uint16)):
        limits = np.iinfo(dtype)
        values = np.array([limits.min, limits.max, 0, 1, limits.max - 1], dtype)
        yield case(f"from-{kind}", lambda x: [lax.convert_element_type(x, d) for d in CONVERSIONS["common"]], values)


def rows() -> dict[str, list[Case]]:
    found = {name: list(unary_row(name)) for name in UNARY}
    found.update({name: list(binary_row(name)) for name in BINARY})
    for name, cases in extra().items():
        found.setdefault(name, []).extend(cases)
    return found
