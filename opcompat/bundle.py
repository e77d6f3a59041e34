"""A bundle on disk: read with checks, written whole or not at all.

Writing happens in a hidden folder beside the output, which is renamed into place when it is complete. The
writer holds a lock on that folder, so the next run can tell what a killed run left from what a live one is
doing, and clean up after the first.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from opcompat.errors import BundleError, OutputError
from opcompat.manifest import (
    MANIFEST,
    MAX_BYTES,
    FileInfo,
    Manifest,
    check_manifest,
    parse_json,
    parse_manifest,
)

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

# Reading


@dataclass(frozen=True)
class Bundle:
    """A folder that `convert` wrote, and what its manifest says."""

    path: Path
    manifest: Manifest

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Bundle:
        """Reads the manifest and checks that its files are there, with their sizes, inside the folder.

        Contents are not read: see `check_files`. Raises BundleError.
        """
        folder = Path(path)
        with _errors_as_bundle(folder):
            if not folder.is_dir():
                raise BundleError(f"{folder}: no such folder; a bundle is what `opcompat convert` writes")
            text = _read_manifest_text(folder)
            if text is None:
                raise BundleError(f"{folder}: no {MANIFEST} in it, so it is not a bundle")
            bundle = Bundle(folder, parse_manifest(text, str(folder / MANIFEST)))
            for name, info in bundle.manifest.files.items():
                bundle._check_size(name, info)
        return bundle

    def file(self, name: str) -> Path:
        """The path of a file that the manifest lists. Raises BundleError if it does not."""
        if name not in self.manifest.files:
            raise BundleError(f"{self.path}: the manifest lists no {name}")
        return self.path / name

    def check_files(self) -> None:
        """Compares every file with its SHA-256. Raises BundleError with all that differ."""
        with _errors_as_bundle(self.path):
            changed = [n for n, i in self.manifest.files.items() if _hash(self._inside(n)) != i.sha256]
        if changed:
            raise BundleError(f"{self.path}: changed since it was written: {', '.join(changed)}")

    def _check_size(self, name: str, info: FileInfo) -> None:
        path = self._inside(name)
        size = path.stat().st_size
        if size != info.bytes:
            raise BundleError(f"{path}: {size} bytes, but the manifest says {info.bytes}; convert again")

    def _inside(self, name: str) -> Path:
        """The path, if it is a plain file that does not leave the folder by a link."""
        path = self.path / name
        if not path.is_file():
            raise BundleError(f"{path}: missing; the manifest lists it")
        if not _real(path).is_relative_to(_real(self.path)):
            raise BundleError(f"{path}: a link that leaves the bundle")
        return path


def reference_path(entry_point: str) -> str:
    """Where a bundle keeps the recorded reference of an entry point."""
    return f"reference/{entry_point}.npz"


def _read_manifest_text(folder: Path) -> bytes | None:
    """The manifest's bytes, None if there is none. Opens nothing but a plain file."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _real(path: Path) -> Path:
    """The path without links. Unlike `Path.resolve`, this does not raise for links in a circle."""
    return Path(os.path.realpath(path))


@contextmanager
def _errors_as_bundle(path: Path) -> Iterator[None]:
    """Turns an OSError into a BundleError that names the path."""
    try:
        yield
    except OSError as error:
        raise BundleError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from error


# Writing


def write_bundle(
    out: str | os.PathLike[str],
    fill: Callable[[Path], Manifest],
    *,
    force: bool = False,
    sources: Iterable[str | os.PathLike[str]] = (),
) -> Bundle:
    """Writes a bundle at `out`, whole or not at all.

    `fill` gets an empty folder, writes every file but the manifest into it and returns the manifest, whose
    `files` are filled in here. Whatever it raises passes through, and nothing of it stays.

    Raises OutputError where `check_output` does, if the disk is full, or if `out` cannot be written.
    """
    out = Path(os.path.abspath(out))
    with _errors_as_output(out):
        _clean_up(out)
    check_output(out, force=force, sources=sources)
    with _parents(out), _partial(out) as partial:
        with _errors_as_output(out, _DISK_FULL):
            manifest = fill(partial)
        with _errors_as_output(out):
            manifest = _seal(partial, manifest)
            if os.path.lexists(out):
                check_output(out, force=force)
                _swap(partial, out)
            else:
                os.rename(partial, out)
            _sync(out.parent)
    return Bundle(out, manifest)


