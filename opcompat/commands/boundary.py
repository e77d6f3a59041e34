"""The one place where exceptions become messages and exit codes."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import click

from opcompat.commands.text import printable
from opcompat.errors import OpcompatError

CRASH = 3
INTERRUPTED = 130


class Command(click.Command):
    """A click command that ends with the project's exit codes, and with a traceback only under -v."""

    def invoke(self, ctx: click.Context) -> Any:
        verbose = bool(ctx.params.get("verbose"))
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click ends these itself
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except OpcompatError as error:
            _explain(f"error: {error}", error, verbose)
            ctx.exit(error.exit_code)
        except Exception as error:  # noqa: BLE001  # a bug of ours must end in exit code 3, whatever it is
            hint = "" if verbose else "\nRun again with -v for the traceback."
            _explain(f"error: opcompat crashed: {_summary(error)}{hint}", error, verbose)
            ctx.exit(CRASH)


def _explain(message: str, error: BaseException, verbose: bool) -> None:
    sys.stdout.flush()
    if verbose:
        click.echo(printable("".join(traceback.format_exception(error))), err=True)
    click.echo(printable(message), err=True)


def _summary(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
