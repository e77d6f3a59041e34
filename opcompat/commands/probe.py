"""`opcompat probe`: asks a runtime on this machine what it runs, and shows what differs from the stored table."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import click

from opcompat.commands import options
from opcompat.commands.boundary import Command
from opcompat.commands.choose import known_targets
from opcompat.commands.output import write
from opcompat.commands.text import columns, echo

SHOWN = 200


@click.command(cls=Command)
@click.argument("target")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="File for the table; must be new.")
@click.option("--force", is_flag=True, help="Replace FILE.")
@options.common
def probe(target: str, out: Path | None, force: bool, quiet: bool, **_: Any) -> None:
    """Ask the installed runtime of TARGET what it runs, with one-op models in a child process.

    The table goes to --out FILE; what differs from the stored table is printed. Exit code 1 says that something
    differs. Takes up to some minutes.
    """
    from opcompat.errors import ConfigError
    from opcompat.targets import catalog
    from opcompat.targets.compare import differences
    from opcompat.targets.probes import catalog as probes
    from opcompat.targets.table import Table, dump

    known_targets([target])
    if out is None:
        raise ConfigError("probe writes a table: name the file; next: --out FILE")
    if out.exists() and not force:
        raise ConfigError(f"{out} exists; next: another name, or --force")
    if not quiet:
        click.echo(f"asking {target}", err=True)
    content = probes.derive(target, date.today().isoformat())
    write(out, dump(content))
    before, after = catalog.stored(target), Table(content)
    found = list(differences(before, after))
    tried = f", {content['tried']:,} one-op models" if "tried" in content else ""
    echo(f"{target}: {after.label}{tried}; stored: {before.label}; {len(found):,} differences")
    if found:
        echo(columns([(d.op, d.about, f"{d.before or 'nothing'} -> {d.after or 'nothing'}") for d in found[:SHOWN]]))
        if len(found) > SHOWN:
            echo(f"... and {len(found) - SHOWN:,} more: compare {out} with the stored table")
        click.get_current_context().exit(1)
