"""How each primitive is done on pairs of floats: the table that `split` works by.

An entry is (equation) -> a function of the equation's operands, complex ones as float[..., 2], real ones as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from opcompat import jaxcompat
from opcompat.complexes import arithmetic as cx
from opcompat.complexes.fft import fft
from opcompat.keys import STRUCTURAL


def is_complex(aval: Any) -> bool:
    """Whether an aval's dtype is complex."""
    return not jaxcompat.is_key(aval.dtype) and bool(jnp.issubdtype(aval.dtype, jnp.complexfloating))


def part_dtype(dtype: Any) -> Any:
    """The dtype of the parts of a complex dtype."""
    return np.dtype(np.float64 if np.dtype(dtype) == np.complex128 else np.float32)


def _function(form: Callable[..., cx.Pair]) -> Callable[[Any], Callable[..., Any]]:
    """A form on parts, (re, im) of each operand -> (re, im), as a function of pairs, of real operands too."""

    def of(eqn: Any) -> Callable[..., Any]:
        dtype, shape = part_dtype(eqn.outvars[0].aval.dtype), eqn.outvars[0].aval.shape

        def parts(x: Any, var: Any) -> cx.Pair:
            if not is_complex(var.aval):
                re = lax.convert_element_type(x, dtype)
                return _spread(re, shape), lax.full(shape, 0, dtype)
            re, im = cx.parts(x)
            return _spread(re, shape), _spread(im, shape)

        return lambda *xs: cx.pair(*form(*(parts(x, v) for x, v in zip(xs, eqn.invars, strict=True))))

    return of


def _spread(x: Any, shape: tuple[int, ...]) -> Any:
    """Primitives take operands with ones where the result has more."""
    return x if x.shape == shape else lax.broadcast_in_dim(x, shape, range(len(shape)) if x.ndim else ())


def _bilinear(eqn: Any) -> Callable[..., Any]:
    """Products of two operands, of which one may be real: dot_general and convolutions."""
    params = dict(eqn.params)
    if params.get("preferred_element_type") is not None:
        params["preferred_element_type"] = part_dtype(eqn.outvars[0].aval.dtype)
    left, right = (is_complex(v.aval) for v in eqn.invars)

    def times(x: Any, y: Any) -> Any:
        return eqn.primitive.bind(x, y, **params)

    def run(a: Any, b: Any) -> Any:
        if left and right:
            return cx.pair(*cx.product(cx.parts(a), cx.parts(b), times))
        if left:
            return cx.pair(*(times(x, b) for x in cx.parts(a)))
        return cx.pair(*(times(a, y) for y in cx.parts(b)))

    return run


def _complex(eqn: Any) -> Callable[..., Any]:
    shape = eqn.outvars[0].aval.shape
    return lambda re, im: cx.pair(_spread(re, shape), _spread(im, shape))


def _convert(eqn: Any) -> Callable[..., Any]:
    """To complex, a zero imaginary part; from complex, the real part alone, as JAX."""
    new = np.dtype(eqn.params["new_dtype"])
    from_complex, to_complex = is_complex(eqn.invars[0].aval), jnp.issubdtype(new, jnp.complexfloating)

    def run(x: Any) -> Any:
        if from_complex and to_complex:
            return lax.convert_element_type(x, part_dtype(new))
        if to_complex:
            re = lax.convert_element_type(x, part_dtype(new))
            return cx.pair(re, lax.full_like(re, 0))
        return lax.convert_element_type(cx.parts(x)[0], new)

    return run


def _compare(equal: bool) -> Callable[[Any], Callable[..., Any]]:
    def run(a: Any, b: Any) -> Any:
        (x, y), (c, d) = cx.parts(a), cx.parts(b)
        if equal:
            return lax.bitwise_and(lax.eq(x, c), lax.eq(y, d))
        return lax.bitwise_or(lax.ne(x, c), lax.ne(y, d))

    return lambda eqn: run


