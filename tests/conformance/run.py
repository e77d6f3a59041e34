"""The whole suite, and docs/coverage.md: `python -m tests.conformance.run [--sample] [--jobs 2] [--resume]`.

Results are appended to build/conformance.jsonl as they come; `--resume` keeps those that are there. Only a run of
the whole suite writes docs/coverage.md. Exits with 1 if any case is wrong, refused
without a reason, or refused though it runs, known ones apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.conformance import pool
from tests.conformance.cases import all_cases, dtype_of, sample
from tests.conformance.judging import examine
from tests.conformance.table import coverage
from tests.matrix.harness import BACKENDS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "conformance.jsonl"
PAGE = ROOT / "docs" / "coverage.md"
BAD = frozenset({"wrong", "unclear", "pessimistic"})
KNOWN: dict[tuple[str, str], str] = {}
"""(case, backend) -> why it is wrong, and not yet put right. They count as wrong, but a run does not fail for them."""
PRELOAD = ("tests.matrix.harness",)
"""Not the suite itself: it starts the JAX backend, which does not survive a fork."""


def both(name: str) -> list[dict[str, Any]]:
    return [outcome.to_json() for outcome in examine(name, BACKENDS)]


def outcomes(names: Sequence[str], jobs: int = 2) -> Iterator[dict[str, Any]]:
    """Each case's outcomes on both backends. A crash or a case that hangs is wrong on both, until tried apart."""
    for name, found in pool.run(names, both, jobs=jobs, preload=PRELOAD):
        if isinstance(found, str):
            harness = all_cases()[name]
            for backend in BACKENDS:
                yield {
                    "case": name,
                    "group": harness.group_name,
                    "dtype": dtype_of(harness),
                    "backend": backend,
                    "status": "wrong",
                    "detail": found,
                    "ops": (),
                }
        else:
            yield from found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", action="store_true", help="at most 10 cases of each group")
    parser.add_argument("--only", default="", help="cases whose name starts so")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="keep the results of an earlier run")
    options = parser.parse_args()
    names = sample() if options.sample else tuple(sorted(all_cases()))
    names = tuple(n for n in names if n.startswith(options.only))
    RESULTS.parent.mkdir(exist_ok=True)
    kept = [json.loads(line) for line in RESULTS.read_text().splitlines()] if options.resume else []
    known = {r["case"] for r in kept}
    failed = any(r["status"] in BAD and (r["case"], r["backend"]) not in KNOWN for r in kept)
    start, counts = time.monotonic(), Counter((r["backend"], r["status"]) for r in kept)
    with RESULTS.open("a" if options.resume else "w") as file:
        for result in outcomes([n for n in names if n not in known], options.jobs):
            counts[result["backend"], result["status"]] += 1
            file.write(json.dumps(result) + "\n")
            file.flush()
            fresh = (result["case"], result["backend"]) not in KNOWN
            failed |= result["status"] in BAD and fresh
            if result["status"] in BAD:
                print(
                    f"{result['status']:12}{result['backend']:8}{result['case'][:90]}\n    {result['detail']}",
                    flush=True,
                )
    if len(names) == len(all_cases()):
        found = [json.loads(line) for line in RESULTS.read_text().splitlines()]
        PAGE.write_text(coverage(sorted(found, key=lambda r: (r["case"], r["backend"]))))
    for (backend, status), count in sorted(counts.items()):
        print(f"{backend:8}{status:12}{count:6,}")
    print(f"{len(names):,} cases in {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
