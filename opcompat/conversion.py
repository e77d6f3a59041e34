"""Model -> bundle: rewrite, lower, write, prove, and only then put into place.

# Planning: what each format's target says of each entry point
# Writing: files, manifest, recordings
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import opcompat
from opcompat import jaxcompat, manifest, packs
from opcompat import sampling as sampling_modes
from opcompat.analyze import Analysis, analyze_best, target_report
from opcompat.bundle import Bundle, reference_path, write_bundle
from opcompat.comparison import draws_per_mismatch
from opcompat.contract import Contract, contracts
from opcompat.errors import ConfigError, UnsupportedError, VerificationError
from opcompat.interfaces import artifacts_of, interfaces_of
from opcompat.model import Model
from opcompat.params import arrays_of
from opcompat.prune import prune
from opcompat.report import ArtifactFile, Check, Report, TargetReport
from opcompat.runtime.reference import Reference as Recording
from opcompat.runtime.reference import write_arrays, write_reference
from opcompat.runtime.session import open_engine
from opcompat.sampling import Sampled, prove
from opcompat.targets.catalog import FORMATS, candidates
from opcompat.trace import Leaf, Trace, trace
from opcompat.verification import Progress, Recorder, Verifier

RECORDED_STEPS = 32
"""Steps of the first seed that a bundle keeps, for replay on the device."""

PACKAGES = ("jax", "jaxlib", "numpy", "onnx", "onnx-ir", "onnxruntime", "ai-edge-litert", "flatbuffers")

# Planning


@dataclass(frozen=True)
class Plan:
    """A model, traced, and judged for each format it is to be written in. All of it is done before any file."""

    sampled: Sampled
    contracts: Mapping[str, Contract]
    analyses: Mapping[str, Mapping[str, Analysis]]
    """Format -> entry point -> analysis."""

    @property
    def model(self) -> Model:
        return self.sampled.model

    @property
    def traces(self) -> Mapping[str, Trace]:
        return self.sampled.traces

    @property
    def ok(self) -> bool:
        return all(a.ok for by_entry in self.analyses.values() for a in by_entry.values())

    def target_reports(self) -> tuple[TargetReport, ...]:
        rules = packs.rules()
        return tuple(target_report(list(by_entry.values()), rules) for by_entry in self.analyses.values())


def trace_all(model: Model) -> dict[str, Trace]:
    return {name: trace(model, name) for name in model.entry_points}


def sample_all(model: Model, sampling: manifest.Sampling, prune_inputs: bool, progress: Progress) -> Sampled:
    """Traces every entry point, applies the sampling mode, and leaves out inputs that reach no output, if asked to.

    Raises ConfigError, TraceError, UnsupportedError.
    """
    progress("tracing")
    sampled = sampling_modes.apply(model, trace_all(model), sampling)
    for name, gone in sampled.dropped.items():
        if gone:
            progress(f"{name}: sampling {sampling} leaves out {', '.join(gone)}")
    if not prune_inputs:
        return sampled
    model, traces, pruned = prune(sampled.model, sampled.traces, contracts(sampled.model, sampled.traces))
    for name, names in pruned.items():
        progress(f"{name}: leaves out {', '.join(names)}, which reach no output")
    return replace(sampled, model=model, traces=traces, pruned=pruned)


def plan(
    model: Model,
    formats: Sequence[str],
    sampling: manifest.Sampling,
    opset: int | None,
    narrowing: bool,
    prune_inputs: bool,
    progress: Progress,
) -> Plan:
    """Traces, checks the contract, rewrites and lowers. Raises ConfigError, TraceError and UnsupportedError."""
    sampled = sample_all(model, sampling, prune_inputs, progress)
    traces = sampled.traces
    connected = contracts(sampled.model, traces)
    rules = packs.rules()
    analyses: dict[str, dict[str, Analysis]] = {}
    for form in formats:
        if form not in FORMATS:
            raise ConfigError(f"no format {form!r}: there are {', '.join(FORMATS)}")
        judges = candidates(FORMATS[form], opset if form == "onnx" else None)
        progress(f"rewriting for {judges[0].name}")
        found = analyze_best(list(traces.values()), judges, rules, narrowing=narrowing)
        analyses[form] = {a.trace.entry_point: a for a in found}
    return Plan(sampled, connected, analyses)


# Writing


def convert(
    model: Model,
    out: str | Path,
    formats: Sequence[str],
    *,
    sampling: manifest.Sampling = "exact",
    opset: int | None = None,
    narrowing: bool = False,
    prune_inputs: bool = False,
    force: bool = False,
    steps: int = 100,
    seeds: int = 1,
    source: str = "",
    sources: Sequence[Path] = (),
    progress: Progress = lambda _: None,
) -> tuple[Bundle, Report]:
    """See `opcompat.api.convert`."""
    weights_known(model)
    planned = plan(model, formats, sampling, opset, narrowing, prune_inputs, progress)
    report = base_report("convert", model, planned.traces, source)
    interfaces = interfaces_of(planned.traces, planned.contracts)
    report = replace(report, targets=planned.target_reports(), sampling=sampling, interfaces=interfaces)
    if not planned.ok:
        raise UnsupportedError(refusal(report), report=replace(report, next_step=last_step(refusal(report))))
    finished: list[Report] = []

    def fill(folder: Path) -> manifest.Manifest:
        made = _write_artifacts(planned, folder, opset, report)
        progress("recording JAX's reference")
        recorder = Recorder(planned.model, planned.traces, planned.contracts)
        checks = run_checks(planned.sampled, recorder, folder, made, steps, seeds, progress)
        record(recorder, folder, steps)
        done = replace(report, checks=checks)
        if not done.ok:
            raise VerificationError(mismatch(done), report=replace(done, next_step=last_step(mismatch(done))))
        made = replace(made, checks=tuple(map(_for_devices, checks)))
        finished.append(_write_reports(replace(done, artifacts=artifacts_of(made, done.targets, folder)), folder))
        return made

    bundle = write_bundle(out, fill, force=force, sources=sources)
    return bundle, replace(
        finished[0],
        bundle=str(out),
        next_step=f"opcompat verify {shlex.quote(str(out))} {shlex.quote(source) if source else ''}".strip(),
    )


def _for_devices(check: Check) -> dict[str, Any]:
    """A check without what is only drawn in reports."""
    outputs = tuple(replace(o, series=()) for o in check.outputs)
    return asdict(replace(check, outputs=outputs, margins=()))


def run_checks(
    sampled: Sampled,
    recorder: Recorder,
    folder: Path,
    made: manifest.Manifest,
    steps: int,
    seeds: int,
    progress: Callable[[str], None],
) -> tuple[Check, ...]:
    """Loads every artifact in its runtime and compares it with JAX."""
    checks = [
        recorder.default_jit(name, min(steps, RECORDED_STEPS))
        for name, one in recorder.traces.items()
        if one.computes_in_half
    ]
    checks += prove(sampled, recorder, min(steps, RECORDED_STEPS))
    for form in made.formats:
        engine = open_engine(folder, made, form)
        narrowed = made.formats[form].narrowed
        checks += Verifier(recorder, engine, form, steps, seeds, progress, narrowed).run()
    return tuple(checks)


def weights_known(model: Model) -> None:
    for leaf in jax.tree_util.tree_leaves(arrays_of(model.params)):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise ConfigError(
                f"model {model.name!r} has parameters without values (jax.ShapeDtypeStruct); it can be scanned, "
                "but conversion needs the weights"
            )


def base_report(command: str, model: Model, traces: Mapping[str, Trace], source: str) -> Report:
    """What every report starts with."""
    avals = [jaxcompat.aval_of(x) for x in jax.tree_util.tree_leaves(arrays_of(model.params))]
    return Report(
        command=command,
        model=model.name,
        source=source,
        entry_points=tuple(traces),
        parameters=sum(a.size for a in avals),
        parameter_bytes=sum(a.size * a.dtype.itemsize for a in avals),
        versions=versions(),
        config=jaxcompat.configuration(),
    )


def versions() -> dict[str, str]:
    """The versions of everything that can change a result."""
    found = {"opcompat": opcompat.__version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def refusal(report: Report) -> str:
    """Every equation that stays unsupported, and the next step."""
    lines = [f"model {report.model!r} cannot be converted as it is:"]
    for judged in report.targets:
        for found in judged.findings:
            if found.verdict in ("unsupported", "unknown"):
                place = f"{found.file}:{found.line}" if found.file else "unknown place"
                why = "; ".join(filter(None, (found.reason, *found.declined)))
                lines.append(f"  {judged.target}: {found.primitive} {found.operands} at {place}: {why}")
    lines.append("next: compute this outside the exported function, or express it by other operations")
    return "\n".join(lines)


def last_step(message: str) -> str:
    """What a message ends with: its "next:" line."""
    return message.splitlines()[-1].removeprefix("next: ")


def mismatch(report: Report) -> str:
    """Every check that failed, with its worst output."""
    lines = [f"model {report.model!r}: an artifact does not act like JAX:"]
    for check in report.checks:
        if check.passed or not check.binding:
            continue
        bad = [f"{o.name} differs by {o.error:.3g} (allowed {o.tolerance:.3g})" for o in check.outputs if not o.passed]
        if check.mismatched:
            bad.append(f"{check.mismatched} mismatched draws of {check.draws}")
        why = "; ".join(filter(None, (*bad, check.note)))
        lines.append(f"  {check.format} {check.entry_point}, {check.kind}: {why}")
    lines.append("next: nothing was written; see the findings with opcompat scan, and report this as a defect")
    return "\n".join(lines)


def _write_artifacts(planned: Plan, folder: Path, opset: int | None, report: Report) -> manifest.Manifest:
    weights = stored_weights(planned.traces)
    formats = {}
    for form, by_entry in planned.analyses.items():
        narrowed = any(a.rewritten.narrowed for a in by_entry.values())
        formats[form] = replace(WRITERS[form](by_entry, weights, folder), narrowed=narrowed)
    infos = {name: _info(planned, name, folder) for name in planned.traces}
    return manifest.Manifest(
        name=planned.model.name,
        opcompat=opcompat.__version__,
        sampling=planned.sampled.mode,
        versions=report.versions,
        config=report.config,
        formats=formats,
        entry_points=infos,
        weights=weight_infos(weights),
        rules={t.target: {r.id: r.count for r in t.rules} for t in report.targets},
        model_hash=model_hash(weights, planned.traces),
    )


def stored_weights(traces: Mapping[str, Trace]) -> dict[str, np.ndarray]:
    """Every parameter leaf by name, those that no entry point uses left out."""
    found: dict[str, np.ndarray] = {}
    for one in traces.values():
        for leaf in one.params:
            found.setdefault(leaf.name, np.asarray(one.weights[leaf.name], jax.numpy.dtype(leaf.dtype)))
    return found


def weight_infos(weights: Mapping[str, np.ndarray]) -> tuple[manifest.WeightInfo, ...]:
    return tuple(
        manifest.WeightInfo(name, array.shape, array.dtype.name, hashlib.sha256(array.tobytes()).hexdigest())
        for name, array in weights.items()
    )


def model_hash(weights: Mapping[str, np.ndarray], traces: Mapping[str, Trace]) -> str:
    """Identifies what was converted: the weights, the interface and the equations with their wiring."""
    digest = hashlib.sha256()
    for info in weight_infos(weights):
        digest.update(repr(info).encode())
    for name, one in traces.items():
        digest.update(repr((name, one.inputs, one.outputs)).encode())
        # Functions among the params print their address, which is another in each process.
        digest.update(re.sub(r" at 0x[0-9a-f]+", "", str(one.closed)).encode())
    return digest.hexdigest()


def _write_onnx(by_entry: Mapping[str, Analysis], weights: Mapping[str, np.ndarray], folder: Path) -> manifest.Format:
    from opcompat.lowering.onnx import writer

    names = {name: _onnx_names(a.trace) for name, a in by_entry.items()}
    graphs = {name: a.lowered.graph for name, a in by_entry.items()}
    opset = next(iter(by_entry.values())).target.backend.builder.opset  # type: ignore[attr-defined]
    (folder / "onnx").mkdir()
    writer.write(
        graphs,
        weights,
        folder / "onnx",
        opset=opset,
        output_names={name: list(n.values()) for name, n in names.items()},
    )
    renamed = {name: {k: v for k, v in n.items() if k != v} for name, n in names.items()}
    shared = "onnx/weights.bin"
    return manifest.Format(
        files={name: f"onnx/{name}.onnx" for name in by_entry},
        weights=shared if (folder / shared).exists() else "",
        opset=opset,
        outputs={name: n for name, n in renamed.items() if n},
    )


def _onnx_names(one: Trace) -> dict[str, str]:
    """Output name -> its name in the file: an ONNX graph cannot have an input and an output of one name."""
    inputs, outputs = {leaf.name for leaf in one.inputs}, {leaf.name for leaf in one.outputs}
    names = {}
    for output in outputs:
        free = output
        while free in inputs or (free != output and free in outputs):
            free += ".next"
        names[output] = free
    return {x.name: names[x.name] for x in one.outputs}


def _write_tflite(by_entry: Mapping[str, Analysis], weights: Mapping[str, np.ndarray], folder: Path) -> manifest.Format:
    from opcompat.lowering.tflite import writer

    data = writer.write(
        {name: a.lowered.graph for name, a in by_entry.items()},
        weights,
        output_names={name: list(a.lowered.output_names) for name, a in by_entry.items()},
    )
    (folder / "tflite").mkdir()
    (folder / "tflite" / "model.tflite").write_bytes(data)
    return manifest.Format(file="tflite/model.tflite")


WRITERS = {"onnx": _write_onnx, "tflite": _write_tflite}
"""Format -> what writes its files: (analyses by entry point, weights, folder) -> their paths."""


def _info(planned: Plan, name: str, folder: Path) -> manifest.EntryPointInfo:
    one, contract = planned.traces[name], planned.contracts[name]
    arrays = {leaf: s.array for leaf, s in contract.starts.items() if s.array is not None}
    file = f"reference/{name}.init.npz"
    if arrays:
        write_arrays(folder / file, arrays)
    init = {
        leaf: manifest.Init(file=file) if s.array is not None else manifest.Init(output=f"{s.entry_point}.{s.output}")
        for leaf, s in contract.starts.items()
    }
    return manifest.EntryPointInfo(
        inputs=tuple(map(_leaf, one.inputs)),
        outputs=tuple(replace(_leaf(x), key=x.key or _key_of(planned, name, x.name)) for x in one.outputs),
        feedback=dict(contract.feedback),
        init=init,
        dropped=planned.sampled.dropped.get(name, ()),
        pruned=planned.sampled.pruned.get(name, ()),
    )


def _key_of(planned: Plan, entry_point: str, output: str) -> str:
    """The PRNG implementation of the key input that an output becomes, here or as another entry point's start."""
    for name, contract in planned.contracts.items():
        fed = {contract.feedback[output]} if name == entry_point and output in contract.feedback else set()
        fed |= {into for into, s in contract.starts.items() if (s.entry_point, s.output) == (entry_point, output)}
        for leaf in planned.traces[name].inputs:
            if leaf.name in fed and leaf.key:
                return leaf.key
    return ""


