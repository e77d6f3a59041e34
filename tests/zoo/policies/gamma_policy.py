"""A policy of waiting times: gamma draws whose shape and rate a small network gives, shapes below one included."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.stats import gamma

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, TIMERS = 9, 64, 3


def act(params: Any, key: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Positive waiting times, float32[B, TIMERS], and their log-density, float32[B]."""
    hidden = jnp.tanh(observation @ params["in"])
    shape, rate = jnp.split(0.2 + jax.nn.softplus(hidden @ params["out"]), 2, axis=-1)
    times = jax.random.gamma(key, shape) / rate
    return times, jnp.sum(gamma.logpdf(times, shape, scale=1 / rate), axis=-1)


def build() -> Model:
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "in": jax.random.normal(first, (OBSERVATIONS, HIDDEN)) / OBSERVATIONS**0.5,
        "out": jax.random.normal(second, (HIDDEN, 2 * TIMERS)) * 2 / HIDDEN**0.5,
    }
    args = (jax.random.key(0), jnp.zeros((2, OBSERVATIONS)))
    return Model("gamma_policy", params, {"act": EntryPoint(act, args, outputs=("times", "log_prob"))})


POLICY = Policy(build, packages=("jax",), draws=True)
