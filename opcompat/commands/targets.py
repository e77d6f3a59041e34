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
    """List the targets, or what one of them runs and how that is known."""
    from opcompat.targets import catalog

    if target is None:
        found = [make() for make in catalog.TARGETS.values()]
        rows = [(t.name, f"{t.runtime} {t.version}", t.backend.name, t.evidence, t.summary) for t in found]
        echo(columns(rows))
        return
    known_targets([target])
    echo(columns(catalog.provenance(target)))
    echo(columns([(str(op), str(detail)) for op, detail in catalog.describe(target)]))
