"""One entry point of one artifact: the first step that differs, then the first value in that step.

# Steps: from JAX's state, and in the closed loop
# Values: the artifact's own file with inner values exposed, against JAX
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from opcompat import jaxcompat
from opcompat.analyze import Analysis
from opcompat.bisecting.alignment import Alignment, align
from opcompat.bisecting.artifact import Value, can_expose, expose, read
from opcompat.bisecting.culprit import Case, describe_culprit, find
from opcompat.bisecting.probe import Probe, program_values
from opcompat.bundle import Bundle
from opcompat.comparison import Comparison, Tolerance
from opcompat.inline import BODIES
from opcompat.keys import erase_keys
from opcompat.provenance import provenance
from opcompat.reference import Arrays
from opcompat.report import Culprit, Divergence, relative
from opcompat.runtime.session import open_engine
from opcompat.verification import Recorder, Rollout, in_file_form

CHUNK = 16
"""Values that are exposed at a time where exposing all of them makes the difference vanish."""


@dataclass
class Search:
    """See `run`. `analysis`: the entry point as this version lowers it for the format."""

    recorder: Recorder
    analysis: Analysis
    bundle: Bundle
    form: str
    steps: int
    same_file: bool
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.analysis.trace.entry_point

    @cached_property
    def tolerances(self) -> Mapping[str, Tolerance]:
        return self.recorder.tolerances(self.name, [self.rollout])

    @cached_property
    def rollout(self) -> Rollout:
        return self.recorder.rollouts(self.name, self.steps, 1)[0]

    def run(self) -> Divergence:
        """Compares `steps` steps; looks into the first that differs. Raises BundleError, CrashError."""
        engine = open_engine(self.bundle.path, self.bundle.manifest, self.form)
        sessions = {n: in_file_form(engine.session(n), t) for n, t in self.recorder.traces.items()}
        found = Divergence(self.form, f"{engine.runtime} {engine.version}", self.name, len(self.rollout.inputs))
        step = self.first_step(sessions[self.name])
        loop_step, start = self.first_loop_step(sessions)
        if step is None and loop_step is None:
            return replace(found, same_file=self.same_file)
        if step is None:
            assert start is not None
            sensitivity = self.recorder.sensitivity(self.name, self.steps, 1)
            limits = [t.allowed for t in self.tolerances.values() if t.reference_error is not None]
            found = replace(found, binding=sensitivity <= min(limits, default=0.0))
            self.notes.append(
                f"every step from JAX's state is right; only the loop parts: 1 ulp of state grows to {sensitivity:.3g}"
            )
        inputs = self.rollout.inputs[step] if step is not None else start
        assert inputs is not None
        want = self.recorder.references[self.name].step(inputs)
        culprit, observed = self.look(inputs, want)
        if culprit is not None:
            self.remark(culprit, inputs, want)
        got = sessions[self.name](inputs)
        wrong = self.differing(got, want, inputs)
        if step is None:
            assert loop_step is not None
            wrong = self.differing(got, self.rollout.outputs[loop_step], inputs)
        return replace(
            found,
            step=step,
            loop_step=loop_step,
            outputs=wrong,
            culprit=culprit,
            observed=observed,
            values=len(self.variables),
            same_file=self.same_file,
            notes=tuple(self.notes),
        )

    # Steps

    def differing(self, got: Arrays, want: Arrays, inputs: Arrays) -> tuple[str, ...]:
        """The outputs beyond their tolerance, those apart that depend on a near tie of JAX's."""
        return tuple(sorted(self.compared(got, want, inputs).failed))

    def compared(self, got: Arrays, want: Arrays, inputs: Arrays) -> Comparison:
        comparison = Comparison(self.analysis.trace, self.tolerances)
        comparison.add(got, want, lambda: self.recorder.references[self.name].precision(inputs))
        return comparison

    def first_step(self, session: Callable[[Arrays], Arrays]) -> int | None:
        pairs = zip(self.rollout.inputs, self.rollout.outputs, strict=True)
        return next((i for i, (given, want) in enumerate(pairs) if self.differing(session(given), want, given)), None)

    def first_loop_step(self, sessions: Mapping[str, Callable[[Arrays], Arrays]]) -> tuple[int | None, Arrays | None]:
        """The first step of the artifact's own loop that differs, and its inputs. A near tie puts it back on JAX's."""
        feedback = self.recorder.contracts[self.name].feedback
        if not feedback:
            return None, None
        state = self.recorder.first_state(self.name, sessions, self.rollout.seed)
        for step, (given, want) in enumerate(zip(self.rollout.inputs, self.rollout.outputs, strict=True)):
            inputs = {**given, **state}
            got = sessions[self.name](inputs)
            one = self.compared(got, want, given)
            if one.failed:
                return step, inputs
            state = {into: (want if one.mismatched else got)[out] for out, into in feedback.items()}
        return None, None

    # Values

    @cached_property
    def variables(self) -> tuple[Any, ...]:
        """The variables of the rewritten program, those that the file may hold as tensors."""
        p = jaxcompat.parts(self.analysis.rewritten.closed)
        made = [v for e in p.eqns for v in e.outvars if v in self.analysis.lowered.values]
        return tuple(dict.fromkeys((*p.invars[len(self.analysis.trace.params) :], *made)))

    @cached_property
    def alignment(self) -> Alignment:
        stored, lowered = self.bundle.manifest.formats[self.form], self.analysis.lowered
        program = read(self.bundle.path, self.bundle.manifest, self.form, self.name)
        names = [stored.output_name(self.name, n) for n in lowered.output_names]
        return align(lowered.graph, program, names)

    @cached_property
    def visible(self) -> Mapping[Any, Value]:
        """By variable, its tensor in the file, for those that a runtime can give as outputs."""
        found: dict[Any, Value] = {}
        for var in self.variables:
            value = self.alignment.values.get(self.analysis.lowered.values[var])
            if value is not None and can_expose(value) and np.dtype(value.dtype).itemsize == var.aval.dtype.itemsize:
                found[var] = value
        return found

    def look(self, inputs: Arrays, want: Arrays) -> tuple[Culprit | None, int]:
        """The first wrong value of one call, and how many values were seen."""
        if not self.same_file:
            self.notes.append(
                "this version writes another file: values are matched by the ops around them"
                + "".join(f"; another form of {place}" for place in self._changed())
            )
        seen = self.observe(inputs, want)
        if seen is None:
            self.notes.append(
                "as soon as inner values are shown, the outputs are right: the runtime's optimizer differs"
            )
            return None, 0
        values, outputs = seen
        reference = self.recorder.references[self.name]
        arguments = reference.arguments(inputs)
        trace, probe = self.analysis.trace, Probe(self.analysis.rewritten.closed, tuple(values))
        case = Case(trace, probe, arguments, values, self.tolerances)
        suspect = find(case)
        right = probe.run(arguments, values, frozenset())[1]
        expected = [want[leaf.name] for leaf in trace.outputs]
        if (suspect is None or not suspect.sufficient) and case.differing(right, expected):
            return self.rule(case, right), len(values)
        if suspect is None:
            self.notes.append("every value that can be seen is right by itself: small errors add up")
            return None, len(values)
        if not suspect.sufficient:
            self.notes.append("no single value explains the difference: several errors add up; this is the first")
        return describe_culprit(case, suspect, "artifact", outputs), len(values)

    def observe(self, inputs: Arrays, want: Arrays) -> tuple[dict[Any, np.ndarray], list[np.ndarray]] | None:
        """The artifact's values by variable, and its outputs; None if it is right as soon as any are shown."""
        was_wrong = bool(self.differing(self._call((), inputs)[1], want, inputs))
        everything, outputs = self._call(tuple(self.visible), inputs)
        if not was_wrong or self.differing(outputs, want, inputs):
            return everything, [outputs[leaf.name] for leaf in self.analysis.trace.outputs]
        self.notes.append(f"shown {CHUNK} values at a time: with all of them shown the outputs are right")
        found: dict[Any, np.ndarray] = {}
        names = tuple(self.visible)
        for start in range(0, len(names), CHUNK):
            part, outputs = self._call(names[start : start + CHUNK], inputs)
            if self.differing(outputs, want, inputs):
                found.update(part)
                shown = [outputs[leaf.name] for leaf in self.analysis.trace.outputs]
        return (found, shown) if found else None

    def _call(self, wanted: Sequence[Any], inputs: Arrays) -> tuple[dict[Any, np.ndarray], Arrays]:
        """One call of a copy of the file that shows some variables."""
        values = [self.visible[v] for v in wanted]
        with tempfile.TemporaryDirectory(prefix="opcompat-") as folder:
            copy, names = expose(self.bundle.path, self.bundle.manifest, self.form, self.name, values, Path(folder))
            engine = open_engine(Path(folder), copy, self.form)
            got = in_file_form(engine.session(self.name), self.analysis.trace)(inputs)
        shown = {v: got[names[x.key]] for v, x in zip(wanted, values, strict=True)}
        return {v: x.view(v.aval.dtype).reshape(v.aval.shape) for v, x in shown.items()}, got

    def rule(self, case: Case, outputs: Sequence[np.ndarray]) -> Culprit | None:
        """The first value that a rule changes: the rewritten program against the original, both in JAX."""
        original = jaxcompat.dead_code_free(erase_keys(case.trace.closed))
        same = _counterparts(original, self.analysis.rewritten.closed)
        shown = program_values(self.analysis.rewritten.closed, list(same.values()), case.arguments)
        values = {old: shown[new] for old, new in same.items()}
        again = replace(case, probe=Probe(original, tuple(values)), given=values)
        suspect = find(again)
        if suspect is None:
            self.notes.append(
                "the rewritten program differs from the original in JAX, at a value that has no counterpart"
            )
            return None
        found = describe_culprit(again, suspect, "rule", outputs)
        makers = {v: e for e in jaxcompat.parts(self.analysis.rewritten.closed).eqns for v in e.outvars}
        new = same[suspect.var]
        return replace(found, rules=provenance(makers[new]).rules if new in makers else found.rules)

    def remark(self, culprit: Culprit, inputs: Arrays, want: Arrays) -> None:
        if culprit.primitive in BODIES:
            self.notes.append(f"{culprit.primitive} has a body: what is wrong lies in it, which bisect does not open")
        if culprit.cause == "rule":
            return
        plain = open_engine(self.bundle.path, self.bundle.manifest, self.form, optimize=False)
        got = in_file_form(plain.session(self.name), self.analysis.trace)(inputs)
        if not self.differing(got, want, inputs):
            self.notes.append("without the runtime's optimizations the outputs are right: its optimizer is at fault")

    def _changed(self) -> tuple[str, ...]:
        """The places whose ops in the file are not those that this version writes."""
        originals = self.analysis.trace.originals
        found = [originals[n.source] for n in self.alignment.changed if n.source in originals]
        return tuple(dict.fromkeys(f"{o.primitive} at {relative(str(o.place))}" for o in found))[:8]


