"""A recurrent actor-critic in the style of PureJaxRL: a flax GRU, scanned over time, that starts over where an
episode ended. Its distrax head gives an action and its log-probability, beside the value; the state feeds back.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS, BATCH = 10, 64, 5, 2


class ResettingGRU(nn.Module):
    """Scanned over the leading axis of (inputs float32[T, B, HIDDEN], done bool[T, B])."""

    @partial(nn.scan, variable_broadcast="params", split_rngs={"params": False}, in_axes=0, out_axes=0)
    @nn.compact
    def __call__(self, state: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        inputs, done = step
        cell = nn.GRUCell(HIDDEN)
        fresh = cell.initialize_carry(jax.random.key(0), inputs.shape)
        carry, output = cell(jnp.where(done[:, None], fresh, state), inputs)
        return carry, output


class ActorCritic(nn.Module):
    """(state float32[B, HIDDEN], observation, done) -> (state, a categorical over ACTIONS, value float32[T, B])."""

    @nn.compact
    def __call__(self, state: jax.Array, observation: jax.Array, done: jax.Array) -> tuple[Any, Any, Any]:
        embedded = nn.relu(nn.Dense(HIDDEN, kernel_init=nn.initializers.orthogonal(2**0.5))(observation))
        state, hidden = ResettingGRU()(state, (embedded, done))
        actor = nn.relu(nn.Dense(HIDDEN)(hidden))
        critic = nn.relu(nn.Dense(HIDDEN)(hidden))
        return state, distrax.Categorical(logits=nn.Dense(ACTIONS)(actor)), nn.Dense(1)(critic)[..., 0]


def build() -> Model:
    network = ActorCritic()
    state = jnp.zeros((BATCH, HIDDEN))
    observation, done = jnp.zeros((BATCH, OBSERVATIONS)), jnp.zeros(BATCH, bool)
    params = network.init(jax.random.key(0), state, observation[None], done[None])

    def act(params: Any, key: jax.Array, observation: jax.Array, done: jax.Array, state: jax.Array) -> dict[str, Any]:
        state, policy, value = network.apply(params, state, observation[None], done[None])
        action, log_prob = policy.sample_and_log_prob(seed=key)
        return {"action": action[0], "value": value[0], "log_prob": log_prob[0], "state": state}

    entry = EntryPoint(
        act,
        (jax.random.key(0), observation, done, state),
        feedback={"state": "state"},
        init={"state": np.zeros((BATCH, HIDDEN), np.float32)},
    )
    return Model("purejaxrl_recurrent", params, {"act": entry})


POLICY = Policy(build, packages=("flax", "distrax"), draws=True)
