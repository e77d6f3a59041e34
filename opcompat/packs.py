"""Discovery: rules and renderers come in through entry points, the project's own like anyone else's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from opcompat.errors import RuleError

if TYPE_CHECKING:
    from opcompat.rule import Rule


@cache
def rules() -> tuple[Rule, ...]:
    """All installed rules, the project's own first, each pack in its own order.

    Raises RuleError if two rules have one id, or if no pack is installed.
    """
    found: list[Rule] = []
    for point in sorted(entry_points(group="opcompat.rules"), key=lambda p: (p.name != "builtin", p.name)):
        found += point.load()
    seen: dict[str, Rule] = {}
    for rule in found:
        other = seen.setdefault(rule.id, rule)
        if other is not rule:
            raise RuleError(f"two rules are {rule.id}: {other.module} and {rule.module}")
    if not found:
        raise RuleError("no rules are installed; next: install the package (pip install -e .)")
    return tuple(found)


@cache
def renderers() -> Mapping[str, Callable[..., str]]:
    """The installed report formats by name."""
    return {point.name: point.load() for point in entry_points(group="opcompat.reports")}
