"""Runs a function in a child process with limits of time and memory: for files and code of unknown origin.

A hostile file can crash, hang or bloat what reads it, and no Python exception tells of that. So such files are read in
a child: `call("package.module:function", ...)`, or a `Worker` for many calls. The function's module is imported in the
child before the limits are set, so that its own imports count for nothing. Arguments and results are JSON values. The
parent believes nothing of the child but this JSON, of a limited size: nothing is unpickled.

The child's half is `opcompat/isolated.py`. Importing this module loads neither numpy nor JAX, and neither does a child
whose function needs none.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import IO, Any

from opcompat import errors

HEADER = 8
"""Each message is this many bytes, its length in big-endian order, then JSON in UTF-8."""

START_SECONDS = 60.0
"""How long the imports of our own code may take, on a slow machine."""

_TAIL = 4096
_MEMORY_WORDS = ("bad_alloc", "out of memory", "cannot allocate memory", "allocation failed", "memoryerror")


@dataclass(frozen=True)
class Limits:
    """`seconds` of wall time for one call; `memory` in bytes above what the imports took (enforced where the system has
    resource limits and /proc, as Linux does); `mapped` in bytes of files that it may map beside that; `result` in bytes
    of JSON.
    """

    seconds: float = 10.0
    memory: int = 1 << 30
    mapped: int = 0
    result: int = 64 << 20


LIMITS = Limits()


def call(function: str, *args: Any, what: str, limits: Limits = LIMITS) -> Any:
    """Runs `function`, as in "package.module:function", in a fresh child; see `Worker.call`."""
    with Worker(limits) as worker:
        return worker.call(function, *args, what=what)


class Worker:
    """A child process that serves one call after the other, and is replaced after one that it did not survive.

    Not for use from several threads. Use it as a context, or `close` it. `starts` counts the processes so far.
    """

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._child: _Child | None = None
        self.starts = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child. The next call starts another."""
        if self._child:
            self._child.kill()
            self._child = None

    def call(self, function: str, *args: Any, what: str) -> Any:
        """The function's result, a JSON value. `what` begins the messages: "reading policy.onnx".

        Raises what the function raises if it is one of opcompat's own errors, LimitError if it needs more time, memory
        or room for its result than the limits allow, and CrashError if it raises anything else or its process dies.
        """
        try:
            child = self._ready(function, what)
            answer = child.ask({"args": args}, self._limits.seconds, what)
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            raise _error(answer["error"], what, self._limits)
        return answer["value"]

    def _ready(self, function: str, what: str) -> _Child:
        """The child with the function's module imported, and its limits set."""
        if self._child and self._child.function == function:
            return self._child
        self.close()
        self.starts += 1
        self._child = _Child(function, self._limits)
        self._child.ask({"function": function, "limits": asdict(self._limits)}, START_SECONDS, f"starting: {what}")
        return self._child


class _Child:
    """One process, and the last that it wrote to standard error."""

    def __init__(self, function: str, limits: Limits) -> None:
        self.function = function
        self._limits = limits
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "opcompat.isolated"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that children of the child end with it, and Ctrl-C reaches only us
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},  # an arena for each thread would eat the address space
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._tail = b""
        self._drain = threading.Thread(target=self._keep_tail, args=(self._process.stderr,), daemon=True)
        self._drain.start()

    def ask(self, request: dict[str, Any], seconds: float, what: str) -> dict[str, Any]:
        """Sends one request and returns the answer. Raises LimitError and CrashError; the child is dead then."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._stop()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            answer = self._exchange(json.dumps(request).encode(), what)
        finally:
            timer.cancel()
            timer.join()
        if answer is None or late.is_set():
            raise self._obituary(what, seconds, late.is_set())
        return answer

    def kill(self) -> None:
        self._stop()
        self._process.wait()
        self._drain.join(1)
        for stream in (self._in, self._out):
            with contextlib.suppress(OSError):
                stream.close()

    def _exchange(self, request: bytes, what: str) -> dict[str, Any] | None:
        """None if the child died instead of answering."""
        try:
            self._in.write(len(request).to_bytes(HEADER, "big") + request)
            self._in.flush()
        except OSError:
            return None
        length = int.from_bytes(self._out.read(HEADER), "big")
        if length > self._limits.result + _TAIL:
            raise errors.CrashError(f"{what}: the child process answers with {length:,} bytes")
        body = self._out.read(length)
        if not length or len(body) < length:
            return None
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise errors.CrashError(f"{what}: the child process answers with no JSON: {error}") from error
        if not isinstance(answer, dict) or not answer.keys() & {"value", "error"}:
            raise errors.CrashError(f"{what}: the child process answers with something else")
        return answer

    def _obituary(self, what: str, seconds: float, late: bool) -> errors.CrashError:
        if not late:  # it closed its output, and so is about to end: as it does itself, not by our hand
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
        self.kill()
        if late:
            return errors.LimitError(f"{what}: stopped after {seconds:g} s")
        words = self._tail.decode("utf-8", "replace")
        if any(word in words.lower() for word in _MEMORY_WORDS):
            return _out_of_memory(what, self._limits)
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        last = f"; its last words: {lines[-1][:300]}" if lines else ""
        return errors.CrashError(f"{what}: the process {_end(self._process.returncode)}{last}")

    def _stop(self) -> None:
        """Ends the process, and those that it started."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL) if hasattr(os, "killpg") else self._process.kill()

    def _keep_tail(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := stream.read1(_TAIL):  # type: ignore[attr-defined]
                self._tail = (self._tail + chunk)[-_TAIL:]


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _out_of_memory(what: str, limits: Limits) -> errors.LimitError:
    return errors.LimitError(f"{what}: needs more than {limits.memory / 2**30:g} GiB of memory")


def _error(told: Any, what: str, limits: Limits) -> errors.OpcompatError:
    """The exception that the child tells of: one of our own classes, by its name, or a CrashError."""
    name, message = (str(told.get(k, "")) for k in ("type", "message")) if isinstance(told, dict) else ("", str(told))
    if name == "MemoryError":
        return _out_of_memory(what, limits)
    if name == "RecursionError":
        return errors.LimitError(f"{what}: nested too deeply")
    if name == "result":
        return errors.LimitError(f"{what}: the result has more than {limits.result:,} bytes")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.OpcompatError):
        return kind(message)
    return errors.CrashError(f"{what}: {name}: {message}")
