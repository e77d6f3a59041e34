"""`opcompat verify`: compares a bundle with JAX, or with its recorded reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opcompat import config
from opcompat.commands import options, output
from opcompat.commands.boundary import Command
from opcompat.sources import Options, folder_of, load_model

STEPS = 1000


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("source", required=False)
@options.positive("--steps", f"Steps to compare, by default {STEPS}.")
@options.positive("--seeds", "Seeds to do so from, by default 1.")
@options.loading
@options.reporting
@options.common
def verify(
    bundle: Path,
    source: str | None,
    steps: int | None,
    seeds: int | None,
    loading: Options,
    **shared: Any,
) -> None:
    """Compare a bundle with its model, or with its recording.

    With SOURCE, step by step and in closed loop against JAX. Without it, the recorded reference is replayed.
    Exit code 1 says that an artifact differs.
    """
    folder = folder_of(source) if source else Path.cwd()
    if loading != Options() and not source:
        raise click.UsageError("--arg, --dim, --via, --key, --feedback and --init say how to load: they need SOURCE")
    settings = config.find(folder)
    result = output.prepare(**shared, sources=[folder] if source else [], bundles=[bundle])
    with result.working() as say:
        from opcompat import api

        model = None
        if source:
            say(f"loading {source}")
            model = load_model(source, loading).model
        report = api.verify(
            bundle,
            model,
            steps=steps or settings.steps or STEPS,
            seeds=seeds or settings.seeds or 1,
            source=source or "",
            progress=say,
        )
    result.finish(report)
