"""One observation of all kinds of containers: a dataclass that holds a namedtuple, a nested dict and a tuple; the key
comes by keyword.

Their fields and keys become the names of the inputs: `observation.body.position`, `observation.sensors.arm.torque`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

HIDDEN, ACTIONS = 64, 5


class Pose(NamedTuple):
    position: jax.Array
    velocity: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Observation:
    body: Pose
    sensors: dict[str, Any]
    goals: tuple[jax.Array, jax.Array]
    step: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Decision:
    action: jax.Array
    target: Pose


def act(params: Any, observation: Observation, *, key: jax.Array) -> Decision:
    """An action, int32[], and where the body should be, float32[3] each."""
    progress = jnp.minimum(observation.step.astype(jnp.float32) / 100, 1)
    leaves = jax.tree_util.tree_leaves((observation.body, observation.sensors, observation.goals, progress))
    features = jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in leaves])
    hidden = jax.nn.elu(features @ params["in"])
    position, velocity = jnp.split(hidden @ params["pose"], 2)
    return Decision(jax.random.categorical(key, hidden @ params["out"]), Pose(position, velocity))


def build() -> Model:
    observation = Observation(
        Pose(jnp.zeros(3), jnp.zeros(3)),
        {"arm": {"angle": jnp.zeros(4), "torque": jnp.zeros(4)}, "contact": jnp.zeros(2, bool)},
        (jnp.zeros(3), jnp.zeros(3)),
        jnp.zeros((), jnp.int32),
    )
    first, second, third = jax.random.split(jax.random.key(0), 3)
    size = 3 + 3 + 4 + 4 + 2 + 3 + 3 + 1
    params = {
        "in": jax.random.normal(first, (size, HIDDEN)) / size**0.5,
        "pose": jax.random.normal(second, (HIDDEN, 6)) / HIDDEN**0.5,
        "out": jax.random.normal(third, (HIDDEN, ACTIONS)) / HIDDEN**0.5,
    }
    entry = EntryPoint(act, (observation,), outputs=("decision",), kwargs={"key": jax.random.key(0)})
    return Model("structured_observations", params, {"act": entry})


POLICY = Policy(build, packages=("jax",), draws=True)
