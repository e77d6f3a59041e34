"""An action mask as a board game has it: forbidden actions get a logit of -inf before one is drawn.

Log-probability and entropy come with the action; at least one action is always allowed.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS, BATCH = 27, 64, 9, 4


def act(params: Any, key: jax.Array, board: jax.Array, allowed: jax.Array) -> dict[str, jax.Array]:
    """board float32[B, OBSERVATIONS], allowed bool[B, ACTIONS]; action int32[B], log_prob and entropy float32[B]."""
    hidden = jax.nn.gelu(board @ params["in"] + params["bias"])
    logits = jnp.where(allowed, hidden @ params["out"], -jnp.inf)
    action = jax.random.categorical(key, logits, axis=-1)
    log_probs = jax.nn.log_softmax(logits)
    chosen = jnp.sum(jnp.where(jax.nn.one_hot(action, ACTIONS, dtype=bool), log_probs, 0), axis=-1)
    entropy = -jnp.sum(jnp.where(allowed, jnp.exp(log_probs) * log_probs, 0), axis=-1)
    return {"action": action, "log_prob": chosen, "entropy": entropy, "best": jnp.argmax(logits, axis=-1)}


def build() -> Model:
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "in": jax.random.normal(first, (OBSERVATIONS, HIDDEN)) / OBSERVATIONS**0.5,
        "bias": jnp.zeros(HIDDEN),
        "out": jax.random.normal(second, (HIDDEN, ACTIONS)) / HIDDEN**0.5,
    }
    args = (jax.random.key(0), jnp.zeros((BATCH, OBSERVATIONS)), jnp.ones((BATCH, ACTIONS), bool))
    return Model("masked_categorical", params, {"act": EntryPoint(act, args, inputs=play)})


def play(rng: np.random.Generator) -> tuple[Any, ...]:
    """Random boards on which about half of the actions are allowed, and one surely."""
    allowed = rng.random((BATCH, ACTIONS)) < 0.5
    allowed[np.arange(BATCH), rng.integers(0, ACTIONS, BATCH)] = True
    return jax.random.key(0), rng.standard_normal((BATCH, OBSERVATIONS)), allowed


POLICY = Policy(build, packages=("jax",), draws=True)
