"""TD-MPC's planner: model predictive path integrals, warm-started with the plan of the step before."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

LATENT, ACTIONS, HORIZON, PLANS, ELITE, ROUNDS = 8, 2, 5, 64, 8, 3


def value(params: Any, latent: jax.Array, plan: jax.Array) -> jax.Array:
    """The discounted return float32[] of a plan float32[HORIZON, ACTIONS] in the latent model."""

    def advance(carry: Any, action: jax.Array) -> tuple[Any, None]:
        latent, total, discount = carry
        joined = jnp.concatenate([latent, action])
        total += discount * jnp.tanh(joined @ params["reward"])
        return (jnp.tanh(joined @ params["dynamics"]), total, 0.97 * discount), None

    (latent, total, discount), _ = lax.scan(advance, (latent, jnp.float32(0), jnp.float32(1)), plan)
    return total + discount * (latent @ params["value"])


def act(params: Any, key: jax.Array, observation: jax.Array, plan: jax.Array) -> dict[str, jax.Array]:
    latent = jax.nn.elu(observation @ params["encoder"])
    own, key = jax.random.split(key)

    def refit(i: jax.Array, carry: Any) -> Any:
        mean, std = carry
        noise = jax.random.normal(jax.random.fold_in(own, i), (PLANS, HORIZON, ACTIONS))
        plans = jnp.clip(mean + std * noise, -1, 1)
        returns, best = lax.top_k(jax.vmap(value, (None, None, 0))(params, latent, plans), ELITE)
        weights = jax.nn.softmax(2 * (returns - returns[0]))
        mean = jnp.einsum("n,nha->ha", weights, plans[best])
        return mean, jnp.clip(jnp.sqrt(jnp.einsum("n,nha->ha", weights, (plans[best] - mean) ** 2)), 0.05, 2)

    mean, std = lax.fori_loop(0, ROUNDS, refit, (plan, jnp.full((HORIZON, ACTIONS), 2.0)))
    action = jnp.clip(mean[0] + std[0] * jax.random.normal(key, (ACTIONS,)), -1, 1)
    return {"action": action, "plan": jnp.roll(mean, -1, 0).at[-1].set(0.0)}


def build() -> Model:
    keys = iter(jax.random.split(jax.random.key(0), 4))
    params = {
        "encoder": jax.random.normal(next(keys), (6, LATENT)) / 2,
        "dynamics": jax.random.normal(next(keys), (LATENT + ACTIONS, LATENT)) / 3,
        "reward": jax.random.normal(next(keys), (LATENT + ACTIONS,)),
        "value": jax.random.normal(next(keys), (LATENT,)),
    }
    plan = jnp.zeros((HORIZON, ACTIONS))
    args = (jax.random.key(0), jnp.zeros(6), plan)
    return Model("mppi_planner", params, {"act": EntryPoint(act, args, feedback={"plan": "plan"}, init={"plan": plan})})


POLICY = Policy(build, packages=("jax",), draws=True)
