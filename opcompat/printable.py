"""Text of unknown origin, made safe to show: on terminals, in reports and in messages."""

from __future__ import annotations

import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: object, keep: str = "") -> str:
    """`text` with control, direction and surrogate characters visible as escapes; those in `keep` stay."""
    plain = str(text)
    if plain.isascii() and plain.isprintable():
        return plain
    return "".join(c if c in keep or unicodedata.category(c) not in _UNSAFE else ascii(c)[1:-1] for c in plain)


__all__ = ["printable"]
