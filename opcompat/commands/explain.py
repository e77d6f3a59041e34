"""`opcompat explain`: one rule's page."""

from __future__ import annotations

import inspect
from typing import Any

import click

from opcompat.commands import options
from opcompat.commands.boundary import Command
from opcompat.commands.text import echo, printable
from opcompat.config import did_you_mean
from opcompat.errors import ConfigError


@click.command(cls=Command)
@click.argument("rule_id", metavar="RULE")
@options.common
def explain(rule_id: str, **_: Any) -> None:
    """Print a rule's page: before, after, why, and how exact it is.

    For example: opcompat explain OC101
    """
    from opcompat import packs

    rules = {rule.id: rule for rule in packs.rules()}
    rule = rules.get(rule_id.upper())
    if rule is None:
        hint = did_you_mean(rule_id, rules)
        raise ConfigError(f"no rule {rule_id!r}{hint}; `opcompat rules` lists them")
    body = inspect.cleandoc(rule.page).partition("\n")[2]  # the first line is the title
    facts = f"Stage: {rule.stage}. Exactness: {rule.exactness}. File: {rule.module}."
    echo(printable(f"{rule.id}: {rule.title}\n\n{facts}\n\n{body.strip()}"))
