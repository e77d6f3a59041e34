"""A greedy policy behind the interface of a drawing one: it takes a key, as its caller gives one, and never uses it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 8, 64, 4


def act(params: Any, key: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The best action, int32[B], and all values, float32[B, ACTIONS]."""
    del key
    values = jax.nn.relu(observation @ params["in"]) @ params["out"]
    return jnp.argmax(values, axis=-1), values


def build() -> Model:
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "in": jax.random.normal(first, (OBSERVATIONS, HIDDEN)) / OBSERVATIONS**0.5,
        "out": jax.random.normal(second, (HIDDEN, ACTIONS)) / HIDDEN**0.5,
    }
    args = (jax.random.key(0), jnp.zeros((1, OBSERVATIONS)))
    return Model("unused_key", params, {"act": EntryPoint(act, args, outputs=("action", "values"))})


POLICY = Policy(build, packages=("jax",))
