"""Plain text for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from opcompat.printable import printable as escaped


def printable(text: str) -> str:
    """`text`, safe to show on a terminal; newlines and tabs stay."""
    return escaped(text, keep="\n\t")


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns, two spaces apart."""
    cells = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def echo(text: str) -> None:
    """Writes safe text to standard output, also where its encoding lacks a character."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding), nl=not text.endswith("\n"), color=True)
