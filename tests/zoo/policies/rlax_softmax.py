"""A Boltzmann actor: haiku network and rlax's softmax head, with its probabilities and entropy."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import rlax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, ACTIONS, TEMPERATURE = 6, 5, 0.5

NETWORK = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([64, 64, ACTIONS], activation=jax.nn.elu)(x)))


def act(params: Any, key: jax.Array, observation: jax.Array) -> dict[str, jax.Array]:
    """action int32[2], log_prob float32[2], entropy float32[2], probs float32[2, ACTIONS], for two observations."""
    logits = NETWORK.apply(params, observation)
    head = rlax.softmax(TEMPERATURE)
    action = head.sample(key, logits)
    return {
        "action": action,
        "log_prob": head.logprob(action, logits),
        "entropy": head.entropy(logits),
        "probs": head.probs(logits),
    }


def build() -> Model:
    params = NETWORK.init(jax.random.key(0), jnp.zeros((2, OBSERVATIONS)))
    args = (jax.random.key(0), jnp.zeros((2, OBSERVATIONS)))
    return Model("rlax_softmax", params, {"act": EntryPoint(act, args)})


POLICY = Policy(build, packages=("rlax", "dm-haiku"), draws=True)
