"""Replays a bundle in a child process: an artifact of unknown origin may crash its runtime, or never come to an end."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from opcompat.bundle import Bundle
from opcompat.isolation import Limits, call
from opcompat.report import Check, OutputCheck
from opcompat.runtime.loaded import load

SECONDS, MEMORY, COPIES = 120.0, 2 << 30, 6
"""Of time in all; of memory, and as many times the size of the bundle's files: runtimes copy and pack weights."""


def replay(bundle: Bundle, format: str) -> tuple[Check, ...]:
    """The checks of one format's recorded reference. Raises BundleError as `LoadedBundle.replay` does.

    Raises LimitError if it takes more time or memory than that, and CrashError if the runtime fails or dies.
    """
    size = sum(info.bytes for info in bundle.manifest.files.values())
    limits = Limits(SECONDS, MEMORY + COPIES * size, mapped=size)
    what = f"{bundle.path}: replaying {format}"
    told = call("opcompat.runtime.apart:run", str(bundle.path), format, what=what, limits=limits)
    return tuple(_check(**one) for one in told)


def run(path: str, format: str) -> list[dict[str, Any]]:
    """What the child does."""
    return [asdict(check) for check in load(path, format=format).replay().checks]


def _check(outputs: list[dict[str, Any]], margins: list[int], **rest: Any) -> Check:
    found = (OutputCheck(**{**output, "series": tuple(output["series"])}) for output in outputs)
    return Check(outputs=tuple(found), margins=tuple(margins), **rest)
