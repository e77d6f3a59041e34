"""Lines of the user's source around places, of files below one of a few folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from opcompat.report import Excerpt

AROUND = 3
MOST = 500
LONGEST = 200
"""Lines before and after a place, excerpts in a report, characters of a line."""

_MAX_BYTES = 4 << 20


def excerpts_of(places: Iterable[tuple[str, int]], root: Path | None) -> dict[str, Excerpt]:
    """By "file:line", the lines around. Files outside `root` and the working directory are not read."""
    allowed = [folder.resolve() for folder in (Path.cwd(), *([root] if root else []))]
    files: dict[str, list[str]] = {}
    found: dict[str, Excerpt] = {}
    for file, line in places:
        name = f"{file}:{line}"
        if not file or name in found or len(found) >= MOST:
            continue
        if file not in files:
            files[file] = _lines(Path(file), allowed)
        first = max(line - AROUND, 1)
        lines = files[file][first - 1 : line + AROUND]
        if lines:
            found[name] = Excerpt(first, tuple(text[:LONGEST] for text in lines))
    return found


def _lines(path: Path, allowed: list[Path]) -> list[str]:
    try:
        real = path.resolve()
        if not any(real.is_relative_to(folder) for folder in allowed):
            return []
        if not real.is_file() or real.stat().st_size > _MAX_BYTES:
            return []
        return real.read_text("utf-8", errors="replace").split("\n")
    except OSError:
        return []
