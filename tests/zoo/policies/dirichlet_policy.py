"""A portfolio policy: the shares of the assets are a Dirichlet draw around what a small network suggests."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.stats import dirichlet

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ASSETS = 24, 64, 6


def act(params: Any, key: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Shares that sum to one, float32[ASSETS], and their log-density, float32[]."""
    hidden = jax.nn.silu(observation @ params["in"])
    concentration = 0.5 + jax.nn.softplus(hidden @ params["out"])
    shares = jax.random.dirichlet(key, concentration)
    return shares, dirichlet.logpdf(shares, concentration)


def build() -> Model:
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "in": jax.random.normal(first, (OBSERVATIONS, HIDDEN)) / OBSERVATIONS**0.5,
        "out": jax.random.normal(second, (HIDDEN, ASSETS)) * 2 / HIDDEN**0.5,
    }
    args = (jax.random.key(0), jnp.zeros(OBSERVATIONS))
    return Model("dirichlet_policy", params, {"act": EntryPoint(act, args, outputs=("shares", "log_prob"))})


POLICY = Policy(build, packages=("jax",), draws=True)
