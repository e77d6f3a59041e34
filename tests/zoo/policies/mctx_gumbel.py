"""Gumbel MuZero: sequential halving by mctx over the learned model of mctx_muzero, with invalid actions masked."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mctx
import numpy as np

from opcompat.model import EntryPoint, Model
from tests.zoo.policies.mctx_muzero import ACTIONS, OBSERVATIONS, SIMULATIONS, initial, root, step
from tests.zoo.policy import Policy


def act(params: Any, key: jax.Array, observation: jax.Array, invalid: jax.Array) -> dict[str, jax.Array]:
    """action int32[b], action_weights float32[b, ACTIONS]; `invalid` is bool[b, ACTIONS]."""
    found = mctx.gumbel_muzero_policy(
        params,
        key,
        root(params, observation),
        step,
        num_simulations=SIMULATIONS,
        invalid_actions=invalid,
        qtransform=mctx.qtransform_completed_by_mix_value,
        max_num_considered_actions=4,
    )
    return {"action": found.action, "action_weights": found.action_weights}


def inputs(rng: np.random.Generator) -> tuple[Any, ...]:
    """At least one action is valid."""
    invalid = rng.random((1, ACTIONS)) < 0.2
    invalid[:, rng.integers(ACTIONS)] = False
    return None, rng.standard_normal((1, OBSERVATIONS)).astype(np.float32), invalid


def build() -> Model:
    args = (jax.random.key(0), jnp.zeros((1, OBSERVATIONS)), jnp.zeros((1, ACTIONS), bool))
    return Model("mctx_gumbel", initial(), {"act": EntryPoint(act, args, inputs=inputs)})


POLICY = Policy(build, packages=("mctx", "flax"), draws=True)