def _iota(eqn: Any) -> Callable[..., Any]:
    params = {**eqn.params, "dtype": part_dtype(eqn.params["dtype"])}

    def run() -> Any:
        re = eqn.primitive.bind(**params)
        return cx.pair(re, lax.full_like(re, 0))

    return run


def _scanned(eqn: Any) -> Callable[..., Any]:
    """A running product."""
    axis, reverse = eqn.params["axis"], eqn.params["reverse"]

    def run(x: Any) -> Any:
        return cx.pair(*lax.associative_scan(cx.product, cx.parts(x), reverse=reverse, axis=axis))

    return run


def _reduced(eqn: Any) -> Callable[..., Any]:
    """The product over axes, halves at a time."""
    axes = tuple(eqn.params["axes"])

    def run(x: Any) -> Any:
        kept = [d for d in range(x.ndim - 1) if d not in axes]
        moved = lax.transpose(x, (*axes, *kept, x.ndim - 1))
        count = math.prod(x.shape[d] for d in axes)
        z = cx.parts(lax.reshape(moved, (count, *moved.shape[len(axes) :])))
        while (n := z[0].shape[0]) > 1:
            low, high, rest = (_rows(z, *ends) for ends in ((0, n // 2), (n // 2, n // 2 * 2), (n // 2 * 2, n)))
            re, im = cx.product(low, high)
            z = lax.concatenate([re, rest[0]], 0), lax.concatenate([im, rest[1]], 0)
        if not z[0].shape[0]:
            shape = z[0].shape[1:]
            return cx.pair(lax.full(shape, 1, z[0].dtype), lax.full(shape, 0, z[0].dtype))
        return cx.pair(*(lax.squeeze(p, (0,)) for p in z))

    return run


def _rows(z: cx.Pair, start: int, stop: int) -> cx.Pair:
    return lax.slice_in_dim(z[0], start, stop), lax.slice_in_dim(z[1], start, stop)


def _conjugate(eqn: Any) -> Callable[..., Any]:
    """Of a real operand, too: its imaginary part is zero."""
    if is_complex(eqn.invars[0].aval):
        return _function(lambda z: (z[0], lax.neg(z[1])))(eqn)
    return lambda x: cx.pair(x, lax.full_like(x, -0.0))


def _part(index: int) -> Callable[[Any], Callable[..., Any]]:
    return lambda eqn: lambda x: cx.parts(x)[index]


ALIKE = STRUCTURAL | frozenset(
    {"add", "add_any", "cumsum", "neg", "reduce_sum", "reduce_window_sum", "scatter-add", "sub"}
)
"""Primitives that do the same to both parts."""

FORMS: Mapping[str, Callable[[Any], Callable[..., Any] | None]] = {
    "abs": lambda eqn: lambda x: cx.magnitude(cx.parts(x)),
    "complex": _complex,
    "conj": _conjugate,
    "conv_general_dilated": _bilinear,
    "convert_element_type": _convert,
    "cos": _function(cx.cos),
    "cosh": _function(cx.cosh),
    "cumprod": _scanned,
    "div": _function(cx.quotient),
    "dot_general": _bilinear,
    "eq": _compare(True),
    "exp": _function(cx.exp),
    "expm1": _function(cx.expm1),
    "fft": fft,
    "imag": _part(1),
    "integer_pow": lambda eqn: lambda x: cx.pair(*cx.power(cx.parts(x), eqn.params["y"])),
    "iota": _iota,
    "log": _function(cx.log),
    "logistic": _function(cx.logistic),
    "mul": _function(cx.product),
    "ne": _compare(False),
    "pow": _function(cx.raised),
    "real": _part(0),
    "reduce_prod": _reduced,
    "rsqrt": _function(lambda z: cx.reciprocal(cx.sqrt(z))),
    "sign": _function(cx.sign),
    "sin": _function(cx.sin),
    "sinh": _function(cx.sinh),
    "sqrt": _function(cx.sqrt),
    "square": _function(lambda z: cx.product(z, z)),
    "tan": _function(cx.tan),
    "tanh": _function(cx.tanh),
}
