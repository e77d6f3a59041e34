"""A causal transformer policy in Haiku: attends over the last observations and draws an action for the newest."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, LENGTH, HEADS, WIDTH, LAYERS, ACTIONS = 14, 16, 4, 64, 2, 6


def norm(x: jax.Array) -> jax.Array:
    return hk.LayerNorm(axis=-1, create_scale=True, create_offset=True)(x)


def network(history: jax.Array, seen: jax.Array) -> jax.Array:
    """Logits for float32[batch, LENGTH, OBSERVATIONS], of which only where bool[batch, LENGTH] is real."""
    init = hk.initializers.VarianceScaling(2 / LAYERS)
    position = hk.get_parameter("position", (LENGTH, WIDTH), init=hk.initializers.TruncatedNormal(0.02))
    x = hk.Linear(WIDTH)(history) + position
    mask = seen[:, None, None, :] & jnp.tril(jnp.ones((1, 1, LENGTH, LENGTH), bool))
    for _ in range(LAYERS):
        inside = norm(x)
        x += hk.MultiHeadAttention(HEADS, WIDTH // HEADS, model_size=WIDTH, w_init=init)(inside, inside, inside, mask)
        x += hk.nets.MLP([4 * WIDTH, WIDTH], w_init=init, activation=jax.nn.gelu)(norm(x))
    return hk.Linear(ACTIONS)(norm(x)[:, -1])


def build() -> Model:
    net = hk.without_apply_rng(hk.transform(network))

    def act(params: Any, key: jax.Array, history: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = net.apply(params, history, seen)
        return jax.random.categorical(key, logits), jax.nn.log_softmax(logits)

    args = (jnp.zeros((1, LENGTH, OBSERVATIONS)), jnp.ones((1, LENGTH), bool))
    params = net.init(jax.random.key(0), *args)
    entry = EntryPoint(act, (jax.random.key(0), *args), outputs=("action", "log_probs"))
    return Model("haiku_transformer", params, {"act": entry})


POLICY = Policy(build, packages=("dm-haiku",), draws=True)
