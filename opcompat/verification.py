"""Artifact against reference: every step from JAX's state, the free closed loop, the keys, the boundaries.

# Recording: Rollout, Recorder
# Checks: step, closed loop, key, boundary
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from opcompat.comparison import Comparison, Tolerance, error, is_float, size
from opcompat.contract import Contract
from opcompat.decisions import ERROR_FACTOR
from opcompat.model import Model
from opcompat.reference import Arrays, Precision, Reference
from opcompat.report import Check
from opcompat.runtime.session import Engine, Session
from opcompat.sampler import boundary, keys, sample
from opcompat.trace import Leaf, Trace

DEFAULT_TOLERANCE = 1e-5

KEY_STEPS = 8
OTHER_KEYS = 1_000_003
"""At how many steps another key is tried, and how far its seed is from the rollout's."""

PRECISION_STEPS = 32
"""At how many steps of a rollout the reference's own rounding error is measured."""

LONGEST_LOOP = 10_000
"""Steps of a while loop, with boundary values in the inputs, after which it is taken to go on forever."""

Progress = Callable[[str], None]

# Recording


@dataclass(frozen=True)
class Rollout:
    """JAX's run of one entry point with one seed. Where state is fed back, inputs[t + 1] holds outputs[t]."""

    seed: int
    inputs: Sequence[Arrays]
    outputs: Sequence[Arrays]


