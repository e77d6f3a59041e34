"""Brax's SAC as it is deployed: one flat observation, normalized; the mode of the action, the key unused."""

from __future__ import annotations

from opcompat.model import Model
from tests.zoo.policies.brax_sac_stochastic import model
from tests.zoo.policy import Policy


def build() -> Model:
    return model("brax_sac_deterministic", deterministic=True)


POLICY = Policy(build, packages=("brax", "flax"))
