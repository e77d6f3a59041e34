"""Brax's vision PPO: two cameras through a convolutional backbone, joined by a normalized proprioceptive state.

Pixels are normalized per channel; the action is drawn. Observation names hold a slash ("pixels/front").
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.training.acme import running_statistics, specs
from brax.training.agents.ppo import networks as ppo_networks
from brax.training.agents.ppo import networks_vision

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

SHAPES = {"pixels/front": (64, 64, 3), "pixels/wrist": (64, 64, 1), "state": (12,)}
ACTIONS = 4


def build() -> Model:
    networks = networks_vision.make_ppo_networks_vision(
        SHAPES,
        ACTIONS,
        preprocess_observations_fn=running_statistics.normalize,
        policy_hidden_layer_sizes=(128,),
        value_hidden_layer_sizes=(128,),
        normalise_channels=True,
        policy_obs_key="state",
        value_obs_key="state",
        cnn_max_pool=True,
        cnn_stride=(2, 2, 1),
    )
    make = ppo_networks.make_inference_fn(networks)
    empty = {name: specs.Array(shape, jnp.dtype("float32")) for name, shape in SHAPES.items()}
    seen = {name: jax.random.normal(jax.random.key(0), (16, *shape)) for name, shape in SHAPES.items()}
    normalizer = running_statistics.update(running_statistics.init_state(empty), seen)
    params = (normalizer, networks.policy_network.init(jax.random.key(1)))

    def act(params: Any, observation: dict[str, jax.Array], key: jax.Array) -> Any:
        return make((*params, None))(observation, key)

    args = ({name: jnp.zeros((1, *shape)) for name, shape in SHAPES.items()}, jax.random.key(0))
    entry = EntryPoint(act, args, outputs=("action", "extras"), inputs=observe)
    return Model("brax_ppo_vision", params, {"act": entry})


def observe(rng: np.random.Generator) -> tuple[Any, ...]:
    """Pixels in [0, 1), the state unit normal."""
    pixels = {name: rng.random((1, *shape)) for name, shape in SHAPES.items() if name != "state"}
    return {**pixels, "state": rng.standard_normal((1, *SHAPES["state"]))}, jax.random.key(0)


POLICY = Policy(build, packages=("brax", "flax"), draws=True)
