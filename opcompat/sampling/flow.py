"""Which values of a jaxpr depend on which: one flag per value, carried through the bodies of loops and branches.

`transfer(equation, flags of its operands)` gives the flags of its results. It is asked for every equation that has
no body; calls among them are taken as one equation. Loops are followed until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opcompat import jaxcompat
from opcompat.inline import bodies

Transfer = Callable[[Any, Sequence[bool]], Sequence[bool]]


def depends(eqn: Any, flags: Sequence[bool]) -> list[bool]:
    """Every result depends on every operand."""
    return [any(flags)] * len(eqn.outvars)


def run(closed: Any, flags: Sequence[bool], transfer: Transfer = depends) -> list[bool]:
    """The flags of a jaxpr's results from those of its inputs. Constants have none."""
    p = jaxcompat.parts(closed)
    scope = Scope(p.invars, flags, transfer)
    for eqn in p.eqns:
        scope.pass_through(eqn)
    return [scope.flag(v) for v in p.outvars]


class Scope:
    """The flags of one jaxpr's values, filled equation by equation."""

    def __init__(self, invars: Sequence[Any], flags: Sequence[bool], transfer: Transfer = depends) -> None:
        self._flags: dict[Any, bool] = dict(zip(invars, flags, strict=True))
        self._transfer = transfer

    def flag(self, atom: Any) -> bool:
        return False if jaxcompat.is_literal(atom) else self._flags.get(atom, False)

    def operands(self, eqn: Any) -> list[bool]:
        return [self.flag(v) for v in eqn.invars]

    def entering(self, eqn: Any) -> Mapping[str, list[bool]]:
        """The flags of the inputs of each body of an equation, by where the body stands in its params."""
        return _enter(eqn, self.operands(eqn), self._transfer)[0]

    def pass_through(self, eqn: Any) -> None:
        """Sets the flags of the equation's results."""
        flags = self.operands(eqn)
        outs = _enter(eqn, flags, self._transfer)[1] if list(bodies(eqn)) else self._transfer(eqn, flags)
        self._flags.update(zip(eqn.outvars, outs, strict=True))


def _enter(eqn: Any, flags: list[bool], transfer: Transfer) -> tuple[Mapping[str, list[bool]], list[bool]]:
    return _BODIES[eqn.primitive.name](eqn, flags, transfer)


def _scan(eqn: Any, flags: list[bool], transfer: Transfer) -> tuple[Mapping[str, list[bool]], list[bool]]:
    ((where, body),) = bodies(eqn)
    in_consts, in_carry = jaxcompat.scan_counts(eqn)
    consts, xs = flags[:in_consts], flags[in_consts + in_carry :]
    for carry in _growing(flags[in_consts : in_consts + in_carry]):
        outs = run(body, [*consts, *carry, *xs], transfer)
        if not _grow(carry, outs[:in_carry]):
            break
    return {where: [*consts, *carry, *xs]}, [*carry, *outs[in_carry:]]


def _while(eqn: Any, flags: list[bool], transfer: Transfer) -> tuple[Mapping[str, list[bool]], list[bool]]:
    by_where = dict(bodies(eqn))
    in_cond, in_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    cond_consts, body_consts = flags[:in_cond], flags[in_cond : in_cond + in_body]
    for carry in _growing(flags[in_cond + in_body :]):
        goes_on = run(by_where[":cond_jaxpr"], [*cond_consts, *carry], transfer)[0]
        outs = run(by_where[":body_jaxpr"], [*body_consts, *carry], transfer)
        # How often the body ran decides over everything that it changes.
        if not _grow(carry, [out or goes_on for out in outs]):
            break
    entering = {":cond_jaxpr": [*cond_consts, *carry], ":body_jaxpr": [*body_consts, *carry]}
    return entering, carry


def _cond(eqn: Any, flags: list[bool], transfer: Transfer) -> tuple[Mapping[str, list[bool]], list[bool]]:
    which, operands = flags[0], flags[1:]
    branches = dict(bodies(eqn))
    results = [run(body, operands, transfer) for body in branches.values()]
    return dict.fromkeys(branches, operands), [which or any(flag) for flag in zip(*results, strict=True)]


def _growing(start: Sequence[bool]) -> Iterator[list[bool]]:
    """The same list again and again, for the caller to let grow; one round for each flag is enough."""
    flags = list(start)
    for _ in range(len(flags) + 1):
        yield flags


def _grow(flags: list[bool], more: Sequence[bool]) -> bool:
    """Adds flags in place; whether there were new ones."""
    before = list(flags)
    flags[:] = [a or b for a, b in zip(flags, more, strict=True)]
    return flags != before


_BODIES: Mapping[str, Callable[..., tuple[Mapping[str, list[bool]], list[bool]]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
