"""An Equinox MLP as the params of a model, activation functions and dropout switch included, vmapped over a batch."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

BATCH, OBSERVATIONS, HIDDEN, ACTIONS = 2, 18, 128, 5


class Actor(eqx.Module):
    """float32[OBSERVATIONS] -> float32[ACTIONS]."""

    norm: eqx.nn.LayerNorm
    trunk: eqx.nn.MLP
    dropout: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(OBSERVATIONS)
        self.trunk = eqx.nn.MLP(OBSERVATIONS, HIDDEN, HIDDEN, 2, jax.nn.swish, key=first)
        self.dropout = eqx.nn.Dropout(0.1)
        self.head = eqx.nn.Linear(HIDDEN, ACTIONS, key=second)

    def __call__(self, observation: jax.Array) -> jax.Array:
        return self.head(self.dropout(self.trunk(self.norm(observation))))


def act(actor: Actor, key: jax.Array, observation: jax.Array) -> dict[str, jax.Array]:
    """int32[BATCH], each drawn from a key of its own, and the logits."""
    logits = jax.vmap(actor)(observation)
    return {"action": jax.vmap(jax.random.categorical)(jax.random.split(key, BATCH), logits), "logits": logits}


def build() -> Model:
    actor = eqx.nn.inference_mode(Actor(jax.random.key(0)))
    args = (jax.random.key(0), jnp.zeros((BATCH, OBSERVATIONS)))
    return Model("equinox_mlp", actor, {"act": EntryPoint(act, args)})


POLICY = Policy(build, packages=("equinox",), draws=True)
