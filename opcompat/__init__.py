"""opcompat takes JAX policies to ONNX Runtime and LiteRT.

Every name below is imported when it is first used: `import opcompat.runtime` works on a device that has numpy
and one runtime but not JAX, and the command line answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcompat import runtime
    from opcompat.api import bisect, convert, rewrite, scan, verify
    from opcompat.bundle import Bundle
    from opcompat.checking.run import check
    from opcompat.distributions import distribution_entry_points
    from opcompat.model import EntryPoint, Model
    from opcompat.report import Report

__version__ = "0.1.0"

__all__ = [
    "Bundle",
    "EntryPoint",
    "Model",
    "Report",
    "bisect",
    "check",
    "convert",
    "distribution_entry_points",
    "rewrite",
    "runtime",
    "scan",
    "verify",
    "__version__",
]

_HOMES = {
    "Bundle": "opcompat.bundle",
    "EntryPoint": "opcompat.model",
    "Model": "opcompat.model",
    "Report": "opcompat.report",
    "bisect": "opcompat.api",
    "check": "opcompat.checking.run",
    "convert": "opcompat.api",
    "distribution_entry_points": "opcompat.distributions",
    "rewrite": "opcompat.api",
    "scan": "opcompat.api",
    "verify": "opcompat.api",
}


def __getattr__(name: str) -> Any:
    if name == "runtime":
        return importlib.import_module("opcompat.runtime")
    if name not in _HOMES:
        raise AttributeError(f"module 'opcompat' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
