"""Brax's PPO as it trains: dict observations, normalized; the action is drawn, with log-probability and value.

The critic sees more than the actor (`privileged`), as in brax's asymmetric setups.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from brax.training.acme import running_statistics, specs
from brax.training.agents.ppo import networks as ppo_networks

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

SIZES, ACTIONS = {"privileged": 19, "state": 27}, 8


def model(name: str, deterministic: bool) -> Model:
    """One entry point `act(observation, key)`; observations are float32[1, N] by name."""
    networks = ppo_networks.make_ppo_networks(
        {name: (size,) for name, size in SIZES.items()},
        ACTIONS,
        preprocess_observations_fn=running_statistics.normalize,
        policy_hidden_layer_sizes=(64, 64),
        value_hidden_layer_sizes=(64, 64),
        value_obs_key="privileged",
    )
    make = ppo_networks.make_inference_fn(networks, compute_value=True)
    seen = {
        name: 3 * jax.random.normal(jax.random.key(i), (64, size)) + 1 for i, (name, size) in enumerate(SIZES.items())
    }
    empty = {name: specs.Array((size,), jnp.dtype("float32")) for name, size in SIZES.items()}
    first, second = jax.random.split(jax.random.key(2))
    params = (
        running_statistics.update(running_statistics.init_state(empty), seen),
        networks.policy_network.init(first),
        networks.value_network.init(second),
    )

    def act(params: Any, observation: dict[str, jax.Array], key: jax.Array) -> Any:
        return make(params, deterministic=deterministic)(observation, key)

    args = ({name: jnp.zeros((1, size)) for name, size in SIZES.items()}, jax.random.PRNGKey(0))
    return Model(name, params, {"act": EntryPoint(act, args, outputs=("action", "extras"))})


def build() -> Model:
    return model("brax_ppo_stochastic", deterministic=False)


POLICY = Policy(build, packages=("brax", "flax"), draws=True)
