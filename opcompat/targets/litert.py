"""LiteRT (TFLite) on the CPU with its default delegate: what it runs, as probed."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from opcompat.targets import table
from opcompat.targets.base import Target

RUNTIME = "ai-edge-litert"


def target(opset: int | None = None) -> Target:
    """LiteRT at the installed version. Importing this module loads no runtime and no JAX."""
    return table.target(table.load("litert"), opset, version=_installed())


@cache
def _installed() -> str:
    try:
        return metadata.version(RUNTIME)
    except metadata.PackageNotFoundError:
        return "not installed"
