"""Scans, converts and verifies one policy of the zoo, and keeps the figures for the table.

As a program, `python -m tests.zoo.examine NAME` prints the result as one line of JSON. A policy has a process of its
own, so that one library's global state does not reach the next.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from opcompat import api
from opcompat.conversion import trace_all
from opcompat.errors import OpcompatError
from opcompat.report import Check, Report
from tests.zoo.policy import Policy, load

STEPS = 200
"""Steps of verification, each with a key of its own where the policy takes one."""

FORMATS = {"onnx": "onnxruntime", "tflite": "litert"}
TARGETS = tuple(FORMATS.values())


@dataclass(frozen=True)
class Figures:
    """One target: nodes of all entry points, bytes of all files, the largest error of any float output.

    `draws` decisions were compared, of which `mismatched` differ within the allowed margin.
    """

    nodes: int
    bytes: int
    error: float
    draws: int
    mismatched: int


@dataclass(frozen=True)
class Result:
    """What became of one policy. `problem` is "" if everything holds."""

    name: str
    versions: Mapping[str, str]
    problem: str
    limit: str = ""
    entry_points: Sequence[str] = ()
    equations: int = 0
    parameter_bytes: int = 0
    rules: Sequence[str] = ()
    primitives: Sequence[str] = ()
    targets: Mapping[str, Figures] = field(default_factory=dict)
    seconds: float = 0.0


def examine(name: str, steps: int = STEPS) -> Result:
    """Raises nothing that opcompat raises: errors become the result's problem."""
    policy, start = load(name), time.perf_counter()
    try:
        result = _through(name, policy, steps)
    except OpcompatError as error:
        result = Result(name, policy.versions, f"{type(error).__name__}: {error}", policy.limit)
    seconds = time.perf_counter() - start
    return Result(**{**vars(result), "seconds": round(seconds, 1)})


def _through(name: str, policy: Policy, steps: int) -> Result:
    model = policy.build()
    scanned = api.scan(model, TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        _, report = api.convert(model, Path(folder) / "dist", to=tuple(FORMATS), steps=steps)
    problems = [*_scan_problems(scanned), *_check_problems(report.checks, policy.draws)]
    return Result(
        name,
        policy.versions,
        "; ".join(problems),
        policy.limit,
        report.entry_points,
        sum(scanned.targets[0].counts.values()),
        report.parameter_bytes,
        sorted({r.id for t in scanned.targets for r in t.rules}),
        sorted({o.primitive for t in trace_all(model).values() for o in t.originals.values()}),
        {target: _figures(form, target, report, scanned) for form, target in FORMATS.items()},
    )


def _scan_problems(scanned: Report) -> list[str]:
    return [f"scan: {t.target}: {f.primitive}: {f.reason}" for t in scanned.targets if not t.ok for f in t.findings]


def _check_problems(checks: Sequence[Check], draws: bool) -> list[str]:
    wrong = [f"{c.format} {c.entry_point} {c.kind}: {c.note}" for c in checks if not c.passed and c.binding]
    keys = [c for c in checks if c.kind == "key"]
    if draws and not any(c.passed and not c.note for c in keys):
        wrong.append("another key does not change the outputs")
    return wrong


def _figures(form: str, target: str, report: Report, scanned: Report) -> Figures:
    checks = [c for c in report.checks if c.format == form and c.kind in ("step", "closed-loop")]
    return Figures(
        nodes=sum(next(t for t in scanned.targets if t.target == target).nodes.values()),
        bytes=sum(f.bytes for f in report.files if f.path.startswith(f"{form}/")),
        error=max((o.error for c in checks for o in c.outputs if o.reference_error is not None), default=0.0),
        draws=sum(c.draws for c in checks),
        mismatched=sum(c.mismatched for c in checks),
    )


if __name__ == "__main__":
    print(json.dumps(asdict(examine(sys.argv[1]))))
