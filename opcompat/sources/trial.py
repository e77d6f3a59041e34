"""A first reading of a source in a child process: a hostile file can end that, not us. See `opcompat.isolation`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import jax

from opcompat.errors import OpcompatError, SourceError
from opcompat.isolation import Limits, call
from opcompat.sources.base import Options

jax.jit(lambda: 0).lower()  # starts what JAX starts once, before the limits hold

_SLOWEST = 10 << 20
"""Bytes per second that a file may take beyond the usual limit of time."""

_GROWTH = 10
"""Bytes of memory per byte of the file, beyond the usual limit of memory."""


def attempt(module: str, source: str, options: Options) -> None:
    """Loads the source in a child. Raises what loading raises, LimitError and CrashError.

    The limits grow with the file: a large one is no attack.
    """
    path = Path(source)
    files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    size = sum(f.stat().st_size for f in files)
    usual = Limits()
    limits = Limits(seconds=usual.seconds + size / _SLOWEST, memory=usual.memory + _GROWTH * size, mapped=size)
    dims, via = dict(options.dims), options.via
    call("opcompat.sources.trial:read", module, source, dims, via, what=f"reading {source}", limits=limits)


def read(module: str, source: str, dims: dict[str, int], via: str) -> None:
    """What the child does. Raises SourceError for whatever a parser raises that is not our own."""
    try:
        import_module(module).load(source, Options(dims=dims, via=via))
    except (OpcompatError, MemoryError, RecursionError):
        raise
    except Exception as error:
        said = next(iter(str(error).splitlines()), "")[:300]
        raise SourceError(f"{source}: is damaged, or holds what is not read: {type(error).__name__}: {said}") from error
