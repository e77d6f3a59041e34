"""`opcompat scan`: what each target cannot run."""

from __future__ import annotations

from typing import Any

import click

from opcompat import config
from opcompat.commands import options, output
from opcompat.commands.boundary import Command
from opcompat.commands.choose import known_targets
from opcompat.sources import Graphs, Options, folder_of, load


@click.command(cls=Command)
@click.argument("source")
@options.names("--target", "targets", "Target to judge, by default those of the formats; `opcompat targets` lists all.")
@options.positive("--opset", "ONNX opset version, by default chosen for the installed runtime.")
@options.batch
@options.narrowing
@options.loading
@options.reporting
@options.common
def scan(
    source: str,
    targets: tuple[str, ...],
    opset: int | None,
    batch: tuple[int, ...],
    allow_narrowing: bool,
    loading: Options,
    **shared: Any,
) -> None:
    """What each target cannot run, where, why, and the rule that helps.

    A model is rewritten and lowered as by convert; an ONNX or TFLite file, or a bundle, is judged op by op as it is.
    Exit code 1 says that something stays unsupported after rewriting.
    """
    folder = folder_of(source)
    settings = config.find(folder)
    result = output.prepare(**shared, sources=[folder])
    with result.working() as say:
        names = known_targets(targets or settings.targets)
        say(f"loading {source}")
        loaded = load(source, loading)
        if isinstance(loaded, Graphs):
            if opset or batch or allow_narrowing or loading != Options():
                raise click.UsageError(f"{source} is judged as it is: leave out what says how a model is made")
            from opcompat.files import scan as files

            chosen = list(targets) or files.known(settings.targets, loaded)
            report = files.scan(loaded, chosen, progress=say)
        else:
            from opcompat import api

            report = api.scan(
                loaded.model,
                names,
                batch=batch or settings.batch or (),
                source=loaded.name,
                opset=opset or settings.opset,
                allow_narrowing=allow_narrowing,
                progress=say,
            )
    result.finish(report)
