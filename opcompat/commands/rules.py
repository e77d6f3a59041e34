"""`opcompat rules`: the rewrite rules and the lints, one a line."""

from __future__ import annotations

from typing import Any

import click

from opcompat.commands import options
from opcompat.commands.boundary import Command
from opcompat.commands.text import columns, echo


@click.command(cls=Command)
@options.common
def rules(**_: Any) -> None:
    """List the rewrite rules (id, stage, how exact, and what each does), and the lints, which only give advice."""
    from opcompat import packs

    rows = [(rule.id, rule.stage, str(rule.exactness), rule.title) for rule in packs.rules()]
    echo(columns([*rows, *((lint.id, "lint", "advice", lint.title) for lint in packs.lints())]))
