"""A conditional RealNVP policy of TFP's bijectors on JAX: three entry points by hand, which share the weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from tensorflow_probability.substrates import jax as tfp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

tfb, tfd = tfp.bijectors, tfp.distributions
CONDITION, ACTIONS, MASKED, LAYERS = 12, 4, 2, 4


class Coupling(nn.Module):
    """Shift and bounded log-scale [..., units] of the unmasked actions, from masked actions and the condition."""

    hidden: int

    @nn.compact
    def __call__(self, masked: jax.Array, condition: jax.Array, units: int) -> tuple[jax.Array, jax.Array]:
        x = jnp.concatenate([masked, condition], -1)
        x = nn.gelu(nn.Dense(self.hidden)(x))
        x = nn.gelu(nn.Dense(self.hidden)(x))
        shift, log_scale = jnp.split(nn.Dense(2 * units)(x), 2, -1)
        return shift, jnp.tanh(log_scale)


def flow(params: Any, condition: jax.Array, hidden: int) -> Any:
    """The action's tfd.TransformedDistribution given condition[B, CONDITION]: batch [B], event [ACTIONS]."""
    net, steps = Coupling(hidden), []
    for weights in params:

        def shift_and_log_scale(masked: jax.Array, units: int, weights: Any = weights) -> tuple[jax.Array, jax.Array]:
            found: tuple[jax.Array, jax.Array] = net.apply(weights, masked, condition, units)
            return found

        steps += [tfb.RealNVP(MASKED, shift_and_log_scale_fn=shift_and_log_scale), tfb.Permute([2, 3, 0, 1])]
    zeros = jnp.zeros((*condition.shape[:-1], ACTIONS))
    return tfd.TransformedDistribution(tfd.MultivariateNormalDiag(zeros, jnp.ones_like(zeros)), tfb.Chain(steps))


def init(hidden: int) -> Any:
    net, examples = Coupling(hidden), (jnp.zeros((1, MASKED)), jnp.zeros((1, CONDITION)))
    return [net.init(key, *examples, ACTIONS - MASKED) for key in jax.random.split(jax.random.key(0), LAYERS)]


def build(hidden: int = 64) -> Model:
    def sample(params: Any, condition: jax.Array, key: jax.Array) -> Any:
        return flow(params, condition, hidden).experimental_sample_and_log_prob(seed=key)

    def log_prob(params: Any, condition: jax.Array, action: jax.Array) -> Any:
        return flow(params, condition, hidden).log_prob(action)

    def forward(params: Any, condition: jax.Array, latents: jax.Array) -> Any:
        return flow(params, condition, hidden).bijector.forward(latents)

    condition, action = jnp.zeros((1, CONDITION)), jnp.zeros((1, ACTIONS))
    entry_points = {
        "sample": EntryPoint(sample, (condition, jax.random.key(0)), outputs=("action", "log_prob")),
        "log_prob": EntryPoint(log_prob, (condition, action), outputs=("log_prob",)),
        "forward": EntryPoint(forward, (condition, action), outputs=("action",)),
    }
    return Model("realnvp", init(hidden), entry_points)


POLICY = Policy(build, packages=("tfp-nightly", "flax"), draws=True)
