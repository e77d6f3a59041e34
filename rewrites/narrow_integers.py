"""Narrow integers as int32.

Before: arithmetic, comparisons, bits, reductions and moves on int8, int16, uint8 and uint16.

After: the same on int32, which holds all their values, and the result converted back, which wraps around. Operands
whose top bits matter (logical shifts, counts of bits) are taken as unsigned, those of arithmetic shifts as signed.

Why: runtimes have kernels for narrow integers mostly as quantized values, which they clip or scale.

Exactness: bit for bit, overflow, shifts by the width and division by zero included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site

_BY_VALUE = frozenset(
    {
        *("add", "sub", "mul", "div", "rem", "neg", "abs", "sign", "square", "integer_pow", "max", "min", "clamp"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "shift_left", "select_n"),
        *("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"),
        *("argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin", "dot_general", "top_k"),
        *("broadcast_in_dim", "concatenate", "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "pad"),
        *("reshape", "rev", "slice", "split", "squeeze", "stack", "transpose", "unstack"),
    }
)
_AS_UNSIGNED = frozenset({"shift_right_logical", "population_count", "clz"})
_AS_SIGNED = frozenset({"shift_right_arithmetic"})
_EMPTY_MATTERS = frozenset({"reduce_max", "reduce_min", "reduce_and"})
"""Reductions whose result for no elements depends on the dtype."""


def _is_narrow(dtype: np.dtype) -> bool:
    return dtype in (np.int8, np.int16, np.uint8, np.uint16)


def _widened(name: str, x: Array) -> Array:
    if not _is_narrow(x.dtype):
        return x
    kind = "uint" if name in _AS_UNSIGNED else "int" if name in _AS_SIGNED else ""
    own = lax.convert_element_type(x, np.dtype(f"{kind}{x.dtype.itemsize * 8}")) if kind else x
    return lax.convert_element_type(own, np.int32)


def _in_int32(eqn: Any) -> Callable[..., Any]:
    name, width = eqn.primitive.name, eqn.invars[0].aval.dtype.itemsize * 8
    results = [v.aval.dtype for v in eqn.outvars]
    params = dict(eqn.params)
    if params.get("preferred_element_type") is not None:
        params["preferred_element_type"] = np.dtype(np.int32)

    def run(*xs: Array) -> Any:
        outs = eqn.primitive.bind(*(_widened(name, x) for x in xs), **params)
        outs = list(outs) if eqn.primitive.multiple_results else [outs]
        if name == "clz":
            outs = [lax.sub(outs[0], lax.full_like(outs[0], 32 - width))]
        return tuple(lax.convert_element_type(x, dtype) for x, dtype in zip(outs, results, strict=True))

    return run


def apply(site: Site) -> Replacement | Declined | None:
    if not any(_is_narrow(v.aval.dtype) for v in site.operands):
        return None
    if any(jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in (*site.operands, *site.eqn.outvars)):
        return Declined("narrow integers together with floats")
    if site.name in _EMPTY_MATTERS and site.aval(0).size == 0:
        return Declined("a reduction of nothing")
    return site.replace(_in_int32(site.eqn))


_I8 = np.array([0, 1, -1, 2, 7, -7, 8, 127, -128, 100], np.int8)
_A8, _B8 = np.repeat(_I8, _I8.size), np.tile(_I8, _I8.size)
_A16, _B16 = _A8.astype(np.int16) * np.int16(257), _B8.astype(np.int16)

RULE = Rule(
    id="OC250",
    stage="legalize",
    primitives=_BY_VALUE | _AS_UNSIGNED | _AS_SIGNED,
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("add", lax.add, (_A8, _B8)),
        Example("mul", lax.mul, (_A16.view(np.uint16), _B16.view(np.uint16))),
        Example("div", lax.div, (_A8, _B8)),
        Example("rem", lax.rem, (_A8.view(np.uint8), _B8.view(np.uint8))),
        Example("logical shift", lax.shift_right_logical, (_A8, _B8)),
        Example("arithmetic shift", lax.shift_right_arithmetic, (_A16.view(np.uint16), _B16.view(np.uint16))),
        Example("left shift", lax.shift_left, (_A16, _B16)),
        Example("ones", lax.population_count, (_I8,)),
        Example("leading zeros", lax.clz, (_A16,)),
        Example("sum", lambda x: lax.reduce_sum(x, (0,)), (_A8,)),
        Example("product of matrices", lambda x: lax.dot(x.reshape(10, 10), x.reshape(10, 10)), (_A8,)),
        Example("largest", lambda x: lax.argmax(x, 0, np.int32), (_A8.view(np.uint8),)),
    ),
    declines=(
        Example("int32", lax.add, (_A8.astype(np.int32), _B8.astype(np.int32))),
        Example("nothing", lambda x: lax.reduce_max(x, (0,)), (_A8[:0],)),
    ),
)
