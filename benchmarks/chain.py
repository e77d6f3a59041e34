"""How conversion time grows with the size of the model: a chain of 1,000 and one of 10,000 equations.

    python benchmarks/chain.py [--small 1000] [--large 10000] [--repeat 2] [--limit 12] [--profile]

Each chain is converted to both formats and loaded and verified for one step, as `opcompat.convert` always does. Two
ratios are shown. Cold is what a user waits for: a process of its own for each chain, imports included. Warm is the
conversion alone, by stage; XLA's compilation of the reference, which grows faster than the chain, is in it. Exits
with 1 if the large chain takes more than `--limit` times as long as the small one, warm.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import opcompat

WIDTH = 8
PERIOD = 10
"""Equations in one link of the chain: nine elementwise ones and a product of matrices."""


def link(x: Any, kernel: Any) -> Any:
    """PERIOD equations on float32[1, WIDTH], two of which the runtimes have to have rewritten."""
    y = jnp.tanh(jax.lax.dot(x, kernel))
    y = jax.lax.exp(jax.lax.neg(jax.lax.abs(y)))
    y = jax.lax.log1p(y) * x
    return jax.lax.max(jax.lax.sub(y, x), jax.lax.sin(y))


def chain(equations: int) -> opcompat.Model:
    """A model whose one entry point has so many equations, with all kernels different."""
    rng = np.random.default_rng(0)
    kernels = rng.standard_normal((equations // PERIOD, WIDTH, WIDTH), dtype=np.float32) / WIDTH**0.5

    def forward(params: Sequence[Any], x: Any) -> Any:
        for kernel in params:
            x = link(x, kernel)
        return x

    params = [jnp.asarray(kernel) for kernel in kernels]
    x = jnp.zeros((1, WIDTH), jnp.float32)
    found = len(jax.make_jaxpr(forward)(params, x).jaxpr.eqns)
    if found != equations:
        raise AssertionError(f"the chain has {found} equations, not {equations}")
    # Rounding grows along so long a chain: the benchmark is about time, so any finite result will do.
    entry = opcompat.EntryPoint(forward, args=(x,), outputs=("y",), tolerance=1.0)
    return opcompat.Model("chain", params, {"forward": entry})


class Run(NamedTuple):
    """One conversion: wall-clock time, processor time (which what else runs does not touch), time by stage."""

    wall: float
    processor: float
    stages: list[tuple[str, float]]


def convert(model: opcompat.Model, folder: Path) -> Run:
    marks: list[tuple[str, float]] = []
    start, processor = time.perf_counter(), time.process_time()
    opcompat.convert(model, folder, steps=1, progress=lambda stage: marks.append((stage, time.perf_counter() - start)))
    wall = time.perf_counter() - start
    ends = [at for _, at in marks[1:]] + [wall]
    stages = [(name, end - at) for (name, at), end in zip(marks, ends, strict=True)]
    return Run(wall, time.process_time() - processor, stages)


def measure(equations: int, repeat: int) -> Run:
    """The best of `repeat` conversions."""
    found = []
    for _ in range(repeat):
        jax.clear_caches()
        with tempfile.TemporaryDirectory() as folder:
            found.append(convert(chain(equations), Path(folder) / "dist"))
    return min(found)


def cold(equations: int) -> float:
    """Seconds of wall-clock time for one conversion in a process of its own."""
    start = time.perf_counter()
    subprocess.run([sys.executable, __file__, "--one", str(equations)], check=True)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=1000)
    parser.add_argument("--large", type=int, default=10000)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--limit", type=float, default=12.0)
    parser.add_argument("--profile", action="store_true", help="show where the large chain's time goes")
    parser.add_argument("--one", type=int, help="convert one chain of so many equations, and nothing else")
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            convert(chain(options.one), Path(folder) / "dist")
        return 0

    with tempfile.TemporaryDirectory() as folder:  # imports and first compilations count for neither
        convert(chain(PERIOD), Path(folder) / "dist")
    small = measure(options.small, options.repeat)
    profile = cProfile.Profile() if options.profile else None
    if profile:
        profile.enable()
    large = measure(options.large, options.repeat)
    if profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)

    rows = [(name, a, b) for (name, a), (_, b) in zip(small.stages, large.stages, strict=True)]
    rows += [("processor time", small.processor, large.processor), ("warm", small.wall, large.wall)]
    waits = cold(options.small), cold(options.large)
    rows.append(("cold", *waits))
    print(f"{'stage':36}{options.small:>10,}{options.large:>10,}   ratio")
    for name, a, b in rows:
        print(f"{name:36}{a:>8.2f} s{b:>8.2f} s{b / max(a, 1e-9):>8.1f}")
    ratio = large.wall / small.wall
    print(f"warm ratio {ratio:.1f}, at most {options.limit:g}")
    return 0 if ratio <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
