"""SAC's actor by hand: a tanh-squashed normal, and the log-probability of the action that it draws."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 11, 64, 3


def act(params: Any, key: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float32[ACTIONS] in (-1, 1), and its log-density, float32[]."""
    hidden = jax.nn.relu(observation @ params["in"] + params["bias"])
    mean, log_std = jnp.split(hidden @ params["out"], 2)
    log_std = jnp.clip(log_std, -5, 2)
    noise = jax.random.normal(key, mean.shape)
    raw = mean + jnp.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    squash = 2 * (jnp.log(2) - raw - jax.nn.softplus(-2 * raw))
    return jnp.tanh(raw), jnp.sum(normal - squash)


def build() -> Model:
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "in": jax.random.normal(first, (OBSERVATIONS, HIDDEN)) / OBSERVATIONS**0.5,
        "bias": jnp.zeros(HIDDEN),
        "out": jax.random.normal(second, (HIDDEN, 2 * ACTIONS)) / HIDDEN**0.5,
    }
    args = (jax.random.key(0), jnp.zeros(OBSERVATIONS))
    return Model("squashed_gaussian", params, {"act": EntryPoint(act, args, outputs=("action", "log_prob"))})


POLICY = Policy(build, packages=("jax",), draws=True)
