"""A robot arm's policy with three heads: a dict of distrax distributions, discrete and continuous."""

from __future__ import annotations

from typing import Any

import distrax
import haiku as hk
import jax
import jax.numpy as jnp

import opcompat
from tests.zoo.policy import Policy

JOINTS, CAMERA, HIDDEN = 7, 32, 128


def _heads(observation: dict[str, jax.Array]) -> dict[str, jax.Array]:
    x = hk.nets.MLP((HIDDEN, HIDDEN), activate_final=True)(jnp.concatenate(list(observation.values()), -1))
    sizes = {"arm": 2 * JOINTS, "gripper": 3, "lights": 4}
    return {name: hk.Linear(size, name=name)(x) for name, size in sizes.items()}


NET = hk.without_apply_rng(hk.transform(_heads))


def policy(params: Any, observation: dict[str, jax.Array]) -> dict[str, distrax.Distribution]:
    heads = NET.apply(params, observation)
    mean, raw = jnp.split(heads["arm"], 2, -1)
    return {
        "arm": distrax.MultivariateNormalDiag(jnp.tanh(mean), jax.nn.softplus(raw) + 1e-2),
        "gripper": distrax.Categorical(logits=heads["gripper"]),
        "lights": distrax.Independent(distrax.Bernoulli(logits=heads["lights"]), 1),
    }


def build() -> opcompat.Model:
    observation = {"camera": jnp.zeros((1, CAMERA)), "joints": jnp.zeros((1, JOINTS))}
    params = NET.init(jax.random.key(0), observation)
    methods = ("sample", "log_prob", "mode", "entropy")
    return opcompat.Model("distrax_heads", params, opcompat.distribution_entry_points(policy, (observation,), methods))


POLICY = Policy(build, packages=("distrax", "dm-haiku"), draws=True)
