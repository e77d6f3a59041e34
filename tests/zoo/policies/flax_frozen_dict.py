"""An actor-critic in Flax linen whose variables are a FrozenDict, as checkpoints of older Flax have them."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core import FrozenDict, freeze

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

SIZE, FRAMES, HIDDEN, ACTIONS = 24, 4, 128, 9


class ActorCritic(nn.Module):
    """A small Atari-style network: float32[batch, SIZE, SIZE, FRAMES] -> (logits, value)."""

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = nn.relu(nn.Conv(16, (4, 4), strides=2, padding="VALID")(x))
        x = nn.relu(nn.Conv(32, (3, 3), strides=2)(x))
        x = nn.relu(nn.Dense(HIDDEN)(x.reshape(x.shape[0], -1)))
        return nn.Dense(ACTIONS)(x), nn.Dense(1)(x)[..., 0]


def act(variables: FrozenDict[str, Any], key: jax.Array, frames: jax.Array) -> dict[str, jax.Array]:
    """An action for uint8 frames, drawn, and the value."""
    logits, value = ActorCritic().apply(variables, frames / 255.0)
    return {"action": jax.random.categorical(key, logits), "value": value}


def build() -> Model:
    frames = jnp.zeros((1, SIZE, SIZE, FRAMES), jnp.uint8)
    variables = freeze(ActorCritic().init(jax.random.key(0), frames / 255.0))
    return Model("flax_frozen_dict", variables, {"act": EntryPoint(act, (jax.random.key(0), frames))})


POLICY = Policy(build, packages=("flax",), draws=True)
