"""`opcompat rules`: the rewrite rules, one a line."""

from __future__ import annotations

from typing import Any

import click

from opcompat.commands import options
from opcompat.commands.boundary import Command
from opcompat.commands.text import columns, echo


@click.command(cls=Command)
@options.common
def rules(**_: Any) -> None:
    """List the rewrite rules: id, stage, how exact, and what each does."""
    from opcompat import packs

    echo(columns([(rule.id, rule.stage, str(rule.exactness), rule.title) for rule in packs.rules()]))
