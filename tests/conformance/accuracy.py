"""How accurate elementary functions are in the artifacts, and docs/accuracy.md: `python -m tests.conformance.accuracy`.

Each function is converted as a policy's would be, rules and all, and run over a dense sample of all finite float32
values and of its delicate points, with the runtime's optimizations and without. What float64 gives is the truth.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from scipy import special

from opcompat import api, packs, runtime
from opcompat.model import EntryPoint, Model
from tests.conformance.table import BACKENDS

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
COUNT = 1 << 20
SMALL = 1e-36

HEAD = """# Accuracy

Written by `python -m tests.conformance.accuracy`; do not edit. The largest error of each elementary function on
float32, as it is in artifacts (rules applied), over {count:,} arguments: all finite float32 values evenly by their
bits, and dense around its delicate points. Truth is float64. Errors are in units in the last place (ulp) of the right
float32 result, and absolute, each with the argument where it is largest. Arguments and results below 1e-36 are left
out: what is denormal on the way is zero in many programs. "Off": without ONNX Runtime's graph optimizations, without
LiteRT's default delegate. JAX is `jax.jit` on the CPU. Fails if a rule promises more than was measured.

"""


class Function(NamedTuple):
    """`of`: JAX's function; `truth`: the same of float64. `near`: centers of dense samples. `only`: its domain."""

    of: Callable[[Any], Any]
    truth: Callable[[np.ndarray], np.ndarray]
    near: tuple[float, ...] = (0.0, 1.0)
    only: tuple[float, float] = (-np.inf, np.inf)


def _logistic(x: np.ndarray) -> np.ndarray:
    return np.asarray(special.expit(x))


FUNCTIONS: Mapping[str, Function] = {
    "acos": Function(lax.acos, np.arccos, (0.0, 1.0, -1.0), (-1, 1)),
    "acosh": Function(lax.acosh, np.arccosh, (1.0,), (1, np.inf)),
    "asin": Function(lax.asin, np.arcsin, (0.0, 1.0, -1.0), (-1, 1)),
    "asinh": Function(lax.asinh, np.arcsinh),
    "atan": Function(lax.atan, np.arctan),
    "atanh": Function(lax.atanh, np.arctanh, (0.0, 1.0, -1.0), (-1, 1)),
    "cbrt": Function(lax.cbrt, np.cbrt),
    "cos": Function(lax.cos, np.cos, (np.pi / 2, np.pi), (-1e4, 1e4)),
    "cosh": Function(lax.cosh, np.cosh),
    "erf": Function(lax.erf, special.erf),
    "erf_inv": Function(lax.erf_inv, special.erfinv, (0.0, 1.0, -1.0), (-1, 1)),
    "erfc": Function(lax.erfc, special.erfc, (0.0, 10.0)),
    "exp": Function(lax.exp, np.exp, (0.0, 88.7, -87.3)),
    "exp2": Function(lax.exp2, np.exp2),
    "expm1": Function(lax.expm1, np.expm1),
    "lgamma": Function(lax.lgamma, special.gammaln, (1.0, 2.0), (0, np.inf)),
    "log": Function(lax.log, np.log, (1.0,), (0, np.inf)),
    "log1p": Function(lax.log1p, np.log1p, (0.0, -1.0), (-1, np.inf)),
    "logistic": Function(lax.logistic, _logistic, (0.0, -80.0)),
    "rsqrt": Function(lax.rsqrt, lambda x: 1 / np.sqrt(x), (1.0,), (0, np.inf)),
    "sin": Function(lax.sin, np.sin, (np.pi, 2 * np.pi), (-1e4, 1e4)),
    "sinh": Function(lax.sinh, np.sinh),
    "softplus": Function(jax.nn.softplus, lambda x: np.logaddexp(x, 0.0)),
    "sqrt": Function(lax.sqrt, np.sqrt, (1.0,), (0, np.inf)),
    "tan": Function(lax.tan, np.tan, (np.pi / 2, np.pi), (-1e4, 1e4)),
    "tanh": Function(lax.tanh, np.tanh, (0.0, 9.0)),
}


