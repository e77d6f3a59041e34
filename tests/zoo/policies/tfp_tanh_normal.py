"""SAC's actor as a TFP distribution: a diagonal normal through tanh, exported from the distribution object."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from tensorflow_probability.substrates import jax as tfp

import opcompat
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 17, 128, 6


class Actor(nn.Module):
    """Means and log-stddevs [..., ACTIONS] of the action before tanh."""

    @nn.compact
    def __call__(self, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = nn.relu(nn.Dense(HIDDEN)(observation))
        x = nn.relu(nn.Dense(HIDDEN)(x))
        return nn.Dense(ACTIONS)(x), jnp.clip(nn.Dense(ACTIONS)(x), -5, 2)


def policy(params: Any, observation: jax.Array) -> Any:
    mean, log_std = Actor().apply(params, observation)
    normal = tfp.distributions.MultivariateNormalDiag(mean, jnp.exp(log_std))
    return tfp.distributions.TransformedDistribution(normal, tfp.bijectors.Tanh())


def build() -> opcompat.Model:
    observation = jnp.zeros((1, OBSERVATIONS))
    methods = ("sample", "log_prob", "forward")
    params = Actor().init(jax.random.key(0), observation)
    return opcompat.Model(
        "tfp_tanh_normal", params, opcompat.distribution_entry_points(policy, (observation,), methods)
    )


POLICY = Policy(build, packages=("tfp-nightly", "flax"), draws=True)
