"""A Flax linen actor exported with its training switch left on: batch norm by the batch's own statistics, live dropout.

A mistake, but a legal function: what JAX computes must come out, the dropped units drawn from the key as in JAX.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

BATCH, OBSERVATIONS, HIDDEN, ACTIONS = 4, 10, 64, 3


class Actor(nn.Module):
    """float32[batch, OBSERVATIONS] -> float32[batch, ACTIONS]."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        for _ in range(2):
            x = nn.Dense(HIDDEN)(x)
            x = nn.BatchNorm(use_running_average=not train)(x)
            x = nn.Dropout(0.2, deterministic=not train)(nn.relu(x))
        return jnp.tanh(nn.Dense(ACTIONS)(x))


def act(variables: Any, key: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The action with the switch on, and the running mean that training would keep."""
    action, updates = Actor().apply(variables, observation, train=True, rngs={"dropout": key}, mutable=["batch_stats"])
    return action, updates["batch_stats"]["BatchNorm_0"]["mean"]


def intended(variables: Any, observation: jax.Array) -> jax.Array:
    """What was meant: the switch off."""
    return Actor().apply(variables, observation, train=False)


def build() -> Model:
    observation = jnp.zeros((BATCH, OBSERVATIONS))
    variables = Actor().init(jax.random.key(0), observation, train=False)
    return Model(
        "flax_train_switch",
        variables,
        {
            "act": EntryPoint(act, (jax.random.key(0), observation), outputs=("action", "running_mean")),
            "intended": EntryPoint(intended, (observation,), outputs=("action",)),
        },
    )


POLICY = Policy(build, packages=("flax",), draws=True)
