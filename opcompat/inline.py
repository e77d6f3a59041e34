"""Dissolves calls (jit, custom derivatives, remat, ...) and marks every original equation with its id.

What is left are primitives in one flat list, and the loops and branches whose bodies must stay bodies.
Derivative rules and rematerialization are dead weight for inference, and so is what only shows values to whoever
runs the function (jax.debug.print): it has no results, so leaving it out changes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jax import lax
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.jaxcompat import Parts
from opcompat.provenance import mark_source

CALLS = frozenset(
    {
        "jit",
        "pjit",
        "closed_call",
        "core_call",
        "call",
        "remat",
        "remat2",
        "checkpoint",
        "custom_jvp_call",
        "custom_vjp_call",
        "custom_vjp_call_jaxpr",
        "custom_vmap_call",
        "composite",
    }
)
"""Primitives that mean what their one body means."""

_DEFINED_IN_JAX = "call_hi_primitive"
"""Since jax 0.11: any primitive that is defined by an expansion, such as SearchSorted."""

IDENTITIES = frozenset(
    {
        "copy",
        "copy_p",
        "device_put",
        "layout_constraint",
        "name",
        "optimization_barrier",
        "sharding_constraint",
        "stop_gradient",
    }
)
"""Primitives whose results are their operands: hints to compilers, to derivatives and for where values are kept."""

_SHOWING = frozenset({"debug_callback", "debug_print", "inspect_sharding"})

_PYTHON = "it calls Python, which an artifact does not have"

OUTSIDE = {
    "pure_callback": _PYTHON,
    "io_callback": _PYTHON,
    "check": "a checkify.check is an error to throw, which only checkify.checkify makes a value",
    "shard_map": "it is a program for each device of a mesh, and an artifact runs on one",
}
"""Primitives that leave the program, and why they cannot be exported."""

BODIES = frozenset({"scan", "while", "cond"})
"""Primitives whose bodies are programs of their own. Other jaxprs in params are combiners of one step
(reduce, scatter, ...): they belong to the primitive's meaning and are never rewritten."""


class _Inliner:
    def __init__(self, mark: bool, keep: Callable[[Any], bool]) -> None:
        self.mark = mark
        self.keep = keep
        self.eqns: list[Any] = []
        self.consts: dict[Any, Any] = {}
        self.known: dict[tuple[int, Any], Any] = {}

    def run(self, p: Parts, args: Sequence[Any], outer: Any, prefix: str) -> list[Any]:
        """Appends the equations of `p`, called with atoms `args` at source info `outer`; returns the results."""
        env: dict[Any, Any] = dict(zip(p.invars, args, strict=True))
        for var, value in zip(p.constvars, p.consts, strict=True):
            env[var] = self.constant(var.aval, value)
        for index, eqn in enumerate(p.eqns):
            if only_shows(eqn):
                continue
            info = eqn.source_info if outer is None else jaxcompat.under(outer, eqn.source_info)
            invars = [v if jaxcompat.is_literal(v) else env[v] for v in eqn.invars]
            ident = f"{prefix}{index}"
            called = _called(eqn)
            if called is not None and not self.keep(eqn):
                outs = self.run(jaxcompat.parts(called), invars, info, ident + ".")
                env.update(zip(eqn.outvars, outs, strict=True))
                continue
            outvars = [_copy(v) for v in eqn.outvars]
            env.update(zip(eqn.outvars, outvars, strict=True))
            if self.mark:
                info = mark_source(info, ident)
            changes: dict[str, Any] = {}
            if eqn.primitive.name in BODIES:
                changes["params"] = params = map_bodies(
                    eqn.params,
                    lambda body, where, ident=ident, info=info: self.body(body, f"{ident}{where}.", info),
                )
                # Those of what only shows values are gone with it.
                found = [v for p in params.values() for v in (p if isinstance(p, tuple) else (p,))]
                changes["effects"] = jaxcompat.effects(v for v in found if jaxcompat.is_jaxpr(v))
            self.eqns.append(eqn.replace(invars=invars, outvars=outvars, source_info=info, **changes))
        return [v if jaxcompat.is_literal(v) else env[v] for v in p.outvars]

    def constant(self, aval: Any, value: Any) -> Any:
        """The variable of a constant: one for each array, whichever calls close over it."""
        key = (id(value), aval)
        if key not in self.known:
            self.known[key] = fresh = jaxcompat.new_var(aval)
            self.consts[fresh] = value
        return self.known[key]

    def body(self, closed: Any, prefix: str, info: Any) -> Any:
        # The body's equations are traced again with an empty name stack, so only the place is inherited.
        place_only = info.replace(name_stack=info.name_stack.__class__())
        return inline(closed, mark=self.mark, prefix=prefix, outer=place_only, keep=self.keep)


