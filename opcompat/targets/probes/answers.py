"""Answers of a runtime -> rows of its table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from opcompat.targets.probes.case import Case
from opcompat.targets.questions import questions, read_ranks, write_ranks

Key = tuple[str, str, str, str]
"""(op, dtypes, deciding attributes as JSON, kind of shapes)"""

Answers = dict[Key, dict[int, tuple[str, str]]]
"""Key -> rank -> why not with ordinary values, and why not with special ones ("" where it is right)."""


def key(case: Case) -> Key:
    node = case.node[0]
    return case.op, next(iter(questions(node))).dtypes, json.dumps(case.attributes, sort_keys=True), case.kind


class Asks(Protocol):
    """A sandbox, of whatever kind."""

    def ask(self, case: Case) -> str:
        """Why the case is not right, or nothing."""


def probe(questions: Iterable[Case], sandbox: Asks) -> tuple[Answers, int]:
    """Asks every case. Of several cases with one key, all must succeed. Returns the answers and how many ran.

    What is right for special values, which have ordinary ones among them, is not asked again with ordinary ones of
    the same shapes, if those come later.
    """
    answers: Answers = defaultdict(dict)
    covered: set[tuple[Key, int]] = set()
    tried = 0
    for case in questions:
        about = key(case)
        ranks = answers[about]
        plain, special = ranks.get(case.rank, ("", ""))
        if plain or (special and case.special):
            continue  # already known not to run
        if not case.special and not special and (about, case.rank) in covered:
            continue
        tried += 1
        reason = sandbox.ask(case)
        ranks[case.rank] = (plain, reason) if case.special else (reason, special)
        if case.special:
            covered.add((about, case.rank))
    return answers, tried


def rows(answers: Answers) -> dict[str, list[dict[str, Any]]]:
    """Rows by op: equal answers at several ranks together, what runs before what does not."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (op, dtypes, attrs, kind), ranks in sorted(answers.items()):
        same = {"dtypes": dtypes, "shapes": kind, **({"attrs": json.loads(attrs)} if attrs != "{}" else {})}
        groups: dict[tuple[str, str], list[int]] = defaultdict(list)
        for rank, reasons in sorted(_trusted(ranks).items()):
            groups[reasons].append(rank)
        for (plain, special), at in sorted(groups.items()):
            found[op].append({**_status(plain, special), **same, "ranks": write_ranks(at)})
    return {op: sorted(spread(rows_), key=_order) for op, rows_ in sorted(found.items())}


def spread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One op's rows, with values that are wrong at one common rank doubted at all, and where shapes are broadcast.

    Special values are asked with equal shapes alone, and a scalar holds just one of them.
    """
    doubts = {
        (row["dtypes"], json.dumps(row.get("attrs", {}), sort_keys=True)): row["when"]
        for row in rows
        if row["is"] == "conditional" and min(read_ranks(row["ranks"])) in _COMMON_RANKS
    }
    found = []
    for row in rows:
        when = doubts.get((row["dtypes"], json.dumps(row.get("attrs", {}), sort_keys=True)))
        found.append({**row, "is": "conditional", "when": when} if when and row["is"] == "yes" else row)
    return found


_COMMON_RANKS = range(6)


def _trusted(ranks: Mapping[int, tuple[str, str]]) -> Mapping[int, tuple[str, str]]:
    """The answers, less those that are right by chance.

    A kernel that leaves its result unwritten gives what the memory held, which may be right. So a kernel that is wrong
    at one of the ranks that all kernels are made for is not believed at any other.
    """
    plain = {rank: ranks[rank][0] for rank in _COMMON_RANKS if rank in ranks}
    wrong = [rank for rank, why in plain.items() if why.startswith("wrong: ") and not why.startswith("wrong: shape")]
    if not wrong:
        return ranks
    doubt = f"wrong at rank {wrong[0]}, so right by chance here"
    return {rank: (why or doubt, special) for rank, (why, special) in ranks.items()}


def _status(plain: str, special: str) -> dict[str, Any]:
    if plain:
        return {"is": "no", "why": plain}
    if special.startswith("wrong: "):
        return {"is": "conditional", "when": [{"text": f"right for ordinary values only ({special})"}]}
    return {"is": "no", "why": special} if special else {"is": "yes"}


def _order(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["dtypes"], row["shapes"], ("yes", "conditional", "no").index(row["is"])
