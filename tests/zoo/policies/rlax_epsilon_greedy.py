"""A DQN's actor: haiku Q-network, rlax's epsilon-greedy head with the epsilon as an input, and its log-probability."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import rlax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, ACTIONS = 6, 5

NETWORK = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([64, 64, ACTIONS])(x)))


def act(params: Any, key: jax.Array, observation: jax.Array, epsilon: jax.Array) -> dict[str, jax.Array]:
    """action int32[], log_prob float32[]; `epsilon` is float32[]."""
    values = NETWORK.apply(params, observation)
    head = rlax.epsilon_greedy()
    action = head.sample(key, values, epsilon)
    return {"action": action, "log_prob": head.logprob(action, values, epsilon)}


def inputs(rng: Any) -> tuple[Any, ...]:
    """An epsilon in [0.01, 1)."""
    return None, rng.standard_normal(OBSERVATIONS, "float32"), jnp.float32(rng.uniform(0.01, 1))


def build() -> Model:
    params = NETWORK.init(jax.random.key(0), jnp.zeros(OBSERVATIONS))
    args = (jax.random.key(0), jnp.zeros(OBSERVATIONS), jnp.float32(0.1))
    return Model("rlax_epsilon_greedy", params, {"act": EntryPoint(act, args, inputs=inputs)})


POLICY = Policy(build, packages=("rlax", "dm-haiku"), draws=True)