class Recorder:
    """JAX's side of verification: rollouts, rounding errors and near ties, computed once for all artifacts."""

    def __init__(self, model: Model, traces: Mapping[str, Trace], contracts: Mapping[str, Contract]) -> None:
        self.model, self.traces, self.contracts = model, traces, contracts
        self.references = {name: Reference(model, trace) for name, trace in traces.items()}
        self._precision: dict[tuple[str, int, int], Precision] = {}
        self._rollouts: dict[tuple[str, int, int], tuple[Rollout, ...]] = {}
        self._sensitivity: dict[tuple[str, int, int], float] = {}

    def first_state(self, name: str, run: Mapping[str, Callable[[Arrays], Arrays]], seed: int) -> Arrays:
        """The first values of the inputs that are fed back, from the entry points in `run` (JAX's or an artifact's)."""
        state: dict[str, np.ndarray] = {}
        made: dict[str, Arrays] = {}
        for leaf, start in self.contracts[name].starts.items():
            if start.array is not None:
                state[leaf] = start.array
                continue
            source = start.entry_point
            if source not in made:
                entry, trace = self.model.entry_points[source], self.traces[source]
                made[source] = run[source](sample(entry, trace, seed, 0))
            state[leaf] = made[source][start.output]
        return state

    def rollout(self, name: str, seed: int, steps: int, moved: frozenset[int] = frozenset()) -> Rollout:
        """`steps` steps under JAX. Before the steps in `moved`, every float of the state is moved by one ulp."""
        entry, trace, feedback = self.model.entry_points[name], self.traces[name], self.contracts[name].feedback
        reference = self.references[name]
        state = self.first_state(name, {n: r.step for n, r in self.references.items()}, seed)
        inputs, outputs = [], []
        for index in range(steps):
            if index in moved:
                state = {k: _next_float(v) for k, v in state.items()}
            given = {**sample(entry, trace, seed, index), **state}
            result = reference.step(given)
            inputs.append(given)
            outputs.append(result)
            state = {into: result[out] for out, into in feedback.items()}
        return Rollout(seed, inputs, outputs)

    def rollouts(self, name: str, steps: int, seeds: int) -> tuple[Rollout, ...]:
        """One rollout for each seed, kept: every artifact is compared with the same ones."""
        key = (name, steps, seeds)
        if key not in self._rollouts:
            self._rollouts[key] = tuple(self.rollout(name, seed, steps) for seed in range(seeds))
        return self._rollouts[key]

    def sensitivity(self, name: str, steps: int, seeds: int) -> float:
        """The largest change of any float output of JAX's own loop after a 1-ulp change of its state.

        The change is made before step 0 and before step 1, since policies reset their state at step 0.
        """
        key = (name, steps, seeds)
        if key not in self._sensitivity:
            floats = [leaf.name for leaf in self.traces[name].outputs if leaf.is_float]
            worst = 0.0
            for rollout in self.rollouts(name, steps, seeds):
                moved = self.rollout(name, rollout.seed, steps, moved=frozenset({0, 1}))
                for got, want in zip(moved.outputs, rollout.outputs, strict=True):
                    worst = max(worst, *(error(got[n], want[n]) for n in floats), 0.0)
            self._sensitivity[key] = worst
        return self._sensitivity[key]

    def precision(self, name: str, rollout: Rollout, step: int) -> Precision:
        key = (name, rollout.seed, step)
        if key not in self._precision:
            self._precision[key] = self.references[name].precision(rollout.inputs[step])
        return self._precision[key]

    def tolerances(self, name: str, rollouts: Sequence[Rollout]) -> dict[str, Tolerance]:
        """What each output may differ by: the user's tolerance, or eight times the reference's own error."""
        steps = self.measured_steps(rollouts)
        measured = [self.precision(name, rollout, step) for rollout, step in steps]

        def relative(leaf: Leaf) -> float:
            sizes = [size(rollout.outputs[step][leaf.name]) for rollout, step in steps]
            return max((p.errors[leaf.name] / n for p, n in zip(measured, sizes, strict=True)), default=0.0)

        found = {leaf.name: self.tolerance(name, leaf, measured) for leaf in self.traces[name].outputs}
        floats = {leaf.name: relative(leaf) for leaf in self.traces[name].outputs if leaf.is_float}
        return {n: replace(t, relative_error=floats.get(n, 0.0)) for n, t in found.items()}

    def measured_steps(self, rollouts: Sequence[Rollout]) -> list[tuple[Rollout, int]]:
        """Where the reference's own error and its decisions are measured: spread over the rollouts."""
        return [
            (rollout, step)
            for rollout in rollouts
            for step in _spread(len(rollout.inputs), max(1, PRECISION_STEPS // len(rollouts)))
        ]

    def margins(self, name: str, rollouts: Sequence[Rollout]) -> tuple[int, ...]:
        """How many decisions have which margin (see `report.Check`); empty if there are none."""
        measured = (self.precision(name, rollout, step) for rollout, step in self.measured_steps(rollouts))
        counts = tuple(map(sum, zip(*(p.margins for p in measured), strict=True)))
        return counts if any(counts) else ()

    def tolerance(
        self, name: str, leaf: Leaf, measured: Sequence[Precision], scale: np.ndarray | None = None
    ) -> Tolerance:
        """`scale`: a result whose size, if it is larger than one, the default tolerance grows with."""
        if not leaf.is_float:
            return Tolerance(0.0, None)
        own = max((p.errors[leaf.name] for p in measured), default=0.0)
        grown = size(scale) if scale is not None and self.model.entry_points[name].tolerance is None else 1.0
        return Tolerance(max(grown * self.user_tolerance(name, leaf), ERROR_FACTOR * own), own)

    def user_tolerance(self, name: str, leaf: Leaf) -> float:
        given = self.model.entry_points[name].tolerance
        if isinstance(given, Mapping):
            head = leaf.name.partition(".")[0]
            return float(given.get(leaf.name, given.get(head, DEFAULT_TOLERANCE)))
        return DEFAULT_TOLERANCE if given is None else float(given)

    def default_jit(self, name: str, steps: int) -> Check:
        """How far `jax.jit` with its default options, which may skip roundings, is from the reference itself.

        Not binding: it shows what a difference is worth where JAX does not agree with itself.
        """
        reference, trace = self.references[name], self.traces[name]
        rollout = self.rollout(name, 0, steps)
        comparison = Comparison(trace, self.tolerances(name, [rollout]))
        for step, (given, want) in enumerate(zip(rollout.inputs, rollout.outputs, strict=True)):
            own = self.precision(name, rollout, step)
            comparison.add(reference.default_step(given), want, lambda own=own: own)  # type: ignore[misc]
        return Check(
            format="jax",
            runtime="jax.jit, default options",
            entry_point=name,
            kind="default-jit",
            steps=steps,
            seeds=1,
            passed=all(o.passed for o in comparison.outputs()),
            binding=False,
            outputs=comparison.outputs(),
            draws=self.precision(name, rollout, 0).decisions * steps,
            mismatched=comparison.mismatched,
            note="for comparison only",
        )


def _next_float(array: np.ndarray) -> np.ndarray:
    """The next larger value of a float array, bfloat16 included; other arrays as they are."""
    return np.nextafter(array, np.asarray(np.inf, array.dtype)) if is_float(array) else array


def _spread(count: int, wanted: int) -> list[int]:
    """Up to `wanted` of range(count), evenly spread, the first included."""
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, wanted))}) if count else []


# Checks


