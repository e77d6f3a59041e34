"""Child processes: whatever a function does there, the parent gets its result or one clear error."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opcompat.errors import BundleError, CrashError, LimitError, OpcompatError
from opcompat.isolation import Limits, Worker, call

FUNCTIONS = """
    import ctypes, os, signal, subprocess, sys, time
    from opcompat.errors import BundleError

    def double(x):
        return {"twice": x * 2}

    def process():
        return os.getpid()

    def modules():
        return sorted(sys.modules)

    def hang():
        while True:
            time.sleep(1)

    def hold():
        "Never gives the interpreter back: no Python thread can end this."
        ctypes.pythonapi.pause()

    def abort():
        print("half a word")
        sys.stderr.write("Check failed: rank < 9\\n")
        sys.stderr.flush()
        os.abort()

    def leave():
        os._exit(7)

    def fill():
        return len([bytes(1 << 20) for _ in range(4096)])

    def fill_below_python():
        sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\\n")
        sys.stderr.flush()
        os.abort()

    def fit(count):
        return len(bytes(count))

    def deepen():
        return deepen()

    def refuse():
        raise BundleError("no such leaf")

    def fail():
        raise ValueError("a bug")

    def big(count):
        return "x" * count

    def chatter():
        print("x" * 1_000_000)
        sys.stderr.write("y" * 1_000_000)
        return sys.stdin.read()

    def grandchild():
        held = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        return held.pid

    def no_json():
        return {1, 2}
"""


@pytest.fixture(scope="module", autouse=True)
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The functions above, as a module that the children can import."""
    folder = tmp_path_factory.mktemp("isolation")
    (folder / "isolated_functions.py").write_text(textwrap.dedent(FUNCTIONS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield


def run(name: str, *args: object, seconds: float = 20, memory: int = 256 << 20, result: int = 1 << 20) -> object:
    return call(f"isolated_functions:{name}", *args, what="reading x", limits=Limits(seconds, memory, result=result))


def test_a_result_comes_back() -> None:
    assert run("double", "aé") == {"twice": "aéaé"}
    assert run("double", [1, None, 2.5]) == {"twice": [1, None, 2.5, 1, None, 2.5]}


def test_the_child_loads_nothing_heavy() -> None:
    loaded = run("modules")
    assert isinstance(loaded, list)
    assert not {"jax", "numpy", "onnx", "click"} & set(loaded)


@pytest.mark.parametrize("name", ["hang", "hold"])
def test_a_hang_ends_at_the_limit(name: str) -> None:
    start = time.monotonic()
    with pytest.raises(LimitError, match=r"^reading x: stopped after 0.5 s$"):
        run(name, seconds=0.5)
    assert time.monotonic() - start < 15


def test_an_abort_is_told_with_its_last_words() -> None:
    with pytest.raises(CrashError, match=r"^reading x: the process was killed by SIGABRT; .*Check failed: rank < 9$"):
        run("abort")


def test_an_exit_is_told() -> None:
    with pytest.raises(CrashError, match=r"^reading x: the process ended with exit code 7"):
        run("leave")


@pytest.mark.parametrize("name", ["fill", "fill_below_python"])
def test_too_much_memory_is_told(name: str) -> None:
    with pytest.raises(LimitError, match=r"^reading x: needs more than 0.25 GiB of memory$"):
        run(name)


@pytest.mark.parametrize(("count", "fits"), [(200 << 20, True), (300 << 20, False)])
def test_memory_counts_from_what_the_imports_took(count: int, fits: bool) -> None:
    if fits:
        assert run("fit", count) == count
    else:
        with pytest.raises(LimitError):
            run("fit", count)


def test_endless_recursion_is_told() -> None:
    with pytest.raises(LimitError, match="nested too deeply"):
        run("deepen")


def test_own_errors_keep_their_class_and_message() -> None:
    with pytest.raises(BundleError, match=r"^no such leaf$") as caught:
        run("refuse")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("name", "message"), [("fail", "ValueError: a bug"), ("no_json", "TypeError: .*set")])
def test_other_errors_are_crashes(name: str, message: str) -> None:
    with pytest.raises(CrashError, match=rf"^reading x: {message}") as caught:
        run(name)
    assert caught.value.exit_code == 3


def test_a_big_result() -> None:
    assert run("big", 1_000_000) == "x" * 1_000_000
    with pytest.raises(LimitError, match="result has more than 1,048,576 bytes"):
        run("big", 1 << 20)


def test_what_is_printed_is_no_result() -> None:
    assert run("chatter") == ""


def test_children_of_the_child_end_with_it() -> None:
    pid = run("grandchild")
    assert isinstance(pid, int)
    for _ in range(100):
        if not _lives(pid):
            return
        time.sleep(0.05)
    raise AssertionError("the child's own child still runs")


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_worker_serves_many_calls_and_is_replaced_after_a_death() -> None:
    with Worker(Limits(seconds=20, memory=256 << 20)) as worker:
        first = worker.call("isolated_functions:process", what="x")
        assert worker.call("isolated_functions:process", what="x") == first
        assert worker.starts == 1
        with pytest.raises(CrashError):
            worker.call("isolated_functions:abort", what="x")
        assert worker.call("isolated_functions:process", what="x") != first


def test_an_error_of_the_function_costs_no_worker() -> None:
    with Worker(Limits(seconds=20, memory=256 << 20)) as worker:
        for _ in range(3):
            with pytest.raises(OpcompatError):
                worker.call("isolated_functions:refuse", what="x")
        assert worker.starts == 1


def test_a_child_whose_parent_is_gone_ends() -> None:
    code = (
        "import os\nfrom opcompat.isolation import Worker\nworker = Worker()\n"
        "print(worker.call('isolated_functions:process', what='x'), flush=True)\nos._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    pid = int(done.stdout)
    for _ in range(100):
        if not _lives(pid):
            return
        time.sleep(0.05)
    raise AssertionError("the child still runs")
