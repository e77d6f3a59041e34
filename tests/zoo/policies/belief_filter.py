"""A policy on beliefs: a Kalman update beside a particle filter that resamples when its weights degenerate."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

STATE, SEEN, PARTICLES, ACTIONS = 3, 2, 32, 4


def kalman(params: Any, seen: jax.Array, mean: jax.Array, covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The belief after one step of linear dynamics and one observation float32[SEEN]."""
    a, c = params["dynamics"], params["sensor"]
    mean, covariance = a @ mean, a @ covariance @ a.T + 0.1 * jnp.eye(STATE)
    gain = jax.scipy.linalg.solve(c @ covariance @ c.T + 0.5 * jnp.eye(SEEN), c @ covariance, assume_a="pos").T
    return mean + gain @ (seen - c @ mean), (jnp.eye(STATE) - gain @ c) @ covariance


def resampled(key: jax.Array, particles: jax.Array, log_weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Systematic resampling where fewer than half of the particles carry the weight."""
    weights = jnp.exp(log_weights)
    places = (jnp.arange(PARTICLES) + jax.random.uniform(key)) / PARTICLES
    chosen = jnp.clip(jnp.searchsorted(jnp.cumsum(weights), places), 0, PARTICLES - 1)
    even = jnp.full(PARTICLES, -jnp.log(float(PARTICLES)))
    few = 1 / jnp.sum(weights**2) < PARTICLES / 2
    return lax.cond(few, lambda: (particles[chosen], even), lambda: (particles, log_weights))


def act(params: Any, key: jax.Array, seen: jax.Array, belief: dict[str, jax.Array]) -> dict[str, Any]:
    mean, covariance = kalman(params, seen, belief["mean"], belief["covariance"])
    move, resample, draw = jax.random.split(key, 3)
    particles = belief["particles"] @ params["dynamics"].T + 0.3 * jax.random.normal(move, (PARTICLES, STATE))
    distance = jnp.sum((particles @ params["sensor"].T - seen) ** 2, -1)
    particles, log_weights = resampled(resample, particles, jax.nn.log_softmax(belief["log_weights"] - distance))
    logits = jnp.concatenate([mean, jnp.exp(log_weights) @ particles]) @ params["head"]
    belief = {"mean": mean, "covariance": covariance, "particles": particles, "log_weights": log_weights}
    return {"action": jax.random.categorical(draw, logits), "belief": belief}


def build() -> Model:
    keys = jax.random.split(jax.random.key(0), 2)
    params = {
        "dynamics": 0.9 * jnp.eye(STATE) + 0.1 * jnp.eye(STATE, k=1),
        "sensor": jax.random.normal(keys[0], (SEEN, STATE)),
        "head": jax.random.normal(keys[1], (2 * STATE, ACTIONS)),
    }
    belief = {
        "mean": jnp.zeros(STATE),
        "covariance": jnp.eye(STATE),
        "particles": jnp.zeros((PARTICLES, STATE)),
        "log_weights": jnp.full(PARTICLES, -jnp.log(float(PARTICLES))),
    }
    args = (jax.random.key(0), jnp.zeros(SEEN), belief)
    entry = EntryPoint(act, args, feedback={"belief": "belief"}, init={"belief": belief})
    return Model("belief_filter", params, {"act": entry})


POLICY = Policy(build, packages=("jax",), draws=True)
