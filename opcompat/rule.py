"""Rewrite rules: JAX -> JAX, one frozen value per rule, one rule per file in `rewrites/`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jax import lax

from opcompat import jaxcompat
from opcompat.inline import IDENTITIES

Stage = Literal["types", "pattern", "legalize", "decompose"]
"""When a rule acts. `types` are passes of the engine that change dtypes. Patterns see several equations and go first,
largest first; `decompose` is the last resort."""


_BROADCASTING = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "rem",
        "max",
        "min",
        "pow",
        "atan2",
        "nextafter",
        "and",
        "or",
        "xor",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "lt_to",
        "le_to",
        "shift_left",
        "shift_right_logical",
        "shift_right_arithmetic",
    ]
)
"""Primitives whose operands may have dimensions of size one where the result has more."""


@dataclass(frozen=True)
class Exactness:
    """How close a rule's result is to the original's.

    kind "bitwise": the same bits. "ulp": within `ulp` units in the last place of the correctly rounded result,
    or `absolute`, whichever is larger. "distribution": the same distribution from other bits.
    """

    kind: Literal["bitwise", "ulp", "distribution"]
    ulp: int = 0
    absolute: float = 0.0

    def __str__(self) -> str:
        if self.kind != "ulp":
            return {"bitwise": "bit for bit", "distribution": "same distribution"}[self.kind]
        tail = f" or {self.absolute:g}" if self.absolute else ""
        return f"within {self.ulp} ulp{tail}"


BITWISE = Exactness("bitwise")


@dataclass(frozen=True)
class Declined:
    """A rule looked at an equation of its kind and does not act. Reports show the reason."""

    reason: str


@dataclass(frozen=True)
class Replacement:
    """`function(*operands)` stands for the equation's result (a tuple if it has several).

    `operands` are atoms of the jaxpr; literals among them reach the function as traced values, so a function
    that needs a literal's value closes over it. `key` tells replacements of one rule apart: two sites with
    equal keys and operand types share one trace. `covers` are the equations that the replacement stands for:
    the rule acts only if the target lacks one of them.
    """

    function: Callable[..., Any]
    operands: tuple[Any, ...]
    key: Hashable
    covers: tuple[Any, ...]


@dataclass(frozen=True)
class Site:
    """One equation as a rule sees it, with a view of the equations that made its operands."""

    eqn: Any
    producers: Mapping[Any, Any]

    @property
    def name(self) -> str:
        return str(self.eqn.primitive.name)

    @property
    def params(self) -> Mapping[str, Any]:
        return dict(self.eqn.params)

    @property
    def operands(self) -> tuple[Any, ...]:
        return tuple(self.eqn.invars)

    def aval(self, index: int) -> Any:
        return self.eqn.invars[index].aval

    @property
    def result(self) -> Any:
        """The aval of the first result."""
        return self.eqn.outvars[0].aval

    def producer(self, atom: Any, primitive: str) -> Site | None:
        """The site that computes `atom`, if it is of this primitive. What passes values on does not count."""
        atom = self._behind(atom)
        eqn = None if jaxcompat.is_literal(atom) else self.producers.get(atom)
        return Site(eqn, self.producers) if eqn is not None and eqn.primitive.name == primitive else None

    def _behind(self, atom: Any) -> Any:
        """The atom whose value `atom` is, behind what only passes it on."""
        while not jaxcompat.is_literal(atom):
            eqn = self.producers.get(atom)
            if eqn is None or eqn.primitive.name not in IDENTITIES:
                break
            atom = next(x for x, out in zip(eqn.invars, eqn.outvars, strict=True) if out is atom)
        return atom

    def splat(self, atom: Any) -> Any:
        """The one value that all elements of `atom` have, as a numpy scalar; None if that is not known."""
        atom = self._behind(atom)
        if jaxcompat.is_literal(atom):
            return np.asarray(atom.val, atom.aval.dtype)[()] if np.ndim(atom.val) == 0 else None
        eqn = self.producers.get(atom)
        if eqn is None or eqn.primitive.name not in ("broadcast_in_dim", "reshape"):
            return None
        return self.splat(eqn.invars[0])

    def replace(
        self,
        function: Callable[..., Any],
        operands: Sequence[Any] | None = None,
        *,
        key: Hashable = None,
        covers: Sequence[Site] = (),
    ) -> Replacement:
        """A replacement of this equation and of the sites in `covers` (its producers).

        If it takes this equation's own operands, `function` gets them in one shape: equations may broadcast
        dimensions of size one, and rules need not know.
        """
        literals = tuple(v.val if jaxcompat.is_literal(v) else None for v in self.eqn.invars)
        own = (self.name, freeze(self.eqn.params), freeze(literals))
        return Replacement(
            self._same_shapes(function) if operands is None else function,
            self.operands if operands is None else tuple(operands),
            own if key is None and not covers else (own, key) if key is not None else object(),
            (self.eqn, *(site.eqn for site in covers)),
        )

    def _same_shapes(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` of operands that all have the result's shape, where this equation broadcasts them."""
        if self.name not in _BROADCASTING:
            return function
        shape = self.result.shape
        shapes = [v.aval.shape for v in self.eqn.invars]
        if all(s == shape for s in shapes):
            return function

        def broadcast(*operands: Any) -> Any:
            axes = [tuple(range(len(shape) - x.ndim, len(shape))) for x in operands]
            return function(*(lax.broadcast_in_dim(x, shape, a) for x, a in zip(operands, axes, strict=True)))

        return broadcast


Apply = Callable[[Site], "Replacement | Declined | None"]


@dataclass(frozen=True)
class Example:
    """A function of arrays and arguments for it, on which a rule must fire (or, in `declines`, must not).

    `x64`: it means something only where 64-bit types are on.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    x64: bool = False


@dataclass(frozen=True)
class Rule:
    """One rewrite.

    Attributes:
      id: stable, never reused: OC1xx random, 2xx dtype, 3xx indexing, 4xx shape, 5xx numerics, 6xx control flow.
      stage: when it acts.
      primitives: the primitives at the root of what it replaces; empty for any.
      apply: looks at a site; None where the site is not of its kind.
      page: the documentation: before, after, why, and how exact. The first line is the title.
      examples, declines: what the shared test runs.
      optional: it changes results, so it acts only on request.
    """

    id: str
    stage: Stage
    primitives: frozenset[str]
    apply: Apply
    exactness: Exactness
    page: str
    module: str
    examples: tuple[Example, ...] = ()
    declines: tuple[Example, ...] = ()
    optional: bool = False

    @property
    def title(self) -> str:
        return self.page.strip().splitlines()[0].rstrip(".")


def freeze(value: Any) -> Hashable:
    """A hashable stand-in for params: equal values give equal keys; what cannot be compared is only itself."""
    if isinstance(value, Mapping):
        return tuple((k, freeze(v)) for k, v in sorted(value.items()))
    if isinstance(value, tuple | list):
        return tuple(freeze(v) for v in value)
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value)
        return (array.shape, array.dtype.str, array.tobytes())
    if isinstance(value, float):
        return ("float", value.hex())
    try:
        hash(value)
    except TypeError:
        return _Itself(value)
    return (type(value), value)


@dataclass(frozen=True, eq=False)
class _Itself:
    """A key for a value that cannot be hashed: equal to itself alone. It keeps the value alive."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
