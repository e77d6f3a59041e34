"""A policy that draws again until the action is allowed: a loop that ends by chance, without a bound."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS, RADIUS = 9, 32, 2, 1.5


def act(params: Any, key: jax.Array, observation: jax.Array) -> dict[str, jax.Array]:
    """float32[ACTIONS] within RADIUS of zero, and how many draws it took, int32[]."""
    mean = jnp.tanh(jnp.tanh(observation @ params["in"]) @ params["out"])

    def outside(carry: Any) -> jax.Array:
        return jnp.sum(carry[1] ** 2) > RADIUS**2

    def again(carry: Any) -> Any:
        key, own = jax.random.split(carry[0])
        return key, mean + jnp.exp(params["log_std"]) * jax.random.normal(own, (ACTIONS,)), carry[2] + 1

    _, action, draws = lax.while_loop(outside, again, again((key, mean, jnp.int32(0))))
    return {"action": action, "draws": draws}


def build() -> Model:
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "in": jax.random.normal(first, (OBSERVATIONS, HIDDEN)) / OBSERVATIONS**0.5,
        "out": jax.random.normal(second, (HIDDEN, ACTIONS)) / HIDDEN**0.5,
        "log_std": jnp.full(ACTIONS, 0.3),
    }
    args = (jax.random.key(0), jnp.zeros(OBSERVATIONS))
    return Model("rejection_sampler", params, {"act": EntryPoint(act, args)})


POLICY = Policy(build, packages=("jax",), draws=True)
