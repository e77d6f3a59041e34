"""`opcompat scan` of a model file: which of its ops a target cannot run, and what else keeps the file from running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from opcompat.bundle import Bundle
from opcompat.errors import ConfigError, CrashError
from opcompat.files import facts, program
from opcompat.files.judge import Judged, judged, operands
from opcompat.files.program import Part, Program, Value
from opcompat.isolation import call
from opcompat.report import VERDICTS, ArtifactFile, Finding, Report, TargetReport, relative
from opcompat.sources.base import Graphs
from opcompat.targets import catalog, limits
from opcompat.targets.base import Target

TRIAL_BYTES = 64 << 20
"""Files up to this size, weights included, are opened in their runtime where that can settle what is not known."""

_TRIALS: Mapping[str, str] = {
    "onnxruntime": "opcompat.files.trial:onnxruntime",
    "litert": "opcompat.files.trial:litert",
}
_VERDICTS: Mapping[str, int] = {"unsupported": 0, "unknown": 1}
_PACKAGES = ("opcompat", "onnx", "onnxruntime", "ai-edge-litert")


def scan(
    graphs: Graphs,
    targets: Sequence[str] | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Judges every op of a model file, or of all files of a bundle, for each target; by default those of its formats.

    Weights are not read, and nothing is converted. An ONNX file is judged by its own opset. Raises SourceError for a
    file that is damaged, and ConfigError for an unknown target.
    """
    programs = _programs(graphs)
    formats = tuple(dict.fromkeys(p.format for p in programs))
    names = targets or [catalog.FORMATS[form] for form in formats]
    reports = []
    for name in names:
        progress(f"judging for {name}")
        reports.append(_target_report(name, programs))
    entries = tuple(dict.fromkeys(name for p in programs for name, _ in p.entries))
    report = Report(
        command="scan",
        model=graphs.path.name,
        source=graphs.name,
        entry_points=entries,
        targets=tuple(reports),
        advice=tuple(note for name in names for note in limits.remarks(catalog.target(name), entries)),
        files=tuple(_files(programs)),
        parameters=max(p.parameters for p in programs),
        parameter_bytes=max(p.parameter_bytes for p in programs),
        versions={name: metadata.version(name) for name in _PACKAGES},
        facts=facts.of(programs),
    )
    return replace(report, next_step=facts.next_step(report, programs))


def _programs(graphs: Graphs) -> list[Program]:
    if graphs.format != "bundle":
        return [program.read(graphs.path, graphs.format)]
    bundle = Bundle.open(graphs.path)
    forms, names = bundle.manifest.formats, bundle.manifest.entry_points
    paths = dict.fromkeys((bundle.path / form.path_of(name), key) for key, form in forms.items() for name in names)
    return [program.read(path, key) for path, key in paths]


def _files(programs: Sequence[Program]) -> Iterator[ArtifactFile]:
    seen: dict[Path, int] = {}
    for p in programs:
        seen[p.path] = p.facts["bytes"]
        seen |= {p.path.parent / name: size for name, size, missing in p.external if not missing}
    for path, size in seen.items():
        yield ArtifactFile(relative(str(path)), size)


# --- one target ------------------------------------------------------------------------------------------


def _target_report(name: str, programs: Sequence[Program]) -> TargetReport:
    target = catalog.target(name)
    fitting = [p for p in programs if p.format == target.backend.name]
    counts: dict[str, int] = dict.fromkeys(VERDICTS, 0)
    primitives: dict[str, dict[str, int]] = {}
    whole: list[Finding] = [] if fitting else [_misfit(target, programs)]
    findings: list[Finding] = []
    nodes: Counter[str] = Counter()
    for p in fitting:
        opset = p.facts.get("opsets", {}).get("ai.onnx")
        target = catalog.reader(name, opset) if opset else target
        answers = _settled(list(judged(p, target)), p, target)
        whole += _whole(p, target)
        findings += _findings(p, answers)
        for answer in answers:
            counts[answer.verdict] += 1
            row = primitives.setdefault(answer.op.op, dict.fromkeys(VERDICTS, 0))
            row[answer.verdict] += 1
            nodes.update(answer.entries)
    counts["unsupported"] += len(whole)
    ops = sum((Counter(p.ops) for p in fitting), Counter())
    return TargetReport(
        target=target.name,
        runtime=target.runtime,
        version=target.version,
        counts=counts,
        findings=(*whole, *sorted(findings, key=lambda f: _VERDICTS[f.verdict])),
        rules=(),
        nodes=dict(nodes),
        ops=dict(ops),
        primitives=primitives,
    )


