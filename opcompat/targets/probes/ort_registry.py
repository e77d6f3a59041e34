"""Reads ONNX Runtime's kernel registry into a table.

As a script it needs the standard library and onnxruntime alone, so that it runs in an environment that holds another
version of it: `python ort_registry.py onnxruntime@1.22 2026-12-01 FILE`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

PROVIDER = "CPUExecutionProvider"
_FOREVER = 2**31 - 1
_NUMPY_NAMES = {"float": "float32", "double": "float64"}


def content(name: str, date: str, generator: str) -> dict[str, Any]:
    """The content of a table: one row per kernel of the default domain on the CPU, what is not listed does not run."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    kernels: dict[str, list[dict[str, Any]]] = {}
    for k in state.get_all_opkernel_def():
        if k.domain in ("", "ai.onnx") and k.provider == PROVIDER:
            row = _row(k)
            known = kernels.setdefault(k.op_name, [])
            if row not in known:
                known.append(row)
    opsets = [s.since_version for s in state.get_all_operator_schema() if s.domain in ("", "ai.onnx")]
    return {
        "schema_version": 1,
        "target": name,
        "runtime": "onnxruntime",
        "version": str(onnxruntime.__version__),
        "date": date,
        "format": "onnx",
        "evidence": "registry",
        "generator": generator,
        "summary": f"ONNX Runtime {onnxruntime.__version__}, {PROVIDER}",
        "complete": True,
        "limits": {"opset": max(opsets)},
        "ops": {op: sorted(rows, key=_order) for op, rows in sorted(kernels.items())},
    }


def _row(kernel: Any) -> dict[str, Any]:
    """An implementation, with the dtypes of each type parameter; other than tensors are left out."""
    since, until = kernel.version_range
    types = {}
    for name, allowed in sorted(kernel.type_constraints.items()):
        types[name] = " ".join(sorted(_numpy(t) for t in allowed if t.startswith("tensor(")))
    return {"is": "yes", "since": since, **({"until": until} if until < _FOREVER else {}), "types": types}


def _numpy(type_string: str) -> str:
    inner = type_string.removeprefix("tensor(").removesuffix(")")
    return _NUMPY_NAMES.get(inner, inner)


def _order(row: dict[str, Any]) -> tuple[int, str]:
    return row["since"], json.dumps(row["types"], sort_keys=True)


def main(arguments: Sequence[str]) -> None:
    name, date, file = arguments
    found = content(name, date, f"opcompat probe {name}")
    with open(file, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


if __name__ == "__main__":
    main(sys.argv[1:])
