"""Copies an ONNX file without its weights, field by field: nothing in it is believed before it was counted.

A protobuf parser reads all of a file into memory, and trusts every length in it. This pass reads headers, seeks past
the data of tensors, and refuses what no real model has: fields that end outside their message, deep nesting, strings
and graphs of gigabytes. What it returns is small enough for a real parser.

Field numbers: onnx/onnx.proto of the ONNX project. Wire format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from opcompat.errors import SourceError

KEEP = 4096
"""Bytes. Data of tensors up to this size stays: shapes, axes and scalars are among it."""

MAX_STRING = 1 << 20
MAX_GRAPH = 256 << 20
MAX_DEPTH = 64

_DROP, _DATA = "drop", "data"
_TENSOR: Mapping[int, str] = {**dict.fromkeys((4, 5, 6, 7, 9, 10, 11), _DATA), 12: _DROP}
_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {6: _DROP, 7: "graph", 20: _DROP, 25: "function"},
    "graph": {1: "node", 5: "tensor", 10: _DROP, 15: "sparse"},
    "function": {7: "node", 8: _DROP},
    "node": {5: "attribute", 6: _DROP},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 13: _DROP, 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": _TENSOR,
}
"""message -> field -> the message in it, or what becomes of it; other fields are copied."""

_DOC_STRING = 12
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def strip(path: Path) -> bytes:
    """The model without doc strings and training info, and without data of tensors above KEEP bytes.

    Where data was left out, the tensor's doc string is "FIELD:BYTES", the field that held it and its length. Raises
    SourceError for what is no protobuf, or goes beyond the limits above.
    """
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        copier = _Copier(stream, path.name)
        copier.message("model", size, 0)
        return bytes(copier.out)


class _Copier:
    """Reads a file from its beginning on, and writes what stays of it."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self.stream = stream
        self.name = name
        self.place = 0
        self.out = bytearray()

    def message(self, kind: str, end: int, depth: int) -> None:
        """Copies one message, which ends at `end`. Its own header is the caller's."""
        if depth > MAX_DEPTH:
            raise self.damaged(f"messages lie in each other more than {MAX_DEPTH} deep")
        fields, left_out = _FIELDS[kind], ""
        while self.place < end:
            start = self.place
            field, wire = divmod(self.varint(end), 8)
            if wire != _BYTES:
                self.scalar(field, wire, end)
                continue
            length = self.varint(end)
            if length > end - self.place:
                raise self.damaged(f"the field {field} at {start:,} says that it has {length:,} bytes, and ends there")
            action = fields.get(field, "")
            if action == _DROP:
                self.skip(length)
            elif action == _DATA and length > KEEP:
                left_out = f"{field}:{length}"
                self.skip(length)
            elif action in _FIELDS and length > KEEP:
                self.nested(field, action, length, depth)
            else:
                self.copy(field, length)
        if left_out:
            self.header(_DOC_STRING, len(left_out))
            self.write(left_out.encode())

    def nested(self, field: int, kind: str, length: int, depth: int) -> None:
        before, self.out = self.out, bytearray()
        self.message(kind, self.place + length, depth + 1)
        inner, self.out = self.out, before
        self.header(field, len(inner))
        self.write(inner)

    def scalar(self, field: int, wire: int, end: int) -> None:
        if not field or wire not in (_VARINT, _FIXED32, _FIXED64):
            raise self.damaged(f"no field begins at {self.place:,}")
        self.write(_varint(field * 8 + wire))
        if wire == _VARINT:
            self.write(_varint(self.varint(end)))
            return
        self.write(self.read(4 if wire == _FIXED32 else 8, end))

    def copy(self, field: int, length: int) -> None:
        if length > MAX_STRING:
            raise self.damaged(f"the field {field} at {self.place:,} has {length:,} bytes")
        self.header(field, length)
        self.write(self.read(length, self.place + length))

    def header(self, field: int, length: int) -> None:
        self.write(_varint(field * 8 + _BYTES) + _varint(length))

    def write(self, data: bytes | bytearray) -> None:
        self.out += data
        if len(self.out) > MAX_GRAPH:
            raise SourceError(f"{self.name}: has more than {MAX_GRAPH >> 20} MiB beside its weights")

    def read(self, count: int, end: int) -> bytes:
        data = self.stream.read(count) if count <= end - self.place else b""
        if len(data) < count:
            raise self.damaged(f"it ends within the field at {self.place:,}")
        self.place += count
        return data

    def skip(self, count: int) -> None:
        self.stream.seek(count, os.SEEK_CUR)
        self.place += count

    def varint(self, end: int) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.read(1, end)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF
        raise self.damaged(f"the number that ends at {self.place:,} is too long")

    def damaged(self, why: str) -> SourceError:
        return SourceError(f"{self.name}: is no ONNX file, or damaged: {why}")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
