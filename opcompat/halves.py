"""Computes half precision in float32, rounding after every equation, as JAX's reference on the CPU does.

Every float16 and bfloat16 value becomes a float32 that a half-precision number could hold. An equation is done
in float32 and its result rounded by a pair of casts, which both runtimes do exactly (`reduce_precision` is wrong
on float16's denormals). For single operations that is right: float32 has more than twice the digits, so rounding
twice rounds once. Primitives that JAX or XLA take apart before rounding (a power is a chain of products, each
rounded) are taken apart the same way here.

Inputs, outputs and parameters keep their dtype: a parameter is stored in half precision and cast when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax import lax
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.inline import IDENTITIES, inline
from opcompat.retype import Retyping, as_is, bind, retype, retype_whole
from opcompat.stablehlo import decompose

RULE = "OC210"
"""Stands in the provenance of everything that this pass emits."""

EXACT = IDENTITIES | frozenset(
    {
        "abs",
        "broadcast_in_dim",
        "concatenate",
        "cummax",
        "cummin",
        "dynamic_slice",
        "dynamic_update_slice",
        "expand_dims",
        "gather",
        "max",
        "min",
        "neg",
        "reduce_max",
        "reduce_min",
        "reduce_precision",
        "reshape",
        "rev",
        "scatter",
        "select_n",
        "sign",
        "slice",
        "sort",
        "split",
        "squeeze",
        "stack",
        "top_k",
        "transpose",
        "unstack",
    }
)
"""Primitives whose results are among their operands (or small integers): nothing to round."""

BY_BITS = frozenset({"bitcast_convert_type", "nextafter"})
"""Primitives that mean the half-precision format itself: done on real halves, between casts."""


def _logistic(x: Any) -> Any:
    """XLA's expansion: every step is rounded."""
    one = lax.full_like(x, 1)
    return lax.div(one, lax.add(one, lax.exp(lax.neg(x))))


APART: Mapping[str, Callable[..., Any] | None] = {
    "logistic": _logistic,
    "integer_pow": None,
    "exp2": None,
    "asinh": None,
    "atanh": None,
    "acosh": None,
}
"""Primitives that are taken apart before rounding: by a function here, or by JAX's own lowering."""


def is_half(aval: Any) -> bool:
    return str(aval.dtype) in ("float16", "bfloat16")


def widen(closed: Any) -> Any:
    """The closed jaxpr (calls dissolved, keys erased) with float32 arithmetic in place of half precision."""
    return retype(closed, _HALVES)


def _in_float32(eqn: Any) -> Callable[..., list[Any]]:
    """A function of float32 operands that does what the equation does in half precision."""
    name = eqn.primitive.name
    if name in BY_BITS:
        return as_is(eqn, _HALVES)
    if name in APART:
        return _apart(eqn)
    params = _HALVES.params(eqn.params)
    rounds = [v.aval.dtype if is_half(v.aval) and name not in EXACT else None for v in eqn.outvars]

    def run(*operands: Any) -> list[Any]:
        outs = bind(eqn, list(operands), params)
        return [x if dtype is None else _round(x, dtype) for x, dtype in zip(outs, rounds, strict=True)]

    return run


def _round(x: Any, dtype: Any) -> Any:
    return lax.convert_element_type(lax.convert_element_type(x, dtype), np.float32)


def _apart(eqn: Any) -> Callable[..., list[Any]]:
    """The primitive's expansion in half precision, every step of it widened."""
    avals = [jaxcompat.shape_dtype(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    function = APART[eqn.primitive.name] or decompose(lambda *xs: eqn.primitive.bind(*xs, **eqn.params), *avals)
    wide = retype_whole(inline(jaxcompat.trace(function, avals)), _HALVES)
    return lambda *operands: list(jexc.jaxpr_as_fun(wide)(*operands))


_HALVES = Retyping(RULE, {"float16": "float32", "bfloat16": "float32"}, _in_float32)
