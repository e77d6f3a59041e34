"""A conditional RealNVP policy of distrax's coupling layers: three entry points by hand, which share the weights."""

from __future__ import annotations

from typing import Any

import distrax
import haiku as hk
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

CONDITION, ACTIONS, LAYERS = 12, 4, 4


def conditioner(hidden: int) -> hk.Transformed:
    """From masked actions and the condition to a shift and a bounded log-scale for every action: [..., ACTIONS, 2]."""

    def net(masked: jax.Array, condition: jax.Array) -> jax.Array:
        x = jnp.concatenate([masked, condition], -1)
        out = hk.nets.MLP((hidden, hidden, 2 * ACTIONS), activation=jax.nn.silu)(x)
        return out.reshape(*out.shape[:-1], ACTIONS, 2)

    return hk.without_apply_rng(hk.transform(net))


def flow(params: Any, condition: jax.Array, hidden: int) -> distrax.Transformed:
    """The action's distribution given condition[B, CONDITION]: batch [B], event [ACTIONS]."""
    apply = conditioner(hidden).apply
    mask = jnp.arange(ACTIONS) % 2 == 0

    def affine(shift_and_scale: jax.Array) -> distrax.Bijector:
        shift, log_scale = shift_and_scale[..., 0], jnp.tanh(shift_and_scale[..., 1])
        return distrax.ScalarAffine(shift=shift, log_scale=log_scale)

    layers = [
        distrax.MaskedCoupling(
            mask=mask if layer % 2 else ~mask,
            bijector=affine,
            conditioner=lambda masked, weights=weights: apply(weights, masked, condition),
        )
        for layer, weights in enumerate(params)
    ]
    zeros = jnp.zeros((*condition.shape[:-1], ACTIONS))
    return distrax.Transformed(distrax.MultivariateNormalDiag(zeros, jnp.ones_like(zeros)), distrax.Chain(layers))


def init(hidden: int) -> Any:
    examples = jnp.zeros((1, ACTIONS)), jnp.zeros((1, CONDITION))
    return [conditioner(hidden).init(key, *examples) for key in jax.random.split(jax.random.key(0), LAYERS)]


def build(hidden: int = 64) -> Model:
    def sample(params: Any, condition: jax.Array, key: jax.Array) -> Any:
        return flow(params, condition, hidden).sample_and_log_prob(seed=key)

    def log_prob(params: Any, condition: jax.Array, action: jax.Array) -> Any:
        return flow(params, condition, hidden).log_prob(action)

    def forward(params: Any, condition: jax.Array, latents: jax.Array) -> Any:
        return flow(params, condition, hidden).bijector.forward(latents)

    condition, action = jnp.zeros((1, CONDITION)), jnp.zeros((1, ACTIONS))
    entry_points = {
        "sample": EntryPoint(sample, (condition, jax.random.key(0)), outputs=("action", "log_prob")),
        "log_prob": EntryPoint(log_prob, (condition, action), outputs=("log_prob",)),
        "forward": EntryPoint(forward, (condition, action), outputs=("action",)),
    }
    return Model("realnvp", init(hidden), entry_points)


POLICY = Policy(build, packages=("distrax", "dm-haiku"), draws=True)
