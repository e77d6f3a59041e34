"""Which original equation an equation comes from, and through which rules: kept in the name stack.

The name stack survives every JAX transformation and is part of each equation, so no table beside the jaxpr
can get out of step. Two kinds of scope are ours: "oc=ID" marks an original equation, "oc+OC101" a rule.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from opcompat import jaxcompat

_MARK = "\ue0c0"  # of the private use area: no user's named_scope begins like this
_ID = _MARK + "oc="
_RULE = _MARK + "oc+"


class Provenance(NamedTuple):
    """`source` is the original equation's id ("" if none); `rules` are in the order in which they acted."""

    source: str
    rules: tuple[str, ...]


@lru_cache(maxsize=65536)
def _parse(name_stack: Any) -> Provenance:
    names = [str(scope.name) for scope in name_stack.stack if hasattr(scope, "name")]
    source = next((n[len(_ID) :] for n in reversed(names) if n.startswith(_ID)), "")
    return Provenance(source, tuple(n[len(_RULE) :] for n in names if n.startswith(_RULE)))


def provenance(eqn: Any) -> Provenance:
    """The provenance of an equation, as marked. Unmarked equations in bodies belong to the body's owner."""
    return _parse(eqn.source_info.name_stack)


@lru_cache(maxsize=65536)
def _users(name_stack: Any) -> tuple[str, ...]:
    names = (str(scope.name) for scope in name_stack.stack if hasattr(scope, "name"))
    return tuple(name for name in names if not name.startswith(_MARK))


def scopes(eqn: Any) -> tuple[str, ...]:
    """The named scopes of the user's that an equation is in, and the transformations that it came through."""
    return _users(eqn.source_info.name_stack)


def mark_source(source_info: Any, ident: str) -> Any:
    return jaxcompat.extend_name_stack(source_info, _ID + ident)


def mark_rule(source_info: Any, rule: str) -> Any:
    return jaxcompat.extend_name_stack(source_info, _RULE + rule)
