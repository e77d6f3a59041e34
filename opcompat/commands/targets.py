"""`opcompat targets`: the runtimes that are known, and what one of them runs."""

from __future__ import annotations

from typing import Any

import click

from opcompat.commands import options
from opcompat.commands.boundary import Command
from opcompat.commands.choose import known_targets
from opcompat.commands.text import columns, echo


@click.command(cls=Command)
@click.argument("target", required=False)
@options.common
def targets(target: str | None, **_: Any) -> None:
    """List the targets, or the operators that one of them runs."""
    from opcompat.targets import catalog

    if target is None:
        found = [make() for make in catalog.TARGETS.values()]
        echo(columns([(t.name, f"{t.runtime} {t.version}", t.summary) for t in found]))
        return
    known_targets([target])
    echo(columns([(str(op), str(detail)) for op, detail in catalog.describe(target)]))