@dataclass
class Verifier:
    """Runs all checks of one artifact (an engine: one format of a bundle in its runtime)."""

    recorder: Recorder
    engine: Engine
    format: str
    steps: int
    seeds: int
    progress: Progress = lambda _: None
    narrowed: bool = False

    @cached_property
    def sessions(self) -> Mapping[str, Callable[[Arrays], Arrays]]:
        """Each entry point of the artifact, taking inputs as JAX does."""
        return {name: in_file_form(self.engine.session(name), t) for name, t in self.recorder.traces.items()}

    def run(self) -> tuple[Check, ...]:
        found: list[Check] = []
        for name in self.recorder.traces:
            self.progress(f"verify {name} in {self.engine.runtime}")
            rollouts = self.recorder.rollouts(name, self.steps, self.seeds)
            tolerances = self.recorder.tolerances(name, rollouts)
            found.append(self.step_check(name, rollouts, tolerances))
            if self.recorder.contracts[name].feedback:
                found.append(self.loop_check(name, rollouts, tolerances))
            if any(leaf.key for leaf in self.recorder.traces[name].inputs):
                found.append(self.key_check(name, rollouts[0], tolerances))
            if self.recorder.traces[name].inputs:
                found.append(self.boundary_check(name, rollouts[0]))
        return tuple(found)

    def step_check(self, name: str, rollouts: Sequence[Rollout], tolerances: Mapping[str, Tolerance]) -> Check:
        """Every step of JAX's rollouts, each from JAX's own state."""
        comparison = Comparison(self.recorder.traces[name], tolerances)
        for rollout in rollouts:
            for step, (given, want) in enumerate(zip(rollout.inputs, rollout.outputs, strict=True)):
                got = self.sessions[name](given)
                comparison.add(got, want, lambda r=rollout, s=step: self.precision(name, r, s))  # type: ignore[misc]
        margins = self.recorder.margins(name, rollouts)
        return self.check(name, "step", comparison, self.draws(name, rollouts), margins=margins)

    def loop_check(self, name: str, rollouts: Sequence[Rollout], tolerances: Mapping[str, Tolerance]) -> Check:
        """The artifact feeds itself; after a mismatched draw it goes on from JAX's state."""
        trace, feedback = self.recorder.traces[name], self.recorder.contracts[name].feedback
        comparison = Comparison(trace, tolerances)
        for rollout in rollouts:
            state = self.recorder.first_state(name, self.sessions, rollout.seed)
            for step, (given, want) in enumerate(zip(rollout.inputs, rollout.outputs, strict=True)):
                got = self.sessions[name]({**given, **state})
                before = comparison.mismatched
                comparison.add(got, want, lambda r=rollout, s=step: self.precision(name, r, s))  # type: ignore[misc]
                source = got if comparison.mismatched == before else want
                state = {into: source[out] for out, into in feedback.items()}
        sensitivity = self.recorder.sensitivity(name, self.steps, self.seeds)
        limits = [t.allowed for t in tolerances.values() if t.reference_error is not None]
        binding = sensitivity <= min(limits, default=0.0)
        note = "" if binding else _parting(comparison, sensitivity)
        draws = self.draws(name, rollouts)
        return self.check(name, "closed-loop", comparison, draws, binding=binding, sensitivity=sensitivity, note=note)

    def key_check(self, name: str, rollout: Rollout, tolerances: Mapping[str, Tolerance]) -> Check:
        """The same key repeats the result, bit for bit, and another key changes what it changes in JAX."""
        trace, reference, session = (
            self.recorder.traces[name],
            self.recorder.references[name],
            self.sessions[name],
        )
        comparison = Comparison(trace, tolerances)
        wrong, reaches = [], False
        for step in _spread(len(rollout.inputs), KEY_STEPS):
            given = rollout.inputs[step]
            first, again = session(given), session(given)
            if any(first[n].tobytes() != again[n].tobytes() for n in first):
                wrong.append(f"step {step}: the same inputs give another result")
            other = {**given, **keys(trace, rollout.seed + OTHER_KEYS, step)}
            want, got = reference.step(other), session(other)
            comparison.add(got, want, partial(reference.precision, other))
            changed = _differs(want, rollout.outputs[step], tolerances)
            reaches |= changed
            if changed and not _differs(got, first, tolerances):
                wrong.append(f"step {step}: another key changes nothing, but in JAX it does")
        note = "; ".join(wrong) or ("" if reaches else "the key does not reach an output, in JAX either")
        check = self.check(name, "key", comparison, len(comparison.worst), note=note)
        return replace(check, passed=check.passed and not wrong)

    def boundary_check(self, name: str, rollout: Rollout) -> Check:
        """Single steps with zeros, infinities, NaN and the limits of integers in the inputs.

        Each step has tolerances of its own: the reference's error depends on the values, and the default tolerance
        is for outputs of size one. A value with which JAX's own loop does not end (a rejection sampler around infinity)
        is left out. Where JAX has two answers, compiled whole and equation by equation, either will do.
        """
        recorder, trace = self.recorder, self.recorder.traces[name]
        reference = recorder.references[name]
        fed_back = frozenset(recorder.contracts[name].feedback.values())
        comparison, wrong, endless = Comparison(trace, {}), [], []
        allowed = dict.fromkeys((leaf.name for leaf in trace.outputs), Tolerance(0.0, None))
        for what, given in boundary(trace, fed_back, rollout.inputs[0], self.narrowed or _loops(trace)):
            precision = reference.precision(given, LONGEST_LOOP)
            if not precision.ends:
                endless.append(what)
                continue
            want = reference.step(given)
            tolerances = {x.name: self.recorder.tolerance(name, x, [precision], want[x.name]) for x in trace.outputs}
            one = Comparison(trace, tolerances)
            got = self.sessions[name](given)
            if not one.add(got, want, lambda own=precision: own):  # type: ignore[misc]
                again = Comparison(trace, tolerances)
                if again.add(got, reference.unfused_step(given), lambda own=precision: own):  # type: ignore[misc]
                    one = again
                else:
                    wrong.append(what)
            comparison.include(one)
            allowed = {n: max(a, tolerances[n], key=lambda t: t.allowed) for n, a in allowed.items()}
        comparison.tolerances = allowed
        notes = [", ".join(wrong)] if wrong else []
        notes += [f"left out, for JAX's own loop does not end: {', '.join(endless)}"] if endless else []
        check = self.check(name, "boundary", comparison, comparison.steps, note="; ".join(notes))
        return replace(check, passed=not wrong)

    def precision(self, name: str, rollout: Rollout, step: int) -> Precision:
        return self.recorder.precision(name, rollout, step)

    def draws(self, name: str, rollouts: Sequence[Rollout]) -> int:
        """How many decisions the rollouts hold (the same number at each step, or the first step's)."""
        per_step = self.recorder.precision(name, rollouts[0], 0).decisions if rollouts[0].inputs else 0
        return per_step * sum(len(r.inputs) for r in rollouts)

    def check(
        self,
        name: str,
        kind: str,
        comparison: Comparison,
        draws: int,
        *,
        binding: bool = True,
        sensitivity: float | None = None,
        note: str = "",
        margins: tuple[int, ...] = (),
    ) -> Check:
        return Check(
            format=self.format,
            runtime=f"{self.engine.runtime} {self.engine.version}",
            entry_point=name,
            kind=kind,
            steps=self.steps if kind in ("step", "closed-loop") else comparison.steps,
            seeds=self.seeds if kind in ("step", "closed-loop") else 1,
            passed=comparison.passed(draws),
            binding=binding,
            outputs=comparison.outputs(series=kind == "closed-loop"),
            draws=draws if kind in ("step", "closed-loop") else 0,
            mismatched=comparison.mismatched,
            sensitivity=sensitivity,
            note=note,
            margins=margins,
        )


def in_file_form(session: Session, trace: Trace) -> Callable[[Arrays], Arrays]:
    dtypes = {leaf.name: leaf.file_dtype for leaf in trace.inputs}
    return lambda inputs: session({n: np.asarray(inputs[n], dtype) for n, dtype in dtypes.items()})


def _loops(trace: Trace) -> bool:
    """Whether an integer input may be a loop's length: its limits would then never end."""
    return any(original.primitive == "while" for original in trace.originals.values())


def _differs(a: Arrays, b: Arrays, tolerances: Mapping[str, Tolerance]) -> bool:
    return any(error(a[n], b[n]) > t.allowed for n, t in tolerances.items())


def _parting(comparison: Comparison, sensitivity: float) -> str:
    steps = [step for name, (value, step) in comparison.worst.items() if value > comparison.tolerances[name].allowed]
    parted = f"; parted at step {min(steps)}" if steps else ""
    return f"chaotic: JAX's own loop moves by {sensitivity:.2g} after a 1-ulp change{parted}"
