"""A run's folder: each model's outcome as soon as there is one, so that a rerun of a run that did not end resumes.

check.json     the report of the run that ended last
unfinished     there while a run goes on
results/       an outcome for each model
bundles/       the artifacts
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opcompat.checking.options import Task
from opcompat.errors import OutputError

MARK = "opcompat-check"
UNFINISHED = "unfinished"
REPORT = "check.json"

_MOST_FILES = 20_000
_SKIPPED = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class Folder:
    """The folder of one run; see the module."""

    path: Path

    @staticmethod
    def begin(path: Path) -> Folder:
        """Opens a new folder, or one of an earlier run: outcomes stay only if that run did not end.

        Raises OutputError if the folder holds something else, or cannot be written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()) and not (path / MARK).is_file():
                raise OutputError(f"{path}: exists and holds no check of opcompat: choose another --out")
            (path / MARK).write_text("opcompat check keeps its results here.\n", encoding="utf-8")
            if not (path / UNFINISHED).exists():
                shutil.rmtree(path / "results", ignore_errors=True)
                shutil.rmtree(path / "bundles", ignore_errors=True)
            (path / "results").mkdir(exist_ok=True)
            (path / UNFINISHED).touch()
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        return Folder(path)

    def end(self, report: str) -> None:
        """Writes the report; the next run starts afresh."""
        write(self.path / REPORT, report)
        (self.path / UNFINISHED).unlink(missing_ok=True)

    def bundle(self, key: str) -> str:
        return str((self.path / "bundles" / slug(key)).resolve())

    def load(self, task: Task) -> dict[str, Any] | None:
        """The outcome of this very task, of sources that have not changed since."""
        try:
            stored = json.loads(self._file(task).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(stored, dict) or stored.get("task") != identity(task):
            return None
        outcome = stored.get("outcome")
        return outcome if isinstance(outcome, dict) else None

    def save(self, task: Task, outcome: Mapping[str, Any]) -> None:
        write(self._file(task), json.dumps({"task": identity(task), "outcome": outcome}))

    def _file(self, task: Task) -> Path:
        return self.path / "results" / f"{slug(task.key)}.json"


def slug(key: str) -> str:
    """A file name for a model's key, which may hold anything."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", key).strip("-")[:60]
    return f"{plain or 'model'}-{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def identity(task: Task) -> str:
    """Changes with the task, with opcompat's version, and with any file of the source's folder."""
    import opcompat

    digest = hashlib.sha256(json.dumps(task.plain(), sort_keys=True).encode())
    digest.update(opcompat.__version__.encode())
    base = Path(task.cwd or ".")
    source = base / task.source
    for line in _stamps(source if source.exists() else base):
        digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _stamps(path: Path) -> Iterator[str]:
    """Size and time of change of every file that a source may be read from."""
    count = 0
    for folder, names, files in os.walk(path if path.is_dir() else path.parent):
        names[:] = sorted(n for n in names if not n.startswith(".") and n not in _SKIPPED and not _is_own(folder, n))
        for name in sorted(files):
            file = Path(folder) / name
            count += 1
            if count > _MOST_FILES:
                return
            try:
                info = file.stat()
            except OSError:
                continue
            yield f"{file}\0{info.st_size}\0{info.st_mtime_ns}\n"


def _is_own(folder: str, name: str) -> bool:
    """Whether a folder is one of ours: results do not change what they are results of."""
    return os.path.exists(os.path.join(folder, name, MARK))


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all. Raises OutputError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            temporary.write_text(text, encoding="utf-8", newline="\n")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
