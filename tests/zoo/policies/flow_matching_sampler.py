"""Flow matching: noise becomes an action chunk by Euler steps along a learned velocity, in a fori_loop."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HORIZON, ACTIONS, STEPS = 10, 8, 3, 10


class Velocity(nn.Module):
    """The velocity float32[HORIZON, ACTIONS] at a chunk, a time in [0, 1) and an observation."""

    @nn.compact
    def __call__(self, chunk: jax.Array, time: jax.Array, observation: jax.Array) -> jax.Array:
        context = jnp.concatenate([observation, jnp.atleast_1d(time)])
        hidden = nn.Dense(64)(chunk) + nn.Dense(64)(context)
        hidden = hidden + nn.SelfAttention(num_heads=2)(nn.LayerNorm()(hidden))
        hidden = hidden + nn.Dense(64)(nn.gelu(nn.Dense(128)(nn.LayerNorm()(hidden))))
        return nn.Dense(ACTIONS)(hidden)


VELOCITY = Velocity()


def act(params: Any, key: jax.Array, observation: jax.Array) -> jax.Array:
    """float32[HORIZON, ACTIONS] in (-1, 1)."""

    def advance(index: jax.Array, chunk: jax.Array) -> jax.Array:
        return chunk + VELOCITY.apply(params, chunk, index / STEPS, observation) / STEPS

    noise = jax.random.normal(key, (HORIZON, ACTIONS))
    return jnp.tanh(lax.fori_loop(0, STEPS, advance, noise))


def build() -> Model:
    params = VELOCITY.init(jax.random.key(0), jnp.zeros((HORIZON, ACTIONS)), jnp.float32(0), jnp.zeros(OBSERVATIONS))
    args = (jax.random.key(0), jnp.zeros(OBSERVATIONS))
    return Model("flow_matching_sampler", params, {"act": EntryPoint(act, args, outputs=("actions",))})


POLICY = Policy(build, packages=("flax",), draws=True)
