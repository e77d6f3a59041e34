"""A discrete policy that returns distrax.Categorical, exported from the distribution object."""

from __future__ import annotations

from typing import Any

import distrax
import haiku as hk
import jax
import jax.numpy as jnp

import opcompat
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 8, 64, 18

NET = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP((HIDDEN, HIDDEN, ACTIONS))(x)))


def policy(params: Any, observation: jax.Array) -> distrax.Categorical:
    return distrax.Categorical(logits=NET.apply(params, observation))


def build() -> opcompat.Model:
    observation = jnp.zeros((1, OBSERVATIONS))
    params = NET.init(jax.random.key(0), observation)
    methods = ("sample", "log_prob", "mode", "entropy")
    return opcompat.Model(
        "distrax_categorical", params, opcompat.distribution_entry_points(policy, (observation,), methods)
    )


POLICY = Policy(build, packages=("distrax", "dm-haiku"), draws=True)
