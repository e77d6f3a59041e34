"""A continuous recurrent actor in Flax linen: two stacked LSTM cells (one of them the fused OptimizedLSTMCell)."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 17, 64, 6


def cells() -> tuple[nn.RNNCellBase, ...]:
    """Made inside the actor, they belong to it; outside, they only say how their state begins."""
    return nn.LSTMCell(HIDDEN), nn.OptimizedLSTMCell(HIDDEN)


class Actor(nn.Module):
    """(carries, observation) -> (carries, mean)."""

    @nn.compact
    def __call__(self, carries: Any, observation: jax.Array) -> tuple[Any, jax.Array]:
        x, after = observation, []
        for cell, carry in zip(cells(), carries, strict=True):
            carry, x = cell(carry, x)
            after.append(carry)
        return tuple(after), nn.Dense(ACTIONS)(nn.LayerNorm()(x))


def start(variables: Any) -> tuple[Any]:
    """The state before the first step, from the cells' own initializer."""
    return (tuple(cell.initialize_carry(jax.random.key(0), (1, OBSERVATIONS)) for cell in cells()),)


def act(variables: Any, key: jax.Array, observation: jax.Array, state: Any) -> tuple[jax.Array, Any]:
    """float32[1, ACTIONS] around a learned mean with a learned spread, and the next state."""
    state, mean = Actor().apply(variables["net"], state, observation)
    return jnp.tanh(mean + jnp.exp(variables["log_std"]) * jax.random.normal(key, mean.shape)), state


def build() -> Model:
    observation = jnp.zeros((1, OBSERVATIONS))
    (state,) = start({})
    net = Actor().init(jax.random.key(0), state, observation)
    entry = EntryPoint(
        act,
        (jax.random.key(0), observation, state),
        outputs=("action", "state"),
        feedback={"state": "state"},
        init={"state": "start.state"},
    )
    params = {"net": net, "log_std": jnp.full(ACTIONS, -0.5)}
    return Model("flax_linen_lstm", params, {"start": EntryPoint(start, outputs=("state",)), "act": entry})


POLICY = Policy(build, packages=("flax",), draws=True)
