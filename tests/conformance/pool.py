"""Workers that may crash or hang without harm to the rest: each case is sent, and waited for, by itself.

Workers are forked from one server that has imported everything and computed nothing, so a new one costs little.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

RECYCLE = 200
"""Cases that a worker takes before it is replaced: compiled programs pile up in it."""

Work = Callable[[str], Any]


@dataclass
class _Worker:
    work: Work
    name: str | None = None
    since: float = 0.0
    done: int = 0
    pipe: Connection = field(init=False)
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("forkserver")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(self.work, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, name: str) -> None:
        self.name, self.since = name, time.monotonic()
        self.pipe.send(name)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(work: Work, pipe: Connection) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        pipe.send(work(name))


def run(
    names: Sequence[str], work: Work, *, jobs: int = 2, limit_s: float = 120.0, preload: Sequence[str] = ()
) -> Iterator[tuple[str, Any]]:
    """(name, what `work` returned for it), as they finish. `work` is a function of a module.

    For a case that kills its worker or takes more than `limit_s` seconds, a string says so in the result's place.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(preload))
    left = iter(names)
    workers: list[_Worker] = []
    for name in left:
        worker = _Worker(work)
        worker.send(name)
        workers.append(worker)
        if len(workers) == jobs:
            break
    while workers:
        ready = set(wait([w.pipe for w in workers], timeout=1.0))
        for worker in tuple(workers):
            late = time.monotonic() - worker.since > limit_s
            if worker.pipe not in ready and not late:
                continue
            assert worker.name is not None
            healthy = True
            try:
                yield worker.name, worker.pipe.recv() if worker.pipe in ready else f"took more than {limit_s:g} s"
                healthy = worker.pipe in ready
            except (EOFError, ConnectionError):
                worker.process.join()
                yield worker.name, f"crashed with exit code {worker.process.exitcode}"
                healthy = False
            worker.done += 1
            following = next(left, None)
            if not healthy or worker.done >= RECYCLE or following is None:
                worker.stop()
                workers.remove(worker)
                if following is None:
                    continue
                worker = _Worker(work)
                workers.append(worker)
            worker.send(following)