class Error(NamedTuple):
    ulp: float
    at: float
    absolute: float
    absolute_at: float


def arguments(function: Function) -> np.ndarray:
    """float32[COUNT]: half by bits over everything finite, the rest around the delicate points."""
    bits = np.linspace(0, 0x7F7FFFFF, COUNT // 4).astype(np.uint32).view(np.float32)
    parts = [bits, -bits]
    for center in function.near:
        share = COUNT // (4 * len(function.near))
        steps = np.geomspace(1e-8, 1.0, share, dtype=np.float32)
        parts += [np.float32(center) + steps, np.float32(center) - steps]
    low, high = (np.float32(x) for x in function.only)
    x = np.clip(np.concatenate(parts), low, high)
    x[np.abs(x) < SMALL] = 0
    return np.resize(x, COUNT)


def error(got: np.ndarray, x: np.ndarray, function: Function) -> Error:
    """The largest errors where both are finite and the truth is not below SMALL."""
    with np.errstate(all="ignore"):
        truth = function.truth(x.astype(np.float64))
        right = truth.astype(np.float32)
        counts = np.isfinite(right) & (np.abs(right) >= SMALL) & np.isfinite(got)
        off = np.abs(got.astype(np.float64) - truth)
        ulp = off / np.spacing(np.abs(right)).astype(np.float64)
    k, m = int(np.argmax(np.where(counts, ulp, 0))), int(np.argmax(np.where(counts, off, 0)))
    return Error(float(ulp[k]), float(x[k]), float(off[m]), float(x[m]))


def measure() -> Iterator[tuple[str, str, Error]]:
    """(function, where it ran, error)."""
    example = (np.zeros(COUNT, np.float32),)
    inputs = {name: arguments(f) for name, f in FUNCTIONS.items()}
    for name, f in FUNCTIONS.items():
        yield name, "JAX", error(np.asarray(jax.jit(f.of)(inputs[name])), inputs[name], f)
        entry = EntryPoint(lambda _, x, f=f: f.of(x), example, names=("x",), outputs=("y",), tolerance=3e38)
        with tempfile.TemporaryDirectory() as folder:
            bundle, _ = api.convert(Model(name, {}, {name: entry}), Path(folder) / "dist", steps=1)
            for form, title in BACKENDS.items():
                for optimize in (True, False):
                    loaded = runtime.load(bundle.path, form, optimize=optimize).entry_point(name)
                    got = loaded({"x": inputs[name]})["y"]
                    yield name, f"{title}{'' if optimize else ', off'}", error(got, inputs[name], f)


def page(rows: Mapping[str, Mapping[str, Error]]) -> str:
    columns = list(next(iter(rows.values())))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, by_place in rows.items():
        cells = [f"{e.ulp:.3g} ulp at {e.at:.8g}, {e.absolute:.2g} at {e.absolute_at:.8g}" for e in by_place.values()]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return HEAD.format(count=COUNT) + "\n".join(lines) + "\n"


def tighter(rows: Mapping[str, Mapping[str, Error]]) -> Iterator[str]:
    """Rules that promise more than was measured of the primitive that they replace."""
    for rule in packs.rules():
        for name in sorted(rule.primitives & set(rows)):
            declared = rule.exactness
            for place, found in rows[name].items():
                worse = found.ulp > declared.ulp and found.absolute > declared.absolute
                if place != "JAX" and declared.kind == "ulp" and worse:
                    yield f"{rule.id} promises {declared}, but {name} in {place} has {found.ulp:.3g} ulp at {found.at}"


def main() -> int:
    rows: dict[str, dict[str, Error]] = {}
    for name, place, found in measure():
        rows.setdefault(name, {})[place] = found
        print(f"{name:12}{place:22}{found.ulp:10.3g} ulp at {found.at:<14.8g}{found.absolute:10.2g}", flush=True)
    PAGE.write_text(page(rows))
    problems = list(tighter(rows))
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
