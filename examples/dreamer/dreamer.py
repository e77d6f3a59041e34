"""A recurrent world-model policy in the style of DreamerV3 (Hafner et al., 2023), in plain JAX.

The weights are random: drawn from a seed at load, and scaled so that rounding errors die out in the loop.

    import dreamer
    model = dreamer.model(size="small", action="discrete")

What the entry points share, with a batch of B:

    key     one typed PRNG key, from which all draws of the step are made.
    obs     what the environment returns: vector float32[B, V] or image uint8[B, 64, 64, 3], reward float32[B],
            and is_first, is_last, is_terminal bool[B]. As in DreamerV3, the policy is handed all five and does
            not use the last two.
    state   deter dtype[B, D], stoch dtype[B, L, C] (L one-hot latents of C classes each), and action, the
            previous one: int32[B] if actions are discrete, else float32[B, A].

`dtype` is what the nets compute in, and what their weights are stored in. Norms, distributions and all that is
drawn from them are float32 whatever it is, as in DreamerV3, and so are observations and actions.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from dreamer_image import IMAGE, encode_image, image_tokens, init_image_encoder
from dreamer_nets import (
    Array,
    Params,
    block_dense,
    bounded_normal,
    dense,
    init_block_dense,
    init_dense,
    init_layer,
    init_mlp,
    init_norm,
    layer,
    mlp,
    normal_log_prob,
    rms_norm,
    sample_one_hot,
    symlog,
    twohot_mean,
    unimix,
)

import opcompat

Obs: TypeAlias = dict[str, Array]
State: TypeAlias = dict[str, Array]


def model(
    size: str = "full",
    action: str = "discrete",
    seed: int = 0,
    observation: str = "vector",
    dtype: str = "float32",
    batch: int = 1,
) -> opcompat.Model:
    """The factory that opcompat.toml names.

    `size` is "full" or "small", `action` is "discrete" or "continuous", and `seed` draws the weights.
    `observation` is "vector" or "image", and `dtype` is "float32", "bfloat16" or "float16". `batch` is B, in the
    example inputs and in what init_policy returns; the weights are the same for all.
    Raises ValueError for anything else.
    """
    _check("size", size, ("full", "small"))
    _check("action", action, ("discrete", "continuous"))
    _check("observation", observation, ("vector", "image"))
    _check("dtype", dtype, ("float32", "bfloat16", "float16"))
    if batch < 1:
        raise ValueError(f"batch must be positive, not {batch}")
    agent = (Agent if size == "full" else small_agent)(
        discrete=action == "discrete", image=observation == "image", dtype=jnp.dtype(dtype), batch=batch
    )
    key, obs, state, last_action = agent.example_inputs(np.random.default_rng(seed))

    # From step to step the state comes back, and at first it is what init_policy returns.
    feedback, init = {"state": "state"}, {"state": "init_policy.state"}
    return opcompat.Model(
        name="dreamer",
        params=agent.init_params(seed),
        entry_points={
            "init_policy": opcompat.EntryPoint(agent.init_policy, args=()),
            "policy": opcompat.EntryPoint(
                agent.policy,
                args=(key, obs, state),
                outputs=("action", "log_prob", "latent", "state"),
                feedback=feedback,
                init=init,
            ),
            "imagine": opcompat.EntryPoint(
                agent.imagine,
                args=(key, state, last_action),
                outputs=("reward", "cont", "latent", "state"),
                feedback=feedback,
                init=init,
                inputs=agent.imagine_inputs,
            ),
            "value": opcompat.EntryPoint(agent.value, args=(state,), inputs=agent.value_inputs),
        },
    )


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        options = " or ".join(map(repr, allowed))
        raise ValueError(f"{name} must be {options}, not {value!r}")


@dataclass(frozen=True)
class Agent:
    """The sizes of the nets. Its methods are pure functions of the parameters and their inputs, for any B."""

    discrete: bool  # one of `actions` classes, or else `actions` numbers in [-1, 1]
    image: bool  # whether it sees an image instead of a vector
    dtype: np.dtype[Any]  # of the parameters, of what the nets compute, and of the state
    batch: int = 1  # B of example inputs and of init_policy; the other entry points take B from their inputs
    vector: int = 48  # V
    depths: tuple[int, ...] = (32, 64, 96, 128)  # channels of the image encoder's stages
    actions: int = 6  # A
    deter: int = 2048  # D
    blocks: int = 8  # of the recurrence; divides `deter`
    hidden: int = 256
    latents: int = 32  # L
    classes: int = 32  # C
    bins: int = 255  # of the distributions over reward and value

    # Entry points

    def init_policy(self, params: Params) -> dict[str, State]:
        """The state before the first step: {"state": state}."""
        return {"state": self._initial(params, self.batch)}

    def policy(self, params: Params, key: Array, obs: Obs, state: State) -> tuple[Array, Array, Array, State]:
        """One step in the environment: looks at `obs`, updates the state, draws an action.

        Returns action float32[B, A] (one-hot if discrete), its log_prob float32[B], the drawn classes of the
        latents int32[B, L], and the state.
        """
        latent_key, action_key = jax.random.split(key)
        is_first = obs["is_first"]
        state = jax.tree.map(
            lambda new, old: jnp.where(is_first.reshape((-1,) + (1,) * (old.ndim - 1)), new, old),
            self._initial(params, is_first.shape[0]),
            state,
        )
        deter = self._recur(params["recurrence"], state)
        features = jnp.concatenate([deter, self._encode(params, obs)], axis=-1)
        stoch, latent = self._draw_latent(params["posterior"], latent_key, features)
        action, log_prob = self._act(params["actor"], action_key, _features(deter, stoch))
        return action, log_prob, latent, self._state(deter, stoch, action)

    def imagine(self, params: Params, key: Array, state: State, action: Array) -> tuple[Array, Array, Array, State]:
        """One step in the world model: what follows when `action` float32[B, A] is taken in `state`.

        Returns reward float32[B], cont float32[B] (the probability that the episode goes on), the drawn
        classes of the latents int32[B, L], and the state.
        """
        state = self._state(state["deter"], state["stoch"], action)
        deter = self._recur(params["recurrence"], state)
        stoch, latent = self._draw_latent(params["prior"], key, deter)
        features = _features(deter, stoch)
        reward = twohot_mean(mlp(params["reward"], features))
        cont = jax.nn.sigmoid(mlp(params["cont"], features).astype(jnp.float32))[:, 0]
        return reward, cont, latent, self._state(deter, stoch, action)

    def value(self, params: Params, state: State) -> dict[str, Array]:
        """The critic on a state: {"value": float32[B]}, the return that it expects."""
        return {"value": twohot_mean(mlp(params["critic"], _features(state["deter"], state["stoch"])))}

    # Nets

    def _initial(self, params: Params, batch: int) -> State:
        """The state before the first step."""
        deter = jnp.broadcast_to(jnp.tanh(params["initial"]["deter"]), (batch, self.deter))
        stoch = jnp.zeros((batch, self.latents, self.classes), self.dtype)
        action = jnp.zeros(batch, jnp.int32) if self.discrete else jnp.zeros((batch, self.actions), jnp.float32)
        return {"deter": deter, "stoch": stoch, "action": action}

    def _encode(self, params: Params, obs: Obs) -> Array:
        """What there is to see, as tokens dtype[B, T]: `hidden` of the numbers, then those of the image."""
        reward = obs["reward"][:, None]
        if not self.image:
            numbers = jnp.concatenate([obs["vector"], reward], axis=-1)
            return mlp(params["encoder"], symlog(numbers).astype(self.dtype))
        tokens = mlp(params["encoder"], symlog(reward).astype(self.dtype))
        return jnp.concatenate([tokens, encode_image(params["image"], obs["image"])], axis=-1)

    def _recur(self, params: Params, state: State) -> Array:
        """The next deter dtype[B, D], by a block GRU: each block sees its own part of `deter` and, like all
        the others, a summary of the whole of deter, stoch and action.
        """
        deter, stoch, action = state["deter"], state["stoch"], state["action"]
        if self.discrete:
            embedded = params["action"]["table"][action]
        else:
            squashed = action / jnp.maximum(1.0, jnp.abs(action))
            embedded = dense(params["action"], squashed.astype(self.dtype))
        inputs = [
            layer(params["deter"], deter),
            layer(params["stoch"], stoch.reshape(stoch.shape[0], -1)),
            jax.nn.silu(rms_norm(params["action_norm"], embedded)),
        ]
        shared = jnp.repeat(jnp.concatenate(inputs, axis=-1)[:, None], self.blocks, axis=1)
        blocks = deter.reshape(deter.shape[0], self.blocks, -1)
        x = block_dense(params["mix"], jnp.concatenate([blocks, shared], axis=-1))
        x = jax.nn.silu(rms_norm(params["mix_norm"], x.reshape(deter.shape)))
        gates = block_dense(params["gates"], x.reshape(blocks.shape))
        reset, candidate, update = (gate.reshape(deter.shape) for gate in jnp.split(gates, 3, axis=-1))
        candidate = jnp.tanh(jax.nn.sigmoid(reset) * candidate)
        update = jax.nn.sigmoid(update)
        return update * candidate + (1 - update) * deter

    def _draw_latent(self, params: Params, key: Array, features: Array) -> tuple[Array, Array]:
        """One class per latent: one-hot dtype[B, L, C] and index int32[B, L]."""
        logits = mlp(params, features)
        stoch, index = sample_one_hot(key, unimix(logits.reshape(-1, self.latents, self.classes)))
        return stoch.astype(self.dtype), index

    def _act(self, params: Params, key: Array, features: Array) -> tuple[Array, Array]:
        """An action float32[B, A] and the log of its probability (or density) float32[B]."""
        out = mlp(params, features)
        if self.discrete:
            log_probs = unimix(out)
            action, index = sample_one_hot(key, log_probs)
            return action, jnp.take_along_axis(log_probs, index[:, None], axis=-1)[:, 0]
        mean, stddev = bounded_normal(*jnp.split(out, 2, axis=-1))
        action = mean + stddev * jax.random.normal(key, mean.shape, jnp.float32)
        return action, normal_log_prob(action, mean, stddev)

    def _state(self, deter: Array, stoch: Array, action: Array) -> State:
        if self.discrete:
            action = jnp.argmax(action, axis=-1).astype(jnp.int32)
        return {"deter": deter, "stoch": stoch, "action": action}

    # Parameters and inputs

    def init_params(self, seed: int) -> Params:
        """Random weights: a nested dict of arrays of `dtype`, the same for the same seed, rounded.

        The gains keep the loop stable. What the encoder says outweighs `deter` in the posterior (2.0), and
        the recurrence answers softly (0.7), so a latent that is drawn differently is forgotten in some 20
        steps. Reward and value stay below 10 (0.3): `twohot_mean` would magnify the rounding of larger ones.
        """
        rng = np.random.default_rng(seed)
        deter, hidden, stoch = self.deter, self.hidden, self.latents * self.classes
        features, per_block = deter + stoch, deter // self.blocks
        numbers = 1 if self.image else self.vector + 1
        tokens = hidden + (image_tokens(self.depths) if self.image else 0)
        action = init_dense(rng, self.actions, hidden)
        if self.discrete:
            action = {"table": rng.standard_normal((self.actions, hidden), dtype=np.float32)}
        arrays = {
            "initial": {"deter": rng.standard_normal(deter, dtype=np.float32)},
            "encoder": init_mlp(rng, numbers, hidden, 2, hidden, gain=2.0),
            "recurrence": {
                "deter": init_layer(rng, deter, hidden),
                "stoch": init_layer(rng, stoch, hidden),
                "action": action,
                "action_norm": init_norm(rng, hidden),
                "mix": init_block_dense(rng, self.blocks, per_block + 3 * hidden, per_block),
                "mix_norm": init_norm(rng, deter),
                "gates": init_block_dense(rng, self.blocks, per_block, 3 * per_block, gain=0.7),
            },
            "posterior": init_mlp(rng, deter + tokens, hidden, 1, stoch),
            "prior": init_mlp(rng, deter, hidden, 2, stoch),
            "actor": init_mlp(rng, features, hidden, 2, self.actions if self.discrete else 2 * self.actions),
            "reward": init_mlp(rng, features, hidden, 1, self.bins, gain=0.3),
            "cont": init_mlp(rng, features, hidden, 1, 1),
            "critic": init_mlp(rng, features, hidden, 2, self.bins, gain=0.3),
        }
        if self.image:
            arrays["image"] = init_image_encoder(rng, self.depths)
        params: Params = jax.tree.map(lambda x: jnp.asarray(x, self.dtype), arrays)
        return params

    def example_inputs(self, rng: np.random.Generator) -> tuple[Array, Obs, State, Array]:
        """Plausible inputs: a key, an observation, a state and an action float32[B, A]."""
        batch = self.batch
        deter = rng.uniform(-1, 1, (batch, self.deter))
        latent = rng.integers(self.classes, size=(batch, self.latents))
        if self.discrete:
            action = np.eye(self.actions, dtype=np.float32)[rng.integers(self.actions, size=batch)]
        else:
            action = rng.uniform(-1, 1, (batch, self.actions)).astype(np.float32)
        obs: dict[str, np.ndarray[Any, Any]] = {
            "reward": rng.standard_normal(batch, dtype=np.float32),
            "is_first": np.zeros(batch, bool),
            "is_last": np.zeros(batch, bool),
            "is_terminal": np.zeros(batch, bool),
        }
        if self.image:
            obs["image"] = rng.integers(256, size=(batch, *IMAGE), dtype=np.uint8)
        else:
            obs["vector"] = rng.standard_normal((batch, self.vector), dtype=np.float32)
        stoch = np.eye(self.classes)[latent]
        key = jax.random.key(int(rng.integers(2**31)))
        return (
            key,
            jax.tree.map(jnp.asarray, obs),
            self._state(jnp.asarray(deter, self.dtype), jnp.asarray(stoch, self.dtype), jnp.asarray(action)),
            jnp.asarray(action),
        )

    def imagine_inputs(self, rng: np.random.Generator) -> tuple[Any, ...]:
        """Samples the arguments of `imagine`, whose state and action are not just any numbers."""
        key, _, state, action = self.example_inputs(rng)
        return key, state, action

    def value_inputs(self, rng: np.random.Generator) -> tuple[Any, ...]:
        """Samples the argument of `value`."""
        return (self.example_inputs(rng)[2],)


def _features(deter: Array, stoch: Array) -> Array:
    """The state as one vector: dtype[B, D + L * C]."""
    return jnp.concatenate([deter, stoch.reshape(stoch.shape[0], -1)], axis=-1)


def small_agent(discrete: bool, image: bool, dtype: np.dtype[Any], batch: int) -> Agent:
    """For tests: a hundredth of the parameters."""
    return Agent(
        discrete,
        image,
        dtype,
        batch,
        vector=16,
        depths=(8, 8, 16, 16),
        actions=4,
        deter=128,
        blocks=4,
        hidden=32,
        latents=8,
        classes=8,
        bins=63,
    )
