"""How every model of a run is checked, and the task of checking one. Plain values: they travel as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from opcompat.config import Wiring
from opcompat.manifest import Sampling
from opcompat.sources.base import Options as Loading

STEPS = 100
"""Over how many steps artifacts are compared with JAX by default."""


@dataclass(frozen=True)
class Options:
    """As in `scan` and `convert`. `targets` are judged beside those of the formats `to`.

    `latency`: whether a step is timed against the reference, which budgets on latency need.
    """

    targets: tuple[str, ...] = ()
    to: tuple[str, ...] = ("onnx", "tflite")
    sampling: Sampling = "exact"
    opset: int | None = None
    batch: tuple[int, ...] = ()
    allow_narrowing: bool = False
    prune_inputs: bool = False
    steps: int = STEPS
    seeds: int = 1
    latency: bool = False


@dataclass(frozen=True)
class Task:
    """A source to check, in the folder `cwd`. `bundle` is the folder for the bundle, "" for none."""

    key: str
    source: str
    options: Options
    loading: Loading = field(default_factory=Loading)
    bundle: str = ""
    cwd: str = ""

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Task:
        """The task that `plain()` was made from, also after a way through JSON."""
        options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain["options"].items()}
        loading = {**plain["loading"], "wiring": Wiring(**plain["loading"]["wiring"])}
        return Task(**{**plain, "options": Options(**options), "loading": Loading(**loading)})
