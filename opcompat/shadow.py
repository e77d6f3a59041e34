"""Runs a jaxpr in float32 and float64 at once: how far its own rounding carries, and how close its decisions are.

Every value is a pair: what the program computes, and a float64 shadow computed from shadows. Integers, booleans
and discontinuous results (comparisons, argmax, round, ...) have no shadow of their own: the program's own value
decides, so that the shadow follows the same branches and draws. What is left is rounding error alone.

What counts as a decision, and when one is a near tie, is in `opcompat/decisions.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.decisions import NONE, Decisions, Pair, decisions_of, is_float
from opcompat.inline import bodies

NO_LIMIT = np.int32(2**31 - 1)
"""For loops that are known to end."""

_RANDOM = frozenset({"threefry2x32", "rng_bit_generator"})
_STEPS = frozenset({"floor", "ceil", "round", "sign", "nextafter", "rem", "bitcast_convert_type"})


Shadowed = tuple[list[Any], list[Any], Decisions, list[Any]]


def shadow(closed: Any, noise: Sequence[bool]) -> Callable[..., Shadowed]:
    """A function of a limit and the jaxpr's inputs that returns (outputs, float64 outputs, decisions, tied).

    `tied` tells of each output whether it depends on a decision that is a near tie. A while loop that has not ended
    after `limit` steps (an int32) is stopped, and all loops around it; `decisions` then says so.

    `closed` has calls dissolved and keys erased; `noise` tells which of its inputs are random. Trace and run the
    result with x64 enabled.
    """

    def run(limit: Any, *args: Any) -> Shadowed:
        outs, decisions = _run(closed, [_exact(a, random) for a, random in zip(args, noise, strict=True)], limit)
        tied = [jnp.asarray(False if o.tied is None else o.tied) for o in outs]
        return [o.value for o in outs], [o.shadow for o in outs], decisions, tied

    return run


def shadow_in_pieces(
    closed: Any, noise: Sequence[bool], size: int, jit: Callable[[Callable[..., Any]], Any]
) -> Callable[..., Shadowed]:
    """`shadow`, compiled in pieces of `size` equations: XLA takes more than twice as long for twice as many.

    `jit` is applied to each piece; they compile side by side. Call the result with x64 enabled.
    """
    p = jaxcompat.parts(closed)
    random = {v for v, is_noise in zip(p.invars, noise, strict=True) if is_noise}
    given = {*p.invars, *p.constvars}
    untied = set(given)
    starts = range(0, len(p.eqns), size)
    pieces = [_piece(closed, p.eqns, start, size, random, untied, given) for start in starts]
    compiled: list[Any] = []

    def run(limit: Any, *args: Any) -> Shadowed:
        env: dict[Any, Any] = dict(zip((*p.invars, *p.constvars), (*args, *p.consts), strict=True))
        if not compiled:
            compiled.extend(_compile(pieces, limit, env, jit))
        decisions = NONE
        for (inputs, outputs, _), piece in zip(pieces, compiled, strict=True):
            outs, made = piece(limit, [env[v] for v in inputs])
            decisions = decisions.plus(Decisions(*made))
            env.update(zip(outputs, outs, strict=True))
        ends = [_end(v, env, given) for v in p.outvars]
        return [e[0] for e in ends], [e[1] for e in ends], decisions, [e[2] for e in ends]

    return run


_Piece = tuple[list[Any], list[Any], Callable[..., Any]]
"""The variables that go in, those that come out, and the function between them."""


def _compile(pieces: Sequence[_Piece], limit: Any, given: Mapping[Any, Any], jit: Callable[..., Any]) -> list[Any]:
    """The pieces, traced in order; XLA, which needs no Python, compiles those before meanwhile."""
    known = dict(given)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        running = []
        for inputs, outputs, piece in pieces:
            lowered = jit(piece).lower(limit, [known[v] for v in inputs])
            known.update(zip(outputs, lowered.out_info[0], strict=True))
            running.append(pool.submit(lowered.compile))
        return [r.result() for r in running]


def _piece(
    closed: Any,
    eqns: Sequence[Any],
    start: int,
    size: int,
    random: set[Any],
    untied: set[Any],
    given: set[Any],
) -> _Piece:
    """The equations from `start` on.

    Adds its random variables to `random` now, and those that no decision touches to `untied` when it is traced,
    which is before the next piece is. What is in `given` comes as it is, everything else as pairs.
    """
    own, later = eqns[start : start + size], eqns[start + size :]
    made = {v for e in own for v in e.outvars}
    wanted = [v for e in later for v in e.invars] + list(jaxcompat.parts(closed).outvars)
    inputs = [v for v in _variables(v for e in own for v in e.invars) if v not in made]
    outputs = [v for v in _variables(wanted) if v in made]
    for eqn in own:
        if _draws(eqn) or any(not jaxcompat.is_literal(v) and v in random for v in eqn.invars):
            random.update(eqn.outvars)
    body = jaxcompat.build(closed, jaxcompat.Parts((), (), tuple(inputs), tuple(outputs), tuple(own)))
    is_random = [v in random for v in inputs]

    def run(limit: Any, flat: Any) -> Any:
        args = [
            _exact(x, r) if var in given else Pair(x[0], x[1], r, None if var in untied else x[2])
            for var, x, r in zip(inputs, flat, is_random, strict=True)
        ]
        outs, made = _run(body, args, limit)
        untied.update(var for var, out in zip(outputs, outs, strict=True) if out.tied is None)
        return [_carried(o) for o in outs], _arrays(made)

    return inputs, outputs, run


def _end(atom: Any, env: Mapping[Any, Any], given: set[Any]) -> tuple[Any, Any, Any]:
    """An output of the whole: a literal, what was given, or what a piece made."""
    if jaxcompat.is_literal(atom):
        return _carried(_exact(np.asarray(atom.val, atom.aval.dtype)))
    return _carried(_exact(env[atom])) if atom in given else env[atom]


def _variables(atoms: Iterable[Any]) -> list[Any]:
    """The distinct variables among atoms, in order."""
    return list(dict.fromkeys(v for v in atoms if not jaxcompat.is_literal(v)))


def _carried(pair: Pair) -> tuple[Any, Any, Any]:
    """A pair between pieces: value, shadow and tied, as arrays."""
    return pair.value, pair.shadow, jnp.asarray(False if pair.tied is None else pair.tied)


def _exact(value: Any, random: bool = False) -> Pair:
    value = jnp.asarray(value)
    return Pair(value, value.astype(jnp.float64) if is_float(value) else value, random)


def _run(closed: Any, args: Sequence[Pair], limit: Any) -> tuple[list[Pair], Decisions]:
    p = jaxcompat.parts(closed)
    env: dict[Any, Pair] = dict(zip(p.invars, args, strict=True))
    env.update((v, _exact(c)) for v, c in zip(p.constvars, p.consts, strict=True))
    decisions = NONE
    used = set(_variables([*(v for e in p.eqns for v in e.invars), *p.outvars]))

    def read(atom: Any) -> Pair:
        return _exact(np.asarray(atom.val, atom.aval.dtype)) if jaxcompat.is_literal(atom) else env[atom]

    for eqn in p.eqns:
        operands = [read(v) for v in eqn.invars]
        with eqn.ctx.manager:
            if list(bodies(eqn)):
                outs, made = _BODIES[eqn.primitive.name](eqn, operands, limit)
            else:
                outs, made = _equation(eqn, operands, used)
        decisions = decisions.plus(made)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in p.outvars], decisions


def _equation(eqn: Any, operands: Sequence[Pair], used: set[Any]) -> tuple[list[Pair], Decisions]:
    name = eqn.primitive.name
    random = _is_random(eqn, operands)
    values = _bind(eqn, [o.value for o in operands], eqn.params)
    floats = [is_float(v.aval) for v in eqn.outvars]
    if name in _ORDERS and any(floats):
        outs = _ORDERS[name](eqn, operands, values)
    elif any(floats) and name not in _STEPS:
        shadows = _bind(eqn, [o.shadow for o in operands], _widened(eqn.params))
        outs = [Pair(v, s if wide else v, random) for v, s, wide in zip(values, shadows, floats, strict=True)]
    else:
        outs = [_exact(v, random) for v in values]
    made = decisions_of(eqn, operands, random, used)
    tied = _any_tied(operands, made)
    return [o._replace(random=random, tied=tied) for o in outs], made


def _any_tied(operands: Sequence[Pair], made: Decisions) -> Any:
    """Whether what comes from these operands and decisions depends on a near tie; None if none can be involved."""
    flags = [o.tied for o in operands if o.tied is not None]
    flags += [] if made is NONE else [made.near > 0]
    return reduce(jnp.logical_or, flags) if flags else None


def _sorted(eqn: Any, operands: Sequence[Pair], values: Sequence[Any]) -> list[Pair]:
    """A sort: the program's keys decide, and the shadows follow in their order."""
    shape, axis = operands[0].value.shape, eqn.params["dimension"]
    places = lax.broadcasted_iota(np.int32, shape, axis)
    *_, order = _bind(eqn, [*(o.value for o in operands), places], eqn.params)
    return [
        Pair(v, jnp.take_along_axis(o.shadow, order, axis) if is_float(v) else v, False)
        for v, o in zip(values, operands, strict=True)
    ]


