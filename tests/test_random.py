"""Every random function, with every kind of threefry key, draws in both runtimes what JAX draws: 200 keys each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax import random as jr
from jax.extend import core as jexc

from opcompat import EntryPoint, Model, api
from opcompat.inline import inline
from opcompat.jaxcompat import parts
from opcompat.report import Check, Report

STEPS = 200

Draw = Callable[[Any], Any]

LOGITS = np.log(np.array([0.1, 0.2, 0.3, 0.25, 0.15], np.float32))
P = np.exp(LOGITS)
INTS = np.array([3, 1, 4, 1, 5, -9], np.int32)
FLOATS = np.arange(12, dtype=np.float32).reshape(3, 4)
F32 = np.float32

GROUPS: Mapping[str, Mapping[str, Draw]] = {
    "bits": {
        "bits_8": lambda k: jr.bits(k, (5,), np.uint8),
        "bits_16": lambda k: jr.bits(k, (5,), np.uint16),
        "bits_32": lambda k: jr.bits(k, (2, 3), np.uint32),
        "bits_one": lambda k: jr.bits(k, (), np.uint32),
        "split": lambda k: words(jr.split(k, 3)),
        "fold_in": lambda k: words(jr.fold_in(k, 7)),
        "seed": lambda k: words(jr.key(jr.bits(k, (), np.uint32))),
    },
    "floats": {
        "uniform": lambda k: jr.uniform(k, (5,), minval=-2.0, maxval=3.0),
        "normal": lambda k: jr.normal(k, (5,)),
        "truncated_normal": lambda k: jr.truncated_normal(k, -1.0, 2.0, (5,)),
        "gumbel": lambda k: jr.gumbel(k, (5,)),
        "exponential": lambda k: jr.exponential(k, (5,)),
        "laplace": lambda k: jr.laplace(k, (5,)),
    },
    "draws": {
        "bernoulli": lambda k: jr.bernoulli(k, 0.3, (9,)),
        "categorical": lambda k: jr.categorical(k, LOGITS, shape=(4,)),
        "categorical_without_replacement": lambda k: jr.categorical(k, LOGITS, shape=(3,), replace=False),
        "randint": lambda k: jr.randint(k, (5,), 0, 10),
        "randint_negative": lambda k: jr.randint(k, (5,), -7, 1_000_003),
        "randint_full": lambda k: jr.randint(k, (5,), -(2**31), 2**31 - 1),
        "randint_uint32": lambda k: jr.randint(k, (5,), 5, np.uint32(2**32 - 1), np.uint32),
        "randint_uint8": lambda k: jr.randint(k, (5,), 3, 200, np.uint8),
        "randint_int16": lambda k: jr.randint(k, (5,), -300, 200, np.int16),
    },
    "choices": {
        "choice": lambda k: jr.choice(k, INTS, (4,)),
        "choice_p": lambda k: jr.choice(k, FLOATS[0], (4,), p=P[:4] / P[:4].sum()),
        "choice_without_replacement": lambda k: jr.choice(k, INTS, (4,), replace=False),
        "choice_p_without_replacement": lambda k: jr.choice(k, INTS[:5], (4,), replace=False, p=P),
        "permutation_range": lambda k: jr.permutation(k, 6),
        "permutation_ints": lambda k: jr.permutation(k, INTS),
        "permutation_axis": lambda k: jr.permutation(k, FLOATS, axis=1),
        "permutation_independent": lambda k: jr.permutation(k, FLOATS, axis=1, independent=True),
    },
    "gamma": {
        "gamma": lambda k: jr.gamma(k, np.array([0.3, 1.0, 2.5, 40.0], F32)),
    },
    "of_gamma": {
        "beta": lambda k: jr.beta(k, F32(2), F32(3), (3,)),
        "dirichlet": lambda k: jr.dirichlet(k, np.array([1.0, 2.0, 0.5], F32)),
    },
}


def words(key: Any) -> Any:
    """The words of a key of either kind."""
    return jr.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def one(draw: Draw) -> Draw:
    return draw


def batched(draw: Draw) -> Draw:
    return jax.vmap(draw)


def carried(draw: Draw) -> Draw:
    """Two draws, from a key that a loop carries."""

    def step(key: Any, _: None) -> tuple[Any, Any]:
        key, sub = jr.split(key)
        return key, draw(sub)

    return lambda key: jax.lax.scan(step, key, None, length=2)[1]


KINDS: Mapping[str, tuple[Any, Callable[[Draw], Draw], bool, tuple[str, ...]]] = {
    "typed": (jr.key(0), one, True, tuple(GROUPS)),
    "raw": (jr.PRNGKey(0), one, True, ("bits",)),
    "original": (jr.key(0), one, False, ("bits", "draws", "choices")),
    "batched": (jr.split(jr.key(0), 2), batched, True, ("bits", "draws", "choices", "gamma")),
    "carried": (jr.key(0), carried, True, ("bits", "floats", "choices")),
}
"""Key kind -> (example key, how a function of one key uses it, threefry_partitionable, groups)."""

CASES = [
    pytest.param(kind, group, name, id=f"{kind}-{name}")
    for kind, (_, _, _, groups) in KINDS.items()
    for group in groups
    for name in GROUPS[group]
]


def setting(kind: str) -> Any:
    partitionable = KINDS[kind][2]
    return nullcontext() if partitionable else jax.threefry_partitionable(partitionable)


def model(kind: str) -> Model:
    key, use, _, groups = KINDS[kind]

    def entry(group: str) -> EntryPoint:
        def draw_all(key: Any) -> Any:
            return {name: draw(key) for name, draw in GROUPS[group].items()}

        return EntryPoint(lambda _, key: use(draw_all)(key), args=(key,))

    return Model("random", {}, {group: entry(group) for group in groups})


@cache
def converted(kind: str) -> Report:
    with setting(kind), TemporaryDirectory() as folder:
        return api.convert(model(kind), Path(folder) / "dist", steps=STEPS)[1]


@cache
def checks(kind: str) -> dict[tuple[str, str, str], Check]:
    """(format, entry point, kind of check) -> check, for a model of all functions."""
    return {(c.format, c.entry_point, c.kind): c for c in converted(kind).checks}


@pytest.mark.parametrize("form", ["onnx", "tflite"])
@pytest.mark.parametrize(("kind", "group", "name"), CASES)
def test_draws_are_those_of_jax(kind: str, group: str, name: str, form: str) -> None:
    step = checks(kind)[form, group, "step"]
    assert step.passed
    assert step.steps == STEPS
    (output,) = [o for o in step.outputs if o.name == name]
    assert output.passed
    if output.reference_error is None:
        assert output.error == 0
    key = checks(kind)[form, group, "key"]
    assert key.passed
    assert not key.note


@pytest.mark.parametrize("kind", KINDS)
def test_no_draw_needed_the_excuse_of_a_near_tie(kind: str) -> None:
    assert all(c.mismatched == 0 for c in checks(kind).values())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_unsupported(kind: str) -> None:
    targets = converted(kind).targets
    assert [t.target for t in targets] == ["onnxruntime", "litert"]
    assert not [f for t in targets for f in t.findings if f.verdict in ("unsupported", "unknown")]


def test_a_vmapped_loop_ends_for_each_element_on_its_own() -> None:
    """Gamma draws need such loops: their predicate has the batch's shape, and no runtime has that."""

    def grow(x: Any, times: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0] < times, lambda c: (c[0] + 1, c[1] * x, ~c[2]), (0, x, x > 1))

    args = (np.array([[1.5, 2.0], [0.5, 3.0]], F32), np.array([[0, 3], [1, 7]], np.int32))
    function = jax.vmap(jax.vmap(grow))
    closed = inline(jax.make_jaxpr(function)(*args))
    (loop,) = [e for e in parts(closed).eqns if e.primitive.name == "while"]
    assert parts(loop.params["cond_jaxpr"]).outvars[0].aval.shape == ()
    for got, want in zip(jexc.jaxpr_as_fun(closed)(*args), function(*args), strict=True):
        np.testing.assert_array_equal(got, want)
