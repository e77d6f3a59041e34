"""Feedback and first values: from names of pytrees to leaves, and every way in which they may not fit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opcompat.contract import Contract, contracts
from opcompat.errors import ConfigError
from opcompat.model import EntryPoint, Model
from opcompat.trace import trace

H, N = jnp.zeros((1, 3)), jnp.zeros(2, jnp.int32)


def start(params: Any) -> Any:
    return {"state": {"h": H, "n": N}, "extra": jnp.zeros((1, 4)), "key": jax.random.key(0)}


def step(params: Any, x: Any, state: Any, key: Any) -> Any:
    return {"action": x, "state": state, "next_key": jax.random.split(key)[0], "wide": jnp.zeros((1, 4)), "ints": N}


def contract(feedback: Any = (), init: Any = (), **entry_points: EntryPoint) -> Contract:
    policy = EntryPoint(step, (H, {"h": H, "n": N}, jax.random.key(0)), feedback=dict(feedback), init=dict(init))
    model = Model("m", (), {"start": EntryPoint(start), "policy": policy, **entry_points})
    return contracts(model, {name: trace(model, name) for name in model.entry_points})["policy"]


FROM_START = {"state": "start.state"}


def test_whole_pytrees_are_connected_leaf_by_leaf() -> None:
    found = contract({"state": "state"}, FROM_START)
    assert found.feedback == {"state.h": "state.h", "state.n": "state.n"}
    assert {k: (s.entry_point, s.output) for k, s in found.starts.items()} == {
        "state.h": ("start", "state.h"),
        "state.n": ("start", "state.n"),
    }


def test_single_leaves() -> None:
    found = contract({"state.h": "state.h"}, {"state.h": "start.state.h"})
    assert found.feedback == {"state.h": "state.h"}
    assert list(found.starts) == ["state.h"]


def test_no_feedback() -> None:
    assert contract() == Contract({}, {})


def test_a_first_value_without_feedback() -> None:
    assert contract(init={"x": np.ones((1, 3), np.float32)}).feedback == {}


def test_a_key_may_be_fed_back() -> None:
    found = contract({"next_key": "key"}, {"key": jax.random.key(5)})
    np.testing.assert_array_equal(found.starts["key"].array, jax.random.key_data(jax.random.key(5)))
    assert contract({"next_key": "key"}, {"key": "start.key"}).starts["key"].output == "key"


def test_arrays_as_first_values() -> None:
    given = {"h": np.ones((1, 3), np.float32), "n": np.array([1, 2], np.int8)}
    found = contract({"state": "state"}, {"state": given})
    np.testing.assert_array_equal(found.starts["state.h"].array, given["h"])
    assert found.starts["state.n"].array.dtype == np.int32, "what fits without loss is converted"


@pytest.mark.parametrize(
    ("feedback", "init", "message"),
    [
        ({"memory": "state"}, {}, "policy: feedback names the output 'memory', but there are only action, ints, "),
        ({"state": "memory"}, {}, "policy: feedback names the input 'memory', but there are only x, state.h, "),
        ({"stat": "state"}, {}, "names the output 'stat'"),
        ({"action": "state"}, {}, "the two have different leaves: action, state.h, state.n has no partner"),
        ({"wide": "x"}, {}, "wide is float32[1, 4], but x takes float32[1, 3]"),
        ({"ints": "x"}, {}, "ints is int32[2], but x takes float32[1, 3]"),
        ({"state": "state"}, {}, 'state.h, state.n is fed back, but init= does not say where .* next: init={"state"'),
        ({"state": "state"}, {"state.h": "start.state.h"}, "policy: state.n is fed back, but"),
        ({}, {"memory": "start.state"}, "init names the input 'memory'"),
        ({}, {"state": "start"}, "'start', which is not ENTRY_POINT.OUTPUT with an entry point of start, policy"),
        ({}, {"state": "begin.state"}, "'begin.state', which is not ENTRY_POINT.OUTPUT"),
        ({}, {"state": "start.memory"}, "init 'state' names 'start.memory', but there are only extra, key, state.h"),
        ({}, {"x": "start.extra"}, "extra is float32[1, 4], but x takes float32[1, 3]"),
        ({}, {"x": "start.state.n"}, "state.n is int32[2], but x takes float32[1, 3]"),
        ({}, {"x": np.ones((2, 3), np.float32)}, "x is float32[2, 3], but the input takes float32[1, 3]"),
        ({}, {"x": np.ones((1, 3), complex)}, "x is complex128[1, 3], but the input takes float32[1, 3]"),
        ({}, {"state": {"h": np.ones((1, 3), np.float32)}}, r"has leaves \['.h'\], the input \['.h', '.n'\]"),
    ],
)
def test_what_does_not_fit(feedback: Any, init: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("[1", r"\[1").replace("[2", r"\[2")) as caught:
        contract(feedback, init)
    assert str(caught.value).startswith("policy: ")
    assert caught.value.exit_code == 2
