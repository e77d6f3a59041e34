"""`opcompat check`: scan, convert, verify and compare with a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opcompat.checking.data import FAIL_ON
from opcompat.commands import options, output
from opcompat.commands.boundary import Command
from opcompat.commands.checking import checking, run


def _shard(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    index, slash, count = value.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise click.BadParameter(f"{value!r} is not of the form i/n, with i from 1 to n", ctx, param)
    return int(index), int(count)


@click.command(cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Compare with this baseline, which `opcompat baseline update` wrote.",
)
@click.option("--allow-stale", is_flag=True, help="Entries that match nothing do not fail.")
@options.names("--select", "select", "Rules, lints or kinds of issues that count; by default all.")
@options.names("--ignore", "ignore", "Rules, lints or kinds of issues that do not count.")
@click.option("--fail-on", type=click.Choice(FAIL_ON), help="The level from which issues fail: error by default.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 whatever was found.")
@click.option("--shard", metavar="I/N", callback=_shard, help="Check every N-th model only, from the I-th.")
@checking
@options.reporting
@options.common
def check(
    sources: tuple[str, ...],
    baseline: Path | None,
    allow_stale: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: Any,
    exit_zero: bool,
    shard: tuple[int, int] | None,
    wishes: dict[str, Any],
    **shared: Any,
) -> None:
    """Scan, convert and verify models, and compare them with a baseline.

    Each model is checked in a process of its own. Exit code 1 says that something fails: an operation that a target
    cannot run, an artifact that differs from JAX, a change since the baseline, a budget that is exceeded.
    """
    result = output.prepare(**shared, sources=[Path(s) for s in sources if Path(s).is_dir()])
    with result.working() as say:
        report = run(
            sources,
            wishes,
            baseline=baseline,
            allow_stale=allow_stale,
            select=select,
            ignore=ignore,
            fail_on=fail_on,
            shard=shard,
            progress=say,
        )
    result.finish(report, exit_zero=exit_zero)
