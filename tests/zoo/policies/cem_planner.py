"""The cross-entropy method: plans drawn around a mean, rolled out in a learned model, and refit to the elite."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

STATE, ACTIONS, HORIZON, PLANS, ELITE, ROUNDS = 6, 2, 5, 32, 6, 4


def score(params: Any, state: jax.Array, plan: jax.Array) -> jax.Array:
    """The return float32[] of one plan float32[HORIZON, ACTIONS] from a state float32[STATE]."""

    def advance(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        step = params["dynamics"](jnp.concatenate([state, action]))
        state = state + 0.1 * step
        return state, params["reward"](state)[0] - 0.01 * jnp.sum(action**2)

    return jnp.sum(lax.scan(advance, state, plan)[1])


def act(params: Any, key: jax.Array, state: jax.Array) -> dict[str, jax.Array]:
    """The first action float32[ACTIONS] of the fitted plan, and the elite's worst and best return float32[2]."""

    def refit(carry: Any, own: jax.Array) -> tuple[Any, jax.Array]:
        mean, std = carry
        noise = jax.random.truncated_normal(own, -2, 2, (PLANS, HORIZON, ACTIONS))
        plans = jnp.clip(mean + std * noise, -1, 1)
        returns, best = lax.top_k(jax.vmap(score, (None, None, 0))(params, state, plans), ELITE)
        elite = plans[best]
        return (jnp.mean(elite, 0), jnp.std(elite, 0) + 1e-3), returns[jnp.array([-1, 0])]

    start = jnp.zeros((HORIZON, ACTIONS)), jnp.ones((HORIZON, ACTIONS))
    (mean, _), returns = lax.scan(refit, start, jax.random.split(key, ROUNDS))
    return {"action": mean[0], "returns": returns[-1]}


def build() -> Model:
    first, second = jax.random.split(jax.random.key(0))
    # The activation is a function, not an array: it stays out of the params that are traced.
    networks = {
        "dynamics": eqx.nn.MLP(STATE + ACTIONS, STATE, 64, 2, activation=jnp.tanh, key=first),
        "reward": eqx.nn.MLP(STATE, 1, 64, 1, activation=jnp.tanh, key=second),
    }
    params, static = eqx.partition(networks, eqx.is_array)

    def planner(params: Any, key: jax.Array, state: jax.Array) -> dict[str, jax.Array]:
        return act(eqx.combine(params, static), key, state)

    args = (jax.random.key(0), jnp.zeros(STATE))
    return Model("cem_planner", params, {"act": EntryPoint(planner, args)})


POLICY = Policy(build, packages=("equinox",), draws=True)
