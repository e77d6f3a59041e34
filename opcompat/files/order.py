"""Whether things that wait for each other can be put in an order."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def stuck(waits: Sequence[Collection[int]]) -> int | None:
    """The first of those that wait for themselves, directly or through others; None if all can be ordered.

    `waits[i]` are the numbers that i waits for, each once. Takes time linear in their count.
    """
    users: list[list[int]] = [[] for _ in waits]
    left = [len(needed) for needed in waits]
    for i, needed in enumerate(waits):
        for j in needed:
            users[j].append(i)
    ready = [i for i, n in enumerate(left) if not n]
    while ready:
        for user in users[ready.pop()]:
            left[user] -= 1
            if not left[user]:
                ready.append(user)
    return next((i for i, n in enumerate(left) if n), None)
