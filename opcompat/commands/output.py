"""Where a command's report goes: one rendering on standard output, and any number of files."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from opcompat.checking.data import CheckReport
from opcompat.commands import progress
from opcompat.commands.text import echo
from opcompat.config import did_you_mean
from opcompat.errors import OpcompatError, OutputError
from opcompat.report import Report

Renderer = Callable[..., str]
_REPLACEABLE = {".htm", ".html", ".json", ".log", ".md", ".sarif", ".txt", ".xml"}


@dataclass(frozen=True)
class Output:
    """A report's renderings, checked before the work begins; see `prepare`."""

    renderer: Renderer
    files: tuple[tuple[Path, Renderer], ...]
    color: bool
    quiet: bool
    verbose: bool

    @contextlib.contextmanager
    def working(self) -> Iterator[progress.Say]:
        """The time in which the user's code and the runtimes run: what they print goes to standard error.

        An error that carries a report shows it before it goes on.
        """
        try:
            with (
                progress.shown(quiet=self.quiet, verbose=self.verbose) as say,
                contextlib.redirect_stdout(sys.stderr),
            ):
                yield say
        except OpcompatError as error:
            report = getattr(error, "report", None)
            if isinstance(report, Report):
                self.show(report)
            raise

    def show(self, report: Report | CheckReport) -> None:
        """Renders to standard output, then to the files."""
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        echo(self.renderer(report, color=self.color, width=width))
        for path, renderer in self.files:
            write(path, renderer(report))

    def finish(self, report: Report | CheckReport, *, exit_zero: bool = False) -> None:
        """Shows the report and ends the command: 0 if it is clean or `exit_zero`, else 1."""
        self.show(report)
        click.get_current_context().exit(0 if report.ok or exit_zero else 1)


def prepare(
    format_: str,
    outputs: Sequence[tuple[str, str]],
    color: bool | None,
    quiet: bool,
    verbose: bool,
    *,
    sources: Sequence[Path] = (),
    bundles: Sequence[Path] = (),
) -> Output:
    """Finds the renderers and checks the files. Raises click.UsageError and OutputError.

    A file must not replace code, configuration or data in the folders `sources`, nor lie in a bundle.
    """
    from opcompat import packs

    renderers = packs.renderers()
    paths = [Path(name).resolve() for _, name in outputs]
    for (_, name), path in zip(outputs, paths, strict=True):
        if paths.count(path) > 1:
            raise click.UsageError(f"--output: {name} is given more than once")
        _check_file(name, path, sources, bundles)
    files = [(path, _renderer(renderers, form)) for path, (form, _) in zip(paths, outputs, strict=True)]
    return Output(_renderer(renderers, format_), tuple(files), _color(color), quiet, verbose)


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all. Raises OutputError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with temporary.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def _renderer(renderers: Mapping[str, Renderer], name: str) -> Renderer:
    if not renderers:
        raise OutputError("no report formats are installed; install the package (pip install -e .)")
    if name not in renderers:
        raise click.UsageError(f"no format {name!r}{did_you_mean(name, renderers)} (formats: {', '.join(renderers)})")
    return renderers[name]


def _check_file(name: str, path: Path, sources: Sequence[Path], bundles: Sequence[Path]) -> None:
    if name == "-":
        raise click.UsageError("--output writes files; --format chooses what standard output shows")
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {name}: there is no folder {path.parent}; create it first")
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {name}: it exists and is not a regular file")
    if path.exists() and path.suffix.lower() not in _REPLACEABLE and _below(path, sources):
        raise OutputError(f"will not write {name}: it is an existing file of the source")
    if _below(path, bundles):
        raise OutputError(f"will not write {name}: it lies inside a bundle; choose a place beside it")


def _below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder.resolve()) for folder in folders)


def _color(choice: bool | None) -> bool:
    if choice is not None:
        return choice
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