def _settled(answers: list[Judged], p: Program, target: Target) -> list[Judged]:
    """What the runtime itself says where no table does: it opens the whole file, if that is small."""
    size = p.facts["bytes"] + sum(size for _, size, _ in p.external)
    if target.name not in _TRIALS or size > TRIAL_BYTES or not any(a.open for a in answers):
        return answers
    try:
        refusal = call(_TRIALS[target.name], str(p.path), what=f"{target.runtime} opening {p.path.name}")
    except CrashError as error:
        refusal = str(error)
    if refusal:
        return [replace(a, reason=f"{a.reason}; {target.runtime}: {refusal}") if a.open else a for a in answers]
    return [Judged(a.op, a.entries, "native", evidence="probed") if a.open else a for a in answers]


def _findings(p: Program, answers: Sequence[Judged]) -> Iterator[Finding]:
    """Equal ones together, at the first of their places."""
    groups: dict[tuple[object, ...], list[Judged]] = {}
    for answer in answers:
        if answer.verdict in _VERDICTS:
            place = answer.op.place or (str(p.path), 0, "")
            key = (answer.verdict, answer.reason, answer.op.op, operands(answer.op), place)
            groups.setdefault(key, []).append(answer)
    for group in groups.values():
        first = group[0]
        file, line, function = first.op.place or (str(p.path), 0, first.op.name)
        yield Finding(
            verdict=first.verdict,
            primitive=first.op.op,
            operands=operands(first.op),
            file=relative(file),
            line=line,
            function=function or first.op.name,
            count=len(group),
            entry_points=tuple(dict.fromkeys(name for a in group for name in a.entries)),
            reason=first.reason,
            evidence=first.evidence,
            scope=first.op.name,
        )


def _whole(p: Program, target: Target) -> Iterator[Finding]:
    """What keeps a file from running beside its ops."""
    for name, _, missing in p.external:
        if missing:
            yield _about(p, "weights", f"{name}, which holds weights, is not there", "documented")
    names, opset = tuple(name for name, _ in p.entries), p.facts.get("opsets", {}).get("ai.onnx")
    ends = [(name, role, x.name, x.dtype) for name, number in p.entries for role, x in _ends(p.parts[number])]
    yield from limits.broken(target, names, opset or 0, len(names), ends, relative(str(p.path)))
    if p.format != "onnx":
        return
    if opset is None:
        yield _about(p, "opset", "the file does not say which opset of ONNX it is written in", "documented")
    elif target.name == "onnxruntime":
        from opcompat.files import trial

        refusal = trial.versions(opset, p.facts["ir_version"])
        if refusal:
            yield _about(p, "versions", f"opset {opset}, IR version {p.facts['ir_version']}: {refusal}", "probed")


def _ends(part: Part) -> Iterator[tuple[str, Value]]:
    yield from (("input", x) for x in part.inputs)
    yield from (("output", x) for x in part.outputs)


def _about(p: Program, what: str, reason: str, evidence: str) -> Finding:
    names = tuple(name for name, _ in p.entries)
    return Finding("unsupported", what, "", relative(str(p.path)), 0, "", 1, names, reason=reason, evidence=evidence)


def _misfit(target: Target, programs: Sequence[Program]) -> Finding:
    p = programs[0]
    has = " and ".join(dict.fromkeys(facts.FORMATS[q.format] for q in programs))
    reason = f"{target.name} runs {facts.FORMATS[target.backend.name]} files, and this is {has}"
    return _about(p, "format", reason, "documented")


def known(targets: Sequence[str] | None, graphs: Graphs) -> list[str] | None:
    """Of configured targets those that run the file's format; None, which stands for the default, if none does."""
    if not targets:
        return None
    unknown = [name for name in targets if name not in catalog.TARGETS]
    if unknown:
        raise ConfigError(f"no target {unknown[0]!r}: there are {', '.join(catalog.TARGETS)}")
    if graphs.format == "bundle":
        return list(targets)
    return [name for name in targets if catalog.target(name).backend.name == graphs.format] or None
