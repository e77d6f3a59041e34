"""What is known of the values of a jaxpr, carried from its inputs through equations, loops and branches.

A flag is a bool, or several of them as the bits of an integer. `transfer(equation, flags of its operands)` gives the
flags of its results. It is asked for every equation that has no body; calls among them are taken as one equation.
Where values meet, flags are joined by `|`, and loops are followed until nothing changes: a transfer must not take
away flags when its operands have more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from opcompat import jaxcompat
from opcompat.inline import bodies

Flag = int
Transfer = Callable[[Any, Sequence[Flag]], Sequence[Flag]]


def join(flags: Sequence[Flag]) -> Flag:
    return reduce(or_, flags, False)


def depends(eqn: Any, flags: Sequence[Flag]) -> list[Flag]:
    """Every result depends on every operand."""
    return [join(flags)] * len(eqn.outvars)


def _same(flag: Flag) -> Flag:
    return flag


class Rules(NamedTuple):
    """How flags go through an equation, into a scan's body with one slice of an operand, and out of it, stacked."""

    transfer: Transfer = depends
    sliced: Callable[[Flag], Flag] = _same
    stacked: Callable[[Flag], Flag] = _same


DEPENDENCE = Rules()


def run(closed: Any, flags: Sequence[Flag], rules: Rules = DEPENDENCE) -> list[Flag]:
    """The flags of a jaxpr's results from those of its inputs. Constants have none."""
    p = jaxcompat.parts(closed)
    scope = Scope(p.invars, flags, rules)
    for eqn in p.eqns:
        scope.pass_through(eqn)
    return [scope.flag(v) for v in p.outvars]


class Scope:
    """The flags of one jaxpr's values, filled equation by equation."""

    def __init__(self, invars: Sequence[Any], flags: Sequence[Flag], rules: Rules = DEPENDENCE) -> None:
        self._flags: dict[Any, Flag] = dict(zip(invars, flags, strict=True))
        self._rules = rules

    def flag(self, atom: Any) -> Flag:
        return False if jaxcompat.is_literal(atom) else self._flags.get(atom, False)

    def operands(self, eqn: Any) -> list[Flag]:
        return [self.flag(v) for v in eqn.invars]

    def entering(self, eqn: Any) -> Mapping[str, list[Flag]]:
        """The flags of the inputs of each body of an equation, by where the body stands in its params."""
        return _enter(eqn, self.operands(eqn), self._rules)[0]

    def pass_through(self, eqn: Any) -> None:
        """Sets the flags of the equation's results."""
        flags = self.operands(eqn)
        outs = _enter(eqn, flags, self._rules)[1] if list(bodies(eqn)) else self._rules.transfer(eqn, flags)
        self._flags.update(zip(eqn.outvars, outs, strict=True))


def _enter(eqn: Any, flags: list[Flag], rules: Rules) -> tuple[Mapping[str, list[Flag]], list[Flag]]:
    return _BODIES[eqn.primitive.name](eqn, flags, rules)


def _scan(eqn: Any, flags: list[Flag], rules: Rules) -> tuple[Mapping[str, list[Flag]], list[Flag]]:
    ((where, body),) = bodies(eqn)
    in_consts, in_carry = jaxcompat.scan_counts(eqn)
    consts, xs = flags[:in_consts], [rules.sliced(flag) for flag in flags[in_consts + in_carry :]]
    for carry in _growing(flags[in_consts : in_consts + in_carry]):
        outs = run(body, [*consts, *carry, *xs], rules)
        if not _grow(carry, outs[:in_carry]):
            break
    return {where: [*consts, *carry, *xs]}, [*carry, *map(rules.stacked, outs[in_carry:])]


def _while(eqn: Any, flags: list[Flag], rules: Rules) -> tuple[Mapping[str, list[Flag]], list[Flag]]:
    by_where = dict(bodies(eqn))
    in_cond, in_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    cond_consts, body_consts = flags[:in_cond], flags[in_cond : in_cond + in_body]
    for carry in _growing(flags[in_cond + in_body :]):
        goes_on = run(by_where[":cond_jaxpr"], [*cond_consts, *carry], rules)[0]
        outs = run(by_where[":body_jaxpr"], [*body_consts, *carry], rules)
        # How often the body ran decides over everything that it changes.
        if not _grow(carry, [out | goes_on for out in outs]):
            break
    entering = {":cond_jaxpr": [*cond_consts, *carry], ":body_jaxpr": [*body_consts, *carry]}
    return entering, carry


def _cond(eqn: Any, flags: list[Flag], rules: Rules) -> tuple[Mapping[str, list[Flag]], list[Flag]]:
    which, operands = flags[0], flags[1:]
    branches = dict(bodies(eqn))
    results = [run(body, operands, rules) for body in branches.values()]
    return dict.fromkeys(branches, operands), [which | join(flag) for flag in zip(*results, strict=True)]


def _growing(start: Sequence[Flag]) -> Iterator[list[Flag]]:
    """The same list again and again, for the caller to let grow until nothing changes."""
    flags = list(start)
    while True:
        yield flags


def _grow(flags: list[Flag], more: Sequence[Flag]) -> bool:
    """Adds flags in place; whether there were new ones."""
    before = list(flags)
    flags[:] = [a | b for a, b in zip(flags, more, strict=True)]
    return flags != before


_BODIES: Mapping[str, Callable[..., tuple[Mapping[str, list[Flag]], list[Flag]]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
