"""A recurrent actor in Flax linen: an encoder, a GRU cell that feeds itself, and a drawn discrete action."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 12, 128, 6


class Actor(nn.Module):
    """(carry, observation) -> (carry, logits, value)."""

    @nn.compact
    def __call__(self, carry: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        x = nn.silu(nn.LayerNorm()(nn.Dense(HIDDEN)(observation)))
        carry, x = nn.GRUCell(HIDDEN)(carry, x)
        return carry, nn.Dense(ACTIONS)(x), nn.Dense(1)(x)[..., 0]


def act(variables: Any, key: jax.Array, observation: jax.Array, state: jax.Array) -> dict[str, jax.Array]:
    """int32[1] in [0, ACTIONS), its log-probability, the value, and the next state."""
    state, logits, value = Actor().apply(variables, state, observation)
    action = jax.random.categorical(key, logits)
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], -1)[:, 0]
    return {"action": action, "log_prob": log_prob, "value": value, "state": state}


def build() -> Model:
    state, observation = jnp.zeros((1, HIDDEN)), jnp.zeros((1, OBSERVATIONS))
    variables = Actor().init(jax.random.key(0), state, observation)
    args = (jax.random.key(0), observation, state)
    entry = EntryPoint(act, args, feedback={"state": "state"}, init={"state": state})
    return Model("flax_linen_gru", variables, {"act": entry})


POLICY = Policy(build, packages=("flax",), draws=True)
