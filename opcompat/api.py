"""The Python interface: scan, convert, verify, rewrite."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import core as jexc

from opcompat import conversion, jaxcompat, packs
from opcompat.analyze import analyze_best, target_report
from opcompat.batch import sizes_of, with_batches
from opcompat.bundle import Bundle
from opcompat.complexes import from_pairs, is_complex
from opcompat.contract import Contract, contracts
from opcompat.driver import legalize
from opcompat.errors import BundleError, ConfigError
from opcompat.inline import inline
from opcompat.interfaces import interfaces_of
from opcompat.lint import advise
from opcompat.manifest import SAMPLING
from opcompat.model import Model
from opcompat.report import Check, Report
from opcompat.runtime import apart
from opcompat.runtime.reference import read_init
from opcompat.sampling import Sampled
from opcompat.targets import catalog, limits
from opcompat.trace import in_files
from opcompat.verification import Progress, Recorder


def _silent(_: str) -> None:
    return


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pauses Python's cyclic garbage collector.

    It looks at every live object again and again, which costs a quarter of the time for 10,000 equations; almost
    nothing that is made here is cyclic.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_without_collection()
def scan(
    model: Model,
    targets: Sequence[str] = ("onnxruntime", "litert"),
    *,
    batch: Sequence[int] = (),
    source: str = "",
    opset: int | None = None,
    allow_narrowing: bool = False,
    progress: Progress = _silent,
) -> Report:
    """Judges every equation of every entry point for each target. Writes nothing; needs no weights' values.

    The report's `advice` is what the lints say: it does not make the report worse.

    `batch` adds entry points NAME@N of other batch sizes (see `opcompat.batch`); `allow_narrowing`: see `convert`.

    Raises ConfigError for an unknown target or a contract that does not fit, TraceError if a function fails.
    """
    if isinstance(targets, str) or not targets:
        raise ConfigError(f"targets must name at least one of {', '.join(catalog.TARGETS)}, not {targets!r}")
    judges = {name: catalog.candidates(name, opset) for name in targets}
    model = with_batches(model, batch)
    progress("tracing")
    traces = conversion.trace_all(model)
    connected = contracts(model, traces)
    half = tuple(name for name, forms in judges.items() if forms[0].limits.precision == "float16")
    advice = advise(model, traces, connected, packs.lints(), half)
    reports = []
    for name, forms in judges.items():
        progress(f"analyzing for {name}")
        analyses = analyze_best(list(traces.values()), forms, packs.rules(), narrowing=allow_narrowing)
        judge = analyses[0].target
        reports.append(limits.added(target_report(analyses, packs.rules()), analyses))
        advice = (*advice, *limits.advice(judge, analyses, connected))
    report = conversion.base_report("scan", model, traces, source)
    report = replace(
        report, targets=tuple(reports), advice=advice, interfaces=interfaces_of(traces, connected), sampling="exact"
    )
    if not report.ok:
        return replace(report, next_step=conversion.last_step(conversion.refusal(report)))
    formats = ",".join(dict.fromkeys(forms[0].backend.name for forms in judges.values()))
    return replace(report, next_step=f"opcompat convert {shlex.quote(source or 'SOURCE')} --to {formats} --out dist")


@_without_collection()
def convert(
    model: Model,
    out: str | Path,
    to: Sequence[str] = ("onnx", "tflite"),
    *,
    sampling: str = "exact",
    batch: Sequence[int] = (),
    opset: int | None = None,
    allow_narrowing: bool = False,
    prune_inputs: bool = False,
    force: bool = False,
    steps: int = 100,
    seeds: int = 1,
    source: str = "",
    progress: Progress | None = None,
) -> tuple[Bundle, Report]:
    """Writes a bundle at `out` and proves every artifact in it against JAX, over `steps` steps from each of `seeds`.

    `sampling` says what becomes of draws (see `opcompat.sampling`): "exact" keeps the keys as inputs and draws what
    JAX draws, "noise" makes each draw an input, "greedy" takes the mode or mean. `batch` adds entry points NAME@N of
    other batch sizes, which share the weights (see `opcompat.batch`). `allow_narrowing` computes 64-bit values in 32
    bits on targets without 64-bit arithmetic, which refuse them otherwise. `prune_inputs` leaves inputs that reach no
    output out of the bundle's interface; by default they stay, so that callers can pass what they have.

    Raises UnsupportedError (with the report) if anything cannot run, VerificationError (with the report) if an
    artifact differs, OutputError if `out` exists or cannot be written. In each case nothing is written.
    """
    mode = next((m for m in SAMPLING if m == sampling), None)
    if mode is None:
        raise ConfigError(f"sampling {sampling!r} does not exist; next: use one of {', '.join(SAMPLING)}")
    if isinstance(to, str) or not to:
        raise ConfigError(f"to must name at least one of {', '.join(catalog.FORMATS)}, not {to!r}")
    if steps < 1 or seeds < 1:
        raise ConfigError(f"steps and seeds must be positive, not {steps} and {seeds}")
    sources = [Path(source)] if source and Path(source).exists() else []
    return conversion.convert(
        with_batches(model, batch),
        out,
        to,
        sampling=mode,
        opset=opset,
        narrowing=allow_narrowing,
        prune_inputs=prune_inputs,
        force=force,
        steps=steps,
        seeds=seeds,
        source=source,
        sources=sources,
        progress=progress or _silent,
    )


def verify(
    bundle: str | Path | Bundle,
    model: Model | None = None,
    *,
    steps: int = 1000,
    seeds: int = 1,
    source: str = "",
    progress: Progress | None = None,
) -> Report:
    """Checks a bundle against the model it was converted from, or, without one, replays its recorded reference.

    Raises BundleError if the bundle is damaged or not of this model, or if JAX is configured otherwise than
    at conversion.
    """
    opened = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
    opened.check_files()
    if steps < 1 or seeds < 1:
        raise ConfigError(f"steps and seeds must be positive, not {steps} and {seeds}")
    if model is None:
        return _replay(opened)
    say = progress or _silent
    sampled = _sampled_as(opened, model, say)
    report = conversion.base_report("verify", model, sampled.traces, source)
    connected = contracts(sampled.model, sampled.traces)
    _check_same(opened, sampled.model, sampled.traces)
    _check_wiring(opened, connected)
    recorder = Recorder(sampled.model, sampled.traces, connected)
    checks = conversion.run_checks(sampled, recorder, opened.path, opened.manifest, steps, seeds, say)
    report = replace(report, bundle=str(opened.path), checks=checks)
    return replace(report, next_step=_after_verify(report))


@_without_collection()
def bisect(
    bundle: str | Path | Bundle,
    model: Model,
    *,
    formats: Sequence[str] = (),
    entry_points: Sequence[str] = (),
    steps: int = 100,
    source: str = "",
    progress: Progress | None = None,
) -> Report:
    """Finds the first value inside the policy at which an artifact differs from JAX (`Report.divergences`).

    The bundle's own files are judged: copies of them, with their inner values as further outputs, run in their runtime.
    All formats and entry points by default; `steps` are compared of each.

    Raises BundleError as `verify` does, ConfigError for a format or an entry point that the bundle lacks.
    """
    from opcompat.bisecting.run import divergences

    opened = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
    opened.check_files()
    held = opened.manifest
    for kind, wanted, there in (("format", formats, held.formats), ("entry point", entry_points, held.entry_points)):
        odd = next((x for x in wanted if x not in there), None)
        if odd is not None:
            raise ConfigError(f"{opened.path} has no {kind} {odd!r}; next: use one of {', '.join(there)}")
    if steps < 1:
        raise ConfigError(f"steps must be positive, not {steps}")
    say = progress or _silent
    sampled = _sampled_as(opened, model, say)
    connected = contracts(sampled.model, sampled.traces)
    _check_same(opened, sampled.model, sampled.traces)
    _check_wiring(opened, connected)
    report = conversion.base_report("bisect", model, sampled.traces, source)
    recorder = Recorder(sampled.model, sampled.traces, connected)
    found = divergences(
        recorder, opened, tuple(formats or held.formats), tuple(entry_points or held.entry_points), steps, say
    )
    report = replace(report, bundle=str(opened.path), divergences=found)
    return replace(report, next_step=_after_bisect(report))


def _sampled_as(bundle: Bundle, model: Model, progress: Progress) -> Sampled:
    """The model as the bundle was made of it: its batch sizes, its sampling mode, without what was pruned."""
    model = with_batches(model, sizes_of(model, tuple(bundle.manifest.entry_points)))
    pruned = any(info.pruned for info in bundle.manifest.entry_points.values())
    return conversion.sample_all(model, bundle.manifest.sampling, pruned, progress)


def _after_bisect(report: Report) -> str:
    bad = next((d for d in report.divergences if not d.ok), None)
    if bad is None:
        return "nothing: the artifacts act like JAX over these steps"
    if bad.culprit is None:
        return "read the notes; compare more steps with --steps"
    if bad.culprit.cause == "rule":
        return f"report the rule {', '.join(bad.culprit.rules)} with this report, or convert without it"
    if not bad.same_file:
        return "convert again with this version: it writes another file"
    return f"report this as a defect of the {bad.format} lowering of {bad.culprit.primitive}, or of {bad.runtime}"


def _after_verify(report: Report) -> str:
    if report.ok:
        return f"policy = opcompat.runtime.load({report.bundle!r}).entry_point({report.entry_points[0]!r})"
    return "convert again with the versions in use now, and compare the reports"


def _replay(bundle: Bundle) -> Report:
    checks: list[Check] = []
    for form in bundle.manifest.formats:
        checks += apart.replay(bundle, form)
    if not checks:
        raise BundleError(f"{bundle.path}: holds no recorded reference to replay; next: name the source, too")
    report = Report(
        command="verify",
        model=bundle.manifest.name,
        source="",
        entry_points=tuple(bundle.manifest.entry_points),
        checks=tuple(checks),
        bundle=str(bundle.path),
        versions=bundle.manifest.versions,
        config=bundle.manifest.config,
    )
    return replace(report, next_step=_after_verify(report))


def _check_same(bundle: Bundle, model: Model, traces: Any) -> None:
    """Refuses to compare a bundle with another model, or under another configuration of JAX."""
    manifest, now = bundle.manifest, jaxcompat.configuration()
    changed = [f"{k}: {manifest.config[k]!r}, now {v!r}" for k, v in now.items() if manifest.config.get(k, v) != v]
    if changed:
        raise BundleError(
            f"{bundle.path}: JAX is configured otherwise than at conversion ({'; '.join(changed)}); "
            "the configuration is part of the policy; next: set it as it was, or convert again"
        )
    conversion.weights_known(model)
    weights = conversion.stored_weights(traces)
    if set(traces) != set(manifest.entry_points):
        raise BundleError(
            f"{bundle.path}: has the entry points {', '.join(manifest.entry_points)}, the model {', '.join(traces)}"
        )
    mine = {w.name: w for w in conversion.weight_infos(weights)}
    theirs = {w.name: w for w in manifest.weights}
    odd = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    if odd:
        raise BundleError(
            f"{bundle.path}: was converted from other weights: {', '.join(odd[:5])}"
            f"{' ...' if len(odd) > 5 else ''} differ; next: convert again, or load the checkpoint it was made from"
        )
    if conversion.model_hash(weights, traces) != manifest.model_hash:
        raise BundleError(
            f"{bundle.path}: the model's functions have changed since the conversion; next: convert again"
        )


def _check_wiring(bundle: Bundle, connected: Mapping[str, Contract]) -> None:
    """Devices feed state back as the manifest says, so it must say what the model says."""
    for name, contract in connected.items():
        info = bundle.manifest.entry_points[name]
        right = dict(info.feedback) == dict(contract.feedback) and set(info.init) == set(contract.starts)
        for leaf, start in contract.starts.items() if right else ():
            init = info.init[leaf]
            if start.array is None:
                right &= init.output == f"{start.entry_point}.{start.output}"
            else:
                first = read_init(bundle.file(init.file), info.input(leaf)) if init.file else None
                right &= first is not None and np.array_equal(first, start.array.astype(first.dtype), equal_nan=True)
        if not right:
            raise BundleError(
                f"{bundle.path}: {name}: feedback or init in the manifest is not the model's; next: convert again"
            )


def rewrite(function: Callable[..., Any], target: str = "litert") -> Callable[..., Any]:
    """`function` in terms that the target can run: an ordinary JAX function with the same signature.

    It can be jitted, differentiated, vmapped and compared with the original before any conversion. PRNG keys
    in arguments and results stay keys. What only shows values (jax.debug.print) is left out. Raises ConfigError for
    an unknown target.
    """
    judge = catalog.target(target)

    def rewritten(*args: Any) -> Any:
        leaves, tree = jax.tree_util.tree_flatten(args)
        flat_out: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            out, out_tree = jax.tree_util.tree_flatten(function(*jax.tree_util.tree_unflatten(tree, xs)))
            flat_out.append(out_tree)
            return out

        closed = inline(jax.make_jaxpr(flat)(*leaves), mark=True)
        new = legalize(closed, judge, packs.rules()).closed
        words = [in_files(x) for x in leaves]
        outs = jexc.jaxpr_as_fun(new)(*words)
        originals = [v.aval for v in jaxcompat.parts(closed).outvars]
        return jax.tree_util.tree_unflatten(flat_out[0], [_as_was(x, a) for x, a in zip(outs, originals, strict=True)])

    return rewritten


def _as_was(x: Any, aval: Any) -> Any:
    """A result in pairs or words as the type that the function gave."""
    if jaxcompat.is_key(aval.dtype):
        return jax.random.wrap_key_data(x, impl=jaxcompat.key_implementation(aval.dtype))
    return from_pairs(x) if is_complex(aval) else x