def check_output(
    out: str | os.PathLike[str], *, force: bool = False, sources: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Raises OutputError if a bundle may not be written at `out`; for commands to call before they work.

    An existing path is refused, except, with `force`, a folder that holds a bundle's manifest and no file
    that it does not list. So is a folder in which one of `sources` lies.
    """
    out = Path(os.path.abspath(out))
    for source in map(Path, sources):
        if _real(source).is_relative_to(_real(out)):
            raise OutputError(f"{out}: the source {source} lies there, and sources are never written to")
    if not os.path.lexists(out):
        return
    if out.is_symlink() or not out.is_dir():
        raise OutputError(f"{out}: exists and is not a folder: choose another output")
    owned = _owned_files(out)
    if owned is None:
        raise OutputError(f"{out}: exists and holds no bundle: choose another output")
    if not force:
        raise OutputError(f"{out}: exists: choose another output, or replace this bundle with --force")
    foreign = sorted(set(_files(out)) - owned)
    if foreign:
        shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise OutputError(f"{out}: holds files that are not the bundle's ({shown}): move them away first")


def _owned_files(folder: Path) -> set[str] | None:
    """The files that the folder's manifest lists, of whatever schema; None without a manifest of ours."""
    try:
        text = _read_manifest_text(folder)
        value = parse_json(text, MANIFEST) if text is not None else None
    except BundleError:
        return None
    if not isinstance(value, dict) or not {"schema", "opcompat", "entry_points"} <= value.keys():
        return None
    files = value.get("files")
    return {*files, MANIFEST} if isinstance(files, dict) else None


def _files(folder: Path) -> Iterator[str]:
    """Every file below a folder, relative, with slashes."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        links = [d for d in folders if (Path(root) / d).is_symlink()]
        for name in sorted([*names, *links]):
            yield (Path(root) / name).relative_to(folder).as_posix()


def _seal(folder: Path, manifest: Manifest) -> Manifest:
    """Lists the files, writes manifest.json, and forces all of it to disk."""
    files = {}
    for name in _files(folder):
        path = folder / name
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OutputError(f"{path}: not a plain file")
        files[name] = FileInfo(path.stat().st_size, _hash(path))
        _sync(path)
    manifest = replace(manifest, files=files)
    check_manifest(manifest)
    (folder / MANIFEST).write_bytes(manifest.text().encode())
    _sync(folder / MANIFEST)
    for root, _, _ in os.walk(folder):
        _sync(Path(root))
    return manifest


def _sync(path: Path) -> None:
    """Forces a file or, where the system has that, a folder to disk."""
    if sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _swap(partial: Path, out: Path) -> None:
    """Puts `partial` in the place of `out`, which is put back if that fails, and deleted if not."""
    aside = _sibling(out, "old")
    with _lock(out):
        try:
            os.rename(out, aside)
            os.rename(partial, out)
        finally:
            if not os.path.lexists(out):
                os.rename(aside, out)
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _errors_as_output(out: Path, only: frozenset[int] = frozenset()) -> Iterator[None]:
    """Turns an OSError (with a number in `only`, if given) into an OutputError that names `out`."""
    try:
        yield
    except OSError as error:
        if only and error.errno not in only:
            raise
        hint = "; free some space or choose another output" if error.errno in _DISK_FULL else ""
        place = f" ({error.filename})" if error.filename else ""
        raise OutputError(f"{out}: cannot be written: {error.strerror or error}{place}{hint}") from error


@contextmanager
def _parents(out: Path) -> Iterator[None]:
    """Makes the folders above `out`, and removes those it made if the body fails."""
    missing = [p for p in out.parents if not p.exists()]
    done = False
    try:
        with _errors_as_output(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        yield
        done = True
    finally:
        if not done:
            for folder in missing:
                _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


@contextmanager
def _partial(out: Path) -> Iterator[Path]:
    """A new, locked folder beside `out`; what is left of it is removed at the end."""
    with _errors_as_output(out):
        folder, lock = _locked_folder(out)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _locked_folder(out: Path) -> tuple[Path, int | None]:
    for _ in range(100):
        folder = _sibling(out, "partial")
        folder.mkdir()
        lock = _try_lock(folder)
        # Between mkdir and the lock, another run may have taken the folder for a leftover.
        if lock is None or (lock >= 0 and _is_still(folder, lock)):
            return folder, lock
        if lock >= 0:
            os.close(lock)
    raise OutputError(f"{out.parent}: another process keeps removing what is made here")


def _is_still(folder: Path, handle: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _prefix(out: Path) -> str:
    return f".{out.name}.opcompat-"


def _sibling(out: Path, kind: str) -> Path:
    return out.with_name(f"{_prefix(out)}{secrets.token_hex(4)}.{kind}")


def _clean_up(out: Path) -> None:
    """Removes what killed runs left beside `out`, and puts back a bundle that one was about to replace."""
    if not out.parent.is_dir():
        return
    for path in sorted(out.parent.iterdir()):
        if not path.name.startswith(_prefix(out)) or path.is_symlink() or not path.is_dir():
            continue
        with _lock(path) as held:
            if not held:
                continue
            if path.suffix == ".partial":
                shutil.rmtree(path, ignore_errors=True)
            elif path.suffix == ".old" and not os.path.lexists(out):
                os.rename(path, out)
            elif path.suffix == ".old" and _owned_files(out) is not None:
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Locks a folder for the body, if it can; yields whether it did."""
    lock = _try_lock(folder)
    try:
        yield lock is not None and lock >= 0
    finally:
        if lock is not None and lock >= 0:
            os.close(lock)


def _try_lock(folder: Path) -> int | None:
    """A handle that holds the folder's lock until it is closed or the process ends.

    -1 if another process holds it, or the folder is gone; None if the system has no such locks.
    """
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return -1
    except OSError:
        os.close(handle)
        return None
    return handle
