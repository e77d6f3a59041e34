"""Runs cases through the whole pipeline for one backend, and compares the runtime's results with JAX's.

A case is one entry point: traced, rewritten, lowered and judged as `opcompat.convert` does it, then written
beside the other cases of its row and run. The reference is `jax.jit` under the project's compiler options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import onnxruntime
from ai_edge_litert.interpreter import Interpreter

from opcompat import packs
from opcompat.analyze import Analysis, analyze_best
from opcompat.conversion import stored_weights
from opcompat.jaxcompat import is_jaxpr, parts
from opcompat.lowering.onnx import writer as onnx_writer
from opcompat.lowering.tflite import writer as tflite_writer
from opcompat.model import EntryPoint, Model
from opcompat.reference import COMPILER_OPTIONS
from opcompat.targets.base import Target
from opcompat.targets.catalog import FORMATS, candidates
from opcompat.trace import trace

BACKENDS = tuple(FORMATS)
"""The formats; each is judged and run by its own runtime."""

HALF = ("float16", "bfloat16")


@dataclass(frozen=True)
class Closeness:
    """How near a float result has to be: within `ulp` of JAX's own, or within rtol and atol. Others are equal."""

    ulp: int = 0
    rtol: float = 0.0
    atol: float = 0.0


EXACT = Closeness()
ROUNDED = Closeness(ulp=1)
"""One operation that IEEE 754 defines, or two."""
ELEMENTARY = Closeness(ulp=16)
SUMS = Closeness(rtol=1e-5, atol=1e-6)
"""Sums of products, in whatever order."""


@dataclass(frozen=True)
class Case:
    """One entry point. `inputs` are the arguments of one or more calls, all of the same shapes and dtypes.

    `signs`: whether signs of zeros have to agree. `denormals`: there are some among the inputs; XLA's CPU programs
    take them as zeros in places, so what float64 gives is right, too. `slow`: only in the larger set.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[tuple[Any, ...], ...]
    near: Closeness = EXACT
    signs: bool = True
    denormals: bool = False
    slow: bool = False

    @property
    def args(self) -> tuple[Any, ...]:
        return self.inputs[0]


def case(name: str, function: Callable[..., Any], *args: Any, near: Closeness = EXACT, **options: Any) -> Case:
    """A case with one call."""
    return Case(name, function, (tuple(np.asarray(a) for a in args),), near, **options)


def calls(name: str, function: Callable[..., Any], *inputs: Sequence[Any], **options: Any) -> Case:
    """A case with several calls."""
    return Case(name, function, tuple(tuple(np.asarray(a) for a in args) for args in inputs), **options)


def vmapped(one: Case) -> Case:
    """The case under vmap, with its arguments and the same ones reversed along their first axis."""

    def twice(x: np.ndarray) -> np.ndarray:
        return np.stack([x, x[::-1] if x.ndim else x])

    inputs = tuple(tuple(twice(x) for x in args) for args in one.inputs)
    return replace(one, name=f"{one.name}-vmap", function=jax.vmap(one.function), inputs=inputs)


class Outcome(NamedTuple):
    """Of one case on one backend: the reasons of a refusal, or what differs ("" if nothing)."""

    refused: str = ""
    problem: str = ""


# -- JAX's answers


def flat(result: Any) -> list[Any]:
    return list(jax.tree_util.tree_leaves(result))


def reference(cases: Sequence[Case]) -> list[list[list[np.ndarray]]]:
    """The flat results of each case in each of its calls, from one program."""

    def everything(arguments: Sequence[Any]) -> list[list[Any]]:
        return [flat(one.function(*args)) for one, args in zip(cases, arguments, strict=True)]

    program = jax.jit(everything, compiler_options=COMPILER_OPTIONS)
    count = max(len(one.inputs) for one in cases)
    results = [program([one.inputs[min(k, len(one.inputs) - 1)] for one in cases]) for k in range(count)]
    return [[[np.asarray(x) for x in results[k][i]] for k in range(len(c.inputs))] for i, c in enumerate(cases)]


def wide(one: Case) -> list[list[np.ndarray]]:
    """The case's results in float64, in the dtypes of its own: what they are without any flushing of denormals."""
    kinds = [x.dtype for x in flat(jax.eval_shape(one.function, *one.args))]
    with jax.enable_x64(True):
        program = jax.jit(one.function)
        inputs = [[x.astype(np.float64) if x.dtype == np.float32 else x for x in args] for args in one.inputs]
        with np.errstate(over="ignore"):
            return [[np.asarray(x).astype(k) for x, k in zip(flat(program(*a)), kinds, strict=True)] for a in inputs]


