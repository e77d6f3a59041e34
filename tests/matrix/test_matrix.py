"""Every primitive in every dtype on both backends: random and boundary inputs, shapes, contexts."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

import jax
import pytest

from opcompat import packs
from opcompat.inline import OUTSIDE
from opcompat.lowering.onnx.table import TABLE as ONNX_TABLE
from opcompat.lowering.tflite.table import TABLE as TFLITE_TABLE

from .cases import ALIASES, POLICIES, REFUSED, UNNAMED, ZERO_SIGNS, rows
from .harness import BACKENDS, Case, Expected, Outcome, expected, outcomes, primitives, traced_primitives, vmapped

ROWS = rows()


@lru_cache(maxsize=2)
def answers(primitive: str, slow: bool) -> list[Expected]:
    return expected(selected(primitive, slow))


def selected(primitive: str, slow: bool) -> list[Case]:
    """The cases of a row. The larger set has every case under vmap, too."""
    if not slow:
        return [one for one in ROWS[primitive] if not one.slow]
    done = [one.name for one in ROWS[primitive]]
    batched = [vmapped(one) for one in ROWS[primitive] if "-vmap" not in one.name and f"{one.name}-vmap" not in done]
    return [one for one in ROWS[primitive] if one.slow] + batched


def refusals(backend: str, primitive: str, name: str) -> list[str]:
    """The reasons that are given for refusing a case."""
    keys = [k for k in REFUSED if k[:2] == (backend, primitive) and fnmatch(name, k[2])]
    return [REFUSED[k] for k in keys]


def complaints(backend: str, primitive: str, cases: Sequence[Case], found: Sequence[Outcome]) -> list[str]:
    """What is not as the table says."""
    lines = []
    for one, outcome in zip(cases, found, strict=True):
        reasons = refusals(backend, primitive, one.name)
        if outcome.refused and not reasons:
            lines.append(f"{one.name}: refused: {outcome.refused}")
        elif outcome.refused and not any(r in outcome.refused for r in reasons):
            lines.append(f"{one.name}: refused for another reason: {outcome.refused}")
        elif reasons and not outcome.refused:
            lines.append(f"{one.name}: listed as refused, but accepted{'; ' * bool(outcome.problem)}{outcome.problem}")
        elif outcome.problem:
            lines.append(f"{one.name}: {outcome.problem}")
    return lines


def check(backend: str, primitive: str, folder: Path, slow: bool) -> None:
    cases = selected(primitive, slow)
    signs = (backend, primitive) not in ZERO_SIGNS
    found = outcomes(backend, cases, answers(primitive, slow), folder, signs)
    lines = complaints(backend, primitive, cases, found)
    assert not lines, "\n".join(["", *lines])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("primitive", [p for p in ROWS if selected(p, False)])
def test_primitive(primitive: str, backend: str, tmp_path: Path) -> None:
    check(backend, primitive, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("primitive", ROWS)
def test_primitive_more(primitive: str, backend: str, tmp_path: Path) -> None:
    check(backend, primitive, tmp_path, slow=True)


# -- the table itself

WANTED = {
    "policies": POLICIES,
    "onnx": frozenset(ONNX_TABLE) - frozenset(OUTSIDE),
    "tflite": frozenset(TFLITE_TABLE) - frozenset(OUTSIDE),
    "rules": frozenset(p for rule in packs.rules() for p in rule.primitives),
}


@pytest.mark.parametrize("source", WANTED)
def test_every_primitive_has_a_row(source: str) -> None:
    assert {ALIASES.get(name, name) for name in WANTED[source]} <= set(ROWS)


RANDOM = {
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (3,)),
    "beta": lambda k: jax.random.beta(k, 2.0, 3.0, (3,)),
    "bits": lambda k: jax.random.bits(k, (3,)),
    "categorical": lambda k: jax.random.categorical(k, jax.numpy.zeros((2, 5))),
    "categorical_without": lambda k: jax.random.categorical(k, jax.numpy.zeros(5), shape=(3,), replace=False),
    "choice": lambda k: jax.random.choice(k, 5, (3,)),
    "choice_p": lambda k: jax.random.choice(k, 5, (3,), p=jax.numpy.full(5, 0.2)),
    "dirichlet": lambda k: jax.random.dirichlet(k, jax.numpy.ones(3)),
    "exponential": lambda k: jax.random.exponential(k, (3,)),
    "fold_in": lambda k: jax.random.key_data(jax.random.fold_in(k, 3)),
    "gamma": lambda k: jax.random.gamma(k, 2.0, (3,)),
    "gumbel": lambda k: jax.random.gumbel(k, (3,)),
    "laplace": lambda k: jax.random.laplace(k, (3,)),
    "normal": lambda k: jax.random.normal(k, (3,)),
    "permutation": lambda k: jax.random.permutation(k, 5),
    "randint": lambda k: jax.random.randint(k, (3,), 0, 7),
    "split": lambda k: jax.random.key_data(jax.random.split(k)),
    "truncated_normal": lambda k: jax.random.truncated_normal(k, -1.0, 1.0, (3,)),
    "uniform": lambda k: jax.random.uniform(k, (3,)),
}
DEFINED_IN_JAX = "call_hi_primitive"
"""Not a primitive of its own, but any that is defined by simpler ones."""


@pytest.mark.parametrize("name", RANDOM)
def test_every_primitive_of_random_functions_has_a_row(name: str) -> None:
    used = primitives(jax.make_jaxpr(RANDOM[name])(jax.random.key(0)))
    assert {ALIASES.get(p, p) for p in used} - {DEFINED_IN_JAX} <= set(ROWS)


@pytest.mark.parametrize("primitive", [p for p in ROWS if p not in UNNAMED])
def test_row_holds_its_primitive(primitive: str) -> None:
    used = {ALIASES.get(p, p) for one in ROWS[primitive][:3] for p in traced_primitives(one)}
    assert primitive in used


def test_cases_have_names_of_their_own() -> None:
    for primitive, cases in ROWS.items():
        names = [one.name for one in cases]
        assert len(names) == len(set(names)), primitive


def test_refused_and_documented_entries_name_cases() -> None:
    for backend, primitive, pattern in REFUSED:
        assert backend in BACKENDS
        assert any(fnmatch(one.name, pattern) for one in ROWS[primitive]), (primitive, pattern)
    for backend, primitive in ZERO_SIGNS:
        assert backend in BACKENDS
        assert primitive in ROWS
