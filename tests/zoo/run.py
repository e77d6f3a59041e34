"""The whole zoo, and the table in docs/zoo.md: `python -m tests.zoo.run [NAME ...]`.

Every policy runs in a process of its own, `--jobs` at once. With names, only their rows are written anew. Exits with 1
if a policy fails that has no known limit, or one passes that has.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.zoo.policy import names

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "zoo.md"
RESULTS = Path(__file__).with_name("results.json")
LIMIT_S = 1200

HEAD = """# The zoo

Written by `make zoo`; do not edit. Policies as people build them, from released packages, with random weights:
scanned, converted to both formats, and verified over 200 steps (and as many keys), with the closed loop where they are
recurrent. An error is the largest absolute one of any float output; draws are equal unless a number stands behind them.
Stable-Baselines-JAX is not among them: its package needs a build of torch for GPUs.

"""


def run(name: str) -> dict[str, Any]:
    """One policy's result, from a process of its own."""
    command = [sys.executable, "-m", "tests.zoo.examine", name]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"name": name, "problem": f"took more than {LIMIT_S} s", "limit": ""}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"name": name, "problem": f"exit code {done.returncode}: {last}", "limit": ""}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def good(result: dict[str, Any]) -> bool:
    """Whether a policy does what its file says: pass, or fail where a limit is known."""
    return bool(result["problem"]) == bool(result["limit"])


def table(results: list[dict[str, Any]]) -> str:
    """docs/zoo.md."""
    rows = [
        "| policy | packages | equations | rules | | nodes | bytes | largest error | draws |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [row for r in results if not r["problem"] for row in _rows(r)]
    passed = sum(not r["problem"] for r in results)
    parts = [f"{passed} of {len(results)} policies pass.\n", *rows]
    failed = [r for r in results if r["problem"]]
    if failed:
        parts += ["\n## Not yet\n", *(f"- `{r['name']}`: {r['limit'] or r['problem']}" for r in failed)]
    return HEAD + "\n".join(parts) + "\n"


def _rows(result: dict[str, Any]) -> list[str]:
    packages = ", ".join(f"{k} {v}" for k, v in result["versions"].items())
    rules = " ".join(result["rules"]).replace("OC", "")
    rows = []
    for target, f in result["targets"].items():
        first = (f"`{result['name']}`", packages, f"{result['equations']:,}", rules) if not rows else ("", "", "", "")
        draws = f"{f['draws']:,}" + (f" ({f['mismatched']} near ties differ)" if f["mismatched"] else "")
        cells = (*first, target, f"{f['nodes']:,}", f"{f['bytes']:,}", f"{f['error']:.1e}", draws)
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="policies to run; by default all")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = options.names or names()
    results = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(run, chosen):
            results.append(result)
            state = "ok" if good(result) else "FAILED"
            print(f"{state:7}{result['name']:32}{result.get('seconds', 0):7.1f} s  {result['problem']}", flush=True)
    kept = [] if not options.names or not RESULTS.exists() else json.loads(RESULTS.read_text())
    lasting = {r["name"]: r for r in kept if r["name"] in names()}
    lasting |= {r["name"]: {k: v for k, v in r.items() if k != "seconds"} for r in results}
    RESULTS.write_text(json.dumps([lasting[n] for n in sorted(lasting)], indent=1, sort_keys=True) + "\n")
    TABLE.write_text(table(json.loads(RESULTS.read_text())))
    return 0 if all(map(good, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
