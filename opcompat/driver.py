"""The driver: applies rules to what a target lacks, in stages, until nothing more acts.

Whether the target lacks an equation is not guessed from a list: the equation is lowered alone and every op of
the result is checked against the target. So the rewriter, the analyzer and the converter cannot disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opcompat import jaxcompat
from opcompat.complexes import split_complex
from opcompat.editor import Editor
from opcompat.errors import RuleError
from opcompat.fold import fold
from opcompat.halves import widen
from opcompat.inline import BODIES, bodies, inline, map_bodies
from opcompat.keys import erase_keys
from opcompat.lowering.graph import Graph
from opcompat.lowering.lower import PLACEHOLDER, lower_equation
from opcompat.narrowing import narrow
from opcompat.provenance import mark_rule, provenance
from opcompat.rule import Declined, Replacement, Rule, Site, freeze
from opcompat.targets.base import Target

MAX_SWEEPS = 16


@dataclass(frozen=True)
class Rewritten:
    """A jaxpr in a target's terms.

    `acted` counts how often each rule acted. `declined` has, by original equation, the reasons of rules that
    looked at it and did not act. `narrowed`: 64-bit values are computed in 32 bits.
    """

    closed: Any
    acted: Mapping[str, int]
    declined: Mapping[str, tuple[str, ...]]
    narrowed: bool = False


def legalize(closed: Any, target: Target, rules: Sequence[Rule], *, narrowing: bool = False) -> Rewritten:
    """Rewrites a marked jaxpr (see `inline`) for a target.

    `narrowing` allows 64-bit values to be computed in 32 bits if the target has no 64-bit arithmetic.

    The result has the inputs and outputs of `closed`, keys erased to uint32 words, and computes the same within
    the exactness of the rules that acted. Equations that no rule helps stay as they are. Raises RuleError if a
    rule breaks its contract or rules chase each other for more than 16 sweeps.
    """
    driver = _Driver(target, rules)
    # Patterns know random bits in every float's own format, so they go before halves are widened.
    real = split_complex(erase_keys(closed))
    closed = driver.fixpoint(jaxcompat.dead_code_free(real), ("pattern",))
    wide = widen(closed)
    closed = narrow(wide) if narrowing and not target.has_64_bit else wide
    narrowed = closed is not wide
    closed = driver.fixpoint(jaxcompat.dead_code_free(closed), ("legalize", "decompose"))
    closed = fold(jaxcompat.dead_code_free(closed))
    declined = {k: tuple(dict.fromkeys(v)) for k, v in driver.declined.items()}
    return Rewritten(closed, dict(driver.acted), declined, narrowed)


@dataclass
class _Driver:
    target: Target
    rules: Sequence[Rule]
    acted: Counter[str] = field(default_factory=Counter)
    declined: dict[str, list[str]] = field(default_factory=dict)
    _lacks: dict[Hashable, str] = field(default_factory=dict)
    _judged: dict[int, tuple[Any, str]] = field(default_factory=dict)
    _traces: dict[Hashable, Any] = field(default_factory=dict)

    def fixpoint(self, closed: Any, stages: tuple[str, ...]) -> Any:
        by_primitive = self.table(stages)
        for _ in range(MAX_SWEEPS):
            before = self.acted.copy()
            closed = self.sweep(closed, by_primitive)
            if self.acted == before:
                return closed
        raise RuleError(
            f"rules still act after {MAX_SWEEPS} sweeps: {', '.join(self.acted - before)}; next: report this cycle"
        )

    def table(self, stages: tuple[str, ...]) -> dict[str, list[Rule]]:
        """The rules of some stages by root primitive, in stage order, then in RULES order; "" for any."""
        found: dict[str, list[Rule]] = {}
        for stage in stages:
            for rule in self.rules:
                # Optional rules change results; the only ones so far are the engine's own pass over types.
                for primitive in (rule.primitives or ("",)) if rule.stage == stage and not rule.optional else ():
                    found.setdefault(primitive, []).append(rule)
        return found

    def sweep(self, closed: Any, rules: Mapping[str, list[Rule]]) -> Any:
        """One pass over the equations in order; a rule sees operands as they are after this pass."""
        editor = Editor(closed)
        producers: dict[Any, Any] = {}
        general = rules.get("", [])
        for old in editor.parts.eqns:
            before = len(editor.eqns)
            if old.primitive.name in BODIES and list(bodies(old)):
                editor.keep(old, params=map_bodies(old.params, lambda body, _: self.sweep(body, rules)))
                eqn = editor.eqns.pop()
            else:
                invars = [editor.read(v) for v in old.invars]
                same = all(new is was for new, was in zip(invars, old.invars, strict=True))
                eqn = old if same else old.replace(invars=invars)
            candidates = [*rules.get(eqn.primitive.name, ()), *general]
            action = self.choose(Site(eqn, producers), candidates) if candidates else None
            if action is None:
                editor.eqns.append(eqn)
            else:
                rule, replacement = action
                self.acted[rule.id] += 1
                editor.splice(
                    old,
                    self.body(rule, replacement, eqn),
                    replacement.operands,
                    mark_rule(eqn.source_info, rule.id),
                )
            for new in editor.eqns[before:]:
                producers.update((v, new) for v in new.outvars)
        return editor.finish()

    def choose(self, site: Site, candidates: Sequence[Rule]) -> tuple[Rule, Replacement] | None:
        """The first rule that acts on the site, of those that have not acted on it or its ancestors."""
        mark = provenance(site.eqn)
        for rule in candidates:
            if rule.id in mark.rules or (rule.stage == "decompose" and not self.lacks(site.eqn)):
                continue
            found = rule.apply(site)
            if isinstance(found, Replacement) and any(self.lacks(e) for e in found.covers):
                return rule, found
            if isinstance(found, Declined) and self.lacks(site.eqn):
                self.declined.setdefault(mark.source, []).append(f"{rule.id}: {found.reason}")
        return None

    def lacks(self, eqn: Any) -> str:
        """Why the target cannot run the equation as it is; "" if it can. Bodies are judged by themselves."""
        name = eqn.primitive.name
        if name in BODIES:
            return "" if name in self.target.backend.table else "no lowering"
        known = self._judged.get(id(eqn))
        if known is not None and known[0] is eqn:
            return known[1]
        literals = tuple(v.val if jaxcompat.is_literal(v) else None for v in eqn.invars)
        types = tuple((v.aval.shape, v.aval.dtype) for v in (*eqn.invars, *eqn.outvars))
        key = (name, freeze(eqn.params), types, freeze(literals), provenance(eqn).rules)
        if key not in self._lacks:
            self._lacks[key] = problem(lower_equation(eqn, self.target.backend), self.target)
        self._judged[id(eqn)] = eqn, self._lacks[key]
        return self._lacks[key]

    def body(self, rule: Rule, replacement: Replacement, eqn: Any) -> Any:
        """The traced replacement, checked against the equation's result types; shared between equal sites."""
        avals = tuple((v.aval.shape, v.aval.dtype) for v in replacement.operands)
        key = (rule.id, replacement.key, avals, eqn.ctx)
        if key not in self._traces:
            with eqn.ctx.manager:
                traced = jaxcompat.trace(replacement.function, [v.aval for v in replacement.operands])
            self._traces[key] = inline(traced)
        body = self._traces[key]
        got = [(v.aval.shape, v.aval.dtype) for v in jaxcompat.parts(body).outvars]
        expected = [(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
        if got != expected:
            raise RuleError(
                f"{rule.id} returned {got} for {eqn.primitive.name}, expected {expected}, "
                f"at {jaxcompat.place_of(eqn.source_info)}"
            )
        return body


def problem(graph: Graph, target: Target) -> str:
    """Why `target` cannot run a graph: the first reason found; "" if it can."""
    for node in graph.walk():
        if node.op == PLACEHOLDER:
            return node.problem
        support = target.check(node)
        if support.status != "yes":
            return support.reason or f"{node.op}: {support.status}"
    return ""
