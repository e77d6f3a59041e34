"""The child's half of `opcompat.isolation`: `python -m opcompat.isolated` serves requests until its input ends.

It answers on what was its standard output. All that a function or a library prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from opcompat.errors import OpcompatError
from opcompat.isolation import HEADER

_GRACE = 30.0
"""Seconds beyond the limit after which the child ends itself: its parent may be dead."""


def main() -> None:
    """Serves one function, which the first request names, with the limits that it gives."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    first = _read(requests)
    if first is None:
        return
    limits = first["limits"]
    module, _, name = first["function"].partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    _limit(limits["memory"], limits["mapped"])
    _write(answers, {"value": None})
    while (request := _read(requests)) is not None:
        # A thread of C, which ends the process even where Python's interpreter is held.
        faulthandler.dump_traceback_later(limits["seconds"] + _GRACE, exit=True)
        answer = _run(function, request["args"], limits["result"])
        faulthandler.cancel_dump_traceback_later()
        _write(answers, answer)


def _run(function: Callable[..., Any], args: list[Any], most: int) -> bytes:
    """The answer as JSON: the result, or the exception."""
    try:
        text = json.dumps({"value": function(*args)}).encode()
    except OpcompatError as error:
        return _told(type(error).__name__, str(error))
    except Exception as error:  # noqa: BLE001  # whatever it is, the parent has to hear of it
        return _told(type(error).__name__, str(error))
    return text if len(text) <= most else _told("result", "")


def _told(kind: str, message: str) -> bytes:
    short = message if len(message) <= 4000 else message[:4000] + " ..."
    return json.dumps({"error": {"type": kind, "message": short}}).encode()


def _limit(memory: int, mapped: int) -> None:
    """Limits private data to `memory` bytes above what it is now, the address space to as much and `mapped` bytes."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        pages = Path("/proc/self/statm").read_text().split()
        size, data = (int(pages[i]) * resource.getpagesize() for i in (0, 5))
        for kind, most in ((resource.RLIMIT_AS, size + memory + mapped), (resource.RLIMIT_DATA, data + memory)):
            resource.setrlimit(kind, (most, most))


def _read(stream: IO[bytes]) -> dict[str, Any] | None:
    """The next message; None at the end of the input."""
    length = stream.read(HEADER)
    if len(length) < HEADER:
        return None
    message: dict[str, Any] = json.loads(stream.read(int.from_bytes(length, "big")))
    return message


def _write(stream: IO[bytes], answer: dict[str, Any] | bytes) -> None:
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    stream.write(len(text).to_bytes(HEADER, "big") + text)
    stream.flush()


if __name__ == "__main__":
    main()
