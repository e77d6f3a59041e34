"""A Flax nnx actor still in training mode. Dropout's key and count are part of the state, and so of the params.

Every call drops the same units, as in JAX: the count that a call raises is thrown away with the merged module.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

BATCH, OBSERVATIONS, HIDDEN, ACTIONS = 4, 10, 64, 3


class Actor(nnx.Module):
    """float32[batch, OBSERVATIONS] -> float32[batch, ACTIONS]. Modules start in training mode."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(OBSERVATIONS, HIDDEN, rngs=rngs)
        self.norm = nnx.BatchNorm(HIDDEN, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.last = nnx.Linear(HIDDEN, ACTIONS, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.tanh(self.last(self.dropout(nnx.relu(self.norm(self.first(x))))))


def build() -> Model:
    actor = Actor(nnx.Rngs(params=0, dropout=1))
    training, state = nnx.split(actor)
    actor.eval()
    evaluation = nnx.graphdef(actor)

    def act(params: Any, observation: jax.Array) -> jax.Array:
        return nnx.merge(training, params)(observation)

    def intended(params: Any, observation: jax.Array) -> jax.Array:
        return nnx.merge(evaluation, params)(observation)

    args = (jnp.zeros((BATCH, OBSERVATIONS)),)
    entries = {"act": act, "intended": intended}
    points = {name: EntryPoint(function, args, outputs=("action",)) for name, function in entries.items()}
    return Model("flax_nnx_train_switch", state, points)


POLICY = Policy(build, packages=("flax",))
