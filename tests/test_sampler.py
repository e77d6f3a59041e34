"""Inputs for verification: reproducible, plausible, and at the boundaries."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opcompat.errors import ConfigError
from opcompat.model import EntryPoint, Model
from opcompat.sampler import boundary, keys, sample
from opcompat.trace import Trace, trace


def policy(params: Any, key: Any, more: Any, obs: Any, raw: Any) -> Any:
    return {"y": obs["vector"]}


ARGS = (
    jax.random.key(0),
    jax.random.split(jax.random.key(0), (2, 3)),
    {
        "vector": jnp.zeros((4, 8)),
        "is_first": jnp.zeros((1000,), bool),
        "done": jnp.zeros((1000,), bool),
        "image": jnp.zeros((50, 50), jnp.uint8),
        "small": jnp.zeros((300,), jnp.int8),
        "id": jnp.zeros((300,), jnp.int32),
        "half": jnp.zeros((8,), jnp.bfloat16),
    },
    jax.random.PRNGKey(0),
)


def entry(**options: Any) -> tuple[EntryPoint, Trace]:
    point = EntryPoint(policy, ARGS, **options)
    return point, trace(Model("m", (), {"f": point}), "f")


def test_the_same_seed_and_step_give_the_same_inputs() -> None:
    point, one = entry()
    first, again = sample(point, one, 3, 4), sample(point, one, 3, 4)
    assert {n: (a.shape, str(a.dtype)) for n, a in first.items()} == {x.name: (x.shape, x.dtype) for x in one.inputs}
    assert all(first[n].tobytes() == again[n].tobytes() for n in first)


@pytest.mark.parametrize("where", [(4, 4), (3, 5)])
def test_another_seed_or_step_gives_others(where: tuple[int, int]) -> None:
    point, one = entry()
    first, other = sample(point, one, 3, 4), sample(point, one, *where)
    same = {n for n in first if first[n].tobytes() == other[n].tobytes()}
    assert not same


def test_keys_are_what_a_caller_would_make() -> None:
    _, one = entry()
    found = keys(one, 3, 4)
    base = jax.random.fold_in(jax.random.key(3), 4)
    np.testing.assert_array_equal(found["key"], jax.random.key_data(base))
    expected = jax.random.key_data(jax.random.split(jax.random.fold_in(base, 1), (2, 3)))
    np.testing.assert_array_equal(found["more"], expected)
    assert found["more"].dtype == np.uint32


def test_raw_words_that_are_a_key_are_sampled_as_one() -> None:
    point = EntryPoint(lambda p, key: jax.random.uniform(key), (jax.random.PRNGKey(0),), names=("key",))
    one = trace(Model("m", (), {"f": point}), "f")
    np.testing.assert_array_equal(sample(point, one, 1, 2)["key"], jax.random.fold_in(jax.random.PRNGKey(1), 2))


def test_values_are_plausible() -> None:
    point, one = entry()
    at = sample(point, one, 0, 1)
    assert 0.5 < at["obs.vector"].std() < 1.5
    assert 0 < at["obs.is_first"].mean() < 0.05
    assert 0.05 < at["obs.done"].mean() < 0.2
    assert (at["obs.image"].min(), at["obs.image"].max()) == (0, 255)
    assert (at["obs.small"].min(), at["obs.small"].max()) >= (0, 100)
    assert set(at["obs.id"]) == set(range(8))
    assert np.isfinite(at["obs.half"].astype(np.float32)).all()


def test_is_first_is_set_on_the_first_step() -> None:
    point, one = entry()
    assert sample(point, one, 0, 0)["obs.is_first"].all()
    assert not sample(point, one, 0, 0)["obs.done"].all()


def test_boundaries_leave_keys_and_state_alone() -> None:
    point, one = entry()
    base = sample(point, one, 0, 0)
    seen: dict[str, set[bytes]] = {n: set() for n in base}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _, given in boundary(one, frozenset({"obs.id"}), base):
            assert {n: (a.shape, a.dtype) for n, a in given.items()} == {n: (a.shape, a.dtype) for n, a in base.items()}
            for name, array in given.items():
                seen[name].add(array.ravel()[:1].tobytes() if name != "obs.id" else array.tobytes())
    assert len(seen["key"]) == len(seen["obs.id"]) == 1
    vector = {float(np.frombuffer(x, np.float32)[0]) for x in seen["obs.vector"]}
    assert {0.0, np.inf, -np.inf} <= vector
    assert any(np.isnan(x) for x in vector)
    assert np.float32(-0.0).tobytes() in seen["obs.vector"]
    assert {np.uint8(0).tobytes(), np.uint8(255).tobytes()} <= seen["obs.image"]
    assert {np.int8(-128).tobytes(), np.int8(127).tobytes()} <= seen["obs.small"]
    assert len(seen["obs.done"]) == 2


# The entry point's own sampler


def own(params: Any, key: Any, obs: Any) -> Any:
    return {"y": obs["x"] + jax.random.uniform(key)}


OWN_ARGS = (jax.random.key(0), {"x": jnp.zeros(3), "n": jnp.zeros((), jnp.int32)})


def sampled(inputs: Any) -> dict[str, np.ndarray]:
    point = EntryPoint(own, OWN_ARGS, inputs=inputs)
    return sample(point, trace(Model("m", (), {"f": point}), "f"), 1, 2)


def test_an_own_sampler_is_asked_and_its_keys_are_not() -> None:
    found = sampled(lambda rng: (jax.random.key(99), {"x": rng.uniform(5, 6, 3), "n": 7}))
    assert ((found["obs.x"] >= 5) & (found["obs.x"] <= 6)).all()
    assert (found["obs.x"].dtype, found["obs.n"].dtype, int(found["obs.n"])) == (np.float32, np.int32, 7)
    np.testing.assert_array_equal(found["key"], jax.random.key_data(jax.random.fold_in(jax.random.key(1), 2)))


def test_an_own_sampler_is_reproducible() -> None:
    def draw(rng: Any) -> Any:
        return 0, {"x": rng.standard_normal(3), "n": 0}

    np.testing.assert_array_equal(sampled(draw)["obs.x"], sampled(draw)["obs.x"])


def raises(rng: Any) -> Any:
    raise ValueError("no data here")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            lambda rng: (0, {"x": rng.standard_normal(4), "n": 0}),
            r"f: inputs\(rng\) gives \(4,\) for obs.x, not \(3,\)",
        ),
        (lambda rng: (0, {"x": rng.standard_normal(3)}), "gives nothing for obs.n"),
        (lambda rng: (0,), "gives nothing for obs"),
        (raises, r"f: inputs\(rng\) fails: ValueError: no data here; next:"),
        (lambda rng: None, r"f: inputs\(rng\) fails: TypeError"),
    ],
)
def test_an_own_sampler_that_does_not_fit(inputs: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sampled(inputs)
