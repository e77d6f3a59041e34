"""`opcompat convert`: writes and proves the artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opcompat import config
from opcompat.commands import options, output
from opcompat.commands.boundary import Command
from opcompat.commands.choose import known_formats
from opcompat.sources import Options, folder_of, load_model

STEPS = 100


@click.command(cls=Command)
@click.argument("source")
@options.names("--to", "to", "Formats to write: onnx, tflite.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder for the bundle; must be new.")
@options.sampling
@options.batch
@options.narrowing
@click.option("--prune-inputs", is_flag=True, help="Leave out inputs that reach no output; by default they stay.")
@options.positive("--opset", "ONNX opset version, by default chosen for the installed runtime.")
@click.option("--force", is_flag=True, help="Replace DIR if it holds a bundle that opcompat wrote.")
@options.positive("--steps", f"Steps that each artifact is compared with JAX, by default {STEPS}.")
@options.positive("--seeds", "Seeds to do so from, by default 1.")
@options.loading
@options.reporting
@options.common
def convert(
    source: str,
    to: tuple[str, ...],
    out: Path | None,
    sampling: str | None,
    batch: tuple[int, ...],
    allow_narrowing: bool,
    prune_inputs: bool,
    opset: int | None,
    force: bool,
    steps: int | None,
    seeds: int | None,
    loading: Options,
    **shared: Any,
) -> None:
    """Write the model as a bundle, and prove it against JAX.

    The model is rewritten for each format's runtime, and each artifact is loaded there and compared with JAX.
    Exit code 1 says that something stays unsupported or that an artifact differs; DIR is not written then.
    """
    folder = folder_of(source)
    settings = config.find(folder)
    formats = known_formats(to or settings.to or _missing("--to", "onnx,tflite"))
    place = out or settings.out or _missing("--out", "DIR")
    result = output.prepare(**shared, sources=[folder], bundles=[place])
    with result.working() as say:
        from opcompat import api

        say(f"loading {source}")
        loaded = load_model(source, loading)
        _, report = api.convert(
            loaded.model,
            place,
            formats,
            sampling=sampling or settings.sampling or "exact",
            batch=batch or settings.batch or (),
            opset=opset or settings.opset,
            allow_narrowing=allow_narrowing,
            prune_inputs=prune_inputs,
            force=force,
            steps=steps or settings.steps or STEPS,
            seeds=seeds or settings.seeds or 1,
            source=loaded.name,
            progress=say,
        )
    result.finish(report)


def _missing(option: str, value: str) -> Any:
    key = option.removeprefix("--")
    raise click.UsageError(f"give {option} {value}, or set {key} in {config.FILE}")
