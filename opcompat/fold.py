"""Evaluates what does not depend on inputs or params: once, here, instead of at every step on the device."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.inline import BODIES, map_bodies
from opcompat.jaxcompat import Parts
from opcompat.reference import COMPILER_OPTIONS
from opcompat.rule import freeze

MAX_BYTES = 64 * 1024
"""Larger results are computed on the device: a file should not grow by what an op makes."""

SPLAT_SIZE = 16
"""A scalar broadcast to more elements than this stays a broadcast, which element-wise ops do by themselves."""


def fold(closed: Any) -> Any:
    """The closed jaxpr with constants in place of equations that depend on nothing else, in bodies too.

    Equal ones are evaluated once: rules leave the same constants at every site, and XLA takes more than twice as
    long for twice as many.
    """
    p = jaxcompat.parts(closed)
    # A function that is rewritten under grad or vmap may close over values that are not known yet.
    concrete = [(v, c) for v, c in zip(p.constvars, p.consts, strict=True) if not isinstance(c, jax.core.Tracer)]
    known: set[Any] = {v for v, _ in concrete}
    seen: dict[Hashable, Any] = {}
    same: dict[Any, Any] = {}
    folded: list[Any] = []
    kept: list[Any] = []

    def read(atom: Any) -> Any:
        return atom if jaxcompat.is_literal(atom) else same.get(atom, atom)

    for eqn in p.eqns:
        invars = [read(v) for v in eqn.invars]
        eqn = eqn.replace(invars=invars) if any(a is not b for a, b in zip(invars, eqn.invars, strict=True)) else eqn
        if eqn.primitive.name in BODIES:
            kept.append(eqn.replace(params=map_bodies(eqn.params, lambda body, _: fold(body))))
        elif _foldable(eqn, known):
            known.update(eqn.outvars)
            first: Any = seen.setdefault(_identity(eqn), eqn)
            if first is eqn:
                folded.append(eqn)
            else:
                same.update(zip(eqn.outvars, first.outvars, strict=True))
        else:
            kept.append(eqn)
    if not folded:
        return jaxcompat.build(closed, p._replace(eqns=tuple(kept)))
    outvars = tuple(read(v) for v in p.outvars)
    made = {v for e in folded for v in e.outvars}
    uses = [v for e in kept for v in e.invars] + list(outvars)
    needed = tuple(dict.fromkeys(v for v in uses if not jaxcompat.is_literal(v) and v in made))
    values = _evaluate(closed, concrete, tuple(folded), needed)
    still = {v for v in uses if not jaxcompat.is_literal(v)}
    consts = {v: c for v, c in zip(p.constvars, p.consts, strict=True) if v in still}
    consts.update(zip(needed, values, strict=True))
    return jaxcompat.build(closed, Parts(tuple(consts), tuple(consts.values()), p.invars, outvars, tuple(kept)))


def _identity(eqn: Any) -> Hashable:
    """Equal for equations that compute the same."""
    operands = [(freeze(v.val), v.aval.dtype, v.aval.shape) if jaxcompat.is_literal(v) else v for v in eqn.invars]
    results = [(v.aval, isinstance(v, jexc.DropVar)) for v in eqn.outvars]
    return (eqn.primitive.name, freeze(eqn.params), tuple(operands), tuple(results))


def _foldable(eqn: Any, known: set[Any]) -> bool:
    if eqn.effects or not all(jaxcompat.is_literal(v) or v in known for v in eqn.invars):
        return False
    size = sum(int(np.prod(v.aval.shape)) * v.aval.dtype.itemsize for v in eqn.outvars)
    splat = eqn.primitive.name == "broadcast_in_dim" and eqn.invars[0].aval.size == 1
    return size <= MAX_BYTES and not (splat and eqn.outvars[0].aval.size > SPLAT_SIZE)


def _evaluate(
    closed: Any, consts: Sequence[tuple[Any, Any]], eqns: tuple[Any, ...], outputs: tuple[Any, ...]
) -> list[np.ndarray]:
    # Constants go in as arguments: XLA would otherwise spend its time folding them itself.
    program = jaxcompat.build(closed, Parts((), (), tuple(v for v, _ in consts), outputs, eqns))
    function = jax.jit(jexc.jaxpr_as_fun(program), compiler_options=COMPILER_OPTIONS)
    # A rewritten function may itself be under jit or grad; what is folded here is known all the same.
    with jax.ensure_compile_time_eval():
        return [np.asarray(x) for x in function(*(c for _, c in consts))]
