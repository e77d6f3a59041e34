"""Brax's PPO as it is deployed: dict observations, normalized; the mode of the action, the key and the rest unused."""

from __future__ import annotations

from opcompat.model import Model
from tests.zoo.policies.brax_ppo_stochastic import model
from tests.zoo.policy import Policy


def build() -> Model:
    return model("brax_ppo_deterministic", deterministic=True)


POLICY = Policy(build, packages=("brax", "flax"))
