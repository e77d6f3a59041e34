"""`opcompat scan`: what each target cannot run."""

from __future__ import annotations

from typing import Any

import click

from opcompat import config
from opcompat.commands import options, output
from opcompat.commands.boundary import Command
from opcompat.commands.choose import known_targets


@click.command(cls=Command)
@click.argument("source")
@options.names("--target", "targets", "Target to judge, by default all; `opcompat targets` lists them.")
@options.positive("--opset", "ONNX opset version, by default chosen for the installed runtime.")
@options.batch
@options.narrowing
@options.factory_args
@options.reporting
@options.common
def scan(
    source: str,
    targets: tuple[str, ...],
    opset: int | None,
    batch: tuple[int, ...],
    allow_narrowing: bool,
    args: dict[str, Any],
    **shared: Any,
) -> None:
    """What each target cannot run, where, why, and the rule that helps.

    Exit code 1 says that something stays unsupported after rewriting.
    """
    from opcompat.sources import folder_of, load

    folder = folder_of(source)
    settings = config.find(folder)
    result = output.prepare(**shared, sources=[folder])
    with result.working() as say:
        from opcompat import api

        names = known_targets(targets or settings.targets)
        say(f"loading {source}")
        loaded = load(source, factory_args=args)
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
