"""What one runtime, at one version, can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from opcompat.lowering.builder import Backend
from opcompat.lowering.graph import Node

Status = Literal["yes", "no", "conditional", "unknown"]
Evidence = Literal["registry", "probed", "documented"]


@dataclass(frozen=True)
class Support:
    """Whether a runtime runs one node, why not, and how that is known.

    "conditional": it does if what `reason` says holds, and that cannot be told from the graph. Only "yes" counts as
    supported.
    """

    status: Status
    evidence: Evidence
    reason: str = ""


@dataclass(frozen=True)
class Limits:
    """What a runtime asks of a whole model, beside its ops.

    `opset`: the newest ONNX opset that it loads (0: not known). `signatures`: how many one file may have (0: any).
    `interface`: the dtypes of inputs and outputs (empty: any). `precision`: floats are rounded to it while the model
    runs. `quantized`: the accelerator computes in this integer dtype alone, and floats do not run on it. `fallback`:
    what runs the ops that the accelerator does not. `state`: what a value that is fed back has to keep.
    `notes`: anything else that a user has to know, one sentence each.
    """

    opset: int = 0
    signatures: int = 0
    interface: tuple[str, ...] = ()
    precision: str = ""
    quantized: str = ""
    fallback: str = ""
    state: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """A runtime at a version. `check` judges one final node by op, version, dtypes, rank and attributes.

    `has_64_bit`: whether it computes with 64-bit floats and integers at all. `evidence`, `date` and `origin` say how
    its table is known, since when, and what made it.
    """

    name: str
    runtime: str
    version: str
    backend: Backend
    check: Callable[[Node], Support]
    summary: str = ""
    has_64_bit: bool = True
    limits: Limits = field(default_factory=Limits)
    evidence: Evidence = "documented"
    date: str = ""
    origin: str = ""
