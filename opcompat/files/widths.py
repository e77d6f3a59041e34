"""How many bits an element takes, by the name of its type."""

from __future__ import annotations

import re

_NARROW = {"int4": 4, "uint4": 4, "float4e2m1": 4, "int2": 2, "uint2": 2}


def bits(dtype: str) -> int:
    """Bits of one stored element: sub-byte types are packed. bool takes 8, as do names without a number."""
    if dtype in _NARROW:
        return _NARROW[dtype]
    digits = re.search(r"\d+", dtype)
    return int(digits.group()) if digits else 8
