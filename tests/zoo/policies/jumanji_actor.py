"""jumanji's own actor-critic for 2048, built from the environment: masked logits, its action distribution."""

from __future__ import annotations

from typing import Any

import jax
import jumanji
import numpy as np
from jumanji.training.networks import make_actor_critic_networks_game_2048

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy


def build() -> Model:
    environment: Any = jumanji.make("Game2048-v1").unwrapped
    networks = make_actor_critic_networks_game_2048(environment, num_channels=16, policy_layers=[64], value_layers=[64])
    spec = environment.observation_spec
    batched = jax.tree_util.tree_map(lambda x: x[None], spec.generate_value())
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "policy": networks.policy_network.init(first, batched),
        "value": networks.value_network.init(second, batched),
    }

    def act(params: Any, key: jax.Array, observation: Any) -> dict[str, jax.Array]:
        """action int32[1], log_prob float32[1], value float32[1]."""
        distribution = networks.parametric_action_distribution
        logits = networks.policy_network.apply(params["policy"], observation)
        raw = distribution.sample_no_postprocessing(logits, key)
        return {
            "action": distribution.postprocess(raw),
            "log_prob": distribution.log_prob(logits, raw),
            "value": networks.value_network.apply(params["value"], observation),
        }

    def inputs(rng: np.random.Generator) -> tuple[Any, Any]:
        """A board of exponents, and a mask that leaves at least one action."""
        board = rng.integers(0, 8, batched.board.shape).astype(np.int32)
        mask = rng.random(batched.action_mask.shape) < 0.6
        mask[:, rng.integers(mask.shape[1])] = True
        return None, batched._replace(board=board, action_mask=mask)

    args = (jax.random.key(0), batched)
    return Model("jumanji_actor", params, {"act": EntryPoint(act, args, inputs=inputs)})


POLICY = Policy(build, packages=("jumanji", "dm-haiku"), draws=True)
