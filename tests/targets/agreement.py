"""What `scan` says of one-primitive models on a target, against what the target's runtime does with them.

`python -m tests.targets.agreement [--path FOLDER] [--write] TARGET...` prints, for each target, how many models were
tried and how often the verdict and the runtime part:

- false "supported": the verdict is yes, and the runtime refuses the file, crashes, or gives other values than JAX;
- false "unsupported": the verdict is no, and the runtime gives JAX's values.

A conditional verdict is neither: it names values with which the runtime is wrong.

Models are JAX functions of one primitive each, by dtype and rank, with values at the ends of each dtype, infinities
and NaN. They go through rewriting and lowering for that very target, as `scan` and `convert` do. `--path` names a
folder that holds another version of the runtime (`pip install --target FOLDER onnxruntime==1.22.*`); `--write` stores
the counts, which docs/targets.md shows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from opcompat import packs
from opcompat.analyze import Analysis, analyze
from opcompat.lowering.lower import PLACEHOLDER
from opcompat.lowering.onnx import writer as onnx_writer
from opcompat.lowering.tflite import writer as tflite_writer
from opcompat.model import Model
from opcompat.targets import catalog
from opcompat.targets.base import Target
from opcompat.targets.probes.catalog import PROBES
from opcompat.targets.probes.sandbox import Runtime, Sandbox
from opcompat.trace import trace
from tests.matrix.harness import (
    ELEMENTARY,
    EXACT,
    SUMS,
    Case,
    Closeness,
    calls,
    difference,
    entry_point,
    expected,
    in_file,
    refusal,
)

RESULTS = Path(__file__).parent / "agreement.json"
PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
AT_ONCE = 50
DECOMPOSED = Closeness(ulp=16, atol=1e-6)
"""What rule OC590 declares."""

SHAPES = ((20,), (2, 2, 5))

FLOATS = ("float32", "float16", "bfloat16")
INTS = ("int32", "uint32", "int8", "uint8", "int16")
NUMBERS = (*FLOATS, *INTS)

ELEMENTARY_OPS = "sin cos tan asin acos atan sinh cosh asinh acosh atanh exp exp2 log log1p expm1 sqrt rsqrt cbrt"
ELEMENTARY_OPS += " tanh logistic erf erf_inv lgamma"
UNARY = "abs neg sign floor ceil round square integer_pow is_finite not population_count clz"
BINARY = "add sub mul div rem max min pow atan2 nextafter"
COMPARE = "eq ne lt le gt ge"
BITS = "and or xor shift_left shift_right_logical shift_right_arithmetic"

_NAMES = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not"}


def values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Ordinary values and those at the ends, in an order of their own."""
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        large = 1e4 if dtype == "float16" else 1e30
        ends = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, large, -large, np.inf, -np.inf, np.nan]
        found = np.concatenate([ends, rng.normal(size=size)])[:size] * 1.0
        return rng.permutation(found).reshape(shape).astype(jnp.dtype(dtype))
    info = np.iinfo(dtype)
    ends_ = [0, 1, info.max, info.min, info.max - 1, 7, 2**24 + 1, 100, max(info.min, -9)]
    drawn = rng.integers(info.min, info.max, size, dtype=np.int64, endpoint=True)
    whole = np.concatenate([[e if info.min <= e <= info.max else 3 for e in ends_], drawn])[:size]
    return rng.permutation(whole).reshape(shape).astype(dtype)


