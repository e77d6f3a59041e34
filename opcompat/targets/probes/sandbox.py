"""Asks runtimes in a child process: a model that crashes or hangs one is an answer, too."""

from __future__ import annotations

import importlib
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from opcompat.errors import ConfigError
from opcompat.lowering.graph import Graph
from opcompat.targets.probes.case import Case, difference

TIMEOUT = 20.0
"""Seconds that one model may take before it counts as hanging."""

STARTING = 120.0
"""Seconds that a child may take to import its runtime."""

CRASH = "crashes the process"
HANG = "hangs"

Run = Callable[[bytes, Mapping[str, np.ndarray], Sequence[str]], Sequence[np.ndarray]]
"""(a file's bytes, inputs by name, names of the outputs) -> the outputs. Raises what the runtime raises."""


def content(case: Case, form: str, opset: int = 0) -> tuple[bytes, list[str]]:
    """The file of a case's model, and the names of its outputs."""
    node, inputs = case.node
    outputs = [f"y{i}" for i in range(len(node.outputs))]
    graph = Graph("main", inputs, list(node.outputs), [node])
    if form == "tflite":
        from opcompat.lowering.tflite.writer import write

        return write({"main": graph}, {}, output_names={"main": outputs}), outputs
    from opcompat.targets.probes.onnx_file import one_op

    return one_op(node, inputs, outputs, opset, casts=True), outputs


def feeds(case: Case, form: str) -> dict[str, np.ndarray]:
    """The inputs of a case's file."""
    given = {k: np.asarray(x) for k, x in case.feeds.items()}
    if form == "tflite":
        return given
    return {k: x.astype(np.float32) if x.dtype.name == "bfloat16" else x for k, x in given.items()}


def short(message: str) -> str:
    """The first line, without file names, line numbers and node numbers, which change with versions."""
    lines = [line for line in message.splitlines() if line.strip() and not line.startswith("Exception from")]
    line = lines[0] if lines else "no message"
    words = [w for w in line.split() if not w.startswith(("tflite/", "external/", "third_party/", "src/", "/"))]
    return " ".join(words).split("Node number")[0].strip()[:160]


@dataclass(frozen=True)
class Runtime:
    """A runtime that can be asked here. `run`: "module:function". `package`: what has to be installed, and `module`
    what it is imported as. `path`: a folder to import it from, in place of what is installed. `compares`: there are
    results to compare; a compiler only says whether it takes the model.
    """

    run: str
    package: str
    module: str
    form: str
    opset: int = 0
    path: str = ""
    compares: bool = True

    def load(self) -> Run:
        """Imports it. Raises ImportError if it is not installed."""
        if self.path:
            sys.path.insert(0, self.path)
        importlib.import_module(self.module)
        module, _, name = self.run.partition(":")
        found: Run = getattr(importlib.import_module(module), name)
        return found


def _serve(connection: Any, runtime: Runtime) -> None:
    """The child: runs files until the pipe closes. What the runtime prints is nobody's concern."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected, and dumps take long
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        run = runtime.load()
    except ImportError as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send("")
    while True:
        try:
            data, inputs, outputs = connection.recv()
        except EOFError:
            return
        try:
            connection.send([np.asarray(x) for x in run(data, inputs, outputs)])
        except Exception as error:  # noqa: BLE001  # runtimes raise what they like: each is an answer
            connection.send(f"{getattr(error, 'stage', 'run')}: {short(str(error))}")


class Sandbox:
    """A child process that runs files on a runtime, and is replaced when one kills or hangs it.

    Raises ConfigError if the runtime does not even start.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.context = get_context("forkserver")
        self.context.set_forkserver_preload([__name__, *([] if runtime.path else [runtime.module])])
        self.start()

    def start(self) -> None:
        self.connection, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(theirs, self.runtime), daemon=True)
        self.process.start()
        theirs.close()
        try:
            problem = self.connection.recv() if self.connection.poll(STARTING) else "it does not start"
        except (EOFError, ConnectionError):
            problem = "its process ends at once"
        if problem:
            self.close()
            raise ConfigError(f"{self.runtime.package}: {problem}; next: pip install {self.runtime.package}")

    def run(self, data: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray] | str:
        """The results of a file, or why there are none."""
        answer: list[np.ndarray] | str
        try:
            self.connection.send((data, dict(inputs), list(outputs)))
            answer = self.connection.recv() if self.connection.poll(TIMEOUT) else HANG
        except (EOFError, ConnectionError):
            answer = CRASH
        if isinstance(answer, str) and answer in (CRASH, HANG):
            self.close()
            self.start()
        return answer

    def ask(self, case: Case) -> str:
        """Runs a case. Returns "" where the result is right, else why not."""
        data, outputs = content(case, self.runtime.form, self.runtime.opset)
        results = self.run(data, feeds(case, self.runtime.form), outputs)
        if isinstance(results, str):
            return results
        return difference(case, results) if self.runtime.compares else ""

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()
