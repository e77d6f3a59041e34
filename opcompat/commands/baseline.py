"""`opcompat baseline update` and `opcompat baseline diff`."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import click

from opcompat import config
from opcompat.commands import options, progress
from opcompat.commands.boundary import Command
from opcompat.commands.checking import checking, run
from opcompat.commands.text import echo, printable
from opcompat.errors import ConfigError

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def baseline() -> None:
    """The accepted state that `opcompat check` compares with."""


@baseline.command(cls=Command)
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option(
    "--baseline", "file", type=_FILE, metavar="FILE", help="The file to write; by default the configured one."
)
@click.option(
    "--from", "report_file", type=_FILE, metavar="FILE", help="Take a report that `opcompat check --output json` wrote."
)
@click.option("--prune", is_flag=True, help="Take out the models that are not named.")
@checking
@options.common
def update(
    sources: tuple[str, ...],
    file: Path | None,
    report_file: Path | None,
    prune: bool,
    wishes: dict[str, Any],
    color: bool | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Accept how models are now: check them, and write the baseline.

    Models of the file that are not named stay, unless versions have moved since.
    """
    from opcompat.checking import baseline as baselines
    from opcompat.checking import store
    from opcompat.checking.results import write

    if bool(sources) == bool(report_file):
        raise click.UsageError("name either SOURCEs or a report, with --from")
    place = file or _configured()
    old = baselines.read(place) if place.exists() and not prune else None
    if report_file is not None:
        report = store.read(report_file)
    else:
        with progress.shown(quiet=quiet, verbose=verbose) as say, contextlib.redirect_stdout(sys.stderr):
            report = run(sources, wishes, compare=False, progress=say)
    text = baselines.text_of(report.models, report.versions)
    new = json.loads(text)
    kept = [key for key in old["models"] if key not in new["models"]] if old else []
    if old and kept and old["versions"] != new["versions"]:
        raise ConfigError(
            f"versions have moved since {place} was written, and {', '.join(kept[:5])} would keep what the old ones "
            "gave; next: name all models, or take those out with --prune"
        )
    if old and kept:
        new["models"] |= {key: old["models"][key] for key in kept}
        text = baselines.dump(new)
    write(place, text)
    echo(printable(f"wrote {place}: {len(new['models'])} models"))


@baseline.command(cls=Command)
@click.argument("old", type=_FILE, metavar="A")
@click.argument("new", type=_FILE, metavar="B")
@options.common
def diff(old: Path, new: Path, **_: Any) -> None:
    """Explain what changed between two baselines, the likely cause first.

    Exit code 1 says that something got worse.
    """
    from opcompat.checking import baseline as baselines
    from opcompat.checking import explain

    found = explain.difference(baselines.read(old), baselines.read(new))
    lines = []
    for issue in found:
        head = f"{issue.model}: " if issue.model else ""
        lines.append(f"{issue.level if issue.status != 'fixed' else 'fixed'}: {head}{issue.message}")
        if issue.cause:
            lines.append(f"  likely cause: {issue.cause}")
        if issue.before or issue.after:
            lines.append(f"  before: {issue.before or 'none'}")
            lines.append(f"  now:    {issue.after or 'none'}")
    echo(printable("\n".join(lines) or "no change"))
    click.get_current_context().exit(1 if any(issue.fails("error") for issue in found) else 0)


def _configured() -> Path:
    settings = config.find(Path.cwd()).check
    if settings is None or settings.baseline is None:
        raise click.UsageError(f"give --baseline FILE, or set baseline in the table [check] of {config.FILE}")
    return settings.baseline
