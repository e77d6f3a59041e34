"""Computes with other dtypes than a jaxpr has, bodies included; its inputs, outputs and parameters keep theirs.

Two passes are instances: half precision in float32 (`halves`), and 64-bit values in 32 bits (`narrowing`). Each
says what a dtype becomes and how one equation is done in the new dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.editor import Editor
from opcompat.inline import BODIES, bodies, inline, map_bodies
from opcompat.provenance import mark_rule

_literal: Any = jexc.Literal  # untyped in JAX


@dataclass(frozen=True)
class Retyping:
    """What changes: `dtypes` maps names of dtypes, `equation` gives the function that does an equation with operands
    of the new dtypes and returns a list of results of the new dtypes. `rule` marks what is emitted.
    """

    rule: str
    dtypes: Mapping[str, str]
    equation: Callable[[Any], Callable[..., list[Any]]]

    def applies(self, aval: Any) -> bool:
        return str(aval.dtype) in self.dtypes

    def aval(self, aval: Any) -> Any:
        """The aval in the new dtype."""
        if not self.applies(aval):
            return aval
        dtype = jnp.dtype(self.dtypes[str(aval.dtype)])
        return jax.typeof(jax.eval_shape(lambda: jnp.zeros(aval.shape, dtype)))

    def params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Params with the new dtypes in place of the old, in the body of a reduction too."""

        def change(value: Any) -> Any:
            if isinstance(value, np.dtype | type) and str(jnp.dtype(value)) in self.dtypes:
                return jnp.dtype(self.dtypes[str(jnp.dtype(value))])
            return value

        new = {name: change(value) for name, value in params.items()}
        if not jaxcompat.is_jaxpr(new.get("jaxpr")):
            return new
        return jaxcompat.with_combiner(new, retype_whole(inline(jaxcompat.combiner(new)), self))


def retype(closed: Any, retyping: Retyping) -> Any:
    """The closed jaxpr (calls dissolved, keys erased) computing in the new dtypes, with the old interface."""
    return _retype(closed, retyping, own=False) if _mentions(closed, retyping) else closed


def retype_whole(closed: Any, retyping: Retyping) -> Any:
    """The same with inputs and outputs in the new dtypes, too."""
    return _retype(closed, retyping, own=True)


def as_is(eqn: Any, retyping: Retyping) -> Callable[..., list[Any]]:
    """An equation done in its old dtypes, between casts."""
    dtypes = [v.aval.dtype for v in eqn.invars]

    def run(*operands: Any) -> list[Any]:
        own = [lax.convert_element_type(x, dtype) for x, dtype in zip(operands, dtypes, strict=True)]
        return [lax.convert_element_type(x, retyping.aval(x).dtype) for x in bind(eqn, own, eqn.params)]

    return run


def bind(eqn: Any, operands: list[Any], params: Mapping[str, Any]) -> list[Any]:
    """The equation's primitive applied to operands; always a list."""
    outs = eqn.primitive.bind(*operands, **params)
    return list(outs) if eqn.primitive.multiple_results else [outs]


def _mentions(closed: Any, retyping: Retyping) -> bool:
    p = jaxcompat.parts(closed)
    own = any(retyping.applies(v.aval) for v in (*p.constvars, *p.invars))
    return own or any(
        any(retyping.applies(v.aval) for v in (*e.invars, *e.outvars))
        or any(_mentions(body, retyping) for _, body in bodies(e))
        for e in p.eqns
    )


def _retype(closed: Any, retyping: Retyping, own: bool) -> Any:
    """`own`: whether inputs and outputs have the new dtypes (bodies), or keep theirs (entry points)."""
    retyper = _Retyper(closed, retyping)
    if own:
        for var in retyper.editor.parts.invars:
            if retyping.applies(var.aval):
                retyper.editor.retype(var, retyping.aval(var.aval))
    for eqn in retyper.editor.parts.eqns:
        retyper.edit(eqn)
    return retyper.finish(own)


class _Retyper:
    def __init__(self, closed: Any, retyping: Retyping) -> None:
        self.editor = Editor(closed)
        self.retyping = retyping
        self._converted: dict[Any, Any] = {}

    def edit(self, eqn: Any) -> None:
        if eqn.primitive.name in BODIES:
            operands = [self.read(v, eqn) for v in eqn.invars]
            for var in eqn.outvars:
                if self.retyping.applies(var.aval):
                    self.editor.retype(var, self.retyping.aval(var.aval))
            self.editor.keep(eqn, params=map_bodies(eqn.params, lambda body, _: _retype(body, self.retyping, own=True)))
            self.editor.eqns[-1] = self.editor.eqns[-1].replace(invars=operands)
        elif any(self.retyping.applies(v.aval) for v in (*eqn.invars, *eqn.outvars)):
            operands = [self.read(v, eqn) for v in eqn.invars]
            with eqn.ctx.manager:
                body = inline(jaxcompat.trace(self.retyping.equation(eqn), [v.aval for v in operands]))
            self.editor.splice(eqn, body, operands, mark_rule(eqn.source_info, self.retyping.rule))
        else:
            self.editor.keep(eqn)

    def read(self, atom: Any, eqn: Any) -> Any:
        """An operand in its new dtype: a literal as such, an input or constant by a cast, once."""
        if jaxcompat.is_literal(atom):
            return self.literal(atom)
        new = self.editor.read(atom)
        if not self.retyping.applies(new.aval):
            return new
        if new not in self._converted:
            cast = _cast(new, self.retyping.aval(new.aval))
            info = mark_rule(eqn.source_info, self.retyping.rule)
            self.editor.eqns.append(cast.replace(source_info=info))
            self._converted[new] = cast.outvars[0]
        return self._converted[new]

    def literal(self, atom: Any) -> Any:
        if not self.retyping.applies(atom.aval):
            return atom
        new = self.retyping.aval(atom.aval)
        return _literal(np.asarray(atom.val).astype(new.dtype)[()], new)

    def finish(self, own: bool) -> Any:
        closed = self.editor.finish()
        p = jaxcompat.parts(closed)
        outvars, casts = list(p.outvars), []
        for index, (old, new) in enumerate(zip(self.editor.parts.outvars, p.outvars, strict=True)):
            if not self.retyping.applies(old.aval):
                continue
            wanted = self.retyping.aval(old.aval) if own else old.aval
            if jaxcompat.is_literal(new):
                outvars[index] = self.literal(new) if own else new
            elif new.aval.dtype != wanted.dtype:
                casts.append(_cast(new, wanted))
                outvars[index] = casts[-1].outvars[0]
        return jaxcompat.build(closed, p._replace(outvars=tuple(outvars), eqns=(*p.eqns, *casts)))


def _cast(atom: Any, aval: Any) -> Any:
    """An equation that casts `atom` to the dtype of `aval`."""
    traced = jaxcompat.trace(lambda x: lax.convert_element_type(x, aval.dtype), [atom.aval])
    template = jaxcompat.parts(traced).eqns[0]
    return template.replace(invars=[atom], outvars=[jaxcompat.new_var(aval)])
