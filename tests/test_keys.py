"""Keys become words, and the words give JAX's own bits: in every context, however the keys are arranged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.random as jax_random
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jexc

from opcompat.errors import UnsupportedError
from opcompat.inline import bodies, inline
from opcompat.jaxcompat import is_key, parts
from opcompat.keys import erase_keys
from opcompat.provenance import provenance


def words(x: Any) -> Any:
    return jax.random.key_data(x) if is_key(jax.typeof(x).dtype) else x


def variables(closed: Any) -> Iterator[Any]:
    p = parts(closed)
    yield from (*p.constvars, *p.invars, *p.outvars)
    for eqn in p.eqns:
        yield from (*eqn.invars, *eqn.outvars)
        for _, body in bodies(eqn):
            yield from variables(body)


def assert_same_bits(function: Callable[..., Any], *args: Any) -> None:
    """`function` without its keys returns exactly what it returns with them."""
    erased = erase_keys(inline(jax.make_jaxpr(function)(*args)))
    assert not [v for v in variables(erased) if is_key(v.aval.dtype)]
    got = jax.jit(jexc.jaxpr_as_fun(erased))(*map(words, jax.tree_util.tree_leaves(args)))
    want = [words(x) for x in jax.tree_util.tree_leaves(jax.jit(function)(*args))]
    assert len(got) == len(want) > 0
    for one, other in zip(got, want, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


KEY = jax.random.key(7)
KEYS = jax.random.split(KEY, (3, 2))
RBG_KEYS = jax.random.split(jax.random.key(0, impl="rbg"), 3)


def in_scan(key: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        carry, sub = jax.random.split(carry)
        return carry, jax.random.bits(sub, (2,)) + x

    return lax.scan(step, key, jnp.arange(4, dtype=jnp.uint32))


def in_while(key: Any) -> Any:
    def step(state: Any) -> Any:
        index, key, total = state
        return index + 1, jax.random.fold_in(key, index), total + jax.random.bits(key, (2,))

    return lax.while_loop(lambda s: (s[0] < 5) & (jax.random.bits(s[1]) > 0), step, (0, key, jnp.zeros(2, jnp.uint32)))


def in_cond(key: Any, flag: Any) -> Any:
    return lax.cond(flag, lambda k: jax.random.split(k)[0], lambda k: k, key)


def in_fori(key: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, total: total + jax.random.uniform(jax.random.fold_in(key, i)), 0.0)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "bits": (lambda k: jax.random.bits(k, (5,)), (KEY,)),
    "bits of 8": (lambda k: jax.random.bits(k, (5,), jnp.uint8), (KEY,)),
    "bits of 16": (lambda k: jax.random.bits(k, (5,), jnp.uint16), (KEY,)),
    "one": (jax.random.bits, (KEY,)),
    "none": (lambda k: jax.random.bits(k, (0, 3)), (KEY,)),
    "raw words": (lambda k: jax.random.bits(k, (3,)), (jax.random.PRNGKey(3),)),
    "split": (jax.random.split, (KEY,)),
    "split in many": (lambda k: jax.random.split(k, (2, 3)), (KEY,)),
    "fold_in": (jax.random.fold_in, (KEY, 5)),
    "fold_in of a large number": (jax.random.fold_in, (KEY, np.uint32(2**32 - 1))),
    "seed": (jax.random.key, (3,)),
    "seed below zero": (jax.random.key, (-3,)),
    "clone": (jax.random.clone, (KEY,)),
    "raw out": (jax.random.key_data, (KEY,)),
    "raw in and out": (lambda k: jax.random.split(k), (jax.random.PRNGKey(3),)),
    "uniform": (lambda k: jax.random.uniform(k, (5,), minval=-2.0, maxval=3.0), (KEY,)),
    "normal": (lambda k: jax.random.normal(k, (5,)), (KEY,)),
    "bernoulli": (lambda k: jax.random.bernoulli(k, 0.3, (9,)), (KEY,)),
    "gumbel": (lambda k: jax.random.gumbel(k, (5,)), (KEY,)),
    "categorical": (lambda k, x: jax.random.categorical(k, x), (KEY, jnp.arange(12.0).reshape(3, 4))),
    "batched bits": (jax.vmap(lambda k: jax.random.bits(k, (4,))), (KEYS[:, 0],)),
    "batched twice": (jax.vmap(jax.vmap(lambda k: jax.random.bits(k, (4,)))), (KEYS,)),
    "batched split": (jax.vmap(jax.random.split), (KEYS[0],)),
    "batched fold_in": (jax.vmap(jax.random.fold_in), (KEYS[0], jnp.arange(2))),
    "batched fold_in of one key": (jax.vmap(jax.random.fold_in, in_axes=(None, 0)), (KEY, jnp.arange(4))),
    "batched seed": (jax.vmap(jax.random.key), (jnp.arange(4),)),
    "index": (lambda k, i: k[i], (KEYS, 1)),
    "slice": (lambda k: k[1:, ::-1], (KEYS,)),
    "reshape": (lambda k: k.reshape(6)[::2], (KEYS,)),
    "transpose": (lambda k: k.T, (KEYS,)),
    "stack": (lambda k: jnp.stack([k[0], k[1]], axis=1), (KEYS,)),
    "concatenate": (lambda k: jnp.concatenate([k, k[:1]]), (KEYS,)),
    "broadcast": (lambda k: jnp.broadcast_to(k, (4, 2)), (KEYS[0],)),
    "squeeze": (lambda k: jnp.squeeze(k[:1], 0), (KEYS,)),
    "expand": (lambda k: k[:, None], (KEYS,)),
    "where": (lambda k, m: jnp.where(m, k[0], k[1]), (KEYS, np.array([True, False]))),
    "dynamic slice": (lambda k, i: lax.dynamic_slice(k, (i, 0), (1, 2)), (KEYS, 1)),
    "dynamic update": (lambda k, i: lax.dynamic_update_slice(k, k[:1], (i, 0)), (KEYS, 1)),
    "scatter": (lambda k: k.at[1, 0].set(k[0, 1]), (KEYS,)),
    "gather": (lambda k, i: k[i], (KEYS, np.array([2, 0]))),
    "scan": (in_scan, (KEY,)),
    "scan over keys": (lambda k: lax.scan(lambda c, x: (c, jax.random.bits(x)), 0, k)[1], (KEYS[0],)),
    "while": (in_while, (KEY,)),
    "fori": (in_fori, (KEY,)),
    "cond taken": (in_cond, (KEY, True)),
    "cond not taken": (in_cond, (KEY, False)),
    "closed-over key": (lambda x: jax.random.bits(KEY, (3,)) + x, (np.uint32(1),)),
    "closed-over keys": (lambda i: jax.random.bits(KEYS[i, 0], (3,)), (1,)),
    "jit": (lambda k: jax.jit(lambda k: jax.random.split(k)[1])(k), (KEY,)),
    "rbg": (lambda k: jax.random.bits(k, (5,)), (jax.random.key(0, impl="rbg"),)),
    "rbg split": (jax.random.split, (jax.random.key(0, impl="rbg"),)),
    "batched rbg": (jax.vmap(lambda k: jax.random.bits(k, (2,))), (RBG_KEYS,)),
    "batched rbg split": (jax.vmap(jax.random.split), (RBG_KEYS,)),
    "batched rbg fold_in": (jax.vmap(jax.random.fold_in), (RBG_KEYS, jnp.arange(3))),
    "rbg in scan": (in_scan, (jax.random.key(0, impl="rbg"),)),
    "unsafe_rbg": (lambda k: jax.random.bits(jax.random.split(k)[1], (5,)), (jax.random.key(0, impl="unsafe_rbg"),)),
}


@pytest.mark.parametrize("partitionable", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_bits(name: str, partitionable: bool) -> None:
    function, args = CASES[name]
    with jax.threefry_partitionable(partitionable):
        assert_same_bits(function, *args)


def test_the_context_of_tracing_decides_the_bits() -> None:
    """A jaxpr that was traced under one setting is expanded under it, whatever holds later."""

    def draw(key: Any) -> Any:
        return jax.random.bits(key, (5,))

    results = []
    for partitionable in (True, False):
        with jax.threefry_partitionable(partitionable):
            closed = inline(jax.make_jaxpr(draw)(KEY))
            want = jax.jit(draw)(KEY)
        with jax.threefry_partitionable(not partitionable):
            (got,) = jexc.jaxpr_as_fun(erase_keys(closed))(jax.random.key_data(KEY))
        np.testing.assert_array_equal(got, want)
        results.append(np.asarray(want))
    assert (results[0] != results[1]).any()


def test_without_keys_nothing_changes() -> None:
    closed = inline(jax.make_jaxpr(lambda x: lax.scan(lambda c, _: (c + 1, None), x, length=3)[0])(1.0))
    assert erase_keys(closed) is closed


def test_the_expansion_is_marked() -> None:
    closed = erase_keys(inline(jax.make_jaxpr(lambda k: jax.random.bits(k, (2,)) + np.uint32(1))(KEY), mark=True))
    marks = [provenance(e) for e in parts(closed).eqns]
    assert {m.rules for m in marks} == {("OC100",), ()}
    assert len({m.source for m in marks}) == 2
    assert all(m.source for m in marks)


def foreign(key: Any, bit_width: int, shape: tuple[int, ...]) -> Any:
    return jnp.zeros(shape, jnp.uint32) + key[0]


FOREIGN = jax_random.define_prng_impl(
    key_shape=(1,),
    seed=lambda seed: seed.reshape(1).astype(jnp.uint32),
    split=lambda key, shape: jnp.broadcast_to(key, (*shape, 1)),
    random_bits=foreign,
    fold_in=lambda key, data: key + data,
    name="a foreign one",
    tag="foreign",
)


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (lambda k: jax.random.bits(k, (2,)), (jax.random.key(0, impl=FOREIGN),), "random_bits with PRNG keys of '"),
        (lambda k: k == k, (KEY,), "on PRNG keys"),
    ],
)
def test_what_cannot_be_expanded_is_refused_with_its_place(function: Any, args: Any, message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        erase_keys(inline(jax.make_jaxpr(function)(*args)))
    assert message in str(caught.value)
    assert f"{__file__}:" in str(caught.value)
    assert "next: " in str(caught.value)
    assert caught.value.exit_code == 1
