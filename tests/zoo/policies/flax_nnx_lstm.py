"""A continuous recurrent actor in Flax nnx; the module itself is handed over as the params, without nnx.split."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 24, 64, 4


class Actor(nnx.Module):
    """(carry, observation) -> (carry, mean, log_std)."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.encoder = nnx.Sequential(nnx.Linear(OBSERVATIONS, HIDDEN, rngs=rngs), nnx.elu)
        self.cell = nnx.OptimizedLSTMCell(HIDDEN, HIDDEN, rngs=rngs)
        self.head = nnx.Linear(HIDDEN, 2 * ACTIONS, rngs=rngs)

    def __call__(self, carry: Any, observation: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        carry, x = self.cell(carry, self.encoder(observation))
        mean, log_std = jnp.split(self.head(x), 2, axis=-1)
        return carry, mean, jnp.clip(log_std, -4, 1)


def act(actor: Actor, key: jax.Array, observation: jax.Array, carry: Any) -> dict[str, Any]:
    """float32[1, ACTIONS] in (-1, 1), its greedy twin, and the next carry."""
    carry, mean, log_std = actor(carry, observation)
    raw = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
    return {"action": jnp.tanh(raw), "greedy": jnp.tanh(mean), "carry": carry}


def build() -> Model:
    carry = (jnp.zeros((1, HIDDEN)), jnp.zeros((1, HIDDEN)))
    args = (jax.random.key(0), jnp.zeros((1, OBSERVATIONS)), carry)
    entry = EntryPoint(act, args, feedback={"carry": "carry"}, init={"carry": carry})
    return Model("flax_nnx_lstm", Actor(nnx.Rngs(0)), {"act": entry})


POLICY = Policy(build, packages=("flax",), draws=True)
