"""DreamerV3 as PyPI's dreamerv3 has it (2023): its agent for its dummy environment, made small, in its float16.

The package pins a gym that no longer builds, so it is installed without its dependencies (`make zoo`).
"""

from __future__ import annotations

from typing import Any

import dreamerv3
import jax
import jax.numpy as jnp
from dreamerv3 import embodied, jaxutils
from dreamerv3 import ninjax as nj
from dreamerv3.embodied.envs.dummy import Dummy

from opcompat.model import EntryPoint, Model
from tests.zoo.policy import Policy

SMALL = {
    "rssm.deter": 128,
    "rssm.stoch": 8,
    "rssm.classes": 8,
    r".*\.cnn_depth$": 8,
    r".*\.(mlp_)?layers$": 2,
    r".*\.(mlp_)?units$": 64,
    "jax.jit": False,  # or it prints whenever it is traced
}


def build() -> Model:
    config = embodied.Config(dreamerv3.configs["defaults"]).update(SMALL)
    # What the package's own JAXAgent does with jax.precision.
    jaxutils.COMPUTE_DTYPE = getattr(jnp, config.jax.precision)
    environment = dreamerv3.wrap_env(Dummy("disc", size=(32, 32)), config)
    spaces = environment.obs_space
    agent: Any = dreamerv3.Agent.inner(spaces, environment.act_space, embodied.Counter(), config, name="agent")
    initial = nj.pure(lambda: agent.policy_initial(1))
    policy = nj.pure(agent.policy)

    def first(params: Any) -> Any:
        """The state before the first step. It draws nothing."""
        return initial(params, jax.random.PRNGKey(0))[0]

    def act(params: Any, key: jax.Array, obs: Any, state: Any) -> tuple[jax.Array, Any]:
        """The action, one of 5 as float32[1, 5], and the state. `key` is uint32[2], as ninjax takes it."""
        (outs, state), _ = policy(params, key, obs, state, mode="eval")
        return outs["action"], state

    key = jax.random.PRNGKey(0)
    obs = {name: jnp.zeros((1, *space.shape), space.dtype) for name, space in spaces.items()}
    state, _ = initial({}, key)
    _, params = policy({}, key, obs, state, mode="eval")
    entries = {
        "first": EntryPoint(first, outputs=("state",)),
        "act": EntryPoint(
            act,
            (key, obs, state),
            outputs=("action", "state"),
            feedback={"state": "state"},
            init={"state": "first.state"},
        ),
    }
    return Model("dreamerv3_package", params, entries)


POLICY = Policy(build, packages=("dreamerv3",), draws=True)