class Expected(NamedTuple):
    """For each call: JAX's results, and those that are as good."""

    exact: list[list[np.ndarray]]
    other: list[list[np.ndarray]]


def expected(cases: Sequence[Case]) -> list[Expected]:
    found = reference(cases)
    return [
        Expected(results, wide(one) if one.denormals else results) for one, results in zip(cases, found, strict=True)
    ]


# -- comparison


def difference(got: np.ndarray, want: np.ndarray, other: np.ndarray, one: Case, signs: bool) -> str:
    """What is wrong with `got`, or "". `other` is as good as `want` (denormals)."""
    half = want.dtype.name in HALF
    stored = np.dtype(np.float32) if half else want.dtype
    if got.shape != want.shape or got.dtype != stored:
        return f"{got.dtype}{list(got.shape)} in place of {stored}{list(want.shape)}"
    if want.dtype.kind in "bui":
        bad = (got != want) & (got != other)
    else:
        bad = ~(_near(got, want, one.near, signs) | _near(got, other, one.near, signs))
    if not bad.any():
        return ""
    places = np.argwhere(bad)
    shown = "; ".join(f"{tuple(map(int, p))}: {got[tuple(p)]!r} for {want[tuple(p)]!r}" for p in places[:3])
    return f"{len(places)} of {bad.size} {want.dtype} differ, at {shown}"


def _near(got: np.ndarray, want: np.ndarray, near: Closeness, signs: bool) -> np.ndarray:
    """Elementwise: float32 `got` against `want` (float32 or half precision)."""
    half = want.dtype.name in HALF
    unit = _unit(want, near, half)
    right = want.astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got.astype(np.float64) - right.astype(np.float64))
        ok = (error <= unit) | (error <= near.rtol * np.abs(right) + near.atol)
    tiny = np.finfo(np.float32).tiny
    ok |= (np.abs(got) < 2 * tiny) & (np.abs(right) < 2 * tiny)
    ok = np.where(np.isfinite(right), ok & np.isfinite(got), (got == right) | (np.isnan(got) & np.isnan(right)))
    if signs:
        ok &= ~((got == 0) & (right == 0) & (np.signbit(got) != np.signbit(right)))
    return np.asarray(ok)


def _unit(want: np.ndarray, near: Closeness, half: bool) -> np.ndarray:
    """The error that is allowed in units of the last place; a half-precision result may be one unit off."""
    magnitude = np.abs(want)
    limit = np.asarray(6e4 if want.dtype == np.float16 else 3e38, want.dtype)
    with np.errstate(invalid="ignore"):
        spacing = np.spacing(np.where(magnitude < limit, magnitude, 1).astype(want.dtype))
    # In half precision XLA rounds the steps of elementary functions, too.
    count = min(near.ulp, 2) if half and near.ulp else (near != EXACT) if half else near.ulp
    return np.asarray(spacing, np.float64) * int(count)


# -- the pipeline


def entry_point(one: Case) -> EntryPoint:
    names = tuple(f"x{i}" for i in range(len(one.args)))

    def run(params: Any, *args: Any) -> dict[str, Any]:
        return {f"y{i:03}": x for i, x in enumerate(flat(one.function(*args)))}

    return EntryPoint(run, one.args, names=names)


def judged(cases: Sequence[Case], forms: Sequence[Target]) -> list[Analysis]:
    """Each case traced, rewritten, lowered and judged. Entry points are named e0, e1, ..."""
    model = Model("matrix", {}, {f"e{i}": entry_point(one) for i, one in enumerate(cases)})
    return [analyze_best([trace(model, name)], forms, packs.rules())[0] for name in model.entry_points]


def refusal(analysis: Analysis) -> str:
    """All reasons why an entry point cannot run, those of the rules that looked at it included, or ""."""
    bad = {k: j for k, j in analysis.judgements.items() if j.verdict in ("unsupported", "unknown")}
    reasons = [j.reason or j.verdict for j in bad.values()]
    reasons += [text for k in bad for text in analysis.rewritten.declined.get(k, ())]
    return "; ".join(dict.fromkeys(reasons))


