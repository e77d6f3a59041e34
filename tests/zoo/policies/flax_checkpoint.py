"""A Flax actor that the factory loads from disk: weights saved with flax.serialization, the normalizer with orbax."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import flax.linen as nn
import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 15, 96, 7


class Actor(nn.Module):
    """float32[batch, OBSERVATIONS] -> float32[batch, ACTIONS]."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for _ in range(2):
            x = nn.tanh(nn.Dense(HIDDEN)(x))
        return nn.Dense(ACTIONS)(x)


def train(folder: Path) -> None:
    """Stands for the training run: all that it leaves is in `folder`."""
    variables = Actor().init(jax.random.key(3), jnp.zeros((1, OBSERVATIONS)))
    (folder / "actor.msgpack").write_bytes(flax.serialization.to_bytes(variables))
    seen = np.random.default_rng(0).normal(2, 3, (100, OBSERVATIONS)).astype(np.float32)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "normalizer", {"mean": jnp.mean(seen, 0), "std": jnp.std(seen, 0)})


def restore(folder: Path) -> Any:
    """The parameters as they come from disk: numpy arrays from msgpack, committed jax arrays from orbax."""
    with ocp.StandardCheckpointer() as checkpointer:
        normalizer = checkpointer.restore(folder / "normalizer")
    return {
        "actor": flax.serialization.msgpack_restore((folder / "actor.msgpack").read_bytes()),
        "normalizer": normalizer,
    }


def act(params: Any, key: jax.Array, observation: jax.Array) -> jax.Array:
    """int32[1] in [0, ACTIONS)."""
    normalized = (observation - params["normalizer"]["mean"]) / (params["normalizer"]["std"] + 1e-6)
    return jax.random.categorical(key, Actor().apply(params["actor"], jnp.clip(normalized, -5, 5)))


def build() -> Model:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(folder)
        params = restore(folder)
    args = (jax.random.key(0), jnp.zeros((1, OBSERVATIONS)))
    return Model("flax_checkpoint", params, {"act": EntryPoint(act, args, outputs=("action",))})


POLICY = Policy(build, packages=("flax", "orbax-checkpoint"), draws=True)
