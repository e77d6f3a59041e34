"""CRC-32C (Castagnoli, RFC 3720), of large arrays at numpy's speed.

A CRC is linear over GF(2): the CRC of a concatenation is that of the first part, moved on by the second one's length,
xor that of the second. So the data is cut into lanes of equal length, which numpy works off side by side, byte by byte.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78
_LANES = 4096

Words = np.ndarray[Any, np.dtype[np.uint32]]


def crc32c(data: Any) -> int:
    """The checksum of a bytes-like object."""
    bytes_ = np.frombuffer(data, np.uint8)
    length = bytes_.size // _LANES
    lanes = bytes_[: length * _LANES].reshape(_LANES, length)
    state: Words = np.full(_LANES, 0xFFFFFFFF, np.uint32)
    table = _table()
    for column in range(length):
        state = table[(state ^ lanes[:, column]) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
    total = 0
    if length:
        parts, advance = ~state, _advance(length)
        while parts.size > 1:
            parts = _apply(advance, parts[0::2]) ^ parts[1::2]
            advance = _apply(advance, advance)
        total = int(parts[0])
    rest = bytes_[length * _LANES :]
    return int(_apply(_advance(rest.size), np.array([total], np.uint32))[0]) ^ _serial(rest)


def unmask(stored: int) -> int:
    """The checksum behind a stored one: LevelDB's formats store it rotated and with a constant added."""
    rotated = (stored - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def _serial(data: np.ndarray[Any, Any]) -> int:
    table, state = _table(), 0xFFFFFFFF
    for byte in data.tolist():
        state = int(table[(state ^ byte) & 0xFF]) ^ (state >> 8)
    return state ^ 0xFFFFFFFF


@lru_cache(maxsize=1)
def _table() -> Words:
    table: Words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


def _advance(length: int) -> Words:
    """The matrix that moves a CRC on by `length` bytes: 32 columns, one per bit of its argument."""
    one_bit = np.concatenate([[_POLYNOMIAL], 1 << np.arange(31)]).astype(np.uint32)
    result = (1 << np.arange(32)).astype(np.uint32)
    power, bits = one_bit, 8 * length
    while bits:
        if bits & 1:
            result = _apply(power, result)
        power, bits = _apply(power, power), bits >> 1
    return result


def _apply(matrix: Words, words: Words) -> Words:
    """The product of the matrix and each of the words."""
    total = np.zeros_like(words)
    for bit in range(32):
        total ^= np.where((words >> np.uint32(bit)) & np.uint32(1), matrix[bit], np.uint32(0))
    return total