def _counterparts(original: Any, rewritten: Any) -> dict[Any, Any]:
    """Variables of the original and what they became: themselves, or the one result that others use of the equations
    that stand for theirs."""
    p, q = jaxcompat.parts(original), jaxcompat.parts(rewritten)
    kept = {v for e in q.eqns for v in e.outvars}
    results: dict[str, list[Any]] = {}
    readers: dict[Any, set[str]] = {}
    for eqn in q.eqns:
        for var in (v for v in eqn.invars if not jaxcompat.is_literal(v)):
            readers.setdefault(var, set()).add(provenance(eqn).source)
    for var in (v for v in q.outvars if not jaxcompat.is_literal(v)):
        readers.setdefault(var, set()).add("output")
    for eqn in q.eqns:
        source = provenance(eqn).source
        results.setdefault(source, []).extend(v for v in eqn.outvars if readers.get(v, set()) - {source})
    found: dict[Any, Any] = {}
    for eqn in p.eqns:
        makes = results.get(provenance(eqn).source, [])
        for var in eqn.outvars:
            alike = [v for v in makes if v.aval.shape == var.aval.shape and v.aval.dtype == var.aval.dtype]
            if var in kept:
                found[var] = var
            elif len(alike) == 1 and len(makes) == len(eqn.outvars):
                found[var] = alike[0]
    return found
