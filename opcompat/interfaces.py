"""What reports say of a model's interface and of its artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from opcompat.contract import Contract, Start
from opcompat.manifest import Manifest
from opcompat.prune import unused
from opcompat.report import Artifact, Interface, Port, TargetReport
from opcompat.targets.catalog import FORMATS
from opcompat.trace import Trace


def interfaces_of(traces: Mapping[str, Trace], connected: Mapping[str, Contract]) -> dict[str, Interface]:
    """What each entry point takes and gives."""
    return {name: _interface(one, connected[name]) for name, one in traces.items()}


def _interface(one: Trace, contract: Contract) -> Interface:
    idle = set(unused(one))
    inputs = tuple(
        Port(x.name, x.dtype, x.shape, x.key, start=_start(contract.starts.get(x.name)), used=x.name not in idle)
        for x in one.inputs
    )
    outputs = tuple(Port(x.name, x.dtype, x.shape, x.key, feeds=contract.feedback.get(x.name, "")) for x in one.outputs)
    types = {part.partition("[")[0] for o in one.originals.values() for part in o.operands.split(", ")}
    return Interface(inputs, outputs, tuple(sorted(t for t in types if t and not t.startswith("key<"))))


def _start(start: Start | None) -> str:
    if start is None:
        return ""
    return "array" if start.array is not None else f"{start.entry_point}.{start.output}"


def artifacts_of(made: Manifest, targets: Iterable[TargetReport], folder: Path) -> tuple[Artifact, ...]:
    """The size of each format's files as they lie in `folder`, and what they hold."""
    ops = {t.target: sum(t.nodes.values()) for t in targets}
    return tuple(
        Artifact(
            format=form,
            target=FORMATS[form],
            bytes=sum((folder / path).stat().st_size for path in sorted(set(info.paths()))),
            ops=ops.get(FORMATS[form], 0),
            opset=info.opset,
        )
        for form, info in made.formats.items()
    )
