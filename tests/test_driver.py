"""The driver: which rule acts where, in what order, how often, and what it must never do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jexc

from opcompat.analyze import analyze, target_report
from opcompat.driver import MAX_SWEEPS, Rewritten, legalize
from opcompat.errors import RuleError
from opcompat.inline import bodies, inline
from opcompat.jaxcompat import parts
from opcompat.lowering.builder import Backend, Builder
from opcompat.model import EntryPoint, Model
from opcompat.provenance import provenance
from opcompat.rule import BITWISE, Declined, Rule, Site
from opcompat.targets.base import Support, Target
from opcompat.trace import trace


class Plain(Builder):
    """Nodes are called after their primitives."""

    def from_interface(self, tensor: Any, dtype: str) -> Any:
        return tensor

    to_interface = from_interface


class Anything(dict[str, Any]):
    def get(self, name: str, default: Any = None) -> Any:
        return _lower


def _lower(b: Plain, eqn: Any, *operands: Any) -> Any:
    results = [(v.aval.shape, str(v.aval.dtype)) for v in eqn.outvars]
    inner = {}
    for where, body in bodies(eqn):
        inputs = [b.op1("input", (), v.aval.shape, str(v.aval.dtype)) for v in parts(body).invars]
        inner[where] = b.body(where, body, inputs)
    return b.op(eqn.primitive.name, operands, results, {}, inner)


class Table(Anything):
    def __contains__(self, name: object) -> bool:
        return True


def lacking(*names: str) -> Target:
    """A target that runs every primitive but these."""

    def check(node: Any) -> Support:
        return Support("no" if node.op in names else "yes", "documented", f"no {node.op} here")

    return Target("test", "test", "0", Backend("test", Table(), lambda d: d, lambda d: d, Plain), check)


def rule(ident: str, primitive: str, apply: Callable[[Site], Any], stage: Any = "legalize") -> Rule:
    return Rule(ident, stage, frozenset({primitive} if primitive else ()), apply, BITWISE, "Page.", __name__)


def becomes(ident: str, primitive: str, function: Callable[..., Any], stage: Any = "legalize") -> Rule:
    return rule(ident, primitive, lambda site: site.replace(function), stage)


def rewrite(
    function: Callable[..., Any], target: Target, *rules: Rule, args: tuple[Any, ...] = (np.float32(1.5),)
) -> Rewritten:
    return legalize(inline(jax.make_jaxpr(function)(*args), mark=True), target, rules)


def primitives(closed: Any) -> Iterator[str]:
    for eqn in parts(closed).eqns:
        yield eqn.primitive.name
        for _, body in bodies(eqn):
            yield from primitives(body)


def run(result: Rewritten, *args: Any) -> float:
    return float(jexc.jaxpr_as_fun(result.closed)(*map(jnp.float32, args))[0])


SIN_BY_COS = becomes("T1", "sin", lambda x: lax.cos(lax.sub(x, np.float32(np.pi / 2))))


def test_only_what_the_target_lacks_is_rewritten() -> None:
    assert rewrite(lax.sin, lacking(), SIN_BY_COS).acted == {}
    result = rewrite(lax.sin, lacking("sin"), SIN_BY_COS)
    assert result.acted == {"T1": 1}
    assert "sin" not in list(primitives(result.closed))
    assert run(result, 1.5) == pytest.approx(np.sin(1.5))


def test_the_first_rule_that_acts_wins() -> None:
    shy = rule("T0", "sin", lambda site: None)
    refuses = rule("T2", "sin", lambda site: Declined("not today"))
    other = becomes("T3", "sin", lax.cos)
    result = rewrite(lax.sin, lacking("sin"), shy, refuses, SIN_BY_COS, other)
    assert result.acted == {"T1": 1}
    assert list(result.declined.values()) == [("T2: not today",)]


def test_patterns_go_before_other_rules_and_decomposition_is_last() -> None:
    last = becomes("T9", "", lax.neg, stage="decompose")
    pattern = becomes("T2", "sin", lax.exp, stage="pattern")
    assert rewrite(lax.sin, lacking("sin"), last, SIN_BY_COS, pattern).acted == {"T2": 1}
    assert rewrite(lax.sin, lacking("sin"), last, SIN_BY_COS).acted == {"T1": 1}
    assert rewrite(lax.sin, lacking("sin"), last).acted == {"T9": 1}


def test_a_pattern_sees_the_equations_before_it() -> None:
    def square_of_sin(site: Site) -> Any:
        inner = site.producer(site.operands[0], "sin")
        return inner and site.replace(lambda x: lax.exp(x), inner.operands, key="sq", covers=[inner])

    result = rewrite(lambda x: lax.sqrt(lax.sin(x)), lacking("sin"), rule("T1", "sqrt", square_of_sin, "pattern"))
    assert list(primitives(result.closed)) == ["exp"], "what the pattern covers is dead and gone"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lax.scan(lambda c, _: (lax.sin(c), None), x, length=3)[0],
        lambda x: lax.fori_loop(0, 3, lambda _, c: lax.sin(c), x),
        lambda x: lax.while_loop(lambda c: lax.sin(c) > 0.5, lambda c: lax.sin(c) - 0.1, x),
        lambda x: lax.cond(x > 1, lambda v: v, lambda v: lax.sin(v), x - 1),
        lambda x: lax.scan(lambda c, _: (lax.cond(c > 0, lax.sin, lax.neg, c), None), x, length=2)[0],
        jax.jit(lambda x: lax.sin(x)),
    ],
)
def test_bodies_are_rewritten(function: Any) -> None:
    result = rewrite(function, lacking("sin"), SIN_BY_COS)
    assert result.acted["T1"] >= 1
    assert "sin" not in set(primitives(result.closed))
    assert run(result, 1.5) == pytest.approx(float(function(jnp.float32(1.5))), abs=1e-6)


def test_dead_code_in_bodies_is_dropped() -> None:
    """What a pattern leaves behind must not count as unsupported."""

    def step(state: Any) -> Any:
        return state[0] + 1, lax.sin(state[1]) * np.float32(0) + state[1]

    result = rewrite(
        lambda x: lax.while_loop(lambda s: s[0] < 3, step, (0, x))[1],
        lacking("mul"),
        becomes("T1", "mul", lambda a, b: lax.full_like(b, 0)),
    )
    assert "sin" not in set(primitives(result.closed))


def test_a_rule_s_output_is_examined_again_but_not_by_the_same_rule() -> None:
    negates = becomes("T1", "sin", lambda x: lax.neg(lax.sin(lax.neg(x))))
    exponent = becomes("T2", "neg", lambda x: lax.sub(np.float32(0), x))
    result = rewrite(lax.sin, lacking("sin", "neg"), negates, exponent)
    assert result.acted == {"T1": 1, "T2": 2}
    assert list(primitives(result.closed)).count("sin") == 1
    marks = [provenance(e) for e in parts(result.closed).eqns]
    assert {m.source for m in marks} == {"0"}
    assert {m.rules for m in marks} == {("T1",), ("T1", "T2")}


def test_two_rules_that_undo_each_other_come_to_rest() -> None:
    there, back = becomes("T1", "sin", lax.cos), becomes("T2", "cos", lax.sin)
    assert rewrite(lax.sin, lacking("sin", "cos"), there, back).acted == {"T1": 1, "T2": 1}


def test_rules_that_do_not_come_to_rest_are_named() -> None:
    rules = [becomes(f"T{i}", "sin", lax.sin) for i in range(MAX_SWEEPS + 1)]
    with pytest.raises(RuleError, match=rf"{MAX_SWEEPS} sweeps: T{MAX_SWEEPS - 1}; next:"):
        rewrite(lax.sin, lacking("sin"), *rules)
    assert len(rewrite(lax.sin, lacking("sin"), *rules[: MAX_SWEEPS - 1]).acted) == MAX_SWEEPS - 1


def by_literal(site: Site) -> Any:
    value = float(site.splat(site.operands[1]))
    return site.replace(lambda x, _: lax.add(x, lax.full_like(x, value)))


def by_param(site: Site) -> Any:
    exponent = site.params["y"]
    return site.replace(lambda x: lax.full_like(x, float(exponent)))


@pytest.mark.parametrize(
    ("function", "primitive", "apply", "expected"),
    [
        (lambda x: (x * np.float32(2)) + (x * np.float32(3)), "mul", by_literal, 2 * 1.5 + 5),
        (lambda x: lax.integer_pow(x, 2) + lax.integer_pow(x, 5), "integer_pow", by_param, 7),
    ],
)
def test_equal_equations_share_a_trace_and_different_ones_do_not(
    function: Any, primitive: str, apply: Any, expected: float
) -> None:
    assert run(rewrite(function, lacking(primitive), rule("T1", primitive, apply)), 1.5) == expected


def test_one_trace_serves_equal_sites() -> None:
    traced = []

    def counted(x: Any) -> Any:
        traced.append(x.shape)
        return lax.cos(x)

    result = rewrite(
        lambda x, y: (lax.sin(x), lax.sin(x + 1), lax.sin(y)),
        lacking("sin"),
        becomes("T1", "sin", counted),
        args=(1.0, np.ones(3, np.float32)),
    )
    assert result.acted == {"T1": 3}
    assert sorted(traced) == [(), (3,)]


@pytest.mark.parametrize(
    "function",
    [lambda x: lax.convert_element_type(x, np.int32), lambda x: lax.broadcast(x, (2,)), lambda x: (x, x)],
)
def test_a_rule_that_returns_something_else_is_stopped(function: Any) -> None:
    with pytest.raises(RuleError, match=r"T1 returned .* for sin, expected") as caught:
        rewrite(lambda x: lax.sin(x), lacking("sin"), becomes("T1", "sin", function))
    assert f"{__file__}:" in str(caught.value)
    assert caught.value.exit_code == 3


def test_inputs_and_outputs_stay() -> None:
    result = rewrite(lambda x, unused: (x, lax.sin(x), np.float32(3)), lacking("sin"), SIN_BY_COS, args=(1.0, 2.0))
    p = parts(result.closed)
    assert (len(p.invars), len(p.outvars)) == (2, 3)


def test_what_depends_on_no_input_is_computed_now() -> None:
    result = rewrite(lambda x: x + lax.sin(lax.iota(np.float32, 4)), lacking("sin"), SIN_BY_COS)
    assert list(primitives(result.closed)) == ["add"]


def test_reasons_of_rules_that_declined_reach_the_report() -> None:
    def f(params: Any, x: Any) -> Any:
        return lax.sin(x) + lax.cos(x)

    model = Model("m", (), {"f": EntryPoint(f, (1.5,))})
    rules = [rule("T1", "sin", lambda s: Declined("only for small angles")), becomes("T2", "cos", lax.tan)]
    analysis = analyze(trace(model, "f"), lacking("sin", "cos"), rules)
    assert not analysis.ok
    report = target_report([analysis], rules)
    assert dict(report.counts) == {"native": 1, "folded": 0, "rewritten": 1, "unsupported": 1, "unknown": 0}
    stuck, helped = report.findings
    assert (stuck.primitive, stuck.verdict, stuck.reason) == ("sin", "unsupported", "no sin here")
    assert stuck.declined == ("T1: only for small angles",)
    assert (helped.primitive, helped.verdict, helped.rules, helped.declined) == ("cos", "rewritten", ("T2",), ())
    assert stuck.line == inspect.getsourcelines(f)[1] + 1
    assert [(r.id, r.count) for r in report.rules] == [("T2", 1)]


def test_unknown_never_counts_as_supported() -> None:
    known = lacking()
    unsure = Target("t", "t", "0", known.backend, lambda node: Support("unknown", "probed", "crashed once"))
    analysis = analyze(
        trace(Model("m", (), {"f": EntryPoint(lambda p, x: lax.sin(x), (1.5,), names=("x",))}), "f"), unsure, []
    )
    assert not analysis.ok
    (found,) = target_report([analysis], []).findings
    assert (found.verdict, found.reason, found.evidence) == ("unknown", "crashed once", "probed")
