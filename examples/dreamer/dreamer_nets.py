"""Layers and distributions of the example: pure functions on nested dicts of arrays.

Each layer has two halves: `init_NAME(rng, ...)` makes its parameters, in float32, and `NAME(params, x)` applies
them in their own dtype, which is that of `x`, too. Distributions are float32 always. B is the batch, always the
first axis.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Array: TypeAlias = jax.Array
Params: TypeAlias = dict[str, Any]

UNIMIX = 0.01  # share of the uniform distribution that is mixed into every categorical


# Layers


def init_dense(rng: np.random.Generator, inputs: int, outputs: int, gain: float = 1.0) -> Params:
    """kernel float32[inputs, outputs], bias float32[outputs]; inputs of rms 1 give outputs of rms `gain`."""
    return {
        "kernel": normal(rng, (inputs, outputs), gain / inputs**0.5),
        "bias": normal(rng, (outputs,), 0.1 * gain),
    }


def dense(params: Params, x: Array) -> Array:
    """dtype[B, inputs] -> dtype[B, outputs]."""
    y: Array = x @ params["kernel"] + params["bias"]
    return y


def init_block_dense(rng: np.random.Generator, blocks: int, inputs: int, outputs: int, gain: float = 1.0) -> Params:
    """One dense layer for each block: the shapes of `init_dense` with a first axis of size `blocks`."""
    return {
        "kernel": normal(rng, (blocks, inputs, outputs), gain / inputs**0.5),
        "bias": normal(rng, (blocks, outputs), 0.1 * gain),
    }


def block_dense(params: Params, x: Array) -> Array:
    """A block-diagonal dense layer: dtype[B, blocks, inputs] -> dtype[B, blocks, outputs]."""
    # Not by einsum "bgi,gio->bgo": XLA on the CPU (jax 0.12) would sum up bfloat16 in bfloat16 for B > 1.
    y: Array = jax.vmap(jnp.matmul, in_axes=(1, 0), out_axes=1)(x, params["kernel"]) + params["bias"]
    return y


def init_norm(rng: np.random.Generator, size: int) -> Params:
    """Scales around one, as after training: scale float32[size]."""
    return {"scale": 1.0 + normal(rng, (size,), 0.1)}


def rms_norm(params: Params, x: Array, eps: float = 1e-4) -> Array:
    """Root-mean-square norm over the last axis (Zhang and Sennrich, 2019), done in float32: same shape as `x`."""
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    y: Array = wide * jax.lax.rsqrt(mean_square + eps) * params["scale"].astype(jnp.float32)
    return y.astype(x.dtype)


def init_layer(rng: np.random.Generator, inputs: int, outputs: int) -> Params:
    """A dense layer and its norm."""
    return {"dense": init_dense(rng, inputs, outputs), "norm": init_norm(rng, outputs)}


def layer(params: Params, x: Array) -> Array:
    """Dense, norm, silu: dtype[B, inputs] -> dtype[B, outputs]."""
    return jax.nn.silu(rms_norm(params["norm"], dense(params["dense"], x)))


def init_mlp(
    rng: np.random.Generator, inputs: int, hidden: int, layers: int, outputs: int, gain: float = 1.0
) -> Params:
    """`layers` layers of size `hidden`, then a dense one whose outputs have rms `gain` or so."""
    sizes = [inputs] + [hidden] * layers
    stack = {f"layer{i}": init_layer(rng, sizes[i], sizes[i + 1]) for i in range(layers)}
    return {**stack, "out": init_dense(rng, hidden, outputs, gain)}


def mlp(params: Params, x: Array) -> Array:
    """Layers and a last dense one: dtype[B, inputs] -> dtype[B, outputs]."""
    for i in range(len(params) - 1):
        x = layer(params[f"layer{i}"], x)
    return dense(params["out"], x)


def normal(rng: np.random.Generator, shape: tuple[int, ...], stddev: float) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(stddev)


# Distributions


def symlog(x: Array) -> Array:
    """Squashes large values of either sign, elementwise: sign(x) log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Array) -> Array:
    """The inverse of `symlog`."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def unimix(logits: Array) -> Array:
    """Log probabilities of the categorical with 1 % uniform mixed in: dtype[..., classes] -> float32."""
    probs = jax.nn.softmax(logits.astype(jnp.float32), axis=-1)
    return jnp.log((1 - UNIMIX) * probs + UNIMIX / logits.shape[-1])


def sample_one_hot(key: Array, log_probs: Array) -> tuple[Array, Array]:
    """Draws a class and passes gradients straight through to the probabilities.

    log_probs float32[..., classes] -> (one-hot float32[..., classes], class index int32[...]).
    """
    index = jax.random.categorical(key, log_probs).astype(jnp.int32)
    one_hot = jax.nn.one_hot(index, log_probs.shape[-1], dtype=jnp.float32)
    probs = jnp.exp(log_probs)
    return one_hot + (probs - jax.lax.stop_gradient(probs)), index


def twohot_mean(logits: Array) -> Array:
    """Mean of a distribution over bins spaced evenly in symlog: dtype[B, bins] -> float32[B]."""
    bins = jnp.linspace(-20, 20, logits.shape[-1], dtype=jnp.float32)
    return symexp(jnp.sum(jax.nn.softmax(logits.astype(jnp.float32), axis=-1) * bins, axis=-1))


def bounded_normal(mean: Array, stddev: Array) -> tuple[Array, Array]:
    """Mean in (-1, 1) and standard deviation in (0.1, 1) from two unbounded dtype[B, actions]."""
    mean, stddev = mean.astype(jnp.float32), stddev.astype(jnp.float32)
    return jnp.tanh(mean), 0.1 + 0.9 * jax.nn.sigmoid(stddev + 2)


def normal_log_prob(x: Array, mean: Array, stddev: Array) -> Array:
    """Log density of independent normals, summed over the last axis: float32[B, actions] -> float32[B]."""
    z = (x - mean) / stddev
    return jnp.sum(-0.5 * jnp.square(z) - jnp.log(stddev) - 0.5 * jnp.log(2 * jnp.pi), axis=-1)
