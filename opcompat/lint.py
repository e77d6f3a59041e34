"""Lints: what will go wrong on the device though every operation runs. One frozen value per lint, one lint per file.

A lint looks at one entry point and gives advice; it changes nothing, and advice changes no exit code. It must be
sure: what cannot be decided from the trace is not said.

# Types: Remark, Example, Lint
# View: an entry point as lints see it
# Running: advise
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from opcompat import jaxcompat
from opcompat.contract import Contract
from opcompat.inline import bodies
from opcompat.jaxcompat import NOWHERE, Place
from opcompat.model import EntryPoint, Model
from opcompat.prune import reach
from opcompat.ranges import Range, ranges
from opcompat.report import Advice, relative
from opcompat.trace import Leaf, Trace

_KEY_WORDS = frozenset({"key", "keys", "rng", "rngs", "prng", "seed"})


def _same(value: Any, *_: Any) -> Any:
    return value


_CONSTANT: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "broadcast_in_dim": _same,
    "convert_element_type": _same,
    "copy": _same,
    "copy_p": _same,
    "mul": np.multiply,
    "reshape": _same,
    "squeeze": _same,
    "stop_gradient": _same,
    "sub": np.subtract,
}

# Types


@dataclass(frozen=True)
class Remark:
    """One thing that a lint found: what it is, where, and what to do. Equal ones of several entry points are one."""

    message: str
    place: Place
    next_step: str


@dataclass(frozen=True)
class Example:
    """A policy about which a lint has something to say (or, in `declines`, has not).

    `x64`: under that setting. `half`: for a target that rounds floats to float16.
    """

    name: str
    build: Callable[[], Model]
    x64: bool = False
    half: bool = False


@dataclass(frozen=True)
class Lint:
    """One kind of advice.

    Attributes:
      id: stable, never reused, apart from rules' ids: OC55x and OC56x numerics, OC7xx interface.
      look: gives remarks about one entry point.
      page: the documentation: what it finds, why, and what to do. The first line is the title.
      examples, declines: what the shared test runs.
    """

    id: str
    look: Callable[[View], Iterable[Remark]]
    page: str
    module: str
    examples: tuple[Example, ...]
    declines: tuple[Example, ...]

    @property
    def title(self) -> str:
        return self.page.strip().splitlines()[0].rstrip(".")


# View


@dataclass(frozen=True, eq=False)
class View:
    """One entry point: as the user gave it, as it was traced, and what it is joined to. `views` has all of them.

    `half`: the targets that are asked for and round floats to float16 while the model runs.
    """

    entry: EntryPoint
    trace: Trace
    contract: Contract
    views: Mapping[str, View]
    half: tuple[str, ...] = ()

    @cached_property
    def live(self) -> Any:
        """The traced jaxpr without calls and without dead code."""
        return jaxcompat.dead_code_free(self.trace.closed)

    @cached_property
    def reach(self) -> Mapping[str, frozenset[str]]:
        """By output, the names of the inputs that it depends on, through loops and branches."""
        return reach(self.trace)

    @cached_property
    def used(self) -> frozenset[str]:
        """The inputs that some output depends on."""
        return frozenset[str]().union(*self.reach.values())

    @cached_property
    def state(self) -> frozenset[str]:
        """The inputs that are declared as state: fed back, or started from somewhere."""
        return frozenset(self.contract.feedback.values()) | frozenset(self.contract.starts)

    @cached_property
    def equations(self) -> tuple[Any, ...]:
        """All equations of `live`, each before those of its bodies."""
        return tuple(_equations(self.live))

    def producer(self, atom: Any) -> Any:
        """The equation that makes a value, in the body that it is in; None for literals and what comes from outside."""
        return None if jaxcompat.is_literal(atom) else self._producers.get(atom)

    @cached_property
    def _producers(self) -> Mapping[Any, Any]:
        return {v: eqn for eqn in self.equations for v in eqn.outvars}

    @cached_property
    def function(self) -> Place:
        """Where the entry point's function is defined."""
        function: Any = self.entry.function
        while isinstance(function, partial):
            function = function.func
        function = inspect.unwrap(function)
        code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        return Place(code.co_filename, code.co_firstlineno, code.co_name) if code is not None else NOWHERE

    def first_use(self, name: str) -> Place:
        """The first line that reads a parameter or an input, though it may lead nowhere; else the function's."""
        leaves = (*self.trace.params, *self.trace.inputs)
        p = jaxcompat.parts(self.trace.closed)
        variable = p.invars[next(i for i, leaf in enumerate(leaves) if leaf.name == name)]
        users = (eqn for eqn in p.eqns if any(v is variable for v in eqn.invars))
        return self.place(next(users, None))

    def source(self, name: str) -> Place:
        """The line that computes an output; the function's if none does."""
        index = next(i for i, leaf in enumerate(self.trace.outputs) if leaf.name == name)
        atom = jaxcompat.parts(self.live).outvars[index]
        return self.place(self.producer(atom))

    def range_of(self, output: str) -> Range:
        """Between which values an output lies, as far as the operations prove it."""
        return self._ranges[next(i for i, leaf in enumerate(self.trace.outputs) if leaf.name == output)]

    @cached_property
    def _ranges(self) -> list[Range]:
        return ranges(self.live)

    def place(self, eqn: Any) -> Place:
        """An equation's line; the function's where it has none of the user's."""
        found = NOWHERE if eqn is None else jaxcompat.place_of(eqn.source_info)
        return found if found.file and not found.library else self.function

    def constant(self, atom: Any) -> Any:
        """The one value that all elements have, as a numpy scalar of the dtype it was written in; None if unknown."""
        return _literal(atom) if jaxcompat.is_literal(atom) else self._constants.get(atom)

    @cached_property
    def _constants(self) -> Mapping[Any, Any]:
        """The variables that hold one known value: literals moved about, and the arithmetic of them."""
        known: dict[Any, Any] = {}
        for eqn in self.equations:
            name = eqn.primitive.name
            if name not in _CONSTANT:
                continue
            operands = [_literal(v) if jaxcompat.is_literal(v) else known.get(v) for v in eqn.invars]
            if all(x is not None for x in operands):
                with np.errstate(all="ignore"):
                    known[eqn.outvars[0]] = _CONSTANT[name](*operands)
        return known


