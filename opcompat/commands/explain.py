"""`opcompat explain`: the page of one rule or lint."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from opcompat.commands import options
from opcompat.commands.boundary import Command
from opcompat.commands.text import echo, printable
from opcompat.config import did_you_mean
from opcompat.errors import ConfigError

if TYPE_CHECKING:
    from opcompat.lint import Lint
    from opcompat.rule import Rule


@click.command(cls=Command)
@click.argument("rule_id", metavar="RULE")
@options.common
def explain(rule_id: str, **_: Any) -> None:
    """Print a rule's page: before, after, why, and how exact it is; or a lint's: what it finds, and why it matters.

    For example: opcompat explain OC101
    """
    from opcompat import packs

    facts = {rule.id: f"Stage: {rule.stage}. Exactness: {rule.exactness}." for rule in packs.rules()}
    facts |= {lint.id: "Lint: it gives advice and changes nothing." for lint in packs.lints()}
    items: tuple[Rule | Lint, ...] = (*packs.rules(), *packs.lints())
    found = next((item for item in items if item.id == rule_id.upper()), None)
    if found is None:
        hint = did_you_mean(rule_id, facts)
        raise ConfigError(f"no rule {rule_id!r}{hint}; `opcompat rules` lists them")
    body = inspect.cleandoc(found.page).partition("\n")[2]  # the first line is the title
    head = f"{found.id}: {found.title}\n\n{facts[found.id]} File: {found.module}."
    echo(printable(f"{head}\n\n{body.strip()}"))
