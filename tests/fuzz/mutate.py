"""Mutations of bytes and of text, whatever they mean. All randomness comes from the caller's generator."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1)
Mutation = Callable[[Random, bytes], bytes]

# Bytes


def flip(rng: Random, data: bytes) -> bytes:
    """Changes one to eight bits."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def truncate(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def cut(rng: Random, data: bytes) -> bytes:
    """Leaves a stretch out."""
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randint(1, 64) :]


def repeat(rng: Random, data: bytes) -> bytes:
    """A stretch, again and again."""
    start = rng.randrange(len(data) + 1)
    end = start + rng.choice((1, 4, 16, 256, 4096))
    return data[:end] + data[start:end] * rng.choice((1, 2, 16, 256)) + data[end:]


def insert(rng: Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(rng.randint(1, 32)) + data[start:]


def number(rng: Random, data: bytes) -> bytes:
    """Writes an extreme or a nearby number over an aligned word: an offset, a length, a size."""
    width = rng.choice((1, 2, 4, 4, 4, 8))
    if len(data) < width:
        return data
    start = rng.randrange(len(data) // width) * width
    old = int.from_bytes(data[start : start + width], "little")
    new = rng.choice((*EXTREMES, old + 1, old - 1, old * 2, len(data), len(data) - start, rng.randrange(1 << 16)))
    return data[:start] + (new % (1 << 8 * width)).to_bytes(width, "little") + data[start + width :]


def swap(rng: Random, data: bytes) -> bytes:
    """Exchanges two stretches of equal length."""
    length = min(rng.choice((4, 16, 64, 512)), len(data) // 2)
    a, b = sorted((rng.randrange(len(data) - length + 1), rng.randrange(len(data) - length + 1)))
    if a + length > b:
        return data
    return data[:a] + data[b : b + length] + data[a + length : b] + data[a : a + length] + data[b + length :]


BYTES: tuple[Mutation, ...] = (flip, flip, truncate, cut, repeat, insert, number, number, number, swap)

# Text

_TOKEN = re.compile(rb"\w+|\s+|[^\w\s]")
_WORDS = (
    b"-1", b"0", b"9999999999", b"18446744073709551616", b"1e999", b"nan", b"null", b"true", b'"', b"'", b"\\", b"\0",
    b"[" * 2000, b"(" * 30_000, b"{" * 2000, b'{"a":' * 2000, b"<" * 2000, b"x" * 100_000, b"tensor<99999999999xf32>",
    b"../../../etc/passwd", b"/etc/passwd", b"%arg0", b"@main", b"\xff\xfe", b"\xed\xa0\x80", "\u202e".encode(), b"=",
)  # fmt: skip


def tokens(rng: Random, data: bytes) -> bytes:
    """Leaves out, repeats, exchanges or replaces one to four tokens."""
    parts = _TOKEN.findall(data) or [b""]
    for _ in range(rng.randint(1, 4)):
        i, j = rng.randrange(len(parts)), rng.randrange(len(parts))
        match rng.randrange(5):
            case 0:
                parts[i] = b""
            case 1:
                parts[i] = parts[i] * rng.choice((2, 3, 100))
            case 2:
                parts[i], parts[j] = parts[j], parts[i]
            case 3:
                parts[i] = parts[j]
            case _:
                parts[i] = rng.choice(_WORDS)
    return b"".join(parts)


def lines(rng: Random, data: bytes) -> bytes:
    """Leaves out, repeats or exchanges a line."""
    parts = data.split(b"\n")
    i, j = rng.randrange(len(parts)), rng.randrange(len(parts))
    match rng.randrange(3):
        case 0:
            del parts[i]
        case 1:
            parts.insert(j, parts[i])
        case _:
            parts[i], parts[j] = parts[j], parts[i]
    return b"\n".join(parts)


TEXT: tuple[Mutation, ...] = (tokens, tokens, tokens, tokens, lines, lines, flip, truncate, cut, repeat, insert)


def mutated(rng: Random, seeds: Sequence[bytes], mutations: Sequence[Mutation]) -> bytes:
    """One of the seeds after one to three mutations."""
    data = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice(mutations)(rng, data)
    return data
