"""Replaces the draws of a jaxpr: by inputs, by the centres of their distributions, or shows what JAX draws.

`noise`: each draw takes its noise from a new input. `greedy`: each takes the centre of its distribution, see
`samplers.py`. `tap`: nothing is replaced, and the noise that JAX draws comes out as further results, in the order
of the inputs that `noise` adds.

Two draws of one distribution and shape from one key are one value in JAX, so they share their noise. A draw whose
key depends on no input of the entry point is a constant of the policy and stays what it is. Draws in the body of a
scan get noise with the loop's length as first axis; those in a branch get theirs whether it is taken or not. A
while loop may draw any number of times: `noise` refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.editor import Editor
from opcompat.errors import UnsupportedError
from opcompat.flow import Flag, Scope
from opcompat.inline import IDENTITIES, bodies, inline, map_bodies
from opcompat.jaxcompat import Place
from opcompat.keys import STRUCTURAL
from opcompat.rule import freeze
from opcompat.sampling.samplers import Draw, caller, recognise

Mode = Literal["noise", "greedy", "tap"]

KEY_PRIMITIVES = STRUCTURAL | {
    "random_clone",
    "random_fold_in",
    "random_seed",
    "random_split",
    "random_unwrap",
    "random_wrap",
}
"""What makes keys from keys: deterministic, and no draw."""


@dataclass(frozen=True)
class Slot:
    """The noise of one draw: a place in the interface.

    `reused` has the places of other draws from the same key, which JAX makes dependent and noise cannot.
    """

    distribution: str
    shape: tuple[int, ...]
    dtype: Any
    place: Place
    reused: tuple[Place, ...] = ()


def recognised_as(mode: Mode) -> Literal["noise", "greedy"]:
    """The mode in which `recognise` looks: taps show what noise replaces."""
    return "greedy" if mode == "greedy" else "noise"


def replace_draws(closed: Any, live: Sequence[bool], mode: Mode, where: str) -> tuple[Any, tuple[Slot, ...]]:
    """The closed jaxpr with its draws replaced, and what was added to its inputs (`noise`) or results (`tap`).

    `closed` has calls dissolved, but for those that `recognise` knows in this mode. `live` tells which of its inputs
    change from call to call. `where` is the entry point's name, for messages. Raises UnsupportedError, with the
    place and the next step, for a draw that the mode cannot replace.
    """
    return _Walk(closed, live, mode, where).run()


@dataclass
class _Walk:
    closed: Any
    live: Sequence[Flag]
    mode: Mode
    where: str
    slots: list[Slot] = field(default_factory=list)
    atoms: list[Any] = field(default_factory=list)
    """For each slot, the new input (`noise`) or the variable that holds the tapped noise."""

    def __post_init__(self) -> None:
        self.editor = Editor(self.closed)
        self.scope = Scope(self.editor.parts.invars, self.live)
        self.keys = _Numbers()
        self.shared: dict[Hashable, int] = {}
        self.by_key: dict[Hashable, list[int]] = {}

    def run(self) -> tuple[Any, tuple[Slot, ...]]:
        for eqn in self.editor.parts.eqns:
            self.equation(eqn)
            self.scope.pass_through(eqn)
            self.keys.note(eqn)
        self.slots = [replace(s, reused=self.reuse(i)) for i, s in enumerate(self.slots)]
        p = jaxcompat.parts(self.editor.finish())
        if self.mode == "noise":
            p = p._replace(invars=(*p.invars, *self.atoms))
        elif self.mode == "tap":
            p = p._replace(outvars=(*p.outvars, *(self.editor.read(v) for v in self.atoms)))
        return jaxcompat.build(self.closed, p), tuple(self.slots)

    def reuse(self, index: int) -> tuple[Place, ...]:
        groups = (group for group in self.by_key.values() if index in group and len(group) > 1)
        return tuple(self.slots[i].place for group in groups for i in group if i != index)

    def equation(self, eqn: Any) -> None:
        name = eqn.primitive.name
        if list(bodies(eqn)):
            self.with_bodies(eqn)
            return
        takes_key = any(jaxcompat.is_key(v.aval.dtype) and self.scope.flag(v) for v in eqn.invars)
        if not takes_key or name in KEY_PRIMITIVES:
            self.editor.keep(eqn)
            return
        draw = recognise(eqn, recognised_as(self.mode))
        if draw is None:
            raise self.refusal(eqn, f"what {name} draws is not made of standard draws", "exact")
        if self.mode == "greedy":
            self.centre(eqn, draw)
        else:
            self.noise(eqn, draw)

    # Draws

    def centre(self, eqn: Any, draw: Draw) -> None:
        function = caller(eqn.source_info)
        if draw.centre is None or (function and function not in draw.within):
            named = f"jax.random.{function or draw.sampler}"
            raise self.refusal(eqn, f"no mode or mean of {named} is known", "noise or exact")
        operands = [self.editor.read(v) for v in eqn.invars[1:]]
        self.editor.splice(eqn, _traced(eqn, draw.centre, operands), operands, eqn.source_info)

    def noise(self, eqn: Any, draw: Draw) -> None:
        key = self.keys.number(eqn.invars[0])
        identity = (key, draw.distribution, draw.shape, str(draw.dtype))
        if identity not in self.shared:
            self.shared[identity] = len(self.slots)
            self.by_key.setdefault(key, []).append(len(self.slots))
            place = jaxcompat.place_of(eqn.source_info)
            self.slots.append(Slot(draw.distribution, draw.shape, draw.dtype, place))
            self.atoms.append(jaxcompat.new_var(_aval(draw.shape, draw.dtype)))
            if self.mode == "tap":
                self.tap(eqn, draw)
                return
        atom = self.atoms[self.shared[identity]]
        if self.mode == "tap":
            self.editor.keep(eqn)
            return
        operands = [atom, *(self.editor.read(v) for v in eqn.invars[1:])]
        self.editor.splice(eqn, _traced(eqn, draw.result, operands), operands, eqn.source_info)

    def tap(self, eqn: Any, draw: Draw) -> None:
        def both(*operands: Any) -> Any:
            return *_bind(eqn, operands), draw.noise(*operands)

        operands = [self.editor.read(v) for v in eqn.invars]
        tapped = eqn.replace(outvars=[*eqn.outvars, self.atoms[-1]])
        self.editor.splice(tapped, _traced(eqn, both, operands), operands, eqn.source_info)

    def refusal(self, eqn: Any, why: str, sampling: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.where}: sampling {recognised_as(self.mode)} cannot replace the draw at "
            f"{jaxcompat.place_of(eqn.source_info)}: {why}; next: convert with --sampling {sampling}, or draw from a "
            "normal, uniform, bernoulli or categorical there"
        )

    # Bodies

    def with_bodies(self, eqn: Any) -> None:
        entering = self.scope.entering(eqn)
        walked = {place: _Walk(body, entering[place], self.mode, self.where).run() for place, body in bodies(eqn)}
        inner = [slot for _, slots in walked.values() for slot in slots]
        if not inner:
            self.editor.keep(eqn, params=map_bodies(eqn.params, lambda _, place: walked[place][0]))
            return
        build, outer = _WITH_NOISE[eqn.primitive.name](self, eqn, list(walked.values()))
        self.slots += outer
        variables = [jaxcompat.new_var(_aval(s.shape, s.dtype)) for s in outer]
        self.atoms += variables
        operands = [self.editor.read(v) for v in eqn.invars]
        if self.mode == "noise":
            operands += variables
        else:
            eqn = eqn.replace(outvars=[*eqn.outvars, *variables])
        self.editor.splice(eqn, _traced(eqn, build, operands), operands, eqn.source_info)


Walked = tuple[Any, tuple[Slot, ...]]


def _scan(walk: _Walk, eqn: Any, walked: list[Walked]) -> tuple[Callable[..., Any], list[Slot]]:
    """The loop with noise among what it scans over, or with the tapped noise among what it stacks."""
    ((body, slots),) = walked
    length, reverse = eqn.params["length"], eqn.params["reverse"]
    in_consts, in_carry = jaxcompat.scan_counts(eqn)

    def loop(*operands: Any) -> Any:
        consts, carry = operands[:in_consts], operands[in_consts : in_consts + in_carry]

        def step(state: Any, xs: Any) -> Any:
            outs = jexc.jaxpr_as_fun(body)(*consts, *state, *xs)
            return outs[:in_carry], outs[in_carry:]

        xs = list(operands[in_consts + in_carry :])
        carried, stacked = lax.scan(step, list(carry), xs, length=length, reverse=reverse)
        return *carried, *stacked

    return loop, [replace(s, shape=(length, *s.shape)) for s in slots]


def _cond(walk: _Walk, eqn: Any, walked: list[Walked]) -> tuple[Callable[..., Any], list[Slot]]:
    """The branches, each with the noise of all; a tap of a branch that is not taken shows zeros."""
    groups = [slots for _, slots in walked]
    everything = [slot for group in groups for slot in group]
    given, results = len(eqn.invars) - 1, len(eqn.outvars)

    def branch(index: int) -> Callable[..., Any]:
        first = sum(len(group) for group in groups[:index])
        own = slice(first, first + len(groups[index]))

        def run(*operands: Any) -> Any:
            args = (*operands[:given], *operands[given:][own])
            outs = jexc.jaxpr_as_fun(walked[index][0])(*args)
            if walk.mode == "noise":
                return tuple(outs)
            taps = [jnp.zeros(s.shape, s.dtype) for s in everything]
            taps[own] = outs[results:]
            return *outs[:results], *taps

        return run

    def choose(which: Any, *operands: Any) -> Any:
        index = lax.convert_element_type(which, jnp.int32)
        return lax.switch(index, [branch(i) for i in range(len(walked))], *operands)

    return choose, everything


def _while(walk: _Walk, eqn: Any, walked: list[Walked]) -> tuple[Callable[..., Any], list[Slot]]:
    slot = next(slot for _, slots in walked for slot in slots)
    raise UnsupportedError(
        f"{walk.where}: a {slot.distribution} draw at {slot.place} is inside a while loop (at "
        f"{jaxcompat.place_of(eqn.source_info)}), which may draw any number of times; sampling noise cannot make "
        "it an input; next: loop a fixed number of times (jax.lax.scan, or fori_loop with constant bounds), or "
        "convert with --sampling exact"
    )


_WITH_NOISE: Mapping[str, Callable[..., tuple[Callable[..., Any], list[Slot]]]] = {
    "scan": _scan,
    "cond": _cond,
    "while": _while,
}


def _aval(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.typeof(jaxcompat.shape_dtype(shape, dtype))


def _traced(eqn: Any, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    with eqn.ctx.manager:
        return inline(jaxcompat.trace(function, [v.aval for v in operands]))


def _bind(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    body = next((v for v in eqn.params.values() if jaxcompat.is_jaxpr(v)), None)
    if body is not None:
        return list(jexc.jaxpr_as_fun(body)(*operands))
    return [eqn.primitive.bind(*operands, **eqn.params)]


class _Numbers:
    """Tells keys apart: equal numbers mean that two variables hold the same key, made by the same steps."""

    def __init__(self) -> None:
        self._of: dict[Any, Hashable] = {}
        self._made: dict[Hashable, int] = {}

    def number(self, atom: Any) -> Hashable:
        found: Hashable = freeze(np.asarray(atom.val)) if jaxcompat.is_literal(atom) else self._of.get(atom, atom)
        return found

    def note(self, eqn: Any) -> None:
        if eqn.primitive.name not in KEY_PRIMITIVES:
            return
        operands = tuple(self.number(v) for v in eqn.invars)
        if eqn.primitive.name in IDENTITIES:
            self._of.update(zip(eqn.outvars, operands, strict=True))
            return
        for index, var in enumerate(eqn.outvars):
            made = (eqn.primitive.name, freeze(eqn.params), operands, index)
            self._of[var] = self._made.setdefault(made, len(self._made))
