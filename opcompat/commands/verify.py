"""`opcompat verify`: compares a bundle with JAX, or with its recorded reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opcompat import config
from opcompat.commands import options, output
from opcompat.commands.boundary import Command

STEPS = 1000


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("source", required=False)
@options.positive("--steps", f"Steps to compare, by default {STEPS}.")
@options.positive("--seeds", "Seeds to do so from, by default 1.")
@options.factory_args
@options.reporting
@options.common
def verify(
    bundle: Path,
    source: str | None,
    steps: int | None,
    seeds: int | None,
    args: dict[str, Any],
    **shared: Any,
) -> None:
    """Compare a bundle with its model, or with its recording.

    With SOURCE, step by step and in closed loop against JAX. Without it, the recorded reference is replayed.
    Exit code 1 says that an artifact differs.
    """
    from opcompat.sources import folder_of, load

    folder = folder_of(source) if source else Path.cwd()
    if args and not source:
        raise click.UsageError("--arg needs SOURCE, whose factory takes it")
    settings = config.find(folder)
    result = output.prepare(**shared, sources=[folder] if source else [], bundles=[bundle])
    with result.working() as say:
        from opcompat import api

        model = None
        if source:
            say(f"loading {source}")
            model = load(source, factory_args=args).model
        report = api.verify(
            bundle,
            model,
            steps=steps or settings.steps or STEPS,
            seeds=seeds or settings.seeds or 1,
            source=source or "",
            progress=say,
        )
    result.finish(report)