def _top(eqn: Any, operands: Sequence[Pair], values: Sequence[Any]) -> list[Pair]:
    """top_k: the shadows of the values that the program picks."""
    axis = eqn.params.get("axis", operands[0].value.ndim - 1)
    return [Pair(values[0], jnp.take_along_axis(operands[0].shadow, values[1], axis), False), _exact(values[1])]


_ORDERS: dict[str, Callable[[Any, Sequence[Pair], Sequence[Any]], list[Pair]]] = {"sort": _sorted, "top_k": _top}


def _is_random(eqn: Any, operands: Sequence[Pair]) -> bool:
    return any(o.random for o in operands) or _draws(eqn)


def _draws(eqn: Any) -> bool:
    """Whether an equation, or one in its bodies, makes random bits."""
    inner = (e for _, body in bodies(eqn) for e in jaxcompat.parts(body).eqns)
    return eqn.primitive.name in _RANDOM or any(map(_draws, inner))


def _bind(eqn: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    out = eqn.primitive.bind(*args, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _widened(params: dict[str, Any]) -> dict[str, Any]:
    """Params with float64 in place of every float dtype, in the combiners of reductions and scatters, too."""

    def wide(value: Any) -> Any:
        if jaxcompat.is_jaxpr(value):
            return _wide_combiner(value)
        if isinstance(value, np.dtype | type) and jnp.issubdtype(value, jnp.floating):
            return np.dtype(np.float64)
        return value

    return {k: wide(v) for k, v in params.items()}


def _wide_combiner(combiner: Any) -> Any:
    """The same function of float64 scalars: what a reduction or a scatter does with two elements."""
    is_open = not isinstance(combiner, jexc.ClosedJaxpr)
    closed = jexc.ClosedJaxpr(combiner, []) if is_open else combiner
    own = [v.aval for v in jaxcompat.parts(closed).invars]

    def run(*args: Any) -> list[Any]:
        pairs = [Pair(x.astype(a.dtype), x, False) for x, a in zip(args, own, strict=True)]
        outs, _ = _run(closed, pairs, NO_LIMIT)
        return [o.shadow for o in outs]

    avals = [jaxcompat.shape_dtype(a.shape, np.float64 if is_float(a) else a.dtype) for a in own]
    wide = jaxcompat.trace(run, avals)
    return wide.jaxpr if is_open else wide


# Loops and branches: the same loops and branches over pairs. A carried value is random if any is.


def _flat(pairs: Sequence[Pair]) -> tuple[Any, ...]:
    return tuple((p.value, p.shadow) for p in pairs)


def _pairs(flat: Sequence[Any], random: bool, tied: Any = None) -> list[Pair]:
    return [Pair(v, s, random, tied) for v, s in flat]


def _cond(eqn: Any, operands: Sequence[Pair], limit: Any) -> tuple[list[Pair], Decisions]:
    which, *args = operands
    random = _is_random(eqn, operands)

    def branch(body: Any) -> Callable[..., Any]:
        def run(flat: Any) -> Any:
            outs, made = _run(body, _pairs(flat, random), limit)
            return _flat(outs), _arrays(made)

        return run

    index = which.value.astype(jnp.int32)
    outs, made = lax.switch(index, [branch(b) for b in eqn.params["branches"]], _flat(args))
    return _pairs(outs, random, _any_tied(operands, made)), Decisions(*made)


def _arrays(made: Decisions) -> Decisions:
    return Decisions(*(jnp.asarray(x, jnp.int32) for x in made))


def _while(eqn: Any, operands: Sequence[Pair], limit: Any) -> tuple[list[Pair], Decisions]:
    in_cond, in_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    random = _is_random(eqn, operands)
    cond_consts, body_consts, carry = (
        operands[:in_cond],
        operands[in_cond : in_cond + in_body],
        operands[in_cond + in_body :],
    )

    def tested(carry: Sequence[Pair]) -> tuple[Any, Decisions]:
        outs, made = _run(eqn.params["cond_jaxpr"], [*cond_consts, *carry], limit)
        return outs[0].value, made

    def goes_on(state: Any) -> Any:
        flat, made, count = state
        return tested(_pairs(flat, random))[0] & (count < limit) & (made.stopped == 0)

    def step(state: Any) -> Any:
        flat, made, count = state
        outs, more = _run(eqn.params["body_jaxpr"], [*body_consts, *_pairs(flat, random)], limit)
        ends = tested([o._replace(random=random) for o in outs])[1]
        return _flat(outs), _arrays(made.plus(more).plus(ends)), count + 1

    start = (_flat(carry), _arrays(tested(_pairs(_flat(carry), random))[1]), jnp.int32(0))
    outs, made, count = lax.while_loop(goes_on, step, start)
    made = made._replace(stopped=made.stopped + (count >= limit).astype(jnp.int32))
    return _pairs(outs, random, _any_tied(operands, made)), made


def _scan(eqn: Any, operands: Sequence[Pair], limit: Any) -> tuple[list[Pair], Decisions]:
    in_consts, in_carry = jaxcompat.scan_counts(eqn)
    random = _is_random(eqn, operands)
    consts, carry, xs = (
        operands[:in_consts],
        operands[in_consts : in_consts + in_carry],
        operands[in_consts + in_carry :],
    )

    def step(state: Any, x: Any) -> Any:
        args = [*consts, *_pairs(state[0], random), *_pairs(x, random)]
        outs, made = _run(eqn.params["jaxpr"], args, limit)
        return (_flat(outs[:in_carry]), _arrays(Decisions(*state[1]).plus(made))), _flat(outs[in_carry:])

    (carried, made), ys = lax.scan(
        step,
        (_flat(carry), _arrays(NONE)),
        _flat(xs),
        length=eqn.params["length"],
        reverse=eqn.params["reverse"],
    )
    tied = _any_tied(operands, made)
    return [*_pairs(carried, random, tied), *_pairs(ys, random, tied)], Decisions(*made)


_BODIES: dict[str, Callable[[Any, Sequence[Pair], Any], tuple[list[Pair], Decisions]]] = {
    "cond": _cond,
    "while": _while,
    "scan": _scan,
}

__all__ = ["NO_LIMIT", "shadow", "shadow_in_pieces"]
