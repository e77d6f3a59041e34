"""Editing a jaxpr: equations are kept or replaced by the traced body of a JAX function, in one pass.

Splicing costs time in proportion to what changes; nothing else is traced again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.jaxcompat import Parts


class Editor:
    """Builds the edited form of one closed jaxpr. Feed it the equations of `parts` in order, then `finish`."""

    def __init__(self, closed: Any) -> None:
        self.closed = closed
        self.parts = jaxcompat.parts(closed)
        self.eqns: list[Any] = []
        self._env: dict[Any, Any] = {}
        self._consts: dict[Any, Any] = dict(zip(self.parts.constvars, self.parts.consts, strict=True))
        self._invars = list(self.parts.invars)

    def read(self, atom: Any) -> Any:
        """The new atom for an atom of the old jaxpr."""
        return atom if jaxcompat.is_literal(atom) else self._env.get(atom, atom)

    def retype(self, var: Any, aval: Any) -> None:
        """Gives a variable of the old jaxpr another type from here on (inputs, constants and results)."""
        if isinstance(var, jexc.DropVar):
            return
        self._env[var] = new = jaxcompat.new_var(aval)
        if var in self._consts:
            self._consts = {(new if v is var else v): value for v, value in self._consts.items()}
        self._invars = [new if v is var else v for v in self._invars]

    def set_const(self, var: Any, value: Any) -> None:
        self._consts[self.read(var)] = value

    def keep(self, eqn: Any, **changes: Any) -> None:
        """Appends the equation with its operands renamed, and `changes` to its other fields."""
        outvars = [v if isinstance(v, jexc.DropVar) else self._env.get(v, v) for v in eqn.outvars]
        self.eqns.append(eqn.replace(invars=[self.read(v) for v in eqn.invars], outvars=outvars, **changes))

    def splice(self, eqn: Any, body: Any, operands: Sequence[Any], source_info: Any) -> None:
        """Puts the equations of the closed jaxpr `body`, applied to `operands` (new atoms), in place of `eqn`.

        All of them get `source_info`. `body` must have one output per output of `eqn`, and no calls.
        """
        p = jaxcompat.parts(body)
        env: dict[Any, Any] = dict(zip(p.invars, operands, strict=True))
        for var, value in zip(p.constvars, p.consts, strict=True):
            env[var] = fresh = jaxcompat.new_var(var.aval)
            self._consts[fresh] = value

        def read(atom: Any) -> Any:
            return atom if jaxcompat.is_literal(atom) else env[atom]

        for inner in p.eqns:
            outvars = [v if isinstance(v, jexc.DropVar) else jaxcompat.new_var(v.aval) for v in inner.outvars]
            self.eqns.append(
                inner.replace(invars=[read(v) for v in inner.invars], outvars=outvars, source_info=source_info)
            )
            env.update(zip(inner.outvars, outvars, strict=True))
        for var, result in zip(eqn.outvars, p.outvars, strict=True):
            self._env[var] = read(result)

    def finish(self) -> Any:
        """The edited closed jaxpr. Constants are kept only if something uses them."""
        outvars = tuple(self.read(v) for v in self.parts.outvars)
        used = {v for e in self.eqns for v in e.invars if not jaxcompat.is_literal(v)}
        used.update(v for v in outvars if not jaxcompat.is_literal(v))
        consts = {v: value for v, value in self._consts.items() if v in used}
        return jaxcompat.build(
            self.closed,
            Parts(tuple(consts), tuple(consts.values()), tuple(self._invars), outvars, tuple(self.eqns)),
        )
