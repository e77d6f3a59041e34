"""Many models: a child process for each, on this machine or on the workers of a Dask cluster.

A child that dies, hangs or answers with nonsense makes a failure of its own model and of no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from opcompat.checking.options import Task
from opcompat.errors import ConfigError, OpcompatError
from opcompat.isolation import Limits, Worker

Plain = dict[str, Any]
"""An outcome as plain values: {"report", "failure", "seconds", "latency"}; the report is None after a crash."""

TIMEOUT = 3600.0
"""Seconds that one model may take by default."""

_CHILD = "opcompat.checking.child:run"
_MEMORY = 1 << 44  # of address space: models are the user's own, and runtimes reserve much more than they use

CONNECT_SECONDS = 30
RETRIES = 3


def limits(timeout: float | None) -> Limits:
    """For the child of one model. What comes back is bounded by what reports hold."""
    return Limits(seconds=timeout or TIMEOUT, memory=_MEMORY, result=1 << 30)


def run_child(plain: Mapping[str, Any], timeout: float | None = None) -> Plain:
    """Checks the model of a task (its plain values) in a child process."""
    with Worker(limits(timeout)) as worker:
        return _ask(worker, plain)


def _ask(worker: Worker, plain: Mapping[str, Any]) -> Plain:
    try:
        return dict(worker.call(_CHILD, plain, what="checking it"))
    except OpcompatError as error:
        return failed(str(error))


def failed(why: str) -> Plain:
    """The outcome of a model that has none."""
    return {"report": None, "failure": why, "seconds": 0.0, "latency": {}}


def local(tasks: Sequence[Task], jobs: int | None, timeout: float | None) -> Iterator[tuple[Task, Plain]]:
    """Each task with its outcome, as they end; `jobs` at a time, by default one for each processor."""
    workers = {task.key: Worker(limits(timeout)) for task in tasks}

    def run(task: Task) -> Plain:
        with workers[task.key] as worker:
            return _ask(worker, task.plain())

    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        running = {pool.submit(run, task): task for task in tasks}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:  # also where the user interrupts
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers.values():
                worker.close()


def cluster(tasks: Sequence[Task], address: str, timeout: float | None) -> Iterator[tuple[Task, Plain]]:
    """The same on the workers of a Dask cluster, one Dask task for each model; Dask restarts what a dead worker had.

    Raises ConfigError if the scheduler cannot be reached, or `distributed` is not installed.
    """
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise ConfigError("--scheduler needs Dask; next: pip install 'opcompat[dask]'") from error
    dask: Any = distributed
    try:
        client = dask.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ConfigError(
            f"cannot reach a Dask scheduler at {address}: {error}; next: see that it runs, and that this machine "
            "reaches it"
        ) from error
    with client:
        running = {client.submit(run_child, task.plain(), timeout, pure=False, retries=RETRIES): task for task in tasks}
        # A worker that dies takes its results with it, unless they are fetched as they come.
        for future, result in _completed(dask, client, running):
            task = running.pop(future)
            yield (
                task,
                dict(result) if future.status == "finished" else failed(f"Dask could not run it: {_why(result)}"),
            )


def _completed(dask: Any, client: Any, running: Mapping[Any, Task]) -> Any:
    """(future, result) pairs as they come, of this very client, which is not the process's default."""
    return dask.as_completed(list(running), loop=client.loop, with_results=True, raise_errors=False)


def _why(result: Any) -> str:
    error = result[1] if isinstance(result, tuple) and len(result) > 1 else result
    return f"{type(error).__name__}: {error}"
