"""Many models over a Dask cluster, and over local processes: each result once, whatever dies."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import opcompat
from opcompat.checking import results, runner
from opcompat.checking.options import Options, Task
from opcompat.errors import ConfigError, OutputError

SOURCE = """
import os, signal
import jax.numpy as jnp
from opcompat import EntryPoint, Model

def small(n):
    def step(params, x):
        return x * params["w"] + n
    return Model(f"small{n}", {"w": jnp.ones(2)}, {"step": EntryPoint(step, (jnp.zeros(2),))})

def dies():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, count: int) -> list[str]:
    """A module with so many factories of small models, and their names as sources."""
    factories = "\n".join(f"def model{n}(): return small({n})" for n in range(count))
    (folder / "many_models.py").write_text(SOURCE + factories)
    return [f"many_models:model{n}" for n in range(count)]


@pytest.fixture
def cluster() -> Iterator[Any]:
    import distributed

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as running:
        yield running


def test_a_model_whose_process_dies_fails_alone(folder: Path) -> None:
    good, *_ = write(folder, 1)
    report = opcompat.check([good, "many_models:dies"], steps=1, to=["onnx"], jobs=1, out=folder / "out")
    assert [bool(m.failure) for m in report.models] == [False, True]
    assert "SIGKILL" in report.models[1].failure or "signal 9" in report.models[1].failure
    (failed,) = [issue for issue in report.all_issues() if issue.fails("error")]
    assert (failed.id, failed.model) == ("failure", "many_models:dies")
    assert (folder / "out" / "check.json").is_file()


def test_a_rerun_of_what_did_not_end_resumes_and_one_of_what_did_starts_afresh(folder: Path) -> None:
    (source,) = write(folder, 1)
    task = Task(source, source, Options(steps=1), cwd=str(folder))
    out = results.Folder.begin(folder / "out")
    assert out.load(task) is None
    out.save(task, {"report": None, "failure": "x"})
    assert out.load(task) == {"report": None, "failure": "x"}
    assert results.Folder.begin(folder / "out").load(task) is not None
    os.utime(folder / "many_models.py", ns=(1, 1))
    assert out.load(task) is None  # the source has changed
    out.save(task, {"report": None, "failure": "x"})
    out.end("{}")
    assert results.Folder.begin(folder / "out").load(task) is None


def test_a_folder_of_others_is_refused(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(OutputError, match="no check"):
        results.Folder.begin(folder / "mine")
    assert (folder / "mine" / "notes.txt").read_text() == "keep me"


def test_a_scheduler_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = write(folder, 1)
    monkeypatch.setattr(runner, "CONNECT_SECONDS", 1)
    with pytest.raises(ConfigError, match="cannot reach a Dask scheduler"):
        opcompat.check(source, scheduler="tcp://127.0.0.1:9")


@pytest.mark.slow
def test_200_models_and_a_worker_that_is_killed(folder: Path, cluster: Any) -> None:
    sources = write(folder, 200)
    seen: Counter[str] = Counter()
    killed = threading.Event()

    def kill() -> None:
        victim = next(iter(cluster.workers.values()))
        os.kill(victim.pid, signal.SIGKILL)
        killed.set()

    def progress(text: str) -> None:
        count, _, rest = text.partition(" of 200: ")
        if rest:
            seen[rest] += 1
            if int(count) == 60:
                kill()

    report = opcompat.check(
        sources, steps=1, to=["onnx"], scheduler=cluster.scheduler_address, out=folder / "out", progress=progress
    )
    assert killed.is_set()
    assert [m.key for m in report.models] == sources
    assert {m.failure for m in report.models} == {""}
    assert report.ok
    assert seen == Counter(sources)  # once each
    assert len(list((folder / "out" / "results").iterdir())) == 200
    assert json.loads((folder / "out" / "check.json").read_text())["ok"]
    names = {m.report.model for m in report.models}
    assert names == {f"small{n}" for n in range(200)}


@pytest.mark.parametrize("count", [6])
def test_a_few_models_and_a_worker_that_is_killed(folder: Path, cluster: Any, count: int) -> None:
    sources = write(folder, count)

    def progress(text: str) -> None:
        if text.startswith(f"1 of {count}: "):
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

    report = opcompat.check(sources, steps=1, to=["onnx"], scheduler=cluster.scheduler_address, progress=progress)
    assert [(m.key, m.failure) for m in report.models] == [(source, "") for source in sources]
    assert report.run.where == cluster.scheduler_address
    assert time.strptime(report.run.started, "%Y-%m-%dT%H:%M:%SZ")


def test_a_file_of_a_runtime_is_scanned_only(folder: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), folder / "policy.onnx")
    report = opcompat.check("policy.onnx")
    (only,) = report.models
    assert report.ok
    assert only.report.command == "check"
    assert only.report.targets[0].ops or only.report.targets[0].counts["native"] == 1
    assert only.report.checks == ()
