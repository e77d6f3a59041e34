"""A decision transformer that acts step by step: a ring of cached keys and values, written at a position fed back."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, ACTIONS, WIDTH, HEADS, LAYERS, CONTEXT = 9, 4, 64, 4, 2, 32


class Block(nn.Module):
    """One layer on one token; `cache` is float32[2, CONTEXT, HEADS, WIDTH // HEADS], keys and values."""

    @nn.compact
    def __call__(self, token: jax.Array, cache: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        query, key, value = (nn.DenseGeneral((HEADS, WIDTH // HEADS))(nn.LayerNorm()(token)) for _ in range(3))
        slot = position % CONTEXT
        cache = lax.dynamic_update_slice(cache, jnp.stack([key, value])[:, None], (0, slot, 0, 0))
        seen = jnp.arange(CONTEXT) <= position
        scores = jnp.einsum("hd,thd->ht", query, cache[0]) / jnp.sqrt(WIDTH // HEADS)
        weights = nn.softmax(jnp.where(seen, scores, -1e9))
        token = token + nn.DenseGeneral(WIDTH, axis=(-2, -1))(jnp.einsum("ht,thd->hd", weights, cache[1]))
        return token + nn.Dense(WIDTH)(nn.gelu(nn.Dense(2 * WIDTH)(nn.LayerNorm()(token)))), cache


class Transformer(nn.Module):
    """One step: logits float32[ACTIONS] and the new caches float32[LAYERS, 2, CONTEXT, HEADS, WIDTH // HEADS]."""

    @nn.compact
    def __call__(self, inputs: tuple[jax.Array, ...], caches: jax.Array, position: jax.Array) -> Any:
        to_go, observation, action = inputs
        token = nn.Dense(WIDTH)(observation) + nn.Dense(WIDTH)(jnp.atleast_1d(to_go)) + nn.Embed(ACTIONS, WIDTH)(action)
        token = token + nn.Embed(CONTEXT, WIDTH)(position % CONTEXT)
        new = []
        for layer in range(LAYERS):
            token, cache = Block()(token, caches[layer], position)
            new.append(cache)
        return nn.Dense(ACTIONS)(nn.LayerNorm()(token)), jnp.stack(new)


NETWORK = Transformer()


def act(params: Any, key: jax.Array, to_go: jax.Array, observation: jax.Array, state: Any) -> tuple[jax.Array, Any]:
    """action int32[], and the state: caches, position int32[] and the last action."""
    inputs = to_go, observation, state["action"]
    logits, caches = NETWORK.apply(params, inputs, state["caches"], state["position"])
    action = jax.random.categorical(key, logits)
    return action, {"caches": caches, "position": state["position"] + 1, "action": action}


def build() -> Model:
    caches = jnp.zeros((LAYERS, 2, CONTEXT, HEADS, WIDTH // HEADS))
    state = {"caches": caches, "position": jnp.int32(0), "action": jnp.int32(0)}
    to_go, observation = jnp.float32(1), jnp.zeros(OBSERVATIONS)
    inputs = to_go, observation, jnp.int32(0)
    params = NETWORK.init(jax.random.key(0), inputs, caches, jnp.int32(0))
    entry = EntryPoint(
        act,
        (jax.random.key(0), to_go, observation, state),
        outputs=("action", "state"),
        feedback={"state": "state"},
        init={"state": state},
    )
    return Model("decision_transformer", params, {"act": entry})


POLICY = Policy(build, packages=("flax",), draws=True)
