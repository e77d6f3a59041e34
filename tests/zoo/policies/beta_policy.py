"""A policy for bounded torques: each action is a beta draw, stretched to the joint's limits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.stats import beta

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN = 11, 64
LOW, HIGH = jnp.array([-2.0, -1.0, -0.5]), jnp.array([2.0, 1.0, 0.5])


def act(params: Any, key: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float32[B, 3] within the limits, and its log-density, float32[B]."""
    hidden = jnp.tanh(observation @ params["in"])
    a, b = jnp.split(1 + jax.nn.softplus(hidden @ params["out"]), 2, axis=-1)
    unit = jnp.clip(jax.random.beta(key, a, b), 1e-6, 1 - 1e-6)
    log_prob = jnp.sum(beta.logpdf(unit, a, b) - jnp.log(HIGH - LOW), axis=-1)
    return LOW + (HIGH - LOW) * unit, log_prob


def build() -> Model:
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "in": jax.random.normal(first, (OBSERVATIONS, HIDDEN)) / OBSERVATIONS**0.5,
        "out": jax.random.normal(second, (HIDDEN, 2 * LOW.size)) / HIDDEN**0.5,
    }
    args = (jax.random.key(0), jnp.zeros((2, OBSERVATIONS)))
    return Model("beta_policy", params, {"act": EntryPoint(act, args, outputs=("action", "log_prob"))})


POLICY = Policy(build, packages=("jax",), draws=True)
