"""Discovery: rules, lints and renderers come in through entry points, the project's own like anyone else's.

A pack is a tuple of rules and lints, under the entry point group `opcompat.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from opcompat.errors import RuleError

if TYPE_CHECKING:
    from opcompat.lint import Lint
    from opcompat.rule import Rule


def rules() -> tuple[Rule, ...]:
    """All installed rules, the project's own first, each pack in its own order."""
    from opcompat.rule import Rule

    return tuple(item for item in _packs() if isinstance(item, Rule))


def lints() -> tuple[Lint, ...]:
    """All installed lints, in the same order."""
    from opcompat.lint import Lint

    return tuple(item for item in _packs() if isinstance(item, Lint))


@cache
def _packs() -> tuple[Rule | Lint, ...]:
    """All rules and lints. Raises RuleError if two rules or lints have one id, or if no pack is installed."""
    found: list[Rule | Lint] = []
    for point in sorted(entry_points(group="opcompat.rules"), key=lambda p: (p.name != "builtin", p.name)):
        found += point.load()
    seen: dict[str, Rule | Lint] = {}
    for item in found:
        other = seen.setdefault(item.id, item)
        if other is not item:
            raise RuleError(f"{item.id} is the id of two: {other.module} and {item.module}")
    if not found:
        raise RuleError("no rules are installed; next: install the package (pip install -e .)")
    return tuple(found)


@cache
def renderers() -> Mapping[str, Callable[..., str]]:
    """The installed report formats by name."""
    return {point.name: point.load() for point in entry_points(group="opcompat.reports")}
