"""A mixture density policy of TFP: three diagonal normals, exported from the distribution object."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from tensorflow_probability.substrates import jax as tfp

import opcompat
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS, COMPONENTS = 10, 64, 2, 3


class Actor(nn.Module):
    """Logits [..., COMPONENTS], means and stddevs [..., COMPONENTS, ACTIONS]."""

    @nn.compact
    def __call__(self, observation: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        x = nn.tanh(nn.Dense(HIDDEN)(observation))
        heads = nn.DenseGeneral((COMPONENTS, 2 * ACTIONS))(nn.tanh(nn.Dense(HIDDEN)(x)))
        means, raw = jnp.split(heads, 2, -1)
        return nn.Dense(COMPONENTS)(x), means, nn.softplus(raw) + 1e-2


def policy(params: Any, observation: jax.Array) -> Any:
    logits, means, stddevs = Actor().apply(params, observation)
    tfd = tfp.distributions
    return tfd.MixtureSameFamily(tfd.Categorical(logits=logits), tfd.MultivariateNormalDiag(means, stddevs))


def build() -> opcompat.Model:
    observation = jnp.zeros((1, OBSERVATIONS))
    params = Actor().init(jax.random.key(0), observation)
    methods = ("sample", "log_prob", "mean", "stddev")
    return opcompat.Model("tfp_mixture", params, opcompat.distribution_entry_points(policy, (observation,), methods))


POLICY = Policy(build, packages=("tfp-nightly", "flax"), draws=True)
