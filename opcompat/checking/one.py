"""One model: scanned, converted and verified as far as its targets let it, as one Report."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from opcompat import api, conversion
from opcompat.batch import with_batches
from opcompat.bundle import Bundle
from opcompat.checking.excerpts import excerpts_of
from opcompat.checking.options import Options
from opcompat.errors import UnsupportedError, VerificationError
from opcompat.model import Model
from opcompat.reference import Reference
from opcompat.report import Report, TargetReport
from opcompat.runtime.session import open_engine
from opcompat.sampler import sample
from opcompat.targets.catalog import FORMATS

LATENCY_ROUNDS = 41
"""How often a step is timed. The median counts."""


@dataclass(frozen=True)
class Outcome:
    """What checking one model gave: its report, and what differs from run to run. `failure`: why there is none."""

    report: Report
    failure: str = ""
    seconds: float = 0.0
    latency: Mapping[str, float] = field(default_factory=dict)


def check_model(
    model: Model,
    options: Options,
    *,
    source: str = "",
    root: Path | None = None,
    bundle: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Scans a model for all targets, and converts and verifies it for the formats whose target can run it.

    The bundle is written at `bundle`, or nowhere that stays. `root` is the folder whose sources may be quoted.
    Raises what `scan` and `convert` raise, but for findings and mismatches, which are in the report.
    """
    began = time.perf_counter()
    judged = tuple(dict.fromkeys((*options.targets, *(FORMATS[f] for f in options.to))))
    report = api.scan(
        model,
        judged,
        batch=options.batch,
        source=source,
        opset=options.opset,
        allow_narrowing=options.allow_narrowing,
        progress=progress,
    )
    with tempfile.TemporaryDirectory(prefix="opcompat-check-") as scratch:
        place = Path(scratch) / "bundle"
        converted = _convert(model, report, options, source, place, progress)
        latency = _latency(model, place, options) if options.latency and place.is_dir() else {}
        if bundle is not None and place.is_dir():
            shutil.rmtree(bundle, ignore_errors=True)
            bundle.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(place, bundle)
    places = [(f.file, f.line) for t in converted.targets for f in t.findings]
    places += [(a.file, a.line) for a in converted.advice]
    whole = replace(
        converted,
        command="check",
        source=source,
        bundle=f"bundles/{bundle.name}" if bundle is not None and converted.files else "",
        excerpts=excerpts_of(places, root),
        next_step="",
    )
    return Outcome(whole, seconds=round(time.perf_counter() - began, 3), latency=latency)


def _convert(
    model: Model,
    scanned: Report,
    options: Options,
    source: str,
    place: Path,
    progress: Callable[[str], None],
) -> Report:
    """The scan's report with what converting and verifying adds; formats that cannot be written are left out."""
    targets = {t.target: t for t in scanned.targets}
    wanted = [f for f in options.to if options.sampling != "exact" or targets[FORMATS[f]].ok]
    report = scanned
    while wanted:
        try:
            _, report = api.convert(
                model,
                place,
                wanted,
                sampling=options.sampling,
                batch=options.batch,
                opset=options.opset,
                allow_narrowing=options.allow_narrowing,
                prune_inputs=options.prune_inputs,
                steps=options.steps,
                seeds=options.seeds,
                source=source,
                progress=progress,
            )
        except UnsupportedError as error:
            if error.report is None:
                raise
            targets |= {t.target: t for t in error.report.targets}
            left = [f for f in wanted if targets[FORMATS[f]].ok]
            if left == wanted:
                raise
            wanted = left
            continue
        except VerificationError as error:
            if error.report is None:
                raise
            report = error.report
        break
    targets |= {t.target: t for t in report.targets}
    return replace(report, targets=_in_order(targets, scanned), advice=scanned.advice)


def _in_order(targets: Mapping[str, TargetReport], scanned: Report) -> tuple[TargetReport, ...]:
    return tuple(targets[t.target] for t in scanned.targets)


def _latency(model: Model, place: Path, options: Options) -> dict[str, float]:
    """By format and entry point, how many times as long one step takes as the reference's.

    Both are timed in turn in this process, so that what slows one down slows down the other.
    """
    bundle = Bundle.open(place)
    batched = with_batches(model, options.batch)
    sampled = conversion.sample_all(batched, options.sampling, options.prune_inputs, lambda _: None)
    found: dict[str, float] = {}
    for form in bundle.manifest.formats:
        engine = open_engine(place, bundle.manifest, form)
        for name, trace in sampled.traces.items():
            inputs = sample(sampled.model.entry_points[name], trace, 0, 0)
            files = {leaf.name: np.asarray(inputs[leaf.name], leaf.file_dtype) for leaf in trace.inputs}
            step = partial(Reference(sampled.model, trace).step, inputs)
            found[f"{form} {name}"] = _ratio(partial(engine.session(name), files), step)
    return found


def _ratio(artifact: Callable[[], Any], reference: Callable[[], Any]) -> float:
    times: tuple[list[float], list[float]] = ([], [])
    for index in range(LATENCY_ROUNDS + 3):
        for run, spent in zip((artifact, reference), times, strict=True):
            start = time.perf_counter()
            run()
            if index >= 3:
                spent.append(time.perf_counter() - start)
    return float(f"{statistics.median(times[0]) / statistics.median(times[1]):.3g}")
