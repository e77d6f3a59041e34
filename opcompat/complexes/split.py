"""Computes with complex numbers as pairs of floats: one more axis, the last, of a real and an imaginary part.

No runtime has kernels for complex numbers. Every complex64[...] becomes a float32[..., 2], every complex128[...] a
float64[..., 2], in bodies too. Data movement and sums act on both parts alike: they are a `vmap` over the new axis.
Products are four real ones. Elementary functions follow the textbook (Abramowitz and Stegun, chapter 4), scaled where a
square would overflow; what has no form here is taken apart by JAX's own lowering, and what that does not resolve
stays as it is, for the target to refuse.

The interface of a traced function is in pairs already: see `pairs_of` and `from_pairs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from opcompat import jaxcompat
from opcompat.complexes import arithmetic as cx
from opcompat.complexes.forms import ALIKE, FORMS, is_complex, part_dtype
from opcompat.editor import Editor
from opcompat.inline import bodies, inline, map_bodies
from opcompat.provenance import mark_rule
from opcompat.stablehlo import Undecomposable, decompose

RULE = "OC225"
"""Stands in the provenance of everything that this pass emits."""


def pairs_of(x: Any) -> Any:
    """A complex array[...] as a float array[..., 2]; any other as it is."""
    return jnp.stack([jnp.real(x), jnp.imag(x)], -1) if hasattr(x, "dtype") and is_complex(x) else x


def from_pairs(x: Any) -> Any:
    """A float array[..., 2] as a complex array[...]."""
    return lax.complex(*cx.parts(x))


def split_complex(closed: Any) -> Any:
    """The closed jaxpr (calls dissolved) with pairs of floats wherever there was a complex number."""
    if not _mentions(closed):
        return closed
    editor = Editor(_without_literals(closed))
    for var, value in zip(editor.parts.constvars, editor.parts.consts, strict=True):
        if is_complex(var.aval):
            editor.retype(var, _aval(var.aval))
            editor.set_const(var, np.stack([np.real(value), np.imag(value)], -1))
    for var in editor.parts.invars:
        if is_complex(var.aval):
            editor.retype(var, _aval(var.aval))
    for eqn in editor.parts.eqns:
        _edit(editor, eqn)
    return editor.finish()


def _edit(editor: Editor, eqn: Any) -> None:
    if list(bodies(eqn)):
        for var in eqn.outvars:
            if is_complex(var.aval):
                editor.retype(var, _aval(var.aval))
        editor.keep(eqn, params=map_bodies(eqn.params, lambda body, _: split_complex(body)))
    elif any(is_complex(v.aval) for v in (*eqn.invars, *eqn.outvars)):
        operands = [editor.read(v) for v in eqn.invars]
        with eqn.ctx.manager:
            body = inline(jaxcompat.trace(_in_pairs(eqn), [v.aval for v in operands]))
        editor.splice(eqn, body, operands, mark_rule(eqn.source_info, RULE))
    else:
        editor.keep(eqn)


def _mentions(closed: Any) -> bool:
    p = jaxcompat.parts(closed)
    if any(is_complex(v.aval) for v in (*p.constvars, *p.invars, *p.outvars)):
        return True
    return any(any(is_complex(v.aval) for v in e.outvars) or any(_mentions(b) for _, b in bodies(e)) for e in p.eqns)


def _aval(aval: Any) -> Any:
    return jax.typeof(jax.eval_shape(lambda: jnp.zeros((*aval.shape, 2), part_dtype(aval.dtype))))


def _without_literals(closed: Any) -> Any:
    """The same with complex literals as constants, which can change their shape."""
    p = jaxcompat.parts(closed)
    consts: dict[Any, Any] = dict(zip(p.constvars, p.consts, strict=True))

    def named(atom: Any) -> Any:
        if not (jaxcompat.is_literal(atom) and is_complex(atom.aval)):
            return atom
        var = jaxcompat.new_var(atom.aval)
        consts[var] = np.asarray(atom.val, atom.aval.dtype)
        return var

    eqns = tuple(e.replace(invars=[named(v) for v in e.invars]) for e in p.eqns)
    outvars = tuple(named(v) for v in p.outvars)
    return jaxcompat.build(
        closed, p._replace(constvars=tuple(consts), consts=tuple(consts.values()), eqns=eqns, outvars=outvars)
    )


def _in_pairs(eqn: Any) -> Callable[..., Any]:
    """A function of pairs (and real operands as they are) that does what the equation does."""
    name = eqn.primitive.name
    if name in ALIKE:
        return _alike(eqn)
    if name in FORMS:
        return FORMS[name](eqn) or _as_is(eqn)
    return _apart(eqn)


def _alike(eqn: Any) -> Callable[..., Any]:
    """Both parts by the equation's own primitive."""
    own = {k: v for k, v in eqn.params.items() if k in _SCATTERING}

    def bind(*operands: Any) -> Any:
        # A scatter's params hold its combiner, for complex numbers: the public functions make one for floats.
        if eqn.primitive.name == "scatter":
            return lax.scatter(*operands, **own)
        if eqn.primitive.name == "scatter-add":
            return lax.scatter_add(*operands, **own)
        return eqn.primitive.bind(*operands, **eqn.params)

    axes = tuple(-1 if is_complex(v.aval) else None for v in eqn.invars)
    return jax.vmap(bind, in_axes=axes, out_axes=-1)


_SCATTERING = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")


def _apart(eqn: Any) -> Callable[..., Any]:
    """JAX's own lowering of the primitive, in pairs; the primitive itself if that is no simpler."""
    avals = [jaxcompat.shape_dtype(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    try:
        simpler = inline(jaxcompat.trace(decompose(lambda *xs: eqn.primitive.bind(*xs, **eqn.params), *avals), avals))
    except Undecomposable:
        return _as_is(eqn)
    if any(e.primitive.name not in (ALIKE | FORMS.keys()) for e in _complex_equations(simpler)):
        return _as_is(eqn)
    split = split_complex(simpler)
    return lambda *operands: list(jax.extend.core.jaxpr_as_fun(split)(*operands))


def _complex_equations(closed: Any) -> list[Any]:
    found = []
    for eqn in jaxcompat.parts(closed).eqns:
        inner = list(bodies(eqn))
        for _, body in inner:
            found += _complex_equations(body)
        if not inner and any(is_complex(v.aval) for v in (*eqn.invars, *eqn.outvars)):
            found.append(eqn)
    return found


def _as_is(eqn: Any) -> Callable[..., Any]:
    """The equation on complex numbers, which every target refuses."""

    def run(*operands: Any) -> list[Any]:
        own = [from_pairs(x) if is_complex(v.aval) else x for x, v in zip(operands, eqn.invars, strict=True)]
        outs = eqn.primitive.bind(*own, **eqn.params)
        return [pairs_of(x) for x in (outs if eqn.primitive.multiple_results else [outs])]

    return run
