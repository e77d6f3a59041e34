"""The baseline: what was accepted, as sorted JSON that people commit and read in a diff.

Nothing in it depends on a line number, a time or a machine. Only `opcompat baseline update` writes it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opcompat.checking.budgets import COUNTED
from opcompat.checking.data import ModelResult
from opcompat.errors import BundleError, ConfigError
from opcompat.manifest import parse_json
from opcompat.report import Interface, Port, Report

SCHEMA = 1
FILE = "opcompat.baseline.json"
KEPT_WHOLE = 3
"""Significant digits of errors."""

_PORT = re.compile(r'\{((?:\n +"(?:feeds|key|name|start|type|unused)": [^\n]+)+)\n +\}')

Entry = Mapping[str, Any]


def entry_of(result: ModelResult) -> dict[str, Any]:
    """What a baseline holds of one model."""
    report = result.report
    return {
        "findings": dict(sorted((issue.fingerprint, issue.count) for issue in merged(result))),
        "targets": {t.target: {v: n for v, n in t.counts.items() if n} for t in report.targets},
        "ops": {t.target: dict(sorted(t.ops.items())) for t in report.targets},
        "rules": {t.target: {rule.id: rule.count for rule in t.rules} for t in report.targets},
        "artifacts": {
            a.format: {"bytes": a.bytes, "ops": a.ops} | ({"opset": a.opset} if a.opset else {})
            for a in report.artifacts
        },
        "checks": _checks(report),
        "errors": errors_of(report),
        "interface": {name: _interface(face) for name, face in report.interfaces.items()},
        "sampling": report.sampling,
        "config": dict(report.config),
    }


class _Counted:
    def __init__(self, fingerprint: str, count: int) -> None:
        self.fingerprint, self.count = fingerprint, count


def merged(result: ModelResult) -> Iterable[_Counted]:
    """The model's own findings by fingerprint; changes against a baseline are not among them."""
    found: dict[str, _Counted] = {}
    for issue in result.issues:
        if not is_finding(issue.fingerprint):
            continue
        if issue.fingerprint in found:
            found[issue.fingerprint].count += issue.count
        else:
            found[issue.fingerprint] = _Counted(issue.fingerprint, issue.count)
    return found.values()


_OTHERS = ("budget", "change", "stale", "failure")


def is_finding(fingerprint: str) -> bool:
    """Whether a fingerprint is that of a finding, a mismatch or an advice: what a baseline accepts one by one."""
    return bool(fingerprint) and fingerprint.partition(" | ")[0] not in _OTHERS


def _checks(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for check in report.checks:
        if check.format == "jax":
            continue
        verdict = "passed" if check.passed else "FAILED" if check.binding else "differs"
        draws = {"draws": check.draws, "mismatched": check.mismatched} if check.draws else {}
        found[f"{check.format} {check.entry_point}, {check.kind}"] = {"verdict": verdict, "steps": check.steps} | draws
    return found


def errors_of(report: Report) -> dict[str, Any]:
    """By format, entry point and output, the largest error over single steps and binding closed loops."""
    found: dict[str, float] = {}
    for check in report.checks:
        if check.kind not in COUNTED or not check.binding or check.format == "jax":
            continue
        for output in check.outputs:
            if output.reference_error is not None:
                name = f"{check.format} {check.entry_point} {output.name}"
                found[name] = max(found.get(name, 0.0), math.inf if math.isnan(output.error) else output.error)
    return {name: rounded(value) for name, value in found.items()}


def rounded(value: float) -> float | str:
    return float(f"{value:.{KEPT_WHOLE}g}") if math.isfinite(value) else str(value)


def _interface(face: Interface) -> dict[str, Any]:
    return {
        "inputs": [_port(port) for port in face.inputs],
        "outputs": [_port(port) for port in face.outputs],
        "dtypes": list(face.dtypes),
    }


def _port(port: Port) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": port.name, "type": f"{port.dtype}[{','.join(map(str, port.shape))}]"}
    extra = {"key": port.key, "start": port.start, "feeds": port.feeds, "unused": not port.used}
    return plain | {name: value for name, value in extra.items() if value}


def text_of(results: Iterable[ModelResult], versions: Mapping[str, str]) -> str:
    """The contents of a baseline file. Raises ConfigError if a model has no result."""
    models = {}
    for result in results:
        if result.failure:
            raise ConfigError(f"{result.key} has no result, so no baseline can be written: {result.failure}")
        models[result.key] = entry_of(result)
    return dump({"schema": SCHEMA, "versions": dict(versions), "models": models})


def dump(value: Mapping[str, Any]) -> str:
    """The text of a baseline: keys in order, one port of an interface a line."""
    text = json.dumps(value, sort_keys=True, indent=1, allow_nan=False)
    # A string of JSON holds no line break, so only the layout can match.
    return (
        _PORT.sub(lambda found: "{" + " ".join(line.strip() for line in found[1].strip().split("\n")) + "}", text)
        + "\n"
    )


def parse(text: bytes, file: str) -> dict[str, Any]:
    """A baseline's contents. Raises ConfigError for what is none."""
    try:
        value = parse_json(text, file)
    except BundleError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(value, dict) or value.get("schema") != SCHEMA or not _is_whole(value):
        raise ConfigError(
            f"{file}: not a baseline that this version reads; next: write it again with opcompat baseline update"
        )
    return value


_PARTS: Mapping[str, type] = {
    "findings": dict,
    "targets": dict,
    "ops": dict,
    "rules": dict,
    "artifacts": dict,
    "checks": dict,
    "errors": dict,
    "interface": dict,
    "sampling": str,
    "config": dict,
}


def _is_whole(value: Mapping[str, Any]) -> bool:
    models, versions = value.get("models"), value.get("versions")
    if not isinstance(models, dict) or not isinstance(versions, dict):
        return False
    if not all(isinstance(v, str) for v in versions.values()):
        return False
    for entry in models.values():
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), kind) for k, kind in _PARTS.items()):
            return False
        if not all(isinstance(count, int) for count in entry["findings"].values()):
            return False
        tables = (entry["targets"], entry["ops"], entry["rules"], entry["artifacts"], entry["checks"])
        if not all(isinstance(inner, dict) for table in tables for inner in table.values()):
            return False
        if not all(isinstance(a.get("bytes"), int) for a in entry["artifacts"].values()):
            return False
        if not all(isinstance(check.get("verdict"), str) for check in entry["checks"].values()):
            return False
        if not all(isinstance(e, int | float) or e in ("inf", "nan") for e in entry["errors"].values()):
            return False
        if not all(_is_face(face) for face in entry["interface"].values()):
            return False
    return True


def _is_face(face: Any) -> bool:
    if not isinstance(face, dict) or not {"inputs", "outputs", "dtypes"} <= face.keys():
        return False
    if not all(isinstance(face[part], list) for part in ("inputs", "outputs", "dtypes")):
        return False
    ports = [*face["inputs"], *face["outputs"]]
    return all(isinstance(t, str) for t in face["dtypes"]) and all(
        isinstance(p, dict) and isinstance(p.get("name"), str) and isinstance(p.get("type"), str) for p in ports
    )


def read(path: Path) -> dict[str, Any]:
    """The baseline in a file. Raises ConfigError."""
    try:
        return parse(path.read_bytes(), str(path))
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no baseline {path}; next: opcompat baseline update SOURCE... --baseline {path}"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
