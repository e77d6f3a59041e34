"""Where an ONNX file says that its weights lie: checked, and never read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from opcompat.errors import SourceError


@dataclass(frozen=True)
class Stored:
    """A part of a file beside the model: `path` relative to its folder, `end` in bytes, `missing` if not there."""

    path: str
    end: int
    size: int
    missing: bool


def locate(folder: Path, entries: Mapping[str, str], needed: int, owner: str) -> Stored:
    """Where a tensor's data is. `entries` are its external_data, `needed` its bytes, `owner` begins messages.

    Raises SourceError for a path that is absolute, has "..", or leaves the folder by a link, and for numbers that are
    none, negative, or do not fit the tensor.
    """
    location = entries.get("location", "")
    parts = (*PurePosixPath(location).parts, *PureWindowsPath(location).parts)
    if not location or "\0" in location or ".." in parts or os.path.isabs(location) or PureWindowsPath(location).drive:
        raise SourceError(f"{owner}: its data is at {location[:200]!r}, which is no path inside the model's folder")
    path = folder / location
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise SourceError(f"{owner}: its data is at {location[:200]!r}, a link that leaves the model's folder")
    offset = _number(entries, "offset", 0, owner)
    length = _number(entries, "length", needed, owner)
    if length != needed:
        raise SourceError(f"{owner}: has {needed:,} bytes, and its data {length:,}")
    try:
        size = path.stat().st_size if path.is_file() else -1
    except OSError as error:
        raise SourceError(f"{owner}: its data at {location[:200]!r} cannot be found: {error.strerror}") from error
    if 0 <= size < offset + length:
        raise SourceError(
            f"{owner}: its data ends at {offset + length:,} of {location[:200]!r}, which has {size:,} bytes"
        )
    return Stored(location, offset + length, max(size, 0), size < 0)


def _number(entries: Mapping[str, str], key: str, default: int, owner: str) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise SourceError(f"{owner}: the {key} of its data is {text[:40]!r}")
    return int(text)
