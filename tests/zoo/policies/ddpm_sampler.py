"""A diffusion policy: DDPM over a chunk of actions, fresh noise in every step of a scan, keys split beforehand."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HORIZON, ACTIONS, STEPS = 10, 4, 2, 16

BETAS = jnp.linspace(1e-4, 0.1, STEPS)
KEPT = jnp.cumprod(1 - BETAS)


class Denoiser(nn.Module):
    """Predicts the noise in a chunk float32[HORIZON, ACTIONS], given the step int32[] and the observation."""

    @nn.compact
    def __call__(self, chunk: jax.Array, step: jax.Array, observation: jax.Array) -> jax.Array:
        angles = step.astype(jnp.float32) * 100.0 ** -jnp.linspace(0, 1, 8)
        time = nn.Dense(32)(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)]))
        hidden = jnp.concatenate([chunk.ravel(), nn.silu(time), observation])
        for _ in range(2):
            hidden = nn.silu(nn.LayerNorm()(nn.Dense(64)(hidden)))
        return nn.Dense(HORIZON * ACTIONS)(hidden).reshape(chunk.shape)


DENOISER = Denoiser()


def act(params: Any, key: jax.Array, observation: jax.Array) -> jax.Array:
    """float32[HORIZON, ACTIONS]."""
    start, *keys = jax.random.split(key, STEPS + 1)

    def denoise(chunk: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        step, own = at
        beta, kept = BETAS[step], KEPT[step]
        predicted = DENOISER.apply(params, chunk, step, observation)
        mean = (chunk - beta / jnp.sqrt(1 - kept) * predicted) / jnp.sqrt(1 - beta)
        noise = jnp.where(step > 0, jnp.sqrt(beta), 0.0) * jax.random.normal(own, chunk.shape)
        return mean + noise, None

    first = jax.random.normal(start, (HORIZON, ACTIONS))
    chunk, _ = lax.scan(denoise, first, (jnp.arange(STEPS), jnp.stack(keys)), reverse=True)
    return jnp.clip(chunk, -1, 1)


def build() -> Model:
    params = DENOISER.init(jax.random.key(0), jnp.zeros((HORIZON, ACTIONS)), jnp.int32(0), jnp.zeros(OBSERVATIONS))
    args = (jax.random.key(0), jnp.zeros(OBSERVATIONS))
    return Model("ddpm_sampler", params, {"act": EntryPoint(act, args, outputs=("actions",))})


POLICY = Policy(build, packages=("flax",), draws=True)
