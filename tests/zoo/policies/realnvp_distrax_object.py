"""The conditional RealNVP policy of distrax, exported from the distribution object."""

from __future__ import annotations

from typing import Any

import distrax
import jax
import jax.numpy as jnp

import opcompat
from tests.zoo.policies.realnvp_distrax import CONDITION, flow, init
from tests.zoo.policy import Policy

METHODS = ("sample", "log_prob", "forward", "inverse")


def build(hidden: int = 64) -> opcompat.Model:
    def policy(params: Any, condition: jax.Array) -> distrax.Transformed:
        return flow(params, condition, hidden)

    entry_points = opcompat.distribution_entry_points(policy, (jnp.zeros((1, CONDITION)),), METHODS)
    return opcompat.Model("realnvp_object", init(hidden), entry_points)


POLICY = Policy(build, packages=("distrax", "dm-haiku"), draws=True)
