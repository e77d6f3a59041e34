"""Model-predictive control by random shooting: many uniform plans, the first action of the best one."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

STATE, ACTIONS, HORIZON, PLANS = 6, 2, 6, 64


class Dynamics(nn.Module):
    """The next states float32[PLANS, STATE] of states and actions."""

    @nn.compact
    def __call__(self, state: jax.Array, action: jax.Array) -> jax.Array:
        hidden = nn.swish(nn.Dense(64)(jnp.concatenate([state, action], -1)))
        return state + 0.1 * nn.Dense(STATE)(hidden)


DYNAMICS = Dynamics()


def act(params: Any, key: jax.Array, state: jax.Array, goal: jax.Array) -> dict[str, jax.Array]:
    """action float32[ACTIONS], plan int32[] (which of the plans), cost float32[]."""
    plans = jax.random.uniform(key, (HORIZON, PLANS, ACTIONS), minval=-1, maxval=1)

    def advance(states: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array]:
        states = DYNAMICS.apply(params, states, actions)
        return states, jnp.linalg.norm(states - goal, axis=-1) + 0.1 * jnp.abs(actions).sum(-1)

    _, costs = lax.scan(advance, jnp.broadcast_to(state, (PLANS, STATE)), plans)
    total = costs.sum(0)
    best = jnp.argmin(total)
    return {"action": plans[0, best], "plan": best, "cost": total[best]}


def build() -> Model:
    params = DYNAMICS.init(jax.random.key(0), jnp.zeros((PLANS, STATE)), jnp.zeros((PLANS, ACTIONS)))
    args = (jax.random.key(0), jnp.zeros(STATE), jnp.zeros(STATE))
    return Model("random_shooting", params, {"act": EntryPoint(act, args)})


POLICY = Policy(build, packages=("flax",), draws=True)
