"""Float32 beside float64: rounding errors that are known, and decisions that are or are not near a tie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from opcompat.inline import inline
from opcompat.jaxcompat import enable_x64, parts
from opcompat.keys import erase_keys
from opcompat.shadow import NO_LIMIT, shadow, shadow_in_pieces


def shadowed(function: Callable[..., Any], *args: Any) -> tuple[list[np.ndarray], list[np.ndarray], tuple[int, int]]:
    """(outputs, float64 outputs, (decisions, near ties)) of `function`, traced without 64-bit types."""
    closed = erase_keys(inline(jax.make_jaxpr(function)(*args)))
    with enable_x64():
        values, shadows, made, _ = jax.jit(shadow(closed, [False] * len(parts(closed).invars)))(NO_LIMIT, *args)
    return [np.asarray(v) for v in values], [np.asarray(s) for s in shadows], (int(made.total), int(made.near))


def decisions(function: Callable[..., Any], *args: Any) -> tuple[int, int]:
    return shadowed(function, *args)[2]


X = np.float32(1.0)


def lossy(x: Any) -> Any:
    """x, but 0 in float32 for an x of 1, which is lost beside 1e8. (XLA would simplify a constant away.)"""
    large = lax.optimization_barrier(np.float32(1e8))
    return (x + large) - large


def in_scan(x: Any) -> Any:
    return lax.scan(lambda c, _: (lossy(c), None), x, length=2)[0]


def in_while(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, lossy(s[1])), (0, x))[1]


def in_cond(x: Any) -> Any:
    return lax.cond(x > 0, lossy, lambda v: v + 5, x)


@pytest.mark.parametrize("function", [lossy, in_scan, in_while, in_cond, jax.jit(lossy)])
def test_the_error_of_an_ill_conditioned_sum(function: Any) -> None:
    (value,), (exact,), _ = shadowed(function, X)
    assert (value.dtype, exact.dtype) == (np.float32, np.float64)
    assert (float(value), float(exact)) == (0.0, 1.0)


def test_results_of_a_scan_step_have_shadows_too() -> None:
    values, exact, _ = shadowed(
        lambda xs: lax.scan(lambda c, x: (c, lossy(x)), 0.0, xs, reverse=True)[1], np.arange(3, dtype=np.float32)
    )
    np.testing.assert_array_equal(values[0], [0, 0, 0])
    np.testing.assert_array_equal(exact[0], [0, 1, 2])


def test_the_shadow_is_float64_at_heart() -> None:
    x = np.linspace(0.1, 3, 50, dtype=np.float32)
    _, (exact,), _ = shadowed(lambda x: jnp.sum(jnp.exp(x) * jnp.tanh(x)) / jnp.sqrt(x[0]), x)
    wide = x.astype(np.float64)
    assert float(exact) == pytest.approx(np.sum(np.exp(wide) * np.tanh(wide)) / np.sqrt(wide[0]), rel=1e-14)


def test_the_program_s_own_values_decide() -> None:
    """In float32 the sum is 0 and the second branch is taken, though in float64 it is 1."""

    def f(x: Any) -> Any:
        return lax.cond(lossy(x) > 0.5, lambda: np.float32(10), lambda: np.float32(20)), jnp.where(
            lossy(x) > 0.5, x, -x
        )

    values, exact, _ = shadowed(f, X)
    assert [float(v) for v in values] == [float(e) for e in exact] == [20, -1]


@pytest.mark.parametrize(
    "function", [jnp.floor, jnp.round, jnp.sign, lambda x: x.astype(jnp.int32).astype(jnp.float32)]
)
def test_steps_have_no_error_of_their_own(function: Any) -> None:
    values, exact, _ = shadowed(lambda x: function(lossy(x) + np.float32(0.6)), X)
    assert float(values[0]) == float(exact[0])


def test_integers_and_keys_have_no_shadow() -> None:
    values, exact, _ = shadowed(lambda x: jax.random.split(jax.random.wrap_key_data(x)), np.array([1, 2], np.uint32))
    assert values[0].dtype == exact[0].dtype == np.uint32
    np.testing.assert_array_equal(values[0], exact[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.cumsum(x),
        lambda x: jnp.sort(x)[::-1],
        lambda x: lax.reduce(x, np.float32(0), lax.add, (0,)),
        lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b + np.float32(0), (0,)),
        lambda x: jnp.zeros(3).at[jnp.array([0, 1, 1, 2])].add(x),
        lambda x: lax.reduce_window(x, np.float32(0), lax.add, (2,), (1,), "VALID"),
        lambda x: lax.associative_scan(jnp.add, x),
        lambda x: jax.nn.logsumexp(x, keepdims=True),
        lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
        lambda x: lax.reduce_precision(x, 8, 7),
        lambda x: lax.clamp(np.float32(0), x, np.float32(2)),
        lambda x: x[jnp.argsort(x)],
        lambda x: lax.dot(x, x, precision=lax.Precision.HIGHEST),
    ],
)
def test_every_kind_of_equation_runs_wide(function: Any) -> None:
    x = np.array([0.5, 1.0, -2.0, 3.0], np.float32)
    values, exact, _ = shadowed(function, x)
    np.testing.assert_allclose(values[0], exact[0], rtol=1e-6)
    assert exact[0].dtype == np.float64


# Decisions


def scores(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("rows", "near"),
    [
        ([(0, 1, 2)], 0),
        ([(0, 1, 1)], 0),  # equal without any error: the first everywhere
        ([(0, 1, 1 + 5e-6)], 1),
        ([(0, 1, 1 + 5e-5)], 0),
        ([(1, 1, 2)], 0),
        ([(0, 1, 1 + 5e-6), (0, 1, 2), (2, 2, 2)], 1),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_near_ties_of_argmax_and_argmin(rows: Any, near: int, sign: int) -> None:
    function = jnp.argmax if sign == 1 else jnp.argmin
    table = sign * np.array(rows, np.float32)
    assert decisions(lambda x: function(x, axis=-1), table) == (len(rows), near)
    assert decisions(lambda x: function(x, axis=0), table.T) == (len(rows), near)


def test_scores_with_rounding_errors_are_near_a_tie_sooner() -> None:
    def draw(x: Any) -> Any:
        return jnp.argmax(jnp.stack([lossy(x), x * 3]))

    assert decisions(draw, X) == (1, 1), "3 apart, but one of the scores is wrong by 1"
    assert decisions(lambda x: jnp.argmax(jnp.stack([x, x * 3])), X) == (1, 0)


def test_one_score_and_integers_are_no_decision() -> None:
    assert decisions(lambda x: jnp.argmax(x), scores(1)) == (0, 0)
    assert decisions(lambda x: jnp.argmax(x.astype(jnp.int32)), scores(1, 1)) == (0, 0)


WORDS = np.array([3, 4], np.uint32)


def test_comparisons_are_decisions_if_they_are_random() -> None:
    def bernoulli(words: Any) -> Any:
        return jax.random.bernoulli(jax.random.wrap_key_data(words), 0.5, (10,))

    def near(words: Any) -> Any:
        uniform = jax.random.uniform(jax.random.wrap_key_data(words), (10,))
        return uniform < lax.stop_gradient(uniform) + 2e-6

    assert decisions(bernoulli, WORDS) == (10, 0)
    assert decisions(near, WORDS) == (10, 10)
    assert decisions(lambda x: x < x + 1e-6, scores(1, 2)) == (0, 0)


@pytest.mark.parametrize("to", [jnp.floor, jnp.ceil, jnp.round, jnp.sign, lambda x: x.astype(jnp.int32)])
def test_steps_are_decisions_if_they_are_random(to: Any) -> None:
    def near(words: Any, x: Any) -> Any:
        return to(x + 0.0 * jax.random.uniform(jax.random.wrap_key_data(words), x.shape))

    jumps = scores(0.5, 1.5, -0.5) if to is jnp.round else scores(0, 0, 0) if to is jnp.sign else scores(1, 2, -1)
    assert decisions(near, WORDS, jumps + np.float32(3e-6)) == (3, 3)
    assert decisions(near, WORDS, jumps + np.float32(1e-3)) == (3, 0)
    assert decisions(near, WORDS, jumps) == (3, 0), "where it jumps, without any error"
    assert decisions(lambda x: to(x), jumps + np.float32(3e-6)) == (0, 0)


def test_what_equals_the_largest_is_a_decision() -> None:
    def draw(words: Any, x: Any) -> Any:
        x = x + 0.0 * jax.random.uniform(jax.random.wrap_key_data(words), x.shape)
        return (x == x.max()).astype(jnp.float32)

    assert decisions(draw, WORDS, scores(1, 2, 3)) == (3, 0)
    assert decisions(draw, WORDS, scores(1, 3, 3 + 2e-6)) == (3, 1)


def test_a_loop_that_ends_by_chance_decides_at_every_test() -> None:
    def rejection(words: Any) -> Any:
        def again(carry: Any) -> Any:
            return (jax.random.uniform(carry[0]) < 2.0) & (carry[1] < 4)

        key = jax.random.wrap_key_data(words)
        return lax.while_loop(again, lambda c: (jax.random.split(c[0])[0], c[1] + 1), (key, 0))[1]

    assert decisions(rejection, WORDS) == (5, 0)


def test_a_categorical_draw_is_a_decision() -> None:
    def draw(words: Any) -> Any:
        return jax.random.categorical(jax.random.wrap_key_data(words), jnp.zeros((6, 5)))

    total, near = decisions(draw, WORDS)
    assert total == 6
    assert near == 0


def top(k: int) -> Callable[[Any], Any]:
    return lambda x: lax.top_k(x, k)[1]


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        (top(2), (0, 1, 2, 3), (2, 0)),
        (top(2), (0, 2 + 5e-6, 2, 3), (2, 1)),  # which is left out
        (top(2), (0, 1 + 5e-6, 1, 2, 3), (2, 0)),  # both are left out
        (top(2), (0, 3, 3 + 2e-6, 5), (2, 1)),
        (top(3), (1, 1 + 5e-6, 1), (2, 1)),  # two of them are equal, and stay in order
        (top(3), (-np.inf, -np.inf, 1, 1 + 5e-6), (3, 1)),
        (jnp.argsort, (1, 3, 3 + 2e-6, 5), (3, 1)),
        (jnp.argsort, (1, 3, 4, 5), (3, 0)),
        (jnp.sort, (1, 3, 3 + 2e-6, 5), (0, 0)),  # nothing is sorted by it
        (lambda x: lax.top_k(x, 2)[0], (1, 3, 3 + 2e-6, 5), (0, 0)),
        (lambda x: lax.top_k(x.astype(jnp.int32), 2)[1], (1, 3, 3, 5), (0, 0)),
        (jnp.argmax, (-np.inf, 1, 1 + 5e-6), (1, 1)),
    ],
)
def test_the_places_in_an_order_are_decisions(function: Any, values: Any, expected: tuple[int, int]) -> None:
    assert decisions(function, scores(*values)) == expected
    rows = np.stack([scores(*values)] * 2)
    assert decisions(jax.vmap(function), rows) == (2 * expected[0], 2 * expected[1])


def test_a_draw_without_replacement_is_as_many_decisions_as_draws() -> None:
    def draw(words: Any) -> Any:
        key = jax.random.wrap_key_data(words)
        return jax.random.categorical(key, jnp.zeros(6), shape=(3,), replace=False)

    assert decisions(draw, WORDS)[0] == 3


def argmax_of_random(key: Any) -> Any:
    return jnp.argmax(jax.random.uniform(key, (3,)))


@pytest.mark.parametrize(
    ("function", "total"),
    [
        (lambda k: lax.scan(lambda c, _: (c, argmax_of_random(c)), k, length=4)[1], 4),
        (lambda k: lax.fori_loop(0, 3, lambda i, s: s + argmax_of_random(k), 0), 3),
        (lambda k: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, argmax_of_random(k)), (0, 0)), 5),
        (lambda k: lax.cond(jax.random.key_data(k)[0] == 3, argmax_of_random, lambda _: 0, k), 1),
        (lambda k: lax.cond(jax.random.key_data(k)[0] != 3, argmax_of_random, lambda _: 0, k), 0),
        (lambda k: lax.scan(lambda c, _: (c, jax.random.bernoulli(c, 0.5)), k, length=4)[1], 4),
    ],
)
def test_decisions_in_loops_and_branches_are_counted(function: Any, total: int) -> None:
    assert decisions(lambda words: function(jax.random.wrap_key_data(words)), WORDS) == (total, 0)


def test_randomness_is_followed_through_loops() -> None:
    def f(words: Any) -> Any:
        drawn = lax.scan(lambda c, _: (c + jax.random.uniform(jax.random.wrap_key_data(words)), None), 0.0, length=2)[0]
        return drawn < 0.5

    assert decisions(f, WORDS) == (1, 0)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_pieces_agree_with_the_whole(size: int) -> None:
    def policy(key: Any, x: Any) -> Any:
        logits = jnp.tanh(x @ jnp.ones((4, 5))) * jnp.array([1.0, 1, 0, 0, 0])
        drawn = jax.random.categorical(jax.random.wrap_key_data(key), logits)
        return drawn, jnp.argmax(logits, -1), x.sum(), lossy(x[0, 0]), jnp.float32(3)

    args = (np.array([1, 2], np.uint32), np.ones((2, 4), np.float32))
    closed = erase_keys(inline(jax.make_jaxpr(policy)(*args)))
    with enable_x64():
        whole = jax.jit(shadow(closed, [False, False]))(NO_LIMIT, *args)
        pieces = shadow_in_pieces(closed, [False, False], size, jax.jit)(NO_LIMIT, *args)
    for a, b in zip(jax.tree_util.tree_leaves(whole), jax.tree_util.tree_leaves(pieces), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert [bool(t) for t in pieces[3]] == [False, True, False, False, False]


def test_a_loop_that_does_not_end_is_stopped_and_said_so() -> None:
    def f(x: Any) -> Any:
        outer = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, inner(s[1])), (0, x))[1]
        return lax.cond(x > 0, lambda: outer, lambda: -outer)

    def inner(x: Any) -> Any:
        return lax.while_loop(lambda y: jnp.abs(y) > 1, lambda y: y * np.float32(0.5), x)

    closed = inline(jax.make_jaxpr(f)(X))
    with enable_x64():
        for x, limit, stopped in ((8.0, 100, False), (8.0, 2, True), (np.inf, 100, True), (np.nan, 100, False)):
            *_, made, _ = jax.jit(shadow(closed, [False]))(np.int32(limit), np.float32(x))
            assert bool(made.stopped) == stopped, (x, limit)
