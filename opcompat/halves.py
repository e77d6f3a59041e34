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

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.editor import Editor
from opcompat.inline import bodies, inline, map_bodies
from opcompat.provenance import mark_rule
from opcompat.stablehlo import decompose

RULE = "OC210"
"""Stands in the provenance of everything that this pass emits."""

EXACT = frozenset(
    {
        "abs",
        "broadcast_in_dim",
        "concatenate",
        "copy",
        "copy_p",
        "cummax",
        "cummin",
        "dynamic_slice",
        "dynamic_update_slice",
        "expand_dims",
        "gather",
        "max",
        "min",
        "name",
        "neg",
        "optimization_barrier",
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
        "stop_gradient",
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
    return _widen(closed, retype_inputs=False) if _mentions(closed) else closed


def _mentions(closed: Any) -> bool:
    p = jaxcompat.parts(closed)
    own = any(is_half(v.aval) for v in (*p.constvars, *p.invars))
    return own or any(
        any(is_half(v.aval) for v in (*e.invars, *e.outvars)) or any(_mentions(b) for _, b in bodies(e))
        for e in p.eqns
    )


def _widen(closed: Any, retype_inputs: bool) -> Any:
    """`retype_inputs`: whether inputs and outputs are float32 too (bodies), or keep their dtype (entry points)."""
    widener = _Widener(closed)
    if retype_inputs:
        for var in widener.editor.parts.invars:
            if is_half(var.aval):
                widener.editor.retype(var, _wide(var.aval))
    for eqn in widener.editor.parts.eqns:
        widener.edit(eqn)
    return widener.finish(keep_outputs=not retype_inputs)


class _Widener:
    def __init__(self, closed: Any) -> None:
        self.editor = Editor(closed)
        self._converted: dict[Any, Any] = {}

    def edit(self, eqn: Any) -> None:
        if eqn.primitive.name in ("scan", "while", "cond"):
            operands = [self.read(v, eqn) for v in eqn.invars]
            for var in eqn.outvars:
                if is_half(var.aval):
                    self.editor.retype(var, _wide(var.aval))
            params = map_bodies(eqn.params, lambda body, _: _widen(body, retype_inputs=True))
            self.editor.keep(eqn, params=params)
            self.editor.eqns[-1] = self.editor.eqns[-1].replace(invars=operands)
        elif any(is_half(v.aval) for v in (*eqn.invars, *eqn.outvars)):
            operands = [self.read(v, eqn) for v in eqn.invars]
            with eqn.ctx.manager:
                body = inline(jaxcompat.trace(_in_float32(eqn), [v.aval for v in operands]))
            self.editor.splice(eqn, body, operands, mark_rule(eqn.source_info, RULE))
        else:
            self.editor.keep(eqn)

    def read(self, atom: Any, eqn: Any) -> Any:
        """The float32 form of an operand: a literal as such, a half-precision input by a cast, once."""
        if jaxcompat.is_literal(atom):
            wide = _wide(atom.aval)
            return jexc.Literal(np.asarray(atom.val, wide.dtype)[()], wide) if is_half(atom.aval) else atom
        new = self.editor.read(atom)
        if not is_half(new.aval):
            return new
        if new not in self._converted:
            cast = jaxcompat.trace(lambda x: lax.convert_element_type(x, np.float32), [new.aval])
            template = jaxcompat.parts(cast).eqns[0]
            var = jaxcompat.new_var(_wide(new.aval))
            info = mark_rule(eqn.source_info, RULE)
            self.editor.eqns.append(template.replace(invars=[new], outvars=[var], source_info=info))
            self._converted[new] = var
        return self._converted[new]

    def finish(self, keep_outputs: bool) -> Any:
        closed = self.editor.finish()
        p = jaxcompat.parts(closed)
        outvars, casts = list(p.outvars), []
        for index, (old, new) in enumerate(zip(self.editor.parts.outvars, p.outvars, strict=True)):
            if jaxcompat.is_literal(new):
                if is_half(new.aval) and not keep_outputs:
                    wide = _wide(new.aval)
                    outvars[index] = jexc.Literal(np.asarray(new.val, wide.dtype)[()], wide)
            elif is_half(old.aval) and keep_outputs != is_half(new.aval):
                cast = _cast(new, old.aval if keep_outputs else _wide(old.aval))
                casts.append(cast)
                outvars[index] = cast.outvars[0]
        return jaxcompat.build(closed, p._replace(outvars=tuple(outvars), eqns=(*p.eqns, *casts)))


def _cast(atom: Any, aval: Any) -> Any:
    """An equation that casts `atom` to the dtype of `aval`."""
    traced = jaxcompat.trace(lambda x: lax.convert_element_type(x, aval.dtype), [atom.aval])
    template = jaxcompat.parts(traced).eqns[0]
    return template.replace(invars=[atom], outvars=[jaxcompat.new_var(aval)])


def _wide(aval: Any) -> Any:
    if not is_half(aval):
        return aval
    return jax.typeof(jax.eval_shape(lambda: jnp.zeros(aval.shape, jnp.float32)))


def _in_float32(eqn: Any) -> Callable[..., Any]:
    """A function of float32 operands that does what the equation does in half precision."""
    name, halves = eqn.primitive.name, [is_half(v.aval) for v in eqn.invars]
    if name in BY_BITS:
        return _by_bits(eqn, halves)
    if name in APART:
        return _apart(eqn)
    params = {k: _float32(v) for k, v in eqn.params.items()}
    rounds = [v.aval.dtype if is_half(v.aval) and name not in EXACT else None for v in eqn.outvars]

    def run(*operands: Any) -> Any:
        outs = eqn.primitive.bind(*operands, **params)
        outs = outs if eqn.primitive.multiple_results else [outs]
        return [x if dtype is None else _round(x, dtype) for x, dtype in zip(outs, rounds, strict=True)]

    return run


def _float32(value: Any) -> Any:
    """A param with float32 where it names a half-precision dtype."""
    if isinstance(value, np.dtype | type) and str(jnp.dtype(value)) in ("float16", "bfloat16"):
        return np.dtype(np.float32)
    return value


def _round(x: Any, dtype: Any) -> Any:
    return lax.convert_element_type(lax.convert_element_type(x, dtype), np.float32)


def _by_bits(eqn: Any, halves: list[bool]) -> Callable[..., Any]:
    dtypes = [v.aval.dtype for v in eqn.invars]

    def run(*operands: Any) -> Any:
        own = [
            lax.convert_element_type(x, dtype) if half else x
            for x, dtype, half in zip(operands, dtypes, halves, strict=True)
        ]
        out = eqn.primitive.bind(*own, **eqn.params)
        return lax.convert_element_type(out, np.float32) if is_half(eqn.outvars[0].aval) else out

    return run


def _apart(eqn: Any) -> Callable[..., Any]:
    """The primitive's expansion in half precision, every step of it widened."""
    avals = [jaxcompat.shape_dtype(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    function = APART[eqn.primitive.name] or decompose(lambda *xs: eqn.primitive.bind(*xs, **eqn.params), *avals)
    in_half = inline(jaxcompat.trace(function, avals))
    wide = _widen(in_half, retype_inputs=True)
    return lambda *operands: jexc.jaxpr_as_fun(wide)(*operands)
