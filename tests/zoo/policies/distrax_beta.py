"""A policy over bounded actions that returns independent distrax.Beta, exported from the distribution object."""

from __future__ import annotations

from typing import Any

import distrax
import haiku as hk
import jax
import jax.numpy as jnp

import opcompat
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 9, 64, 3

NET = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP((HIDDEN, HIDDEN, 2 * ACTIONS))(x)))


def policy(params: Any, observation: jax.Array) -> distrax.Independent:
    alpha, beta = jnp.split(1 + jax.nn.softplus(NET.apply(params, observation)), 2, -1)
    return distrax.Independent(distrax.Beta(alpha, beta), 1)


def build() -> opcompat.Model:
    observation = jnp.zeros((1, OBSERVATIONS))
    params = NET.init(jax.random.key(0), observation)
    methods = ("sample", "log_prob", "mode", "entropy")
    return opcompat.Model("distrax_beta", params, opcompat.distribution_entry_points(policy, (observation,), methods))


POLICY = Policy(build, packages=("distrax", "dm-haiku"), draws=True)
