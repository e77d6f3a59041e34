"""JAX's side of bisect: the rewritten program with any of its inner values replaced by the artifact's.

With none replaced it gives JAX's own values; with all, each is computed from the artifact's operands, so that what
differs is that one computation's own error; with one, it shows whether this value alone changes the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.reference import COMPILER_OPTIONS
from opcompat.shadow import NO_LIMIT, shadow

QUICK = COMPILER_OPTIONS | {"xla_backend_optimization_level": 0}
"""Run a few times only: a quick compilation matters more than a quick program."""

Values = Mapping[Any, np.ndarray]
"""By variable."""


class Probe:
    """A closed jaxpr without keys. `seen` are the variables whose values the artifact shows, in order."""

    def __init__(self, closed: Any, seen: Sequence[Any]) -> None:
        self.closed, self.seen = closed, tuple(seen)
        self.parts = jaxcompat.parts(closed)

    def run(
        self, inputs: Sequence[Any], given: Values, replaced: frozenset[Any]
    ) -> tuple[dict[Any, np.ndarray], list[Any]]:
        """What each seen variable comes to, and the outputs; `replaced` variables are read as `given`."""
        values = [given[v] for v in self.seen]
        mask = np.asarray([v in replaced for v in self.seen])
        found, outs = self._program(list(inputs), values, mask)
        return dict(zip(self.seen, map(np.asarray, found), strict=True)), [np.asarray(x) for x in outs]

    @cached_property
    def _program(self) -> Any:
        place = {v: i for i, v in enumerate(self.seen)}
        p = self.parts

        def run(inputs: list[Any], given: list[Any], mask: Any) -> tuple[list[Any], list[Any]]:
            env: dict[Any, Any] = dict(zip((*p.invars, *p.constvars), (*inputs, *p.consts), strict=True))
            found: dict[Any, Any] = {}

            def read(atom: Any) -> Any:
                return jnp.asarray(atom.val, atom.aval.dtype) if jaxcompat.is_literal(atom) else env[atom]

            def choose(var: Any, value: Any) -> Any:
                found[var] = value
                return jnp.where(mask[place[var]], given[place[var]], value)

            env.update({v: choose(v, env[v]) for v in p.invars if v in place})
            for eqn in p.eqns:
                with eqn.ctx.manager:
                    outs = eqn.primitive.bind(*map(read, eqn.invars), **eqn.params)
                outs = outs if eqn.primitive.multiple_results else [outs]
                pairs = zip(eqn.outvars, outs, strict=True)
                env.update({v: choose(v, x) if v in place else x for v, x in pairs})
            return [found[v] for v in self.seen], [read(v) for v in p.outvars]

        return jax.jit(run, compiler_options=QUICK)

    def rounding(self, inputs: Sequence[Any], given: Values) -> dict[Any, float]:
        """By seen float variable, the float32-against-float64 error of computing it from the given operands."""
        with jaxcompat.enable_x64(), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            values, shadows, _, _ = self._shadowed(NO_LIMIT, *inputs, *(given[v] for v in self.seen))
        return {
            v: largest(np.asarray(a, np.float64), np.asarray(b))
            for v, a, b in zip(self.seen, values, shadows, strict=True)
            if is_float(v.aval)
        }

    @cached_property
    def _shadowed(self) -> Any:
        """The shadow of the program in which every seen variable is an input where it is read."""
        p = self.parts
        fresh = {v: jaxcompat.new_var(v.aval) for v in self.seen}

        def read(atom: Any) -> Any:
            return atom if jaxcompat.is_literal(atom) else fresh.get(atom, atom)

        eqns = tuple(e.replace(invars=[read(v) for v in e.invars]) for e in p.eqns)
        cut = p._replace(invars=(*p.invars, *fresh.values()), outvars=self.seen, eqns=eqns)
        return jax.jit(shadow(jaxcompat.build(self.closed, cut), [False] * len(cut.invars)), compiler_options=QUICK)


def program_values(closed: Any, wanted: Sequence[Any], inputs: Sequence[Any]) -> dict[Any, np.ndarray]:
    """What some variables of a closed jaxpr come to."""
    p = jaxcompat.parts(closed)
    shown = jaxcompat.dead_code_free(jaxcompat.build(closed, p._replace(outvars=tuple(wanted))))
    values = jax.jit(jexc.jaxpr_as_fun(shown), compiler_options=QUICK)(*inputs)
    return dict(zip(wanted, map(np.asarray, values), strict=True))


def is_float(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jnp.floating))


def largest(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference where both are finite."""
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))
