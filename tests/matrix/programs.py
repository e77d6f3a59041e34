"""Rows of control flow, calls and random bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.random as jax_random
import jax.numpy as jnp
import numpy as np
from jax import lax

from .harness import ELEMENTARY, Case, Closeness, calls, case, vmapped
from .values import BF16, F32, I32, U32, data

I = np.int32  # noqa: E741
ROLL = jax.jit(jnp.roll, static_argnums=1)
NEAR = Closeness(rtol=1e-5, atol=1e-6)
W = data("f", 4, 4, seed=9)

# Bodies: a state (float[4], int32[4], uint32[4], bool[4]) to the next one.

State = tuple[Any, Any, Any, Any]


def network(s: State) -> State:
    x, i, u, b = s
    x = jnp.tanh(x @ W + jnp.where(b, x, 0)) + jax.nn.sigmoid(x)
    return x, i, u, x > jnp.mean(x)


def words(s: State) -> State:
    x, i, u, b = s
    u = (u << U32(7)) ^ (u >> U32(3)) | (u & U32(0xFF00FF))
    i = lax.rem(i * I(1664525) + I(1013904223), I(1 << 20)) - lax.shift_right_arithmetic(i, I(3))
    return x, i, u + U32(0x9E3779B9), b ^ (u > U32(2**31))


def indexing(s: State) -> State:
    x, i, u, b = s
    best = lax.argmax(x, 0, np.int32)
    x = lax.dynamic_update_slice(x, x[jnp.clip(best - 1, 0, 3)][None] * 0.5, (best,))
    i = i.at[best + 1].set(best)
    return x - jax.nn.one_hot(i, 4)[0], jnp.flip(i), u, jnp.roll(b, 1)


def sorting(s: State) -> State:
    x, i, u, b = s
    value, place = lax.top_k(x, 2)
    return jnp.sort(x)[::-1] + value[0], jnp.cumsum(i) + place[0], u[::-1], b | (i > 0)


BODIES: dict[str, Callable[[State], State]] = {
    "network": network,
    "words": words,
    "indexing": indexing,
    "sorting": sorting,
}
STATE: State = (data("f", 4), data("i", 4) % I(9), data("u", 4), data("b", 4))

Wrapper = Callable[[Callable[[State], State]], Callable[..., Any]]


def _scan(step: Callable[[State], State]) -> Callable[..., Any]:
    def run(*s: Any) -> Any:
        return lax.scan(lambda c, _: (step(c), (c[0], c[2])), s, None, length=3)

    return run


def _scan_back(step: Callable[[State], State]) -> Callable[..., Any]:
    def run(*s: Any) -> Any:
        xs = (jnp.arange(5, dtype=I32), jnp.stack([s[0] * k for k in range(5)]))

        def body(c: State, x: Any) -> Any:
            n = step(c)
            return (n[0] + x[1], n[1] + x[0], n[2], n[3]), n

        return lax.scan(body, s, xs, reverse=True)

    return run


def _while(step: Callable[[State], State]) -> Callable[..., Any]:
    def run(*s: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, step(c[1])), (I(0), s))

    return run


def _cond(step: Callable[[State], State]) -> Callable[..., Any]:
    def run(*s: Any) -> Any:
        return lax.cond(s[1][0] > 0, step, lambda c: c, s), lax.cond(s[0][0] > 9, step, lambda c: c, s)

    return run


def _switch(step: Callable[[State], State]) -> Callable[..., Any]:
    def run(*s: Any) -> Any:
        branches = [lambda c: c, step, lambda c: step(step(c))]
        return [lax.switch(s[1][0] + I(k), branches, s) for k in (-9, 0, 1, 9)]

    return run


def _nested(step: Callable[[State], State]) -> Callable[..., Any]:
    def run(*s: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, lax.cond(c[0] % 2 == 0, step, lambda t: lax.fori_loop(0, 2, lambda _, u: step(u), t), c[1])

        return lax.while_loop(lambda c: c[0] < 3, body, (I(0), s))

    return run


def _custom_jvp(step: Callable[[State], State]) -> Callable[..., Any]:
    @jax.custom_jvp
    def run(*s: Any) -> Any:
        return step(s)

    run.defjvp(lambda p, t: (run(*p), run(*p)))
    return run


def _custom_vjp(step: Callable[[State], State]) -> Callable[..., Any]:
    @jax.custom_vjp
    def run(*s: Any) -> Any:
        return step(s)

    run.defvjp(lambda *s: (run(*s), s), lambda s, g: s)
    return run


WRAPPERS: dict[str, dict[str, Wrapper]] = {
    "scan": {"forth": _scan, "back": _scan_back},
    "while": {"loop": _while, "nested": _nested},
    "cond": {"cond": _cond, "switch": _switch},
    "jit": {"jit": lambda step: jax.jit(lambda *s: step(s))},
    "custom_jvp_call": {"call": _custom_jvp},
    "custom_vjp_call": {"call": _custom_vjp},
    "checkpoint": {"remat": lambda step: jax.checkpoint(lambda *s: step(s))},
}


def _wrapped(name: str) -> Iterator[Case]:
    for kind, wrap in WRAPPERS[name].items():
        for body, step in BODIES.items():
            one = case(f"{kind}-{body}", wrap(step), *STATE, near=NEAR)
            yield one
            if name in ("scan", "while", "cond", "jit"):
                yield vmapped(one)


# -- loops and branches by themselves


def _halves(c: Any, _: Any) -> Any:
    return jnp.tanh(c * BF16(1.5)) + BF16(0.25), c


def _countdown(x: Any, n: Any) -> Any:
    return lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, c[1] * 2 + x), (n, x))


def _swap(n: Any) -> Any:
    def step(c: Any) -> Any:
        i, a, b = c
        a, b = lax.cond(i % 3 == 0, lambda: (b, a), lambda: (a + b, b))
        return i + 1, a, b

    return lax.while_loop(lambda c: c[0] < n, step, (I(0), F32(1), F32(2)))


def _choices(i: Any, x: Any) -> Any:
    return lax.switch(i, [lambda x: x, lambda x: x * 2, lambda x: x - 1, lambda x: x * x], x)


def _hand_through(a: Any, b: Any) -> Any:
    return lax.scan(lambda c, _: ((c[1], c[0], c[0]), (c[1], F32(2), b)), (a, b, b), None, length=3)


def plain() -> dict[str, list[Case]]:
    indices = [(I(k), data("f", 3)) for k in (-3, 0, 1, 2, 3, 9, 2**31 - 1, -(2**31))]
    counts = [(data("f", 3), I(k)) for k in (-1, 0, 1, 5)]
    return {
        "scan": [
            case("no-steps", lambda c, x: lax.scan(lambda c, x: (c + x, c), c, x), F32(3), data("f", 0)),
            case("no-inputs", lambda c: lax.scan(lambda c, _: (c * 2, c), c, None, length=3), F32(3)),
            case("hands-through", _hand_through, F32(1), F32(5)),
            case("half", lambda c: lax.scan(_halves, c, None, length=4), data("g", 3), near=ELEMENTARY),
            case("unrolled", lambda c, x: lax.scan(lambda c, x: (c + x, c), c, x, unroll=2), F32(3), data("f", 5)),
            case("associative", lambda x: lax.associative_scan(jnp.maximum, x), data("f", 7)),
            case("empty-carry", lambda c, x: lax.scan(lambda c, x: (c, x), c, x), data("f", 0, 3), data("f", 2)),
        ],
        "while": [
            calls("counts", _countdown, *counts),
            calls("swap", _swap, *[(I(k),) for k in (-1, 0, 1, 6)]),
            case("batched-predicate", jax.vmap(_countdown), data("f", 4, 3), np.array([0, 3, 1, -2], I32)),
            case("fori", lambda x: lax.fori_loop(0, 5, lambda i, c: c + x * i, x), data("f", 3), near=NEAR),
        ],
        "cond": [
            calls("indices", _choices, *indices),
            case("batched", jax.vmap(_choices), np.array([-3, 0, 1, 2, 3, 9], I32), data("f", 6, 3)),
            case("constant", lambda x: lax.cond(True, lambda x: x + 1, lambda x: x - 1, x), data("f", 3)),
            calls(
                "bool",
                lambda p, x: lax.cond(p, lambda x: (x, x[0] > 0), lambda x: (-x, x[1] > 0), x),
                (np.True_, data("f", 3)),
                (np.False_, data("f", 3)),
            ),
        ],
        "jit": [
            case("static", lambda x: jax.jit(jnp.clip)(x, -1, 1), data("f", 5)),
            case("twice", lambda x: ROLL(ROLL(x, 1), 2), data("i", 5)),
        ],
        "custom_jvp_call": [
            case("relu", jax.nn.relu, data("f", 9)),
            case("softplus", jax.nn.softplus, data("f", 9), near=NEAR),
            case("logsumexp", jax.nn.logsumexp, data("f", 9), near=NEAR),
        ],
    }


# -- keys and bits: functions of raw words, wrapped as the user's code would

KEYS = np.array([[0, 0], [0, 1], [2**32 - 1, 2**31], [12345, 67890]], U32)


def key(words: Any) -> Any:
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def rbg(words: Any) -> Any:
    return jax.random.wrap_key_data(words, impl="rbg")


def _each_key(name: str, function: Callable[..., Any], **options: Any) -> Case:
    return calls(name, function, *[(k,) for k in KEYS], **options)


def _unpartitioned(words: Any) -> Any:
    with jax.threefry_partitionable(False):
        return jax.random.bits(key(words), (5,))


def _threefry(shape: tuple[int, ...]) -> Callable[[Any], Any]:
    generate: Any = lax.rng_bit_generator
    return lambda k: generate(k, shape, algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)


def random_rows() -> dict[str, list[Case]]:
    data_of = jax.random.key_data
    words4 = np.concatenate([KEYS, KEYS[::-1]], 1)
    return {
        "random_wrap": [_each_key("uniform", lambda k: jax.random.uniform(key(k), (4,)))],
        "random_unwrap": [_each_key("data", lambda k: data_of(key(k)) + U32(1))],
        "random_bits": [
            _each_key("uint32", lambda k: [jax.random.bits(key(k), s) for s in ((), (3,), (2, 0), (2, 3, 5))]),
            _each_key("unpartitioned", _unpartitioned),
            _each_key("uint8", lambda k: jax.random.bits(key(k), (7,), np.uint8).astype(np.int32)),
            case("keys", jax.vmap(lambda k: jax.random.bits(key(k), (3,))), KEYS),
            calls("rbg", lambda k: jax.random.bits(rbg(k), (5,)), *[(k,) for k in words4]),
        ],
        "random_split": [
            _each_key("keys", lambda k: [data_of(jax.random.split(key(k), n)) for n in (1, 2, 5)]),
            case("vmap", jax.vmap(lambda k: data_of(jax.random.split(key(k)))), KEYS),
        ],
        "random_fold_in": [
            calls("data", lambda k, n: data_of(jax.random.fold_in(key(k), n)), *[(k, I(7)) for k in KEYS]),
        ],
        "random_seed": [calls("seed", lambda n: data_of(jax.random.key(n)), (I(0),), (I(7),), (I(-1),))],
        "random_clone": [_each_key("data", lambda k: data_of(jax.random.clone(key(k))))],
        "random_gamma": [
            _each_key("half", lambda k: jax.random.gamma(key(k), F32(0.5), (2,)), near=Closeness(rtol=1e-4, atol=1e-6))
        ],
        "threefry2x32": [_each_key("raw", lambda k: jax_random.threefry_prng_impl.random_bits(k, 32, (5,)))],
        "iota_2x32_shape": [_each_key("raw", lambda k: jax_random.threefry_prng_impl.random_bits(k, 32, (2, 3)))],
        "rng_bit_generator": [
            calls("philox", lambda k: lax.rng_bit_generator(k, (5,)), *[(k,) for k in words4]),
            *(
                calls(f"threefry-{len(shape)}", _threefry(shape), *[(k,) for k in words4])
                for shape in ((), (5,), (7, 5), (3, 3, 2))
            ),
        ],
    }


def rows() -> dict[str, list[Case]]:
    found = {name: list(_wrapped(name)) for name in WRAPPERS}
    for table in (plain(), random_rows()):
        for name, cases in table.items():
            found.setdefault(name, []).extend(cases)
    return found
