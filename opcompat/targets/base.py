"""What one runtime, at one version, can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from opcompat.lowering.builder import Backend
from opcompat.lowering.graph import Node

Status = Literal["yes", "no", "unknown"]
Evidence = Literal["registry", "probed", "documented"]


@dataclass(frozen=True)
class Support:
    """Whether a runtime runs one node, why not, and how that is known. Unknown never counts as yes."""

    status: Status
    evidence: Evidence
    reason: str = ""


@dataclass(frozen=True)
class Target:
    """A runtime at a version. `check` judges one final node by op, version, dtypes, rank and attributes.

    `has_64_bit`: whether it computes with 64-bit floats and integers at all.
    """

    name: str
    runtime: str
    version: str
    backend: Backend
    check: Callable[[Node], Support]
    summary: str = ""
    has_64_bit: bool = True
