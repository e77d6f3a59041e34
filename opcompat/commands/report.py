"""`opcompat report merge`: one report of the shards of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opcompat.commands import options, output
from opcompat.commands.boundary import Command


@click.group()
def report() -> None:
    """Reports that `opcompat check` wrote."""


@report.command(cls=Command)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="A B...")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 whatever was found.")
@options.reporting
@options.common
def merge(files: tuple[Path, ...], exit_zero: bool, **shared: Any) -> None:
    """Merge the JSON reports of shards (`check --shard 1/4 --output json=1.json`) into one, in any format.

    Exit code 1 says that something failed in one of them.
    """
    from opcompat.checking import store

    result = output.prepare(**shared)
    result.finish(store.merge([store.read(file) for file in files]), exit_zero=exit_zero)


@report.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@options.reporting
@options.common
def show(file: Path, **shared: Any) -> None:
    """Show the JSON report of a check in another format."""
    from opcompat.checking import store

    result = output.prepare(**shared)
    result.show(store.read(file))
