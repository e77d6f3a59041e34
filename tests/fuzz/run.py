"""Mutated files of every format: `python -m tests.fuzz.run [--count 10000] [--format onnx] [--seed 0] [--only N]`.

Each is read in a worker with the limits of the tool's child process; a worker is replaced after RECYCLE files. The run
fails for a file that hangs, takes too much memory, kills a parser of ours, or raises anything but an error of
opcompat's own with exit code 2 or 3. Such files are kept in build/fuzz.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from opcompat.errors import CrashError, LimitError, OpcompatError
from opcompat.isolation import Limits, Worker
from tests.fuzz.formats import FORMATS, Format, case

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "fuzz"
RECYCLE = 1000
MOST = 20
"""Failures of a format after which it is left."""

GROWTH = 512 << 20
"""Bytes that the run itself may grow by: it only passes files on."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [form.name for form in FORMATS]
    parser.add_argument("--count", type=int, default=10_000, help="files of each format (default: %(default)s)")
    parser.add_argument("--format", choices=names, action="append", help="by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the file of this number, again")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    before, failures = _resident(), 0
    for form in FORMATS:
        if args.format and form.name not in args.format:
            continue
        numbers = range(args.count) if args.only is None else [args.only]
        failures += fuzz(form, args.seed, numbers)
    grown = _resident() - before
    if grown > GROWTH:
        print(f"the run itself grew by {grown >> 20} MiB")
        failures += 1
    print(f"{failures} failures")
    return 1 if failures else 0


def fuzz(form: Format, seed: int, numbers: range | list[int]) -> int:
    """Tries the files of these numbers, prints what came of them, and returns how many failed."""
    start, outcomes, failures = time.monotonic(), Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder, Worker(Limits()) as worker:
        if form.beside is not None:
            shutil.copytree(form.beside(), folder, dirs_exist_ok=True)
        path = Path(folder) / form.file
        for i, number in enumerate(numbers):
            if i % RECYCLE == 0:
                worker.close()
            data = case(form, seed, number)
            path.write_bytes(data)
            outcome, problem = attempt(form, worker, path)
            outcomes[outcome] += 1
            if failures == MOST:
                break
            if problem:
                failures += 1
                KEPT.mkdir(parents=True, exist_ok=True)
                kept = KEPT / f"{form.name}-{seed}-{number}{path.suffix}"
                kept.write_bytes(data)
                print(f"FAILED {form.name} {number}: {problem.strip()}\n  kept as {kept}", flush=True)
    shown = ", ".join(f"{n:,} {what}" for what, n in sorted(outcomes.items()))
    print(f"{form.name}: {len(numbers):,} files in {time.monotonic() - start:.0f} s: {shown}", flush=True)
    return failures


def attempt(form: Format, worker: Worker, path: Path) -> tuple[str, str]:
    """(what became of it, what is wrong with that or "")."""
    try:
        problem = worker.call(f"tests.fuzz.attempt:{form.attempt}", str(path), what=f"reading {path.name}")
    except LimitError as error:
        return "stopped", "" if form.may_die else str(error)
    except CrashError as error:
        if str(error).startswith("starting"):
            raise
        died = "was killed by" in str(error)
        return ("parser died", "") if died and form.may_die else ("crashed", str(error))
    except OpcompatError as error:
        return "refused", "" if error.exit_code in (2, 3) else f"exit code {error.exit_code}: {error}"
    return ("crashed", problem) if problem else ("read", "")


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
