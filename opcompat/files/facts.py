"""What a model file says of itself, in words, and what it needs in order to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from opcompat.files.program import Program, Value
from opcompat.report import Report

FORMATS: Mapping[str, str] = {"onnx": "ONNX", "tflite": "TFLite"}
_MANY = 12

_STEPS: tuple[tuple[str, str], ...] = (
    ("weights", "put the file of weights beside the model; it is looked for there only"),
    ("format", "give a target that runs this format (`opcompat targets` lists them), or scan the model's source"),
    ("versions", "update the runtime, or write the file again in an older opset (`opcompat convert SOURCE --opset N`)"),
    ("opset", "write the file again with a converter that sets opset_import"),
    (
        "CUSTOM Flex",
        "convert again with builtin ops only (`opcompat convert SOURCE --to tflite`), or run the file where the Flex "
        "delegate is linked in",
    ),
    ("CUSTOM ", "register the custom ops in the application, or convert again without them"),
    ("STABLEHLO_", "convert again with a converter that legalizes StableHLO (`opcompat convert SOURCE --to tflite`)"),
    ("BUILTIN_", "update ai-edge-litert"),
)
"""How a finding's op begins -> what to do. The first that fits is the most basic one."""

_OTHERWISE = (
    "a file cannot be rewritten: convert its source again with `opcompat convert`, which rewrites what a target lacks, "
    "or scan for another target"
)


def of(programs: Sequence[Program]) -> dict[str, str]:
    """Label -> text, for every report of a file."""
    found = {
        "format": ", ".join(dict.fromkeys(FORMATS[p.format] for p in programs)),
        **_versions(programs),
        "producer": ", ".join(dict.fromkeys(p.facts["producer"] for p in programs if p.facts["producer"])),
        "ops": _counted(sum((Counter(p.ops) for p in programs), Counter())),
        "dtypes": _counted(Counter(x.dtype or "unknown" for p in programs for x in _values(p))),
        "interface": "; ".join(_interface(p) for p in programs),
        "dynamic": ", ".join(dict.fromkeys(f"{x.name} {x}" for p in programs for x in _ends(p) if x.dynamic)),
        "leftovers": ", ".join(dict.fromkeys(op for p in programs for op in p.ops if _is_leftover(op))),
        "inference": "; ".join(dict.fromkeys(p.facts.get("inference", "") for p in programs)).strip("; "),
    }
    return {label: text for label, text in found.items() if text}


def next_step(report: Report, programs: Sequence[Program]) -> str:
    """What the file needs in order to run."""
    ops = [f.primitive for t in report.targets for f in t.findings]
    if not ops:
        names = ", ".join(t.target for t in report.targets)
        return f"nothing is in the way of running it on {names}; compare its results there with the source's"
    return next((step for start, step in _STEPS if any(op.startswith(start) for op in ops)), _foreign(ops))


def _foreign(ops: Sequence[str]) -> str:
    domain = next((op.rpartition(".")[0] for op in ops if "." in op), "")
    return (
        f"register the ops of the domain {domain} with the runtime, or convert without them" if domain else _OTHERWISE
    )


def _is_leftover(op: str) -> bool:
    return op.startswith(("CUSTOM ", "STABLEHLO_", "BUILTIN_")) or "." in op


def _versions(programs: Sequence[Program]) -> dict[str, str]:
    opsets = {f"{domain} {n}": None for p in programs for domain, n in p.facts.get("opsets", {}).items()}
    irs = dict.fromkeys(str(p.facts["ir_version"]) for p in programs if "ir_version" in p.facts)
    return {"opset": ", ".join(opsets), "IR version": ", ".join(irs)}


def _values(p: Program) -> Iterator[Value]:
    for number in p.reached:
        for op in p.parts[number].ops:
            yield from (x for x in op.outputs if x is not None)


def _ends(p: Program) -> Iterator[Value]:
    for _, number in p.entries:
        yield from (*p.parts[number].inputs, *p.parts[number].outputs)


def _interface(p: Program) -> str:
    shown = []
    for name, number in p.entries[:_MANY]:
        part = p.parts[number]
        ends = (", ".join(f"{x.name} {x}" for x in some[:_MANY]) for some in (part.inputs, part.outputs))
        shown.append(f"{name}({next(ends)}) -> {next(ends)}")
    return "; ".join(shown)


def _counted(counts: Counter[str]) -> str:
    shown = [f"{name} {n:,}" for name, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    more = f" and {len(shown) - 2 * _MANY} more" if len(shown) > 2 * _MANY else ""
    return ", ".join(shown[: 2 * _MANY]) + more