Runner = Callable[[str, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""(entry point, inputs) -> outputs, by name."""


def opened_onnx(analyses: Sequence[Analysis], folder: Path) -> Runner:
    graphs = {a.trace.entry_point: a.lowered.graph for a in analyses}
    names = {a.trace.entry_point: a.lowered.output_names for a in analyses}
    builder: Any = analyses[0].target.backend.builder
    weights = stored_weights({a.trace.entry_point: a.trace for a in analyses})
    onnx_writer.write(graphs, weights, folder, output_names=names, opset=builder.opset)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1

    @cache
    def session(name: str) -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])

    def run(name: str, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return dict(zip(names[name], session(name).run(list(names[name]), dict(inputs)), strict=True))

    return run


def opened_tflite(analyses: Sequence[Analysis], folder: Path) -> Runner:
    content = tflite_writer.write(
        {a.trace.entry_point: a.lowered.graph for a in analyses},
        stored_weights({a.trace.entry_point: a.trace for a in analyses}),
        output_names={a.trace.entry_point: a.lowered.output_names for a in analyses},
    )
    (folder / "model.tflite").write_bytes(content)
    interpreter = Interpreter(model_path=str(folder / "model.tflite"), num_threads=1)

    def run(name: str, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        runner = interpreter.get_signature_runner(name)
        kinds = runner.get_input_details()
        return dict(runner(**{k: x.view(kinds[k]["dtype"]) for k, x in inputs.items()}))

    return run


OPEN: Mapping[str, Callable[[Sequence[Analysis], Path], Runner]] = {"onnx": opened_onnx, "tflite": opened_tflite}


def in_file(x: np.ndarray) -> np.ndarray:
    """An argument in the form that files have."""
    if x.dtype.kind == "c":
        return np.stack([x.real, x.imag], -1)
    return np.ascontiguousarray(x.astype(np.float32) if x.dtype.name in HALF else x).reshape(x.shape)


def problem(one: Case, answer: Expected, run: Runner, analysis: Analysis, signs: bool) -> str:
    """What the artifact does otherwise than JAX, or "". Runtimes fail in many ways: each is a finding."""
    name, traced = analysis.trace.entry_point, analysis.trace
    for args, want, other in zip(one.inputs, answer.exact, answer.other, strict=True):
        try:
            results = run(name, {leaf.name: in_file(x) for leaf, x in zip(traced.inputs, args, strict=True)})
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"
        for leaf, w, o in zip(traced.outputs, want, other, strict=True):
            stored = np.float32 if w.dtype.name in HALF else w.dtype
            got = np.asarray(results[leaf.name])
            got = got.view(stored) if got.dtype.itemsize == np.dtype(stored).itemsize else got
            found = difference(got, w, o, one, signs)
            if found:
                return f"{leaf.name}: {found}"
    return ""


@cache
def judges(backend: str) -> tuple[Target, ...]:
    return candidates(FORMATS[backend])


def outcomes(
    backend: str, cases: Sequence[Case], answers: Sequence[Expected], folder: Path, signs: bool = True
) -> list[Outcome]:
    """Runs all cases of a row on one backend."""
    analyses = judged(cases, judges(backend))
    reasons = [refusal(a) for a in analyses]
    able = [a for a, reason in zip(analyses, reasons, strict=True) if not reason]
    runners: dict[str, Runner | str] = {}
    for index, form in enumerate(judges(backend)):
        place = folder / str(index)
        place.mkdir()
        runners.update(_runners(backend, [a for a in able if a.target is form], place))
    found = []
    for one, answer, analysis, reason in zip(cases, answers, analyses, reasons, strict=True):
        if reason:
            found.append(Outcome(refused=reason))
            continue
        run = runners[analysis.trace.entry_point]
        text = run if isinstance(run, str) else problem(one, answer, run, analysis, signs and one.signs)
        found.append(Outcome(problem=text))
    return found


def _runners(backend: str, analyses: Sequence[Analysis], folder: Path) -> Iterator[tuple[str, Runner | str]]:
    """(entry point, its runner, or why there is none). One artifact for all, unless that fails."""
    if not analyses:
        return
    try:
        run = OPEN[backend](analyses, folder)
    except Exception as error:  # noqa: BLE001
        if len(analyses) == 1:
            yield analyses[0].trace.entry_point, f"{type(error).__name__}: {str(error)[:300]}"
            return
        for one in analyses:
            alone = folder / one.trace.entry_point
            alone.mkdir()
            yield from _runners(backend, [one], alone)
        return
    for one in analyses:
        yield one.trace.entry_point, run


# -- what is in a program


def primitives(closed: Any) -> set[str]:
    """The names of all primitives, calls and what is in them included."""
    found: set[str] = set()
    for eqn in parts(closed).eqns:
        found.add(eqn.primitive.name)
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else [value]:
                if is_jaxpr(inner):
                    found |= primitives(inner)
    return found


def traced_primitives(one: Case) -> set[str]:
    return primitives(jax.make_jaxpr(one.function)(*one.args))
