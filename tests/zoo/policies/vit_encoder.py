"""A vision transformer (flax linen) on camera images as bytes, with a class token and a categorical head."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

SIZE, PATCH, WIDTH, LAYERS, ACTIONS = 32, 8, 64, 2, 6


class Encoder(nn.Module):
    """uint8[b, SIZE, SIZE, 3] -> logits float32[b, ACTIONS]."""

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        scaled = image.astype(jnp.float32) / 255 - 0.5
        patches = nn.Conv(WIDTH, (PATCH, PATCH), (PATCH, PATCH), padding="VALID")(scaled)
        tokens = patches.reshape(image.shape[0], -1, WIDTH)
        first = self.param("class", nn.initializers.normal(0.02), (1, 1, WIDTH))
        tokens = jnp.concatenate([jnp.tile(first, (image.shape[0], 1, 1)), tokens], 1)
        tokens = tokens + self.param("positions", nn.initializers.normal(0.02), (1, tokens.shape[1], WIDTH))
        for _ in range(LAYERS):
            tokens = tokens + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(tokens))
            tokens = tokens + nn.Dense(WIDTH)(nn.gelu(nn.Dense(2 * WIDTH)(nn.LayerNorm()(tokens)), approximate=False))
        return nn.Dense(ACTIONS)(nn.LayerNorm()(tokens)[:, 0])


ENCODER = Encoder()


def act(params: Any, key: jax.Array, image: jax.Array) -> dict[str, jax.Array]:
    """action int32[b], log_prob float32[b]."""
    logits = nn.log_softmax(ENCODER.apply(params, image))
    action = jax.random.categorical(key, logits)
    return {"action": action, "log_prob": jnp.take_along_axis(logits, action[:, None], -1)[:, 0]}


def build() -> Model:
    image = jnp.zeros((1, SIZE, SIZE, 3), jnp.uint8)
    params = ENCODER.init(jax.random.key(0), image)
    return Model("vit_encoder", params, {"act": EntryPoint(act, (jax.random.key(0), image))})


POLICY = Policy(build, packages=("flax",), draws=True)
