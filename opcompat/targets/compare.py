"""What differs between two tables of one target: the statements, rank by rank."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opcompat.targets.questions import read_ranks, write_ranks
from opcompat.targets.table import Table

Key = tuple[str, str]
"""(op, everything that a row is about except ranks, as JSON)"""


@dataclass(frozen=True)
class Difference:
    """What two tables say of one kind of node. "" where a table says nothing of it."""

    op: str
    about: str
    before: str
    after: str


def differences(before: Table, after: Table) -> Iterator[Difference]:
    """Statements that differ, op by op; equal ones at several ranks together. Reasons are not compared."""
    old, new = _statements(before), _statements(after)
    for key in sorted({*old, *new}):
        then, now = old.get(key, {}), new.get(key, {})
        changed: dict[tuple[str, str], list[int]] = {}
        for rank in sorted({*then, *now}):
            pair = then.get(rank, ""), now.get(rank, "")
            if pair[0] != pair[1]:
                changed.setdefault(pair, []).append(rank)
        for (was, is_), ranks in changed.items():
            about = json.loads(key[1])
            at = [r for r in ranks if r != _ANY]
            yield Difference(key[0], _words(about) + (f" at rank {write_ranks(at)}" if at else ""), was, is_)


_ANY = -1
_ABOUT = ("dtypes", "types", "since", "until", "shapes", "attrs")


def _statements(table: Table) -> dict[Key, dict[int, str]]:
    found: dict[Key, dict[int, str]] = {}
    for op, rows in table.ops.items():
        for row in rows:
            about = json.dumps({k: row[k] for k in _ABOUT if k in row}, sort_keys=True)
            ranks = read_ranks(row["ranks"]) if "ranks" in row else [_ANY]
            for rank in ranks:
                found.setdefault((op, about), {}).setdefault(rank, row["is"])
    return found


def _words(about: Mapping[str, Any]) -> str:
    parts = []
    for name, value in about.items():
        if isinstance(value, dict):
            parts.append(", ".join(f"{k}: {v}" for k, v in value.items()))
        elif value != "same":
            parts.append(str(value) if name == "dtypes" else f"{name} {value}")
    return "; ".join(parts)
