"""A recurrent Equinox actor, taken apart with eqx.partition: the arrays are the params, the rest is closed over."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

OBSERVATIONS, HIDDEN, ACTIONS = 9, 80, 3


class Actor(eqx.Module):
    """(state, observation) -> (state, mean)."""

    encoder: eqx.nn.Linear
    activation: Callable[[jax.Array], jax.Array]
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear
    log_std: jax.Array

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.encoder = eqx.nn.Linear(OBSERVATIONS, HIDDEN, key=keys[0])
        self.activation = jax.nn.softplus
        self.cell = eqx.nn.GRUCell(HIDDEN, HIDDEN, key=keys[1])
        self.head = eqx.nn.Linear(HIDDEN, ACTIONS, key=keys[2])
        self.log_std = jnp.full(ACTIONS, -1.0)

    def __call__(self, state: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = self.cell(self.activation(self.encoder(observation)), state)
        return state, self.head(state)


def build() -> Model:
    params, static = eqx.partition(Actor(jax.random.key(0)), eqx.is_array)

    def act(params: Actor, key: jax.Array, observation: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        actor = eqx.combine(params, static)
        state, mean = actor(state, observation)
        return mean + jnp.exp(actor.log_std) * jax.random.normal(key, mean.shape), state

    state = jnp.zeros(HIDDEN)
    entry = EntryPoint(
        act,
        (jax.random.key(0), jnp.zeros(OBSERVATIONS), state),
        outputs=("action", "state"),
        feedback={"state": "state"},
        init={"state": state},
    )
    return Model("equinox_gru", params, {"act": entry})


POLICY = Policy(build, packages=("equinox",), draws=True)
