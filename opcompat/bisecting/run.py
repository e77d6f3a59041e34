"""bisect over the formats and entry points of a bundle."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from opcompat import packs
from opcompat.analyze import Analysis, analyze_all
from opcompat.bisecting.search import Search
from opcompat.bundle import Bundle
from opcompat.conversion import WRITERS, stored_weights
from opcompat.report import Divergence
from opcompat.targets.catalog import FORMATS, target
from opcompat.verification import Progress, Recorder


def divergences(
    recorder: Recorder, bundle: Bundle, formats: Sequence[str], entry_points: Sequence[str], steps: int, say: Progress
) -> tuple[Divergence, ...]:
    """One for each format and entry point."""
    found: list[Divergence] = []
    for form in formats:
        stored = bundle.manifest.formats[form]
        judge = target(FORMATS[form], stored.opset if form == "onnx" else None)
        say(f"lowering for {judge.name}")
        traces = list(recorder.traces.values())
        analyses = analyze_all(traces, judge, packs.rules(), narrowing=stored.narrowed)
        by_entry = {a.trace.entry_point: a for a in analyses}
        same = _same_files(bundle, form, by_entry, recorder)
        for name in entry_points:
            say(f"bisecting {name} in {form}")
            found.append(Search(recorder, by_entry[name], bundle, form, steps, same).run())
    return tuple(found)


def _same_files(bundle: Bundle, form: str, by_entry: Mapping[str, Analysis], recorder: Recorder) -> bool:
    """Whether this version writes the bundle's files of a format, byte by byte."""
    if not all(a.ok for a in by_entry.values()):
        return False
    with tempfile.TemporaryDirectory(prefix="opcompat-") as folder:
        made = WRITERS[form](by_entry, stored_weights(recorder.traces), Path(folder))
        listed = bundle.manifest.files
        return all(path in listed and listed[path].sha256 == _sha256(Path(folder) / path) for path in made.paths())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
