"""Brax's SAC with layer norm: one flat observation, normalized; the tanh-squashed action is drawn."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from brax.training.acme import running_statistics, specs
from brax.training.agents.sac import networks as sac_networks

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, ACTIONS = 17, 6


def model(name: str, deterministic: bool) -> Model:
    """One entry point `act(observation, key)`; the observation is float32[1, OBSERVATIONS]."""
    networks = sac_networks.make_sac_networks(
        OBSERVATIONS,
        ACTIONS,
        preprocess_observations_fn=running_statistics.normalize,
        hidden_layer_sizes=(128, 128),
        policy_network_layer_norm=True,
    )
    make = sac_networks.make_inference_fn(networks)
    normalizer = running_statistics.init_state(specs.Array((OBSERVATIONS,), jnp.dtype("float32")))
    seen = 2 * jax.random.normal(jax.random.key(0), (256, OBSERVATIONS)) - 1
    params = (running_statistics.update(normalizer, seen), networks.policy_network.init(jax.random.key(1)))

    def act(params: Any, observation: jax.Array, key: jax.Array) -> jax.Array:
        action, _ = make(params, deterministic=deterministic)(observation, key)
        return action

    args = (jnp.zeros((1, OBSERVATIONS)), jax.random.key(0))
    return Model(name, params, {"act": EntryPoint(act, args, outputs=("action",))})


def build() -> Model:
    return model("brax_sac_stochastic", deterministic=False)


POLICY = Policy(build, packages=("brax", "flax"), draws=True)
