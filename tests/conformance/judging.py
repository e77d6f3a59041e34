"""One case on one backend: the analyzer's verdict, then what the runtime does, compared with JAX."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import onnx
from ai_edge_litert.schema_py_generated import BuiltinOperator

from opcompat import jaxcompat, packs
from opcompat.analyze import Analysis, analyze_best
from opcompat.decisions import ERROR_FACTOR
from opcompat.errors import OpcompatError
from opcompat.lowering.graph import Graph, Node, Tensor
from opcompat.lowering.lower import PLACEHOLDER
from opcompat.model import EntryPoint, Model
from opcompat.reference import COMPILER_OPTIONS, Reference
from opcompat.trace import Leaf, Trace, trace
from tests.conformance.cases import all_cases, arguments, boundaries, dtype_of
from tests.matrix.harness import OPEN, flat, in_file, judges, refusal

Status = Literal["passed", "folded", "refused", "wrong", "pessimistic", "unclear", "not in JAX"]
"""passed: computed from its inputs at run time, and right. folded: right, but no input reaches the outputs. refused:
by the analyzer, with a reason. wrong: accepted, and then it fails or differs. pessimistic: refused, though it runs
and is right. unclear: refused without a primitive or a reason. not in JAX: JAX itself fails."""

RTOL, ATOL = 1e-4, 1e-5


@dataclass(frozen=True)
class Outcome:
    case: str
    group: str
    dtype: str
    backend: str
    status: Status
    detail: str = ""
    ops: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Known(NamedTuple):
    """A case as a model, the arguments of its calls (its own first), and what JAX gives for each."""

    model: Model
    inputs: Sequence[Sequence[np.ndarray]]
    wanted: Sequence[Sequence[np.ndarray]]


def examine(name: str, backends: Sequence[str]) -> list[Outcome]:
    """The case on each backend. Raises nothing that a case may bring about, but it may crash the process."""
    harness = all_cases()[name]

    def outcome(backend: str, status: Status, detail: str = "", ops: tuple[str, ...] = ()) -> Outcome:
        return Outcome(name, harness.group_name, dtype_of(harness), backend, status, detail[:400], ops)

    own = arguments(harness)
    special = boundaries(harness, own)
    inputs = [own] if special is None else [own, special]
    try:
        program = jax.jit(harness.dyn_fun, compiler_options=COMPILER_OPTIONS)
        wanted = [[np.asarray(x) for x in flat(program(*args))] for args in inputs]
    except Exception as error:  # noqa: BLE001 - whatever JAX says
        return [outcome(b, "not in JAX", f"{type(error).__name__}: {error}") for b in backends]
    known = Known(Model("case", {}, {"e0": _entry_point(harness, own)}), inputs, wanted)
    found = []
    for backend in backends:
        try:
            (analysis,) = analyze_best([trace(known.model, "e0")], judges(backend), packs.rules())
        except OpcompatError as error:
            found.append(outcome(backend, "refused", str(error)))
            continue
        except Exception as error:  # noqa: BLE001 - a defect of the engine, which must not hide the other backend's
            found.append(outcome(backend, "wrong", f"{type(error).__name__}: {error}"))
            continue
        ops = tuple(sorted({node.op for node in analysis.lowered.graph.walk()}))
        foreign = sorted(op for op in ops if not standard(backend, op))
        if foreign:
            found.append(outcome(backend, "wrong", f"not ops of the format: {', '.join(foreign)}", ops))
            continue
        status, detail = _status(backend, analysis, known)
        found.append(outcome(backend, status, detail, ops))
    return found


def standard(backend: str, op: str) -> bool:
    """Whether an op is of the format itself: no custom op, no flex op, no leftover of another dialect."""
    if op == PLACEHOLDER:
        return True
    if backend == "onnx":
        return bool(onnx.defs.has(op))
    return hasattr(BuiltinOperator, op) and op not in ("CUSTOM", "DELEGATE") and not op.startswith("STABLEHLO_")


def _entry_point(harness: Any, own: Sequence[np.ndarray]) -> EntryPoint:
    def run(_: Any, *args: Any) -> dict[str, Any]:
        return {f"y{i:03}": x for i, x in enumerate(flat(harness.dyn_fun(*args)))}

    return EntryPoint(run, tuple(own), names=tuple(f"x{i}" for i in range(len(own))))


def _status(backend: str, analysis: Analysis, known: Known) -> tuple[Status, str]:
    if not analysis.ok:
        return _refused(backend, analysis, known)
    problem = _run(backend, analysis, known)
    if problem:
        return "wrong", problem
    reached = not analysis.trace.inputs or _reaches(analysis.lowered.graph)
    return ("passed", "") if reached else ("folded", "")


def _refused(backend: str, analysis: Analysis, known: Known) -> tuple[Status, str]:
    """A refusal has to name primitive and reason, and what it refuses must not run if it is tried all the same."""
    bad = [k for k, j in analysis.judgements.items() if j.verdict in ("unsupported", "unknown")]
    reason = refusal(analysis)
    names = sorted({o.primitive for k in bad if (o := analysis.trace.originals.get(k))})
    text = f"{', '.join(names)}: {reason}"
    if not reason or not names:
        return "unclear", text
    if any(node.op == PLACEHOLDER for node in analysis.lowered.graph.walk()):
        return "refused", text
    return ("refused", text) if _run(backend, analysis, known) else ("pessimistic", text)


def _run(backend: str, analysis: Analysis, known: Known) -> str:
    """What is wrong with the artifact, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = OPEN[backend]([analysis], Path(folder))
            for args, want in zip(known.inputs, known.wanted, strict=True):
                given = zip(analysis.trace.inputs, args, strict=True)
                results = run("e0", {leaf.name: in_file(x) for leaf, x in given})
                got = [_as_jax(results[leaf.name], leaf) for leaf in analysis.trace.outputs]
                problem = _differs(got, want, analysis.trace)
                excused = problem and (
                    _same_records(analysis.trace, got, want)
                    or _same_picks(analysis.trace, args, got, want)
                    or (args is not known.inputs[0] and _within_own_error(known.model, analysis.trace, args, got, want))
                )
                if problem and not excused:
                    return f"{'own' if args is known.inputs[0] else 'boundary'} values: {problem}"
        except Exception as error:  # noqa: BLE001 - runtimes fail in many ways: each is a finding
            return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return ""


