"""MuZero: a tree search by mctx over a learned model (flax linen), Dirichlet noise at the root, the action drawn."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import mctx

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, EMBEDDING, ACTIONS, SIMULATIONS = 8, 32, 6, 12


class Represent(nn.Module):
    """float32[b, OBSERVATIONS] -> float32[b, EMBEDDING]."""

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        hidden = nn.relu(nn.Dense(64)(observation))
        return nn.tanh(nn.Dense(EMBEDDING)(hidden))


class Predict(nn.Module):
    """float32[b, EMBEDDING] -> logits float32[b, ACTIONS], value float32[b]."""

    @nn.compact
    def __call__(self, embedding: jax.Array) -> tuple[jax.Array, jax.Array]:
        hidden = nn.relu(nn.Dense(64)(embedding))
        return nn.Dense(ACTIONS)(hidden), nn.Dense(1)(hidden)[:, 0]


class Imagine(nn.Module):
    """(embedding, int32[b] action) -> the next embedding, and the reward float32[b]."""

    @nn.compact
    def __call__(self, embedding: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        hidden = nn.relu(nn.Dense(64)(jnp.concatenate([embedding, jax.nn.one_hot(action, ACTIONS)], -1)))
        return nn.tanh(nn.LayerNorm()(nn.Dense(EMBEDDING)(hidden))), nn.Dense(1)(hidden)[:, 0]


REPRESENT, PREDICT, IMAGINE = Represent(), Predict(), Imagine()


def root(params: Any, observation: jax.Array) -> mctx.RootFnOutput:
    """The root of the search for a batch of observations."""
    embedding = REPRESENT.apply(params["represent"], observation)
    logits, value = PREDICT.apply(params["predict"], embedding)
    return mctx.RootFnOutput(prior_logits=logits, value=value, embedding=embedding)


def step(params: Any, key: jax.Array, action: jax.Array, embedding: jax.Array) -> tuple[Any, jax.Array]:
    """mctx's recurrent function: one step of the learned model."""
    del key
    embedding, reward = IMAGINE.apply(params["imagine"], embedding, action)
    logits, value = PREDICT.apply(params["predict"], embedding)
    output = mctx.RecurrentFnOutput(
        reward=reward, discount=jnp.full_like(reward, 0.99), prior_logits=logits, value=value
    )
    return output, embedding


def initial() -> Any:
    """Random parameters of the three networks."""
    keys = jax.random.split(jax.random.key(0), 3)
    observation, embedding = jnp.zeros((1, OBSERVATIONS)), jnp.zeros((1, EMBEDDING))
    return {
        "represent": REPRESENT.init(keys[0], observation),
        "predict": PREDICT.init(keys[1], embedding),
        "imagine": IMAGINE.init(keys[2], embedding, jnp.zeros(1, jnp.int32)),
    }


def act(params: Any, key: jax.Array, observation: jax.Array) -> dict[str, jax.Array]:
    """action int32[b], action_weights float32[b, ACTIONS]."""
    found = mctx.muzero_policy(params, key, root(params, observation), step, num_simulations=SIMULATIONS)
    return {"action": found.action, "action_weights": found.action_weights}


def build() -> Model:
    args = (jax.random.key(0), jnp.zeros((1, OBSERVATIONS)))
    return Model("mctx_muzero", initial(), {"act": EntryPoint(act, args)})


POLICY = Policy(build, packages=("mctx", "flax"), draws=True)
