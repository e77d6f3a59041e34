"""A ResNet (flax linen): batch norm on running averages, max pooling, average pooling, a categorical head."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

SIZE, ACTIONS = 32, 6


class Block(nn.Module):
    """Two convolutions and a projected shortcut."""

    filters: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        strides = (self.stride, self.stride)
        y = nn.Conv(self.filters, (3, 3), strides, use_bias=False)(x)
        y = nn.relu(nn.BatchNorm(use_running_average=True)(y))
        y = nn.Conv(self.filters, (3, 3), use_bias=False)(y)
        y = nn.BatchNorm(use_running_average=True)(y)
        if x.shape != y.shape:
            x = nn.BatchNorm(use_running_average=True)(nn.Conv(self.filters, (1, 1), strides, use_bias=False)(x))
        return nn.relu(x + y)


class Encoder(nn.Module):
    """uint8[b, SIZE, SIZE, 3] -> logits float32[b, ACTIONS]."""

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = image.astype(jnp.float32) / 255
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(16, (7, 7), (2, 2), use_bias=False)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for filters, stride in ((16, 1), (32, 2), (64, 2)):
            x = Block(filters, stride)(x)
        x = nn.avg_pool(x, x.shape[1:3])
        return nn.Dense(ACTIONS)(x.reshape(x.shape[0], -1))


ENCODER = Encoder()


def act(params: Any, key: jax.Array, image: jax.Array) -> dict[str, jax.Array]:
    """action int32[b], logits float32[b, ACTIONS]."""
    logits = ENCODER.apply(params, image)
    return {"action": jax.random.categorical(key, logits), "logits": logits}


def build() -> Model:
    image = jnp.zeros((1, SIZE, SIZE, 3), jnp.uint8)
    params = ENCODER.init(jax.random.key(0), image)
    return Model("resnet_encoder", params, {"act": EntryPoint(act, (jax.random.key(0), image))})


POLICY = Policy(build, packages=("flax",), draws=True)
