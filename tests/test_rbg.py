"""Philox and Threefry, bit for bit: the generators, rbg and unsafe_rbg keys, batches; in JAX and in both runtimes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from jax import random as jr
from jax.extend import core as jexc

from opcompat import EntryPoint, Model, api, packs
from opcompat.inline import inline
from opcompat.jaxcompat import is_key, parts, trace
from opcompat.keys import erase_keys
from opcompat.report import Report
from opcompat.rule import Declined, Replacement, Rule, Site

STEPS = 200
PHILOX, THREEFRY = (next(r for r in packs.rules() if r.id == i) for i in ("OC105", "OC106"))
RULES = {
    lax.RandomAlgorithm.RNG_DEFAULT: PHILOX,
    lax.RandomAlgorithm.RNG_PHILOX: PHILOX,
    lax.RandomAlgorithm.RNG_THREE_FRY: THREEFRY,
}


def words(x: Any) -> Any:
    return jr.key_data(x) if is_key(jax.typeof(x).dtype) else x


# The generator itself


def generator(shape: tuple[int, ...], dtype: Any, algorithm: Any) -> Callable[[Any], Any]:
    generate: Any = lax.rng_bit_generator
    return lambda key: generate(key, shape, dtype, algorithm=algorithm)


def rewritten(rule: Rule, function: Callable[..., Any], *args: Any) -> Replacement | Declined | None:
    (eqn,) = parts(jax.make_jaxpr(function)(*args)).eqns
    return rule.apply(Site(eqn, {}))


KEYS = np.concatenate(
    [
        np.zeros((1, 4), np.uint32),
        np.full((1, 4), 0xFFFFFFFF, np.uint32),
        np.array([[1, 2, 0xFFFFFFFE, 0xFFFFFFFF], [0, 0, 0xFFFFFFFF, 0]], np.uint32),
        np.random.default_rng(0).integers(0, 2**32, (40, 4), dtype=np.uint32),
    ]
)


@pytest.mark.parametrize("algorithm", RULES)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (2, 3), (5, 1, 7), (0,), (1001,)])
def test_words_and_next_key_are_those_of_xla(shape: tuple[int, ...], dtype: Any, algorithm: Any) -> None:
    function = generator(shape, dtype, algorithm)
    found = rewritten(RULES[algorithm], function, KEYS[0])
    assert isinstance(found, Replacement)
    ours = jax.jit(jexc.jaxpr_as_fun(trace(found.function, [jax.typeof(KEYS[0])])))
    xla = jax.jit(function)
    for key in KEYS:
        for got, want in zip(ours(key), xla(key), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize(
    ("dtype", "algorithm"),
    [
        (np.uint64, lax.RandomAlgorithm.RNG_THREE_FRY),
        (np.uint64, lax.RandomAlgorithm.RNG_DEFAULT),
        (np.int32, lax.RandomAlgorithm.RNG_DEFAULT),
    ],
)
def test_other_generators_are_declined(dtype: Any, algorithm: Any) -> None:
    with jax.enable_x64(True):
        try:
            found = rewritten(RULES[algorithm], generator((3,), dtype, algorithm), KEYS[0])
        except TypeError:
            pytest.skip("this version of JAX has no such generator")
    assert isinstance(found, Declined)
    assert np.dtype(dtype).name in found.reason


# Keys, alone and in batches


def draws(key: Any) -> Any:
    one, two = jr.split(key)
    return (
        jr.bits(one, (3, 5)),
        jr.bits(two, (7,), np.uint8),
        jr.normal(jr.fold_in(key, 9), (4,)),
        jr.randint(one, (4,), -5, 100),
        jr.permutation(two, 5),
    )


BATCHED: dict[str, Callable[[Any], Any]] = {
    "draws": jax.vmap(draws),
    "draws of a matrix of keys": lambda k: jax.vmap(jax.vmap(draws), in_axes=1)(k.reshape(2, 3)),
    "gamma": jax.vmap(lambda k: jr.gamma(k, np.float32(2.5), (2,))),
    "split": lambda k: jax.vmap(lambda k: jr.split(k, (2, 2)))(k),
    "fold_in of keys": lambda k: jax.vmap(jr.fold_in, in_axes=(0, None))(k, 3),
    "fold_in of data": lambda k: jax.vmap(jr.fold_in, in_axes=(None, 0))(k[0], jnp.arange(4)),
    "fold_in of both": lambda k: jax.vmap(jr.fold_in)(k, jnp.arange(6)),
    "seed": lambda k: jax.vmap(lambda w: jr.key(w, impl=str(jr.key_impl(k))))(words(k)[:, 0]),
    "one by one": lambda k: lax.map(draws, k),
}


@pytest.mark.parametrize("implementation", ["rbg", "unsafe_rbg"])
@pytest.mark.parametrize("name", BATCHED)
def test_batches_draw_as_in_jax(name: str, implementation: str) -> None:
    """With rbg keys a batch is not the draws of each key: whatever JAX makes of it is right."""
    keys, function = jr.split(jr.key(11, impl=implementation), 6), BATCHED[name]
    erased = erase_keys(inline(jax.make_jaxpr(function)(keys)))
    got = jax.jit(jexc.jaxpr_as_fun(erased))(words(keys))
    want = [words(x) for x in jax.tree_util.tree_leaves(jax.jit(function)(keys))]
    for a, b in zip(got, want, strict=True):
        # The program around a draw decides how XLA rounds the last bit of a float.
        limit = 2e-6 if name == "gamma" else 0.0
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=limit, atol=0)


def test_a_batch_of_rbg_keys_is_not_each_key_alone() -> None:
    """The premise of the test above: a loop over keys would be wrong."""
    keys = jr.split(jr.key(0, impl="rbg"), 2)
    together, alone = (f(jr.bits)(keys) for f in (jax.vmap, lambda g: lambda k: lax.map(g, k)))
    assert (together != alone).any()


# In the runtimes

F32 = np.float32

DRAWS: dict[str, Callable[[Any], Any]] = {
    "bits_8": lambda k: jr.bits(k, (5,), np.uint8),
    "bits_16": lambda k: jr.bits(k, (5,), np.uint16),
    "bits_32": lambda k: jr.bits(k, (2, 3), np.uint32),
    "split": lambda k: jr.key_data(jr.split(k, 3)),
    "fold_in": lambda k: jr.key_data(jr.fold_in(k, 7)),
    "uniform": lambda k: jr.uniform(k, (5,), minval=-2.0, maxval=3.0),
    "normal": lambda k: jr.normal(k, (5,)),
    "truncated_normal": lambda k: jr.truncated_normal(k, -1.0, 2.0, (5,)),
    "bernoulli": lambda k: jr.bernoulli(k, 0.3, (9,)),
    "categorical": lambda k: jr.categorical(k, np.log(np.array([0.1, 0.2, 0.7], F32)), shape=(4,)),
    "gumbel": lambda k: jr.gumbel(k, (5,)),
    "exponential": lambda k: jr.exponential(k, (5,)),
    "laplace": lambda k: jr.laplace(k, (5,)),
    "randint": lambda k: jr.randint(k, (5,), -7, 1_000_003),
    "choice": lambda k: jr.choice(k, 9, (4,)),
    "choice_p": lambda k: jr.choice(k, 3, (4,), p=np.array([0.1, 0.2, 0.7], F32)),
    "permutation": lambda k: jr.permutation(k, 6),
}


def draw_all(key: Any) -> dict[str, Any]:
    return {name: draw(key) for name, draw in DRAWS.items()}


def few(key: Any) -> dict[str, Any]:
    return {name: DRAWS[name](key) for name in ("bits_32", "split", "normal", "categorical", "permutation")}


def carried(key: Any) -> Any:
    def step(key: Any, _: None) -> tuple[Any, Any]:
        key, sub = jr.split(key)
        return key, few(sub)

    return lax.scan(step, key, None, length=2)[1]


def entry(function: Callable[[Any], Any], key: Any) -> EntryPoint:
    return EntryPoint(lambda _, key: function(key), args=(key,))


@cache
def converted() -> Report:
    rbg, unsafe = (jr.key(0, impl=name) for name in ("rbg", "unsafe_rbg"))
    model = Model(
        "rbg",
        {},
        {
            "all": entry(draw_all, rbg),
            "batched": entry(jax.vmap(few), jr.split(rbg, 2)),
            "carried": entry(carried, rbg),
            "gamma": entry(lambda k: jr.gamma(k, np.array([0.3, 2.5], F32)), rbg),
            "unsafe": entry(few, unsafe),
        },
    )
    with TemporaryDirectory() as folder:
        return api.convert(model, Path(folder) / "dist", steps=STEPS)[1]


@pytest.mark.parametrize("form", ["onnx", "tflite"])
@pytest.mark.parametrize("name", ["all", "batched", "carried", "gamma", "unsafe"])
def test_runtimes_draw_as_in_jax(name: str, form: str) -> None:
    checks = {c.kind: c for c in converted().checks if (c.format, c.entry_point) == (form, name)}
    assert checks["step"].steps == STEPS
    assert checks["step"].passed
    assert checks["key"].passed
    assert all(c.mismatched == 0 for c in checks.values())
    exact = [o for o in checks["step"].outputs if o.reference_error is None]
    assert all(o.error == 0 for o in exact)
    assert exact or name == "gamma"
