"""Entry points with their draws replaced: keys leave the interface, and noise enters it.

# Drafts: each entry point with its draws replaced, and what in its interface is a key
# Joining: a key that is fed back, or starts a state, goes with what it is joined to
# Finishing: traces and the model's contract without what is gone
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from opcompat import jaxcompat
from opcompat.contract import Contract, contracts
from opcompat.errors import UnsupportedError
from opcompat.flow import Flag, Rules, depends, run
from opcompat.inline import inline
from opcompat.jaxcompat import Place
from opcompat.keys import STRUCTURAL
from opcompat.manifest import Noise, Sampling
from opcompat.model import EntryPoint, Model
from opcompat.prune import used, without
from opcompat.sampling.draws import KEY_PRIMITIVES, Mode, Slot, recognised_as, replace_draws
from opcompat.sampling.samplers import recognise
from opcompat.trace import Leaf, Trace, hoist, path_name
from opcompat.walk import originals


@dataclass(frozen=True)
class Sampled:
    """A model and its traces under a sampling mode.

    Attributes:
      model: the model, with what its feedback and init still join.
      traces: the entry points to convert and verify.
      dropped: by entry point, the names of the inputs and outputs that are gone.
      pruned: by entry point, the names of inputs that are left out because they reach no output.
      slots: by entry point, the draws that became inputs, with the inputs' names ("" where nothing uses it).
      original: the model and the traces that it was made from.
    """

    mode: Sampling
    model: Model
    traces: Mapping[str, Trace]
    original: tuple[Model, Mapping[str, Trace]]
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slots: Mapping[str, tuple[tuple[Slot, str], ...]] = field(default_factory=dict)
    pruned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def apply(model: Model, traces: Mapping[str, Trace], mode: Sampling) -> Sampled:
    """The model in a sampling mode; "exact" changes nothing.

    Raises UnsupportedError, with the place and the next step, for a draw that the mode cannot replace and for keys
    that are used for something else than draws.
    """
    if mode == "exact":
        return Sampled(mode, model, traces, (model, traces))
    drafts = {name: _draft(one, mode) for name, one in traces.items()}
    _join(drafts, contracts(model, traces))
    done = {name: _finish(draft) for name, draft in drafts.items()}
    entries = {name: _contract(model.entry_points[name], drafts, name) for name in traces}
    return Sampled(
        mode,
        replace(model, entry_points=entries),
        {name: one for name, (one, _) in done.items()},
        (model, traces),
        {name: draft.dropped() for name, draft in drafts.items()},
        {name: tuple(zip(drafts[name].slots, names, strict=True)) for name, (_, names) in done.items()},
    )


def with_draws(one: Trace, mode: Mode) -> tuple[Any, tuple[Leaf, ...], Mapping[str, Any]]:
    """The entry point's jaxpr with calls dissolved, but for draws, as (closed, parameters, their values)."""
    recognised = recognised_as(mode)
    closed, hoisted = hoist(inline(one.nested, keep=lambda eqn: recognise(eqn, recognised) is not None))
    own = len(jaxcompat.parts(one.nested).invars) - len(one.inputs)
    params = (*hoisted, *one.params[len(one.params) - own :])
    weights = {**one.weights, **{leaf.name: value for leaf, value in hoisted.items()}}
    return jaxcompat.dead_code_free(closed), params, weights


def live(one: Trace, params: Sequence[Leaf]) -> list[bool]:
    """Which inputs of the jaxpr change from call to call: arguments do, parameters do not."""
    return [False] * len(params) + [True] * len(one.inputs)


# Drafts


@dataclass
class _Draft:
    trace: Trace
    mode: Mode
    closed: Any
    params: tuple[Leaf, ...]
    weights: Mapping[str, Any]
    slots: tuple[Slot, ...]
    inputs: set[str]
    """Names of the inputs that are keys, or joined to one."""
    outputs: set[str]

    def dropped(self) -> tuple[str, ...]:
        return tuple(sorted(self.inputs | self.outputs))


def _draft(one: Trace, mode: Mode) -> _Draft:
    before, params, weights = with_draws(one, mode)
    closed, slots = replace_draws(before, live(one, params), mode, one.entry_point)
    inputs = {leaf.name for i, leaf in enumerate(one.inputs) if leaf.key or _is_wrapped(before, len(params) + i)}
    flags = [False] * len(params) + [leaf.name in inputs for leaf in one.inputs]
    words = run(before, flags, Rules(_key_words))
    outputs = {leaf.name for leaf, is_key in zip(one.outputs, words, strict=True) if is_key and _may_be_key(leaf)}
    return _Draft(one, mode, closed, params, weights, slots, inputs, outputs)


def _may_be_key(leaf: Leaf) -> bool:
    return bool(leaf.key) or (leaf.dtype == "uint32" and leaf.shape[-1:] in ((2,), (4,)))


def _key_words(eqn: Any, flags: Sequence[Flag]) -> list[Flag]:
    """Keys, and their words, stay what they are when they are moved about."""
    moved = eqn.primitive.name in STRUCTURAL and any(flags)
    return [moved or eqn.primitive.name == "random_unwrap" or jaxcompat.is_key(v.aval.dtype) for v in eqn.outvars]


def _is_wrapped(closed: Any, index: int) -> bool:
    """Whether an input of raw words is made a key of, in the body of a loop or branch, too."""
    invars = jaxcompat.parts(closed).invars
    aval = invars[index].aval
    if aval.dtype != np.uint32 or aval.shape[-1:] not in ((2,), (4,)):
        return False
    found: list[Any] = []

    def follow(eqn: Any, flags: Sequence[Flag]) -> list[Flag]:
        if eqn.primitive.name == "random_wrap" and flags[0]:
            found.append(eqn)
        return [eqn.primitive.name in STRUCTURAL and any(flags)] * len(eqn.outvars)

    run(closed, [i == index for i in range(len(invars))], Rules(follow))
    return bool(found)


