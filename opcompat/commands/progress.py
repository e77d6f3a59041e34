"""What a long command says on standard error while it works."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from opcompat.commands.text import printable

Say = Callable[[str], None]


@contextmanager
def shown(*, quiet: bool, verbose: bool) -> Iterator[Say]:
    """A function that shows the current step: a spinner on a terminal, lines under -v, else nothing."""
    if verbose:
        yield lambda message: click.echo(printable(message), err=True)
    elif quiet or not sys.stderr.isatty():
        yield lambda message: None
    else:
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status(Text("working")) as status:
            yield lambda message: status.update(Text(printable(message)))
