"""The options of the commands that check models: `check` and `baseline update`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from opcompat.checking.data import CheckReport
from opcompat.checking.options import STEPS
from opcompat.commands import options
from opcompat.commands.choose import known_formats, known_targets
from opcompat.sources.base import Options as Loading


def checking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Everything that says what is checked and where: one argument, `wishes`, for `opcompat.check`."""

    @functools.wraps(function)
    def with_options(
        *positional: Any,
        targets: tuple[str, ...],
        to: tuple[str, ...],
        sampling: str | None,
        opset: int | None,
        batch: tuple[int, ...],
        allow_narrowing: bool,
        prune_inputs: bool,
        steps: int | None,
        seeds: int | None,
        loading: Loading,
        out: Path | None,
        jobs: int | None,
        timeout: float | None,
        scheduler: str | None,
        **rest: Any,
    ) -> Any:
        wishes = {
            "targets": known_targets(targets) if targets else None,
            "to": known_formats(to) if to else None,
            "sampling": sampling,
            "opset": opset,
            "batch": batch,
            "allow_narrowing": allow_narrowing,
            "prune_inputs": prune_inputs,
            "steps": steps,
            "seeds": seeds,
            "loading": loading,
            "out": out,
            "jobs": jobs,
            "timeout": timeout,
            "scheduler": scheduler,
        }
        return function(*positional, wishes=wishes, **rest)

    wrapped: Callable[..., Any] = with_options
    for option in (
        options.loading,
        click.option("--scheduler", metavar="ADDRESS", help="Check on the Dask cluster of this scheduler."),
        click.option(
            "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="For one model."
        ),
        options.positive("--jobs", "Models to check at a time, by default one for each processor."),
        click.option(
            "--out",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Folder for results and bundles; a run that did not end resumes there.",
        ),
        options.positive("--seeds", "Seeds to compare from, by default 1."),
        options.positive("--steps", f"Steps that each artifact is compared with JAX, by default {STEPS}."),
        click.option("--prune-inputs", is_flag=True, help="Leave out inputs that reach no output."),
        options.narrowing,
        options.batch,
        options.positive("--opset", "ONNX opset version, by default chosen for the installed runtime."),
        options.sampling,
        options.names("--to", "to", "Formats to write: onnx, tflite; by default both."),
        options.names("--target", "targets", "Target to judge, beside those of the formats."),
    ):
        wrapped = option(wrapped)
    return wrapped


def run(sources: tuple[str, ...], wishes: dict[str, Any], **more: Any) -> CheckReport:
    """`opcompat.check`, with the options of the command line."""
    from opcompat.checking.run import check

    return check(list(sources), **wishes, **more)
