"""Equinox modules together: convolutions, rotary attention and an LSTM over images, with dropout off."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

SIZE, WIDTH, HIDDEN, ACTIONS = 20, 16, 32, 5


class Actor(eqx.Module):
    """Images float32[3, SIZE, SIZE] to logits float32[ACTIONS]; the state is the LSTM's."""

    convolutions: eqx.nn.Sequential
    norm: eqx.nn.LayerNorm
    rotary: eqx.nn.RotaryPositionalEmbedding
    attention: eqx.nn.MultiheadAttention
    dropout: eqx.nn.Dropout
    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        keys = iter(jax.random.split(key, 5))
        self.convolutions = eqx.nn.Sequential(
            [
                eqx.nn.Conv2d(3, WIDTH, 4, stride=2, key=next(keys)),
                eqx.nn.GroupNorm(4, WIDTH),
                eqx.nn.Lambda(jax.nn.leaky_relu),
                eqx.nn.MaxPool2d(3, 3),
                eqx.nn.Conv2d(WIDTH, WIDTH, 1, key=next(keys)),
            ]
        )
        self.norm, self.rotary = eqx.nn.LayerNorm(WIDTH), eqx.nn.RotaryPositionalEmbedding(WIDTH)
        self.attention = eqx.nn.MultiheadAttention(4, WIDTH, dropout_p=0.1, key=next(keys))
        self.dropout = eqx.nn.Dropout(0.1)
        self.cell = eqx.nn.LSTMCell(WIDTH, HIDDEN, key=next(keys))
        self.head = eqx.nn.Linear(HIDDEN, ACTIONS, key=next(keys))

    def __call__(self, image: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        tokens = jax.vmap(self.norm)(self.convolutions(image).reshape(WIDTH, -1).T)
        causal = jnp.tril(jnp.ones((len(tokens),) * 2, bool))
        placed = self.rotary(tokens)
        mixed = self.dropout(tokens + self.attention(placed, placed, tokens, mask=causal))
        state = self.cell(mixed.mean(0), state)
        return self.head(state[0]), state


def act(params: Any, key: jax.Array, image: jax.Array, state: Any) -> dict[str, Any]:
    logits, state = params(image, state)
    return {"action": jax.random.categorical(key, logits), "logits": logits, "state": state}


def build() -> Model:
    actor = eqx.nn.inference_mode(Actor(jax.random.key(0)))
    state = (jnp.zeros(HIDDEN), jnp.zeros(HIDDEN))
    args = (jax.random.key(0), jnp.zeros((3, SIZE, SIZE)), state)
    entry = EntryPoint(act, args, feedback={"state": "state"}, init={"state": state})
    return Model("equinox_attention", actor, {"act": entry})


POLICY = Policy(build, packages=("equinox",), draws=True)
