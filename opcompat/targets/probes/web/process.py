"""A JavaScript program in a process of its own: one JSON value per line goes in, one comes out."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from opcompat.errors import ConfigError

STARTING = 120.0
"""Seconds that the program may take until it says that it is ready."""


class NodeError(Exception):
    """The program ended, or gave no answer in time. The message has the end of what it printed to stderr."""


class NodeProcess:
    """`node SCRIPT ARGUMENTS`, with its npm packages taken from `node_modules` in `packages` (else as node finds them).

    `ready` is the first value that it said. Raises ConfigError without node, NodeError where the program does not
    start.
    """

    def __init__(self, script: Path, *arguments: str, packages: Path | None = None) -> None:
        node = shutil.which("node")
        if node is None:
            raise ConfigError("node is not installed; next: install Node.js 20 or newer")
        environment = {**os.environ, **({"NODE_PATH": str(packages / "node_modules")} if packages else {})}
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._rest = b""
        self._process = subprocess.Popen(
            [node, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            bufsize=0,
        )
        self.ready: Any = self._read(STARTING)

    def ask(self, request: Any, timeout: float = 60.0) -> Any:
        """The answer to a request. Raises NodeError if the program ends or takes more than `timeout` seconds."""
        assert self._process.stdin is not None
        try:
            _write_all(self._process.stdin, f"{json.dumps(request)}\n".encode())
        except OSError as error:
            raise NodeError(self._last_words()) from error
        return self._read(timeout)

    def _read(self, timeout: float) -> Any:
        stream = self._process.stdout
        assert stream is not None
        while b"\n" not in self._rest:
            if not select.select([stream], [], [], timeout)[0]:
                raise NodeError(f"no answer in {timeout:g} s")
            part = os.read(stream.fileno(), 1 << 20)
            if not part:
                raise NodeError(self._last_words())
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def _last_words(self) -> str:
        self._process.wait()
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        said = next((line for line in lines if "Error" in line), lines[-1] if lines else "it said nothing")
        return f"node ended with {self._process.returncode}: {said.strip()}"

    def close(self) -> None:
        """Asks it to end, and ends it if it does not: browsers that it started end with it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write_all(stream: Any, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]


def encode(x: np.ndarray) -> dict[str, Any]:
    """An array as `wire.mjs` reads it."""
    data = base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()
    return {"dtype": x.dtype.name, "shape": list(x.shape), "data": data}


def decode(value: Mapping[str, Any]) -> np.ndarray:
    """An array that `wire.mjs` wrote. bfloat16 arrives as uint16."""
    name = "uint16" if value["dtype"] == "bfloat16" else value["dtype"]
    array = np.frombuffer(base64.b64decode(value["data"]), np.dtype(name))
    shape: Sequence[int] = value["shape"]
    return array.reshape(shape)
