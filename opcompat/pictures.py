"""What a rule changed, as text: the equations of one place before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opcompat import jaxcompat
from opcompat.inline import bodies
from opcompat.provenance import provenance

if TYPE_CHECKING:
    from opcompat.analyze import Analysis

LONGEST = 4000
"""Of a text, in characters."""

MOST = 40
"""Equations in one text."""


def pictures(analyses: Sequence[Analysis]) -> dict[str, tuple[str, str]]:
    """By rule, what stood at the first place where it acted, and what stands there now, as JAX prints equations."""
    found: dict[str, tuple[str, str]] = {}
    for analysis in analyses:
        firsts: dict[str, str] = {}
        for ident, judgement in analysis.judgements.items():
            for rule in judgement.rules:
                if rule not in found:
                    firsts.setdefault(rule, ident)
        if not firsts:
            continue
        wanted = set(firsts.values())
        before = _by_source(analysis.trace.closed, wanted)
        after = _by_source(analysis.rewritten.closed, wanted)
        for rule, ident in firsts.items():
            found[rule] = (
                text(analysis.trace.closed, before.get(ident, [])),
                text(analysis.rewritten.closed, after.get(ident, [])),
            )
    return found


def _by_source(closed: Any, wanted: set[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for source, eqn in _walk(closed, ""):
        if source in wanted:
            found.setdefault(source, []).append(eqn)
    return found


def _walk(closed: Any, owner: str) -> Iterator[tuple[str, Any]]:
    """Every equation with the original that it belongs to. An original with a body stands for what is in it."""
    for eqn in jaxcompat.parts(closed).eqns:
        source = provenance(eqn).source or owner
        yield source, eqn
        for _, body in bodies(eqn):
            for inner, deeper in _walk(body, source):
                if inner != source:
                    yield inner, deeper


def text(closed: Any, eqns: Sequence[Any]) -> str:
    """Some equations of a jaxpr as a program of its own; "" if there are none, which means that it was folded."""
    shown = eqns[:MOST]
    if not shown:
        return ""
    made = [v for eqn in shown for v in eqn.outvars]
    given = dict.fromkeys(v for eqn in shown for v in eqn.invars if not jaxcompat.is_literal(v) and v not in set(made))
    part = jaxcompat.build(closed, jaxcompat.Parts((), (), tuple(given), tuple(made[-1:]), tuple(shown)))
    left = f"\n... and {len(eqns) - MOST:,} more" if len(eqns) > MOST else ""
    whole = str(part)
    return (whole if len(whole) <= LONGEST else whole[:LONGEST] + " ...") + left
