"""One step of the example's policy: both artifacts and `jax.jit`, interleaved in one run.

    python benchmarks/latency.py [--size full] [--action discrete] [--steps 500] [--threads 1]

Each takes numpy arrays and returns numpy arrays. Prints the median and the best time for a step, and the ratio of
medians to that of `jax.jit`, which uses as many threads as it likes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import opcompat
import opcompat.runtime
from opcompat.sources import Options, load_model

EXAMPLE = Path(__file__).parents[1] / "examples" / "dreamer"
ENTRY_POINT = "policy"


def jax_step(model: opcompat.Model) -> Callable[[], Any]:
    """One call of the jitted function, with the example arguments as numpy arrays and the key as it is."""
    entry = model.entry_points[ENTRY_POINT]
    function = jax.jit(entry.function)
    key, *rest = entry.args
    args = (key, *jax.tree.map(np.asarray, rest))
    params = jax.device_put(model.params)

    def step() -> Any:
        outputs = function(params, *args)
        return [np.asarray(x) for x in jax.tree_util.tree_leaves(outputs)]

    return step


def artifact_step(folder: Path, form: str, threads: int) -> Callable[[], Any]:
    """One call of an artifact, with the first step of the recorded reference."""
    policy = opcompat.runtime.load(folder, format=form, threads=threads).entry_point(ENTRY_POINT)
    with np.load(folder / "reference" / f"{ENTRY_POINT}.npz") as recorded:
        inputs = {leaf.name: recorded[f"inputs/{leaf.name}"][0] for leaf in policy.inputs}
    return lambda: policy(inputs)


def times(steps: dict[str, Callable[[], Any]], count: int) -> dict[str, list[float]]:
    """Seconds for each call. The candidates take turns, so that what else the machine does hits all alike."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(count + 20):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if index >= 20:  # the first ones warm up
                found[name].append(time.perf_counter() - start)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("full", "small"), default="full", help="of the example")
    parser.add_argument("--action", choices=("discrete", "continuous"), default="discrete")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1, help="that each runtime may use")
    options = parser.parse_args()

    wanted = Options(factory_args={"size": options.size, "action": options.action})
    model = load_model(str(EXAMPLE), wanted).model
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "dist"
        opcompat.convert(model, out, steps=2)
        steps = {"jax.jit": jax_step(model)}
        for form in ("onnx", "tflite"):
            steps[form] = artifact_step(out, form, options.threads)
        found = times(steps, options.steps)
    base = float(np.median(found["jax.jit"]))
    print(f"{'one step':12}{'median':>12}{'best':>12}{'ratio':>8}")
    for name, seconds in found.items():
        median, best = float(np.median(seconds)), min(seconds)
        print(f"{name:12}{1e3 * median:>9.3f} ms{1e3 * best:>9.3f} ms{median / base:>8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
