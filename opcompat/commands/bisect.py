"""`opcompat bisect`: where inside the policy an artifact first differs from JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opcompat import config
from opcompat.commands import options, output
from opcompat.commands.boundary import Command
from opcompat.sources import Options, folder_of, load_model

STEPS = 100


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("source")
@options.names("--format-under-test", "formats", "Formats to look at: onnx, tflite; by default all in the bundle.")
@options.names("--entry-point", "entry_points", "Entry points to look at; by default all.")
@options.positive("--steps", f"Steps to compare, by default {STEPS}.")
@options.loading
@options.reporting
@options.common
def bisect(
    bundle: Path,
    source: str,
    formats: tuple[str, ...],
    entry_points: tuple[str, ...],
    steps: int | None,
    loading: Options,
    **shared: Any,
) -> None:
    """Find where inside the policy an artifact first differs from JAX.

    The bundle's own files run, with their inner values shown, against JAX's. Names the op, the line, the values, and
    how the error grows. Exit code 1 says that something differs.
    """
    folder = folder_of(source)
    settings = config.find(folder)
    result = output.prepare(**shared, sources=[folder], bundles=[bundle])
    with result.working() as say:
        from opcompat import api

        say(f"loading {source}")
        report = api.bisect(
            bundle,
            load_model(source, loading).model,
            formats=formats,
            entry_points=entry_points,
            steps=steps or settings.steps or STEPS,
            source=source,
            progress=say,
        )
    result.finish(report)