def positive(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Values without zero and without -1: divisors that every arithmetic knows."""
    x = values(dtype, shape, seed)
    if dtype in FLOATS:
        return x
    return np.where((x == 0) | (x == np.asarray(-1).astype(x.dtype)), np.asarray(3, x.dtype), x)


def shifts(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    bits = 8 * np.dtype(dtype).itemsize
    return np.random.default_rng(seed).integers(0, bits, shape).astype(dtype)


def one(name: str, function: Callable[..., Any], make: Callable[[int], Sequence[np.ndarray]], near: Closeness) -> Case:
    """A case with two calls, of values drawn apart."""
    return calls(name, function, make(1), make(2), near=near, signs=False, denormals=False)


def cases() -> Iterator[Case]:
    """One primitive each, by dtype and rank."""
    for shape in SHAPES:
        tag = f"rank{len(shape)}"
        if len(shape) == 1:
            yield from _elementwise(shape, tag)
        yield from _reductions(shape, tag)
        yield from _structure(shape, tag)
    yield from _products()


def _elementwise(shape: tuple[int, ...], tag: str) -> Iterator[Case]:
    def takes(dtype: str, second: Callable[..., np.ndarray] | None = None) -> Callable[[int], list[np.ndarray]]:
        return lambda s: [values(dtype, shape, s)] + ([second(dtype, shape, s + 9)] if second else [])

    for name in ELEMENTARY_OPS.split():
        for dtype in FLOATS:
            near = DECOMPOSED if name in ("lgamma", "erf_inv") else ELEMENTARY
            yield one(f"{name} {dtype} {tag}", _lax(name), takes(dtype), near)
    for name in UNARY.split():
        for dtype in _dtypes_of(name):
            function = (lambda x: lax.integer_pow(x, 3)) if name == "integer_pow" else _lax(name)
            yield one(f"{name} {dtype} {tag}", function, takes(dtype), Closeness(ulp=1))
    for name in (*BINARY.split(), *COMPARE.split(), *BITS.split()):
        for dtype in _dtypes_of(name):
            second = shifts if name.startswith("shift") else positive if name in ("div", "rem") else values
            near = ELEMENTARY if name in ("pow", "atan2") else Closeness(ulp=1)
            yield one(f"{name} {dtype} {tag}", _lax(name), takes(dtype, second), near)
    picks = values("bool", shape, 5)
    for dtype in (*NUMBERS, "bool"):
        yield one(f"select_n {dtype} {tag}", _select, lambda s, d=dtype: [picks, *takes(d, values)(s)], EXACT)
        for other in ("float32", "int32", "uint32", "bool", "int8"):
            if other != dtype and not (dtype in FLOATS and other in INTS):
                convert = lambda x, o=other: lax.convert_element_type(x, jnp.dtype(o))  # noqa: E731
                yield one(f"convert_element_type {dtype}-{other} {tag}", convert, takes(dtype), EXACT)


def _select(c: Any, x: Any, y: Any) -> Any:
    return lax.select_n(c, x, y)


def _lax(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(lax, _NAMES.get(name, name))
    if name == "round":
        return lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    return function


def _dtypes_of(name: str) -> tuple[str, ...]:
    if name in ("floor", "ceil", "round", "is_finite", "pow", "atan2", "nextafter"):
        return FLOATS if name != "nextafter" else ("float32",)
    if name in ("abs", "neg", "sign"):
        return tuple(d for d in NUMBERS if not d.startswith("uint"))
    if name in ("population_count", "clz") or name.startswith("shift"):
        return INTS
    if name in ("and", "or", "xor", "not"):
        return (*INTS, "bool")
    return (*NUMBERS, "bool") if name in ("eq", "ne") else NUMBERS


def _reductions(shape: tuple[int, ...], tag: str) -> Iterator[Case]:
    axis = len(shape) - 1
    for dtype in (*NUMBERS, "bool"):
        takes = lambda s, d=dtype: [values(d, shape, s)]  # noqa: E731
        if dtype == "bool":
            for name, reduce in (("reduce_and", jnp.all), ("reduce_or", jnp.any)):
                yield one(f"{name} bool {tag}", lambda x, r=reduce: r(x, axis=axis), takes, EXACT)
            continue
        for name, reduce in (("reduce_max", jnp.max), ("reduce_min", jnp.min)):
            yield one(f"{name} {dtype} {tag}", lambda x, r=reduce: r(x, axis=axis), takes, EXACT)
        for name, pick in (("argmax", lax.argmax), ("argmin", lax.argmin)):
            yield one(f"{name} {dtype} {tag}", lambda x, p=pick: p(x, axis, jnp.int32), takes, EXACT)
        if dtype in INTS or dtype == "float32":
            small = takes if dtype in INTS else lambda s: [np.clip(np.nan_to_num(values("float32", shape, s)), -9, 9)]
            for name, total in (("reduce_sum", jnp.sum), ("reduce_prod", jnp.prod)):
                kept = jnp.dtype(dtype)
                yield one(f"{name} {dtype} {tag}", lambda x, t=total, k=kept: t(x, axis=axis, dtype=k), small, SUMS)
            yield one(f"cumsum {dtype} {tag}", lambda x: lax.cumsum(x, axis), small, SUMS)
        yield one(f"cummax {dtype} {tag}", lambda x: lax.cummax(x, axis), takes, EXACT)
        if dtype not in ("float16", "bfloat16"):
            yield one(f"sort {dtype} {tag}", lambda x: lax.sort(x, dimension=axis), takes, EXACT)
            yield one(f"top_k {dtype} {tag}", lambda x: lax.top_k(x, 2)[0], takes, EXACT)


def _structure(shape: tuple[int, ...], tag: str) -> Iterator[Case]:
    rank = len(shape)
    picks = np.asarray([1, 0, 1], np.int32)
    functions: Mapping[str, Callable[..., Any]] = {
        "broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (3, *shape), tuple(range(1, rank + 1))),
        "concatenate": lambda x: lax.concatenate([x, x], rank - 1),
        "dynamic_slice": lambda x: lax.dynamic_slice(x, [jnp.int32(1)] * rank, [1] * rank),
        "dynamic_update_slice": lambda x: lax.dynamic_update_slice(
            x, x[:1], [jnp.int32(1)] + [jnp.int32(0)] * (rank - 1)
        ),
        "gather": lambda x: jnp.take(x, picks, axis=0, mode="clip"),
        "pad": lambda x: lax.pad(x, jnp.zeros((), x.dtype), [(1, 2, 0)] * rank),
        "reshape": lambda x: lax.reshape(x, (x.size,)),
        "rev": lambda x: lax.rev(x, (0,)),
        "scatter": lambda x: x.at[1].set(x[0]),
        "slice": lambda x: lax.slice(x, [1] * rank, shape, [1] * rank),
        "squeeze": lambda x: lax.squeeze(lax.slice_in_dim(x, 0, 1), (0,)),
        "transpose": lambda x: lax.transpose(x, tuple(reversed(range(rank)))),
    }
    for dtype in (*NUMBERS, "bool"):
        for name, function in functions.items():
            yield one(f"{name} {dtype} {tag}", function, lambda s, d=dtype: [values(d, shape, s)], EXACT)


def _products() -> Iterator[Case]:
    def small(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(-4, 5, shape).astype(jnp.dtype(dtype))

    def carried(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, y: y + x, x)

    def branched(c: Any, x: Any) -> Any:
        return lax.cond(c, lambda y: y, lambda y: y + y, x)

    for dtype in ("float32", "float16", "bfloat16", "int32"):
        for name, left, right in (
            ("matrix", (4, 5), (5, 3)),
            ("batch", (2, 4, 5), (2, 5, 3)),
            ("vector", (5,), (5, 3)),
        ):
            makes = lambda s, d=dtype, a=left, b=right: [small(d, a, s), small(d, b, s + 1)]  # noqa: E731
            yield one(f"dot_general {dtype} {name}", jnp.matmul, makes, SUMS)
        yield one(f"while {dtype}", carried, lambda s, d=dtype: [small(d, (4,), s)], EXACT)
        flags = lambda s, d=dtype: [np.asarray(s == 1), small(d, (4,), s)]  # noqa: E731
        yield one(f"cond {dtype}", branched, flags, EXACT)
    image, kernel = (1, 5, 5, 2), (2, 2, 2, 3)
    layout = ("NHWC", "HWIO", "NHWC")
    convolved = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=layout)  # noqa: E731
    yield one(
        "conv_general_dilated float32",
        convolved,
        lambda s: [small("float32", image, s), small("float32", kernel, s + 1)],
        SUMS,
    )


# -- asking


class Counts(NamedTuple):
    """How many models were tried, what the verdicts were, and what parted (name: why).

    `conditional`: the verdict is neither yes nor no, but names values with which the runtime is wrong.
    """

    tried: int
    supported: int
    conditional: int
    unwritable: int
    false_supported: dict[str, str]
    false_unsupported: dict[str, str]


def file_of(analysis: Analysis) -> bytes:
    """The analysis's graph as a file of the target's format."""
    name, graph = analysis.trace.entry_point, analysis.lowered.graph
    names = {name: analysis.lowered.output_names}
    if analysis.target.backend.name == "tflite":
        return tflite_writer.write({name: graph}, {}, output_names=names)
    builder: Any = analysis.target.backend.builder
    with tempfile.TemporaryDirectory() as folder:
        onnx_writer.write({name: graph}, {}, Path(folder), output_names=names, opset=builder.opset)
        return (Path(folder) / f"{name}.onnx").read_bytes()


def outcome(case: Case, answer: Any, analysis: Analysis, sandbox: Runs) -> str:
    """What the runtime does otherwise than JAX, or ""."""
    try:
        data = file_of(analysis)
    except Exception as error:  # noqa: BLE001  # what the format has no word for cannot run
        return f"write: {error}"
    names = analysis.lowered.output_names
    for args, want, other in zip(case.inputs, answer.exact, answer.other, strict=True):
        leaves = {leaf.name: in_file(x) for leaf, x in zip(analysis.trace.inputs, args, strict=True)}
        kinds = {x.name: x.dtype for x in analysis.lowered.graph.inputs}
        inputs = {
            name: leaves[name].view(kind) if _same_bits(leaves[name], kind) else leaves[name]
            for name, kind in kinds.items()
        }
        results = sandbox.run(data, inputs, names)
        if isinstance(results, str):
            return results
        by_name = dict(zip(names, results, strict=True))
        for leaf, w, o in zip(analysis.trace.outputs, want, other, strict=True):
            stored = np.dtype(np.float32) if w.dtype.name in ("float16", "bfloat16") else w.dtype
            got = by_name[leaf.name]
            got = got.view(stored) if got.dtype.itemsize == stored.itemsize else got
            found = difference(got, w, o, case, False)
            if found:
                return found
    return ""


def _same_bits(x: np.ndarray, kind: str) -> bool:
    return x.dtype.name != kind and x.dtype.itemsize == np.dtype(kind).itemsize


class Runs(Protocol):
    """A sandbox, of whatever kind."""

    def run(self, data: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray] | str: ...

    def close(self) -> None: ...


def count(target: Target, runtime: Runtime, chosen: Sequence[Case]) -> Counts:
    """Scans and runs every case."""
    return counted(target, Sandbox(runtime), chosen)


def counted(
    target: Target,
    sandbox: Runs,
    chosen: Sequence[Case],
    adapt: Callable[[Analysis], Analysis | None] = lambda analysis: analysis,
) -> Counts:
    """Scans and runs every case. `adapt` makes a model that can be fed of each; None leaves the case out."""
    tried = len(chosen)
    supported = conditional = unwritable = 0
    wrong_yes: dict[str, str] = {}
    wrong_no: dict[str, str] = {}
    for case, answer in _answered(chosen):
        model = Model("agreement", {}, {"main": entry_point(case)})
        analysis = analyze(trace(model, "main"), target, packs.rules())
        reason = refusal(analysis)
        if reason and any(node.op == PLACEHOLDER for node in analysis.lowered.graph.walk()):
            unwritable += 1
            continue  # there is no file that could run
        if reason and _only_if(analysis):
            conditional += 1
            continue
        fed = adapt(analysis)
        if fed is None:
            tried -= 1
            continue
        found = outcome(case, answer, fed, sandbox)
        supported += not reason
        if not reason and found:
            wrong_yes[case.name] = found
        if reason and not found:
            wrong_no[case.name] = reason
    sandbox.close()
    return Counts(tried, supported, conditional, unwritable, wrong_yes, wrong_no)


def count_placements(name: str, target: Target, runtime: Runtime) -> Counts:
    """For compilers, which only say whether they take a model: quantized one-op models of shapes that made no table."""
    sandbox = Sandbox(runtime)
    tried = supported = conditional = 0
    wrong_yes: dict[str, str] = {}
    wrong_no: dict[str, str] = {}
    for case in PROBES[name].cases(special=True):
        support = target.check(case.node[0])
        found = sandbox.ask(case)
        tried += 1
        supported += support.status == "yes"
        conditional += support.status == "conditional"
        label = f"{case.op} {' '.join(x.dtype.name for x, _ in case.inputs)} rank{case.rank} {tried}"
        if support.status == "yes" and found:
            wrong_yes[label] = found
        if support.status in ("no", "unknown") and not found:
            wrong_no[label] = support.reason
    sandbox.close()
    return Counts(tried, supported, conditional, 0, wrong_yes, wrong_no)


def _only_if(analysis: Analysis) -> bool:
    """Whether conditions are all that stands in the way."""
    bad = [j for j in analysis.judgements.values() if j.verdict in ("unsupported", "unknown")]
    return all(j.reason.startswith("only if: ") for j in bad)


def _answered(chosen: Sequence[Case]) -> Iterator[tuple[Case, Any]]:
    """Each case with JAX's results, some at a time: one program of all would take long to compile."""
    for i in range(0, len(chosen), AT_ONCE):
        yield from zip(chosen[i : i + AT_ONCE], expected(chosen[i : i + AT_ONCE]), strict=True)


def runtime_of(name: str, path: str = "") -> Runtime:
    """The runtime that a target is about."""
    plain = name.partition("@")[0]
    if plain == "onnxruntime":
        place = "opcompat.targets.probes.runtimes:onnxruntime"
        return Runtime(place, "onnxruntime", "onnxruntime", "onnx", 21, path)
    return replace(PROBES[plain].runtime, path=path)


def show(name: str, target: Target, counts: Counts) -> None:
    """Prints the counts, and what parted."""
    print(
        f"{name} {target.version}: {counts.tried} models, {counts.supported} supported, "
        f"{counts.conditional} conditional, {counts.unwritable} without a file, "
        f"{len(counts.false_supported)} false supported, {len(counts.false_unsupported)} false unsupported"
    )
    for label, found in (("supported", counts.false_supported), ("unsupported", counts.false_unsupported)):
        for case, why in found.items():
            print(f"  false {label}: {case}: {why[:300]}")


def record(name: str, target: Target, counts: Counts) -> None:
    """Stores the counts and writes the page."""
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    stored[name] = {
        "version": target.version,
        "tried": counts.tried,
        "supported": counts.supported,
        "conditional": counts.conditional,
        "unwritable": counts.unwritable,
        "false_supported": sorted(counts.false_supported),
        "false_unsupported": sorted(counts.false_unsupported),
    }
    stored = dict(sorted(stored.items()))
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    PAGE.write_text(page(stored))


def page(stored: Mapping[str, Any]) -> str:
    """docs/targets.md: every target with its provenance, and the counts where its runtime was asked."""
    lines = [
        "# Targets",
        "",
        "Made by `python -m tests.targets.agreement --write TARGET`; [adding-a-target.md](adding-a-target.md) says how",
        "tables are made.",
        "",
        "| Target | Runtime | Reads | Evidence | From |",
        "|---|---|---|---|---|",
    ]
    for name, make in catalog.TARGETS.items():
        t = make()
        when = f", {t.date}" if t.date else ""
        lines.append(f"| `{name}` | {t.runtime} {t.version} | {t.backend.name} | {t.evidence}{when} | {t.origin} |")
    lines += [
        "",
        "## Agreement with the runtimes",
        "",
        "Models of one JAX primitive each, by dtype and rank, with infinities, NaN and the ends of each dtype,",
        'rewritten and lowered for the target. False "supported": `scan` says yes, and the runtime refuses the file or',
        'gives other values than JAX. False "unsupported": `scan` says no, and the runtime gives JAX\'s values.',
        "Conditional: `scan` names values with which the runtime is wrong. No file: something has no lowering at all.",
        "For Ethos-U, models are quantized ops, in shapes that the table was not made with, and the question is",
        "whether Vela places them on the accelerator.",
        "",
        '| Target | Version | Models | Supported | Conditional | No file | False "supported" | False "unsupported" |',
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in stored.items():
        wrong, share = row["false_unsupported"], len(row["false_unsupported"]) / row["tried"]
        cells = [f"`{name}`", row["version"], row["tried"], row["supported"], row["conditional"], row["unwritable"]]
        cells += [len(row["false_supported"]), f"{len(wrong)} ({share:.1%})"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--path", default="")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="names of cases that contain this")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one case of N")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = [case for case in cases() if options.only in case.name][:: options.every]
    for name in options.targets:
        target = catalog.target(name)
        runtime = runtime_of(name, options.path)
        counts = count(target, runtime, chosen) if runtime.compares else count_placements(name, target, runtime)
        show(name, target, counts)
        if options.write:
            record(name, target, counts)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