# Joining


def _join(drafts: Mapping[str, _Draft], connected: Mapping[str, Contract]) -> None:
    """Adds to each draft what is joined, by feedback or init, to something that is gone, until nothing is."""
    links = [
        ((drafts[name].outputs, output), (drafts[name].inputs, into))
        for name, contract in connected.items()
        for output, into in contract.feedback.items()
    ] + [
        ((drafts[start.entry_point].outputs, start.output), (drafts[name].inputs, into))
        for name, contract in connected.items()
        for into, start in contract.starts.items()
        if start.array is None
    ]
    for _ in links:
        for (outputs, output), (inputs, into) in links:
            if output in outputs or into in inputs:
                outputs.add(output)
                inputs.add(into)


# Finishing


def _finish(draft: _Draft) -> tuple[Trace, tuple[str, ...]]:
    """The finished trace, and the name of each slot's input."""
    one = draft.trace
    p = jaxcompat.parts(draft.closed)
    kept = [i for i, leaf in enumerate(one.outputs) if leaf.name not in draft.outputs]
    closed = jaxcompat.build(draft.closed, p._replace(outvars=tuple(p.outvars[i] for i in kept)))
    closed = jaxcompat.dead_code_free(closed)
    first = len(draft.params)
    gone = {first + i for i, leaf in enumerate(one.inputs) if leaf.name in draft.inputs}
    _check_unused(draft, closed, gone)
    mentioned = used(closed)
    names = _names(draft, mentioned)
    closed = without(closed, gone | {len(p.invars) - len(names) + i for i, name in enumerate(names) if not name})
    closed = inline(closed, mark=True)
    noise = [_noise_leaf(slot, name) for slot, name in zip(draft.slots, names, strict=True) if name]
    finished = Trace(
        one.entry_point,
        closed,
        draft.params,
        (*(leaf for leaf in one.inputs if leaf.name not in draft.inputs), *noise),
        tuple(one.outputs[i] for i in kept),
        draft.weights,
        originals(closed),
        None,
    )
    return finished, names


def _check_unused(draft: _Draft, closed: Any, gone: set[int]) -> None:
    """Raises UnsupportedError if a result still depends on an input that is a key."""
    flags = [i in gone for i in range(len(jaxcompat.parts(closed).invars))]
    culprits: list[Any] = []

    def note(eqn: Any, into: Sequence[Flag]) -> list[Flag]:
        if any(into) and eqn.primitive.name not in KEY_PRIMITIVES - {"random_unwrap"}:
            culprits.append(eqn)
        return depends(eqn, into)

    outs = run(closed, flags, Rules(note))
    if not any(outs):
        return
    place = jaxcompat.place_of(culprits[0].source_info) if culprits else jaxcompat.NOWHERE
    what = culprits[0].primitive.name if culprits else "a result"
    raise UnsupportedError(
        f"{draft.trace.entry_point}: {', '.join(sorted(draft.inputs))} is a PRNG key, and {what} at {place} uses it "
        f"for something else than a draw; sampling {recognised_as(draft.mode)} has no keys; next: draw by the "
        "functions of jax.random there, pass what is needed as an argument of its own, or convert with --sampling exact"
    )


def _names(draft: _Draft, used: set[int]) -> tuple[str, ...]:
    """A name for each slot that something uses, after its place: "noise.dreamer_112_sample", the next "..._2"."""
    taken = {leaf.name for leaf in draft.trace.inputs}
    first = len(draft.params) + len(draft.trace.inputs)
    names = []
    for index, slot in enumerate(draft.slots):
        base = name = f"noise.{_words(slot.place)}"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        names.append(name if first + index in used else "")
        taken.update(filter(None, names[-1:]))
    return tuple(names)


def _words(place: Place) -> str:
    function = place.function.rpartition(".")[2]
    parts = [Path(place.file).stem, str(place.line), function] if place.file else ["draw"]
    return "_".join(filter(None, (re.sub(r"\W+", "_", part, flags=re.ASCII).strip("_") for part in parts)))


def _noise_leaf(slot: Slot, name: str) -> Leaf:
    place = f"{Path(slot.place.file).name}:{slot.place.line}" if slot.place.file else ""
    dtype = np.dtype(slot.dtype).name
    return Leaf(name, slot.shape, dtype, noise=Noise(slot.distribution, place, slot.place.function))


def _contract(entry: EntryPoint, drafts: Mapping[str, _Draft], name: str) -> EntryPoint:
    """The entry point with feedback and init for what is left."""
    draft = drafts[name]
    inputs = [leaf.name for leaf in draft.trace.inputs if leaf.name not in draft.inputs]
    init: dict[str, Any] = {}
    for into, source in entry.init.items():
        if isinstance(source, str):
            init.update({into: source} if _some(inputs, into) else {})
        else:
            init.update((leaf, value) for leaf, value in _arrays(into, source) if leaf in inputs)
    feedback = {output: into for output, into in entry.feedback.items() if _some(inputs, into)}
    return replace(entry, feedback=feedback, init=init)


def _some(names: Sequence[str], prefix: str) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for name in names)


def _arrays(prefix: str, tree: Any) -> list[tuple[str, Any]]:
    """(leaf's name, array) of a pytree that is named by a prefix."""
    flat = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(".".join(filter(None, (prefix, path_name(path)))), leaf) for path, leaf in flat]