def _leaf(leaf: Leaf) -> manifest.Leaf:
    return manifest.Leaf(leaf.name, leaf.shape, leaf.dtype, leaf.file_dtype, leaf.key, leaf.noise)


def record(recorder: Recorder, folder: Path, steps: int) -> None:
    """Writes the first steps of seed 0 of each entry point, with what each output may differ by."""
    for name, one in recorder.traces.items():
        rollout = recorder.rollout(name, 0, min(steps, RECORDED_STEPS))
        measured = [recorder.precision(name, rollout, s) for s in range(len(rollout.inputs))]
        tolerances = {leaf.name: recorder.tolerance(name, leaf, measured) for leaf in one.outputs}
        write_reference(
            folder / reference_path(name),
            Recording(
                {x.name: _stack(rollout.inputs, x) for x in one.inputs},
                {x.name: _stack(rollout.outputs, x) for x in one.outputs},
                {n: t.allowed for n, t in tolerances.items() if t.reference_error is not None},
                {x.name: np.array([x.name in m.tied for m in measured]) for x in one.outputs},
                draws_per_mismatch(one),
            ),
        )


def _stack(steps: Sequence[Mapping[str, np.ndarray]], leaf: Leaf) -> Any:
    return np.stack([np.asarray(s[leaf.name], dtype=leaf.file_dtype) for s in steps])


def _write_reports(report: Report, folder: Path) -> Report:
    """report.json and report.html, which name the other files of the bundle and their sizes."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file())
    files = tuple(ArtifactFile(p.relative_to(folder).as_posix(), p.stat().st_size) for p in paths)
    report = replace(report, files=files)
    renderers = packs.renderers()
    for form in ("json", "html"):
        (folder / f"report.{form}").write_text(renderers[form](report), encoding="utf-8")
    return report
