"""Every rule on its own examples: it fires, matches JAX within its exactness, and leaves nothing behind."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend import core as jexc

import opcompat.rewrites
from opcompat import packs
from opcompat.driver import legalize
from opcompat.inline import bodies, inline
from opcompat.jaxcompat import parts
from opcompat.lowering.builder import Backend, Builder
from opcompat.provenance import provenance
from opcompat.reference import COMPILER_OPTIONS
from opcompat.rule import Example, Rule
from opcompat.targets.base import Support, Target

RULES = packs.rules()


def target_that_lacks(rule: Rule) -> Target:
    """A target that runs what the rule makes and nothing else, so that the rule is always wanted."""

    class Recorder(Builder):
        pass

    def lower(b: Any, eqn: Any, *operands: Any) -> Any:
        kind = "made" if rule.id in b.rules else "given"
        return b.op(
            kind, operands, [(v.aval.shape, str(v.aval.dtype)) for v in eqn.outvars], {"name": eqn.primitive.name}
        )

    class Everything(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            return lower

    def check(node: Any) -> Support:
        return Support("no" if node.op == "given" else "yes", "documented", "lacking for the test")

    backend = Backend("test", Everything(), lambda d: d, lambda d: d, Recorder)
    return Target("test", "test", "0", backend, check, has_64_bit=False)


def equations(closed: Any) -> Iterator[Any]:
    for eqn in parts(closed).eqns:
        yield eqn
        for _, body in bodies(eqn):
            yield from equations(body)


def rewritten(rule: Rule, example: Example) -> tuple[Any, set[str]]:
    closed = inline(jax.make_jaxpr(example.function)(*example.args), mark=True)
    new = legalize(closed, target_that_lacks(rule), [rule], narrowing=rule.optional)
    return new.closed, {r for e in equations(new.closed) for r in provenance(e).rules} | set(new.acted)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` as the reference is compiled: without it XLA drops roundings to half precision."""
    return jax.jit(function, compiler_options=COMPILER_OPTIONS)


def flat(result: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree_util.tree_leaves(result)]


def exact(example: Example) -> list[np.ndarray]:
    """The example's result computed in float64, which is as good as exact for float32 rules."""
    with jax.enable_x64(True):
        wide = [np.asarray(a, np.float64) if a.dtype == np.float32 else a for a in example.args]
        return flat(jax.jit(example.function)(*wide))


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """How many units in the last place of float32 each element is from the exact value; 0 for equal or NaN."""
    equal = (got == want.astype(np.float32)) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore", over="ignore"):
        unit = np.maximum(np.spacing(np.abs(want).astype(np.float32)), np.finfo(np.float32).tiny)
        return np.where(equal, 0, np.abs(got.astype(np.float64) - want) / unit)


def agrees(rule: Rule, got: np.ndarray, want: np.ndarray, truth: np.ndarray | None) -> bool:
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if truth is None or want.dtype != np.float32:
        return got.tobytes() == want.tobytes()
    near = np.abs(got - want) <= rule.exactness.absolute
    return bool(np.all(near | (ulps(got, truth) <= rule.exactness.ulp)))


DECLINED = [pytest.param(r, e, id=f"{r.id}-{e.name}") for r in RULES for e in r.declines]

CONFIGURATIONS: dict[str, tuple[Callable[[], Any], ...]] = {
    "default": (),
    "strict": (lambda: jax.numpy_dtype_promotion("strict"), lambda: jax.numpy_rank_promotion("raise")),
    "x64": (lambda: jax.enable_x64(True),),
}


CASES = [
    pytest.param(r, e, c, id=f"{r.id}-{e.name}-{c}")
    for r in RULES
    for e in r.examples
    for c in CONFIGURATIONS
    if c == "x64" or not e.x64
]


@pytest.mark.parametrize(("rule", "example", "configuration"), CASES)
def test_rule_fires_and_agrees_with_jax(rule: Rule, example: Example, configuration: str) -> None:
    with ExitStack() as stack:
        for enter in CONFIGURATIONS[configuration]:
            stack.enter_context(enter())
        wanted = flat(compiled(example.function)(*example.args))
        truth = exact(example) if rule.exactness.kind == "ulp" else [None] * len(wanted)
        new, fired = rewritten(rule, example)
        assert rule.id in fired
        left = {e.primitive.name for e in equations(new) if not provenance(e).rules} & rule.primitives
        if rule.stage == "legalize":
            assert not left
        got = compiled(jexc.jaxpr_as_fun(new))(*jax.tree_util.tree_leaves(example.args))
        for one, want, true in zip(flat(got), wanted, truth, strict=True):
            assert agrees(rule, one, want, true), (one, want)


@pytest.mark.parametrize(("rule", "example"), DECLINED)
def test_rule_leaves_other_equations_alone(rule: Rule, example: Example) -> None:
    if rule.stage == "decompose":
        closed = inline(jax.make_jaxpr(example.function)(*example.args), mark=True)
        lacking = {"eigh": target_that_lacks(rule)}.get(example.name, everything_runs())
        assert not legalize(closed, lacking, [rule]).acted
        return
    _, fired = rewritten(rule, example)
    assert rule.id not in fired


def everything_runs() -> Target:
    lacking = target_that_lacks(RULES[0])
    return Target("test", "test", "0", lacking.backend, lambda _: Support("yes", "documented"))


@pytest.mark.parametrize("rule", [r for r in RULES if r.stage != "types"], ids=lambda r: r.id)
def test_nothing_is_rewritten_for_a_target_that_lacks_nothing(rule: Rule) -> None:
    for example in (e for e in rule.examples if not e.x64):
        closed = inline(jax.make_jaxpr(example.function)(*example.args), mark=True)
        assert not legalize(closed, everything_runs(), [rule]).acted


def test_every_rule_file_is_in_rules() -> None:
    listed = {rule.module.rpartition(".")[2] for rule in RULES}
    files = {m.name for m in pkgutil.iter_modules(opcompat.rewrites.__path__) if not m.ispkg}
    assert files == listed
    for name in files:
        assert importlib.import_module(f"opcompat.rewrites.{name}").RULE in RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_page_says_what_a_reader_needs(rule: Rule) -> None:
    for part in ("Before:", "After:", "Why:", "Exactness:"):
        assert part in rule.page
    assert rule.title
    assert rule.examples


def test_ids_are_unique_and_well_formed() -> None:
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    assert all(i.startswith("OC") and len(i) == 5 and i[2:].isdigit() for i in ids)
