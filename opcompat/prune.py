"""Inputs that reach no output: which they are, and entry points without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from opcompat import jaxcompat
from opcompat.contract import Contract
from opcompat.flow import run
from opcompat.model import EntryPoint, Model
from opcompat.trace import Trace


def reach(one: Trace) -> dict[str, frozenset[str]]:
    """By output, the names of the inputs that it depends on."""
    outs = run(one.closed, [0] * len(one.params) + [1 << i for i in range(len(one.inputs))])
    return {
        leaf.name: frozenset(x.name for i, x in enumerate(one.inputs) if flag >> i & 1)
        for leaf, flag in zip(one.outputs, outs, strict=True)
    }


def unused(one: Trace) -> tuple[str, ...]:
    """The inputs that no output depends on, in order."""
    used = frozenset[str]().union(*reach(one).values())
    return tuple(leaf.name for leaf in one.inputs if leaf.name not in used)


def prune(
    model: Model, traces: Mapping[str, Trace], connected: Mapping[str, Contract]
) -> tuple[Model, dict[str, Trace], dict[str, tuple[str, ...]]]:
    """The model and its traces without inputs that reach no output, and by entry point the names of what is gone.

    State that comes back to such an input stays an output.
    """
    gone = {name: unused(one) for name, one in traces.items()}
    pruned = {name: _without(one, gone[name]) if gone[name] else one for name, one in traces.items()}
    entries = {
        name: _entry(entry, connected[name], gone[name]) if gone[name] else entry
        for name, entry in model.entry_points.items()
    }
    return replace(model, entry_points=entries), pruned, {name: names for name, names in gone.items() if names}


def _without(one: Trace, names: tuple[str, ...]) -> Trace:
    gone = {len(one.params) + i for i, leaf in enumerate(one.inputs) if leaf.name in names}
    inputs = tuple(leaf for leaf in one.inputs if leaf.name not in names)
    return replace(one, closed=without(one.closed, gone), inputs=inputs, arguments=one.inputs)


def _entry(entry: EntryPoint, contract: Contract, names: tuple[str, ...]) -> EntryPoint:
    """The entry point with feedback and init leaf by leaf, for those inputs that are left."""
    init = {
        leaf: start.array if start.array is not None else f"{start.entry_point}.{start.output}"
        for leaf, start in contract.starts.items()
        if leaf not in names
    }
    feedback = {output: into for output, into in contract.feedback.items() if into not in names}
    return replace(entry, feedback=feedback, init=init)


def used(closed: Any) -> set[int]:
    """The positions of the inputs that some equation mentions."""
    p = jaxcompat.parts(closed)
    atoms = {v for e in p.eqns for v in e.invars if not jaxcompat.is_literal(v)}
    atoms.update(v for v in p.outvars if not jaxcompat.is_literal(v))
    return {i for i, v in enumerate(p.invars) if v in atoms}


def without(closed: Any, gone: set[int]) -> Any:
    """The jaxpr without some inputs, on which no result depends. Dead values in loops may still hold them: zeros do."""
    p = jaxcompat.parts(closed)
    consts = dict(zip(p.constvars, p.consts, strict=True))
    consts.update((p.invars[i], _zeros(p.invars[i].aval)) for i in sorted(gone & used(closed)))
    invars = tuple(v for i, v in enumerate(p.invars) if i not in gone)
    return jaxcompat.build(closed, p._replace(constvars=tuple(consts), consts=tuple(consts.values()), invars=invars))


def _zeros(aval: Any) -> Any:
    if not jaxcompat.is_key(aval.dtype):
        return np.zeros(aval.shape, aval.dtype)
    words = jnp.zeros((*aval.shape, *jaxcompat.key_words(aval.dtype)), np.uint32)
    return jax.random.wrap_key_data(words, impl=jaxcompat.key_implementation(aval.dtype))
