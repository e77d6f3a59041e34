"""`opcompat targets`: the runtimes that are known, what one of them runs, and what a model needs to run there."""

from __future__ import annotations

from typing import Any

import click

from opcompat.commands import options
from opcompat.commands.boundary import Command
from opcompat.commands.choose import known_targets
from opcompat.commands.text import columns, echo


@click.command(cls=Command)
@click.argument("target", required=False)
@click.argument("source", required=False)
@options.common
def targets(target: str | None, source: str | None, **_: Any) -> None:
    """List the targets; or what one of them runs and how that is known; or what SOURCE needs to run there.

    With a SOURCE, exit code 1 says that something is in the way.
    """
    from opcompat.targets import catalog

    if target is None:
        found = [make() for make in catalog.TARGETS.values()]
        rows = [(t.name, f"{t.runtime} {t.version}", t.backend.name, t.evidence, t.summary) for t in found]
        echo(columns(rows))
        return
    known_targets([target])
    if source is not None:
        _needs(target, source)
        return
    echo(columns(catalog.provenance(target)))
    echo(columns([(str(op), str(detail)) for op, detail in catalog.describe(target)]))


def _needs(target: str, source: str) -> None:
    from opcompat import api
    from opcompat.sources import Graphs, Options, load
    from opcompat.targets.needs import needs, summary

    loaded = load(source, Options())
    if isinstance(loaded, Graphs):
        raise click.UsageError(f"{source} is a file that stays as it is: opcompat scan {source} --target {target}")
    report = api.scan(loaded.model, [target], source=loaded.name)
    echo(summary(report.targets[0]))
    for need in needs(report, target, lambda names: api.scan(loaded.model, names)):
        echo(f"- {need.count:,} x {need.what}\n    next: {need.step}")
    for advice in (a for a in report.advice if a.id == target):
        echo(f"- {advice.message}\n    next: {advice.next_step}")
    if not report.ok:
        click.get_current_context().exit(1)
