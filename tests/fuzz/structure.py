"""Mutations that know the format: fields of protobuf messages, of TFLite's tables, and of JSON."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.fuzz.mutate import EXTREMES, flip

# Protobuf, by its wire format alone

_Field = list[Any]  # [number, wire type, value]: an int, bytes, or the fields of a message


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise IndexError


def parse(data: bytes, depth: int = 0) -> list[_Field]:
    """Fields of a message; what parses as messages inside is taken for messages. Raises IndexError for none."""
    at, fields = 0, []
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            fields.append([key >> 3, wire, value])
        elif wire in (1, 5, 2):
            length, at = _varint(data, at) if wire == 2 else (8 if wire == 1 else 4, at)
            if at + length > len(data) or not key >> 3:
                raise IndexError
            part: Any = data[at : at + length]
            at += length
            if wire == 2 and length and depth < 8:
                with contextlib.suppress(IndexError):
                    part = parse(part, depth + 1)
            fields.append([key >> 3, wire, part])
        else:
            raise IndexError
    return fields


def dump(fields: list[_Field]) -> bytes:
    out = bytearray()
    for number, wire, value in fields:
        out += _encode(number << 3 | wire)
        if wire == 0:
            out += _encode(value)
        elif wire == 2:
            data = dump(value) if isinstance(value, list) else value
            out += _encode(len(data)) + data
        else:
            out += value
    return bytes(out)


def _encode(value: int) -> bytes:
    out, value = bytearray(), value % (1 << 64)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _messages(fields: list[_Field]) -> Iterator[list[_Field]]:
    yield fields
    for field in fields:
        if isinstance(field[2], list):
            yield from _messages(field[2])


def protobuf(rng: Random, data: bytes) -> bytes:
    """Changes a field somewhere: gone, doubled, moved, another number, another value, nested in itself."""
    try:
        fields = parse(data)
    except IndexError:
        return flip(rng, data)
    messages = [m for m in _messages(fields) if m]
    if not messages:
        return data
    message = rng.choice(messages)
    i = rng.randrange(len(message))
    field = message[i]
    match rng.randrange(8):
        case 0:
            del message[i]
        case 1:
            message[i:i] = [field] * rng.choice((1, 2, 50))
        case 2:
            other = rng.choice(rng.choice(messages))
            message[i] = copy.deepcopy(other)
        case 3:
            message[i] = [rng.choice((1, 2, 3, 5, 7, 20, 25, 100, 2**28)), *field[1:]]
        case 4 | 5:
            message[i] = [*field[:2], _value(rng, field[2])]
        case 6:
            nested: Any = field[2]
            for _ in range(rng.choice((2, 30, 300))):
                nested = dump([[field[0] or 1, 2, nested if isinstance(nested, bytes | list) else b""]])
            message[i] = [field[0], 2, nested]
        case _:
            rng.shuffle(message)
    return dump(fields)


def _value(rng: Random, value: Any) -> Any:
    if isinstance(value, int):
        return rng.choice((*EXTREMES, value + 1, value ^ 1))
    data = dump(value) if isinstance(value, list) else value
    if len(data) in (4, 8) and rng.random() < 0.3:
        return data  # may be a fixed-width number
    return rng.choice((b"", data[:-1], data * 3, data + b"\0", flip(rng, data), b"../" * 8 + data, b"x" * 200_000))


# TFLite, through the schema's own classes


def tflite(rng: Random, data: bytes) -> bytes:
    """Changes one field of one table, and packs the model again."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    try:
        model = schema.ModelT.InitFromPackedBuf(data)
        for _ in range(rng.randint(1, 3)):
            _change(rng, model, schema)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())
    except Exception:  # noqa: BLE001  # a value that the packer refuses, or data that an earlier mutation broke
        return flip(rng, data)


def _change(rng: Random, model: Any, schema: Any) -> None:
    tables = list(_tables(model))
    table = rng.choice(tables)
    name = rng.choice(sorted(vars(table)))
    value = getattr(table, name)
    if isinstance(value, bool):
        setattr(table, name, not value)
    elif isinstance(value, int):
        setattr(table, name, rng.choice((0, 1, -1, 2, 7, 127, 255, value + 1, 2**15 - 1, 2**31 - 1, -(2**31))))
    elif isinstance(value, bytes | str):
        setattr(table, name, rng.choice((b"", b"x" * 100_000, b"\xff\0", b"../../x")))
    elif value is not None and hasattr(value, "__len__") and len(value):
        items = list(value)
        i = rng.randrange(len(items))
        match rng.randrange(4):
            case 0:
                del items[i]
            case 1:
                items.insert(i, items[i])
            case 2 if isinstance(items[i], int) or hasattr(items[i], "dtype"):
                items[i] = rng.choice((0, -1, 1, 99, 2**30))
            case _:
                items = items * rng.choice((2, 5))
        setattr(table, name, items)
    else:
        setattr(table, name, None)


def _tables(value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _tables(item, depth)
    elif type(value).__name__.endswith("T") and hasattr(value, "Pack") and depth < 6:
        yield value
        for inner in vars(value).values():
            yield from _tables(inner, depth + 1)


# JSON

_PLAIN = (
    None,
    True,
    0,
    -1,
    10**40,
    1e308,
    "",
    "x" * 100_000,
    "../../../etc/passwd",
    "/etc/passwd",
    [],
    {},
    "\u202e",
    "\0",
)


def json_values(rng: Random, data: bytes) -> bytes:
    """Changes one value of a JSON document: gone, of another type, extreme, or nested deeply."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return flip(rng, data)
    places = list(_places(document))
    if not places:
        return data
    owner, key = rng.choice(places)
    match rng.randrange(5):
        case 0:
            del owner[key]
        case 1:
            owner[key] = rng.choice(_PLAIN)
        case 2:
            other, at = rng.choice(places)
            owner[key] = other[at]
        case 3:
            owner[key] = [owner[key]] * 3
        case _:
            text = json.dumps(document)
            depth = rng.choice((10, 900, 100_000))
            return text.replace("null", "[" * depth + "]" * depth, 1).encode() if "null" in text else (
                b"[" * depth + text.encode() + b"]" * depth
            )  # fmt: skip
    try:
        return json.dumps(document).encode()
    except (ValueError, RecursionError):  # a value that now contains itself
        return flip(rng, data)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])
