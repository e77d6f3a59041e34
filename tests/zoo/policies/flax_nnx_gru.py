"""A recurrent actor in Flax nnx: a GRU cell for each step, nnx.RNN over a history; the params are an nnx.State."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS, HISTORY = 10, 96, 5, 8


class Actor(nnx.Module):
    """(carry, observation) -> (carry, logits)."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.encoder = nnx.Linear(OBSERVATIONS, HIDDEN, rngs=rngs)
        self.norm = nnx.RMSNorm(HIDDEN, rngs=rngs)
        self.cell = nnx.GRUCell(HIDDEN, HIDDEN, rngs=rngs)
        self.head = nnx.Linear(HIDDEN, ACTIONS, rngs=rngs)

    def encode(self, observation: jax.Array) -> jax.Array:
        return nnx.gelu(self.norm(self.encoder(observation)))

    def __call__(self, carry: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry, x = self.cell(carry, self.encode(observation))
        return carry, self.head(x)

    def over(self, history: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Reads float32[batch, HISTORY, OBSERVATIONS] at once."""
        carry, xs = nnx.RNN(self.cell)(self.encode(history), return_carry=True)
        return carry, self.head(xs)


def build() -> Model:
    graph, state = nnx.split(Actor(nnx.Rngs(0)))

    def act(params: Any, key: jax.Array, observation: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry, logits = nnx.merge(graph, params)(carry, observation)
        return jax.random.categorical(key, logits), carry

    def warm_up(params: Any, history: jax.Array) -> tuple[jax.Array, jax.Array]:
        return nnx.merge(graph, params).over(history)

    carry, observation = jnp.zeros((1, HIDDEN)), jnp.zeros((1, OBSERVATIONS))
    step = EntryPoint(
        act,
        (jax.random.key(0), observation, carry),
        outputs=("action", "carry"),
        feedback={"carry": "carry"},
        init={"carry": carry},
    )
    history = EntryPoint(warm_up, (jnp.zeros((1, HISTORY, OBSERVATIONS)),), outputs=("carry", "logits"))
    return Model("flax_nnx_gru", state, {"act": step, "warm_up": history})


POLICY = Policy(build, packages=("flax",), draws=True)
