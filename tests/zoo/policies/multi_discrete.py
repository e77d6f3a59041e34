"""A multi-discrete head as a game controller needs it: one categorical per button group, each with its own key."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, HEADS = 20, 128, {"move": 9, "turn": 3, "weapon": 6, "fire": 2}


def act(params: Any, key: jax.Array, observation: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    """The actions by head, int32[B] each, and their joint log-probability, float32[B]."""
    hidden = jnp.tanh(observation @ params["in"])
    keys = dict(zip(HEADS, jax.random.split(key, len(HEADS)), strict=True))
    logits = {name: hidden @ params["heads"][name] for name in HEADS}
    action = {name: jax.random.categorical(keys[name], logits[name]) for name in HEADS}
    chosen = [
        jnp.take_along_axis(jax.nn.log_softmax(logits[name]), action[name][:, None], axis=1)[:, 0] for name in HEADS
    ]
    return action, sum(chosen[1:], chosen[0])


def build() -> Model:
    first, *rest = jax.random.split(jax.random.key(0), 1 + len(HEADS))
    params = {
        "in": jax.random.normal(first, (OBSERVATIONS, HIDDEN)) / OBSERVATIONS**0.5,
        "heads": {
            name: jax.random.normal(key, (HIDDEN, size)) / HIDDEN**0.5
            for key, (name, size) in zip(rest, HEADS.items(), strict=True)
        },
    }
    args = (jax.random.key(0), jnp.zeros((2, OBSERVATIONS)))
    return Model("multi_discrete", params, {"act": EntryPoint(act, args, outputs=("action", "log_prob"))})


POLICY = Policy(build, packages=("jax",), draws=True)
