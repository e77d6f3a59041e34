"""The counts of `agreement` for targets of the web: `python -m tests.targets.web_agreement [--write] TARGET...`

Needs node, Chromium and the npm packages of tests/web. Where an interface lacks a dtype, other dtypes carry its bits,
as in probes; what cannot pass at all is left out.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import jax

from opcompat.analyze import Analysis
from opcompat.targets import catalog
from opcompat.targets.probes.web.engines import ENGINES, WebSandbox
from opcompat.targets.probes.web.interface import BITS, Passage, through

from . import agreement

PACKAGES = Path(__file__).parents[1] / "web"
PASSED: Mapping[str, Mapping[str, Passage]] = {"litert-web": {d: BITS[d] for d in ("bool", "int8", "uint32")}}
"""Whose values `agreement` hands over as they are: each takes as many bytes as what it passes as."""

INTERFACE: Mapping[str, Sequence[str]] = {
    "litert-web": ("float32", "int32", "uint8"),
    "tfjs": ("float32", "int32", "bool"),
}
"""Dtypes whose values come back as they are."""


def adapted(name: str, analysis: Analysis) -> Analysis | None:
    """The analysis, of a model that the target's interface can feed. None if there is no such model."""
    if name not in INTERFACE:
        return analysis
    graph = through(analysis.lowered.graph, PASSED.get(name, {}))
    if any(x.dtype not in INTERFACE[name] for x in (*graph.inputs, *graph.outputs)):
        return None
    return replace(analysis, lowered=replace(analysis.lowered, graph=graph))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", default=list(ENGINES))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="names of cases that contain this")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th case")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = [case for case in agreement.cases() if options.only in case.name][:: options.every]
    for name in options.targets:
        target, sandbox = catalog.target(name), WebSandbox(name, PACKAGES)
        counts = agreement.counted(target, sandbox, chosen, lambda analysis, n=name: adapted(n, analysis))
        agreement.show(name, target, counts)
        if options.write:
            agreement.record(name, target, counts)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
