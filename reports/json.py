"""JSON for machines, by the schemas in `opcompat/schema`: report.json, and check.json for `check`."""

from __future__ import annotations

import json
import math
from typing import Any

from opcompat.checking.data import CheckReport
from opcompat.report import Report


def render(report: Report | CheckReport, *, color: bool = False, width: int | None = None) -> str:
    """The report as JSON, keys in declaration order.

    JSON has no number for them, so floats that are not finite become the strings "NaN", "Infinity" and
    "-Infinity", as in the JSON mapping of Protocol Buffers. Only ASCII comes out: nothing in a name can
    reach a terminal as a control character. `color` and `width` have no effect.
    """
    text = json.dumps(_finite(report.to_json()), indent=2, allow_nan=False)
    # CI hosts look for commands in what a step prints. Only a string can hold this, and there it means the same.
    return text.replace("##[", "#\\u0023[") + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
