"""The variables of a SavedModel: a "tensor bundle", which is an index (a sorted string table as in LevelDB, of protobuf
entries) and data files with the bytes of the tensors. Formats: tensorflow/core/util/tensor_bundle/tensor_bundle.h and
tensorflow/core/lib/io/table_format.txt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opcompat.errors import SourceError
from opcompat.sources.tf import messages
from opcompat.sources.tf.crc32c import crc32c, unmask

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
MAX_INDEX = 1 << 28
"""Of an index, in bytes: a million tensors with long names."""


@dataclass(frozen=True)
class Checkpoint:
    """`prefix` is PATH/variables; `entries` has what the index says of each tensor, by its key."""

    prefix: Path
    shards: int
    entries: Mapping[str, Any]

    def read(self, key: str) -> np.ndarray[Any, Any]:
        """The tensor of a key, mapped from its file. Raises SourceError if it is not there, or is not what it was."""
        where = f"{self.prefix}: {key}"
        if key not in self.entries:
            raise SourceError(f"{where}: there is no such variable in the checkpoint")
        entry = self.entries[key]
        if len(entry.slices):
            raise SourceError(f"{where}: is stored in slices; next: save the model without partitioned variables")
        dtype = messages.dtype_of(entry.dtype, where)
        shape = [int(n or 0) for n in messages.shape_of(entry.shape, where)]
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize if shape else dtype.itemsize
        if entry.size != size or entry.offset < 0 or not 0 <= entry.shard_id < self.shards:
            raise SourceError(f"{where}: the index says {entry.size} bytes, and its shape {shape} takes {size}")
        if not size:
            return np.zeros(shape, dtype)
        file = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard_id:05d}-of-{self.shards:05d}")
        try:
            if file.stat().st_size < entry.offset + size:
                raise SourceError(f"{where}: {file.name} ends before it does")
            data = np.memmap(file, np.uint8, "r", entry.offset, (size,))
        except OSError as error:
            raise SourceError(f"{where}: cannot read {file}: {error.strerror}") from error
        if crc32c(data) != unmask(entry.crc32c):
            raise SourceError(f"{where}: the checksum does not fit; {file.name} is damaged")
        return np.asarray(data).view(dtype).reshape(shape)


def opened(prefix: Path) -> Checkpoint:
    """The checkpoint at PREFIX.index. Raises SourceError."""
    path = prefix.with_name(f"{prefix.name}.index")
    try:
        if path.stat().st_size > MAX_INDEX:
            raise SourceError(f"{path}: more than {MAX_INDEX:,} bytes, which is no index")
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error
    try:
        found = dict(_table(data, str(path)))
    except (IndexError, ValueError) as error:
        raise SourceError(f"{path}: damaged: {error}") from error
    header = messages.parse("BundleHeaderProto", found.pop(b"", b""), str(path))
    if header.endianness:
        raise SourceError(f"{path}: written on a big-endian machine, which is not read")
    entries = {
        key.decode("utf-8", "replace"): messages.parse("BundleEntryProto", value, str(path))
        for key, value in found.items()
    }
    return Checkpoint(prefix, header.num_shards, entries)


def _table(data: bytes, where: str) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a sorted string table."""
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise SourceError(f"{where}: is no index of a checkpoint, or is cut off")
    footer = data[-_FOOTER:]
    _, position = _handle(footer, 0)
    index, _ = _handle(footer, position)
    for _, value in _block(data, index, where):
        handle, _ = _handle(value, 0)
        yield from _block(data, handle, where)


def _block(data: bytes, handle: tuple[int, int], where: str) -> Iterator[tuple[bytes, bytes]]:
    offset, size = handle
    end = offset + size
    if end + _TRAILER > len(data) - _FOOTER:
        raise SourceError(f"{where}: damaged: a block lies outside the file")
    if data[end] != 0:
        raise SourceError(f"{where}: is compressed; next: save the model with TensorFlow's own default")
    if crc32c(data[offset : end + 1]) != unmask(int.from_bytes(data[end + 1 : end + _TRAILER], "little")):
        raise SourceError(f"{where}: the checksum of a block does not fit; the file is damaged")
    restarts = int.from_bytes(data[end - 4 : end], "little")
    stop = end - 4 - 4 * restarts
    key, position = b"", offset
    while position < stop:
        shared, position = _varint(data, position)
        fresh, position = _varint(data, position)
        length, position = _varint(data, position)
        if shared > len(key) or position + fresh + length > stop:
            raise SourceError(f"{where}: damaged: an entry lies outside its block")
        key = key[:shared] + data[position : position + fresh]
        position += fresh
        yield key, data[position : position + length]
        position += length


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