def _as_jax(x: Any, leaf: Leaf) -> np.ndarray:
    """A runtime's result in the dtype that the file says, pairs as complex numbers: int32 may be uint32's bits."""
    x, stored = np.asarray(x), np.dtype(leaf.file_dtype)
    x = x.view(stored) if x.dtype.itemsize == stored.itemsize else x
    return x.copy().view(np.result_type(x.dtype, np.complex64))[..., 0] if leaf.pair else x


def _differs(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray], traced: Trace) -> str:
    for leaf, got, want in zip(traced.outputs, results, wanted, strict=True):
        stored = want.dtype if leaf.pair else np.dtype(leaf.file_dtype)
        if got.shape != want.shape or got.dtype != stored:
            return f"{leaf.name}: {got.dtype}{list(got.shape)} in place of {stored}{list(want.shape)}"
        bad = ~close(got, want)
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            return f"{leaf.name}: {bad.sum()} of {bad.size}, {got[place]!r} for {want[place]!r} at {place}"
    return ""


def _same_records(traced: Trace, results: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    """Whether a sort that need not be stable gives JAX's keys, and beside equal keys the same values in any order."""
    sorts = [e for e in jaxcompat.parts(traced.closed).eqns if e.primitive.name == "sort"]
    if len(sorts) != 1 or sorts[0].params["is_stable"] or len(sorts[0].outvars) != len(wanted):
        return False
    axis, keys = sorts[0].params["dimension"], sorts[0].params["num_keys"]
    if not all(close(g, w).all() for g, w in zip(results[:keys], wanted[:keys], strict=True)):
        return False
    lines = [
        np.moveaxis(np.nan_to_num(np.stack(xs, -1).astype(np.float64), nan=1e300), axis, -2) for xs in (results, wanted)
    ]
    rows = [x.reshape(-1, *x.shape[-2:]).tolist() for x in lines]
    return all(sorted(a) == sorted(b) for a, b in zip(*rows, strict=True))


def _same_picks(
    traced: Trace, args: Sequence[np.ndarray], results: Sequence[np.ndarray], wanted: Sequence[np.ndarray]
) -> bool:
    """Whether an approximate top k gives JAX's values, and for each of them a place that holds it, none twice.

    JAX's sort behind it is not stable, so which of several equal values it names is not certain.
    """
    eqns = jaxcompat.parts(traced.closed).eqns
    if [e.primitive.name for e in eqns] != ["approx_top_k"]:
        return False
    (values, places), axis = results, eqns[0].params["reduction_dimension"]
    in_order = np.sort(places, axis)
    held = np.take_along_axis(args[0], np.clip(places, 0, args[0].shape[axis] - 1), axis)
    return bool(
        np.array_equal(values, wanted[0].astype(values.dtype))
        and np.array_equal(values, held.astype(values.dtype))
        and (np.diff(in_order, axis=axis) > 0).all()
        and in_order.min() >= 0
        and in_order.max() < args[0].shape[axis]
    )


def _within_own_error(model: Model, traced: Trace, args: Sequence[Any], results: Any, wanted: Any) -> bool:
    """Whether all results are as near to JAX's as eight times JAX's own float32-against-float64 error.

    That is what verification allows. Asked for boundary values alone, where a function may be ill-conditioned.
    """
    inputs = {leaf.name: in_file(x) for leaf, x in zip(traced.inputs, args, strict=True)}
    errors = Reference(model, traced).precision(inputs).errors
    for leaf, got, want in zip(traced.outputs, results, wanted, strict=True):
        with np.errstate(invalid="ignore"):
            near = np.abs(got - want.astype(got.dtype)) <= ERROR_FACTOR * errors.get(leaf.name, 0.0)
        if not (close(got, want) | near).all():
            return False
    return True


def close(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Elementwise: integers and bools equal; floats within RTOL and ATOL.

    In half precision, within two units in the last place of the largest result: sums round at every term.
    """
    if want.dtype.kind in "biu":
        return np.asarray(got == want)
    right = want.astype(np.complex128 if want.dtype.kind == "c" else np.float64)
    rtol, atol = RTOL, ATOL
    if want.dtype.itemsize == 2:
        rtol = 2 * float(jax.numpy.finfo(want.dtype).eps)
        atol = rtol * float(np.max(np.abs(right[np.isfinite(right)]), initial=0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.isclose(got.astype(right.dtype), right, rtol=rtol, atol=atol, equal_nan=True)


def _reaches(graph: Graph) -> bool:
    """Whether an input of the graph reaches an output."""
    alive = set(graph.inputs)
    for node in graph.nodes:
        if any(t in alive for t in _used(node)):
            alive.update(node.outputs)
    return any(t in alive for t in graph.outputs)


def _used(node: Node) -> Iterator[Tensor | None]:
    """What a node reads, its bodies included."""
    yield from node.inputs
    for body in node.bodies.values():
        yield from body.outputs
        for inner in body.nodes:
            yield from _used(inner)