def inline(
    closed: Any,
    *,
    mark: bool = False,
    prefix: str = "",
    outer: Any = None,
    keep: Callable[[Any], bool] = lambda _: False,
) -> Any:
    """The closed jaxpr with all calls dissolved, in bodies too. With `mark`, each equation carries its id:
    the path of indices that leads to it in the original ("3.0.2", "7:jaxpr.1"). Calls that `keep` picks stay."""
    p = jaxcompat.parts(closed)
    inliner = _Inliner(mark, keep)
    invars = [_copy(v) for v in p.invars]
    outvars = inliner.run(p, invars, outer, prefix)
    return jaxcompat.build(
        closed,
        Parts(
            tuple(inliner.consts),
            tuple(inliner.consts.values()),
            tuple(invars),
            tuple(outvars),
            tuple(inliner.eqns),
        ),
    )


def only_shows(eqn: Any) -> bool:
    """Whether an equation only shows values to whoever runs the function, and has no results.

    `checkify.debug_check` is one: JAX itself leaves it out where nobody asks for its errors.
    """
    name = eqn.primitive.name
    return name in _SHOWING or (name == "check" and bool(eqn.params.get("debug")))


def shown(closed: Any) -> Iterator[Any]:
    """All equations that only show values, in calls and bodies too; each with the place of the calls it is in."""
    yield from _shown(closed, None)


def _shown(closed: Any, outer: Any) -> Iterator[Any]:
    for eqn in jaxcompat.parts(closed).eqns:
        info = eqn.source_info if outer is None else jaxcompat.under(outer, eqn.source_info)
        if only_shows(eqn):
            yield eqn.replace(source_info=info)
        for value in eqn.params.values():
            for body in value if isinstance(value, tuple) else (value,):
                if jaxcompat.is_jaxpr(body):
                    yield from _shown(body, info)


def map_bodies(params: dict[str, Any], change: Any) -> dict[str, Any]:
    """Params with `change(body, where)` in place of each jaxpr; `where` tells bodies of one equation apart."""

    def swap(value: Any, where: str) -> Any:
        if jaxcompat.is_jaxpr(value):
            return change(value, where)
        if isinstance(value, tuple) and any(jaxcompat.is_jaxpr(v) for v in value):
            return tuple(swap(v, f"{where}{i}") for i, v in enumerate(value))
        return value

    return {name: swap(value, f":{name}") for name, value in params.items()}


def bodies(eqn: Any) -> Iterable[tuple[str, Any]]:
    """(where, closed jaxpr) of each body of a loop or branch; nothing for other primitives."""
    found: list[tuple[str, Any]] = []
    if eqn.primitive.name in BODIES:
        map_bodies(eqn.params, lambda body, where: found.append((where, body)))
    return found


def _called(eqn: Any) -> Any:
    """The closed jaxpr that an equation is dissolved into; None if it stays."""
    name = eqn.primitive.name
    if name in CALLS:
        return _only_body(eqn)
    if name == _DEFINED_IN_JAX:
        return _traced(eqn, jaxcompat.expanded(eqn))
    if name == "custom_linear_solve":
        return _traced(eqn, _solved(eqn))
    if name == "while" and jaxcompat.parts(eqn.params["cond_jaxpr"]).outvars[0].aval.shape:
        return _traced(eqn, _until_all_have_ended(eqn))
    return None


def _traced(eqn: Any, function: Callable[..., Any]) -> Any:
    with eqn.ctx.manager:
        return jaxcompat.trace(function, [v.aval for v in eqn.invars])


def _solved(eqn: Any) -> Callable[..., Any]:
    """A linear system by the function that its author gave. The system itself is for derivatives and checks."""
    counts, programs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    skipped, own, known = counts.matvec + counts.vecmat, counts.solve, sum(counts)
    solve = jexc.jaxpr_as_fun(programs.solve)
    return lambda *operands: solve(*operands[skipped : skipped + own], *operands[known:])


def _until_all_have_ended(eqn: Any) -> Callable[..., Any]:
    """A vmapped loop, whose predicate has the batch's shape, with a scalar one: JAX's own meaning.

    It goes on while any element does, and elements that have ended keep their values.
    """
    p = eqn.params
    test, step = (jexc.jaxpr_as_fun(p[name]) for name in ("cond_jaxpr", "body_jaxpr"))
    in_test, in_both = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]

    def run(*operands: Any) -> Any:
        for_test, for_step = operands[:in_test], operands[in_test:in_both]

        def goes_on(carry: Any) -> Any:
            (predicate,) = test(*for_test, *carry)
            return predicate

        def masked(carry: Any) -> Any:
            predicate = goes_on(carry)
            lead = tuple(range(predicate.ndim))
            return [
                lax.select(lax.broadcast_in_dim(predicate, new.shape, lead), new, old)
                for new, old in zip(step(*for_step, *carry), carry, strict=True)
            ]

        def any_goes_on(carry: Any) -> Any:
            predicate = goes_on(carry)
            return lax.reduce_or(predicate, tuple(range(predicate.ndim)))

        return lax.while_loop(any_goes_on, masked, list(operands[in_both:]))

    return run


def _only_body(eqn: Any) -> Any:
    found = [v for v in eqn.params.values() if jaxcompat.is_jaxpr(v)]
    if len(found) != 1:
        raise AssertionError(f"{eqn.primitive.name} has {len(found)} jaxprs in its params, expected one")
    return found[0]


def _copy(var: Any) -> Any:
    return var if isinstance(var, jexc.DropVar) else jaxcompat.new_var(var.aval)
