"""A squashed normal of distrax, scaled to the actuators' limits, exported from the distribution object."""

from __future__ import annotations

from typing import Any

import distrax
import haiku as hk
import jax
import jax.numpy as jnp

import opcompat
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN = 11, 96
LIMITS = jnp.array([1.0, 0.5, 2.0])
"""Of each actuator, to both sides."""

NET = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP((HIDDEN, HIDDEN, 2 * len(LIMITS)))(x)))


def policy(params: Any, observation: jax.Array) -> distrax.Transformed:
    mean, raw = jnp.split(NET.apply(params, observation), 2, -1)
    squash = distrax.Chain([distrax.ScalarAffine(jnp.zeros_like(LIMITS), LIMITS), distrax.Tanh()])
    normal = distrax.MultivariateNormalDiag(mean, jax.nn.softplus(raw) + 1e-3)
    return distrax.Transformed(normal, distrax.Block(squash, 1))


def build() -> opcompat.Model:
    observation = jnp.zeros((1, OBSERVATIONS))
    params = NET.init(jax.random.key(0), observation)
    methods = ("sample", "log_prob", "forward")
    return opcompat.Model(
        "distrax_squashed", params, opcompat.distribution_entry_points(policy, (observation,), methods)
    )


POLICY = Policy(build, packages=("distrax", "dm-haiku"), draws=True)
