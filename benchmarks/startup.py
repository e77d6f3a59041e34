"""How long the command line takes, each command in a new process, cold: imports and compilations included.

    python benchmarks/startup.py [--size full] [--repeat 3] [--no-limits]

Prints the best of `--repeat` runs beside what it should stay below. Exits with 1 if a command fails or, without
`--no-limits`, takes longer.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = str(ROOT / "examples" / "dreamer")
RUN = "from opcompat.cli import main; main()"
"""What the console script runs."""


def seconds(*arguments: str) -> float:
    """The time of one Python process. Raises CalledProcessError if it fails."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - start


def opcompat(*arguments: str) -> float:
    return seconds("-c", RUN, *arguments)


def conversion(size: str) -> float:
    """The time to convert the example to both formats with 100 verified steps."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "dist")
        return opcompat(
            "convert", EXAMPLE, "--arg", f"size={size}", "--to", "onnx,tflite", "--out", out, "--steps", "100"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("full", "small"), default="full", help="of the example")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-limits", action="store_true", help="only show the times")
    options = parser.parse_args()

    runs = {
        "python -c pass": (lambda: seconds("-c", "pass"), None),
        "opcompat --help": (lambda: opcompat("--help"), 0.4),
        "opcompat scan": (lambda: opcompat("scan", EXAMPLE, "--arg", f"size={options.size}"), 5.0),
        "opcompat convert, 100 steps": (lambda: conversion(options.size), 60.0),
    }
    slow = False
    for name, (run, limit) in runs.items():
        best = min(run() for _ in range(options.repeat))
        print(f"{name:32}{best:8.2f} s" + ("" if limit is None else f"   (below {limit:g} s)"), flush=True)
        slow |= limit is not None and best >= limit
    return 1 if slow and not options.no_limits else 0


if __name__ == "__main__":
    sys.exit(main())