def _literal(atom: Any) -> Any:
    value = np.asarray(atom.val, atom.aval.dtype)
    return value[()] if value.ndim == 0 else None


def _equations(closed: Any) -> Iterator[Any]:
    for eqn in jaxcompat.parts(closed).eqns:
        yield eqn
        for _, body in bodies(eqn):
            yield from _equations(body)


def is_key(leaf: Leaf) -> bool:
    """Whether an input is a PRNG key, be it raw words that nothing wraps: then its name says so."""
    words = leaf.dtype == "uint32" and leaf.shape[-1:] in ((2,), (4,))
    return bool(leaf.key) or (words and not _KEY_WORDS.isdisjoint(re.split(r"[._\d]+", leaf.name.lower())))


# Running


def advise(
    model: Model,
    traces: Mapping[str, Trace],
    connected: Mapping[str, Contract],
    lints: Sequence[Lint],
    half: tuple[str, ...] = (),
) -> tuple[Advice, ...]:
    """What the lints say of a model, in their order; what is said of several entry points, once.

    `half`: names of targets that round floats to float16 while the model runs.
    """
    views: dict[str, View] = {}
    views.update(
        (name, View(model.entry_points[name], one, connected[name], views, half)) for name, one in traces.items()
    )
    found: dict[tuple[Lint, Remark], list[str]] = {}
    for lint in lints:
        for name, view in views.items():
            for remark in dict.fromkeys(lint.look(view)):
                found.setdefault((lint, remark), []).append(name)
    return tuple(
        Advice(
            id=lint.id,
            title=lint.title,
            message=remark.message,
            file=relative(remark.place.file),
            line=remark.place.line,
            function=remark.place.function,
            entry_points=tuple(names),
            next_step=remark.next_step,
        )
        for (lint, remark), names in found.items()
    )


def listed(names: Sequence[str]) -> str:
    """'a, b and c', with no more than five."""
    shown = [*names[:4], f"{len(names) - 4} more"] if len(names) > 5 else list(names)
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
