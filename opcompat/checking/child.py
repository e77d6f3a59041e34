"""One model in a process of its own (see `opcompat.isolation`): a task comes in, its outcome goes out."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from opcompat import packs
from opcompat.checking.one import check_model
from opcompat.checking.options import Task
from opcompat.errors import OpcompatError
from opcompat.report import Report
from opcompat.sources import Graphs, load


def run(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome of a task: {"report", "failure", "seconds", "latency"}. An error in the model is an outcome, too."""
    task = Task.of(plain)
    if task.cwd:
        os.chdir(task.cwd)
    blank = Report("check", task.key, task.source, ())
    try:
        loaded = load(task.source, task.loading)
        if isinstance(loaded, Graphs):
            return _plain(_scanned(loaded, task), "")
        bundle = Path(task.bundle) if task.bundle else None
        outcome = check_model(
            loaded.model, task.options, source=loaded.name, root=loaded.root, bundle=bundle, progress=_say
        )
    except OpcompatError as error:
        return _plain(blank, str(error))
    except Exception as error:  # noqa: BLE001  # whatever happens in one model is that model's outcome
        traceback.print_exc()
        return _plain(blank, f"crashed: {type(error).__name__}: {error}")
    return {**_plain(outcome.report, ""), "seconds": outcome.seconds, "latency": dict(outcome.latency)}


def _scanned(graphs: Graphs, task: Task) -> Report:
    """A file of a runtime's own ops is scanned; there is nothing to convert it from, or to compare it with."""
    from opcompat.files import scan as files

    report = files.scan(graphs, files.known(task.options.targets or None, graphs), progress=_say)
    return replace(report, command="check", next_step="")


def _plain(report: Report, failure: str) -> dict[str, Any]:
    value = json.loads(packs.renderers()["json"](report))
    return {"report": value, "failure": failure, "seconds": 0.0, "latency": {}}


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
