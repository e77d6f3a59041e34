"""The image encoder of the example: a stack of strided convolutions, as in DreamerV3."""

from collections.abc import Sequence

import jax
import numpy as np
from dreamer_nets import Array, Params, init_norm, normal, rms_norm

IMAGE = (64, 64, 3)  # height, width, channels
KERNEL = 5  # height and width
STRIDE = 2


def image_tokens(depths: Sequence[int]) -> int:
    """The number of tokens that `encode_image` makes of one image."""
    shrink: int = STRIDE ** len(depths)
    return (IMAGE[0] // shrink) * (IMAGE[1] // shrink) * depths[-1]


def init_image_encoder(rng: np.random.Generator, depths: Sequence[int]) -> Params:
    """One convolution and its norm for each of `depths`, the numbers of channels."""
    channels = [IMAGE[2], *depths]
    return {f"stage{i}": _init_stage(rng, channels[i], channels[i + 1]) for i in range(len(depths))}


def encode_image(params: Params, image: Array) -> Array:
    """uint8[B, 64, 64, 3] -> tokens dtype[B, T], in the dtype of the parameters.

    Each stage halves height and width: convolution, norm over the channels, silu.
    """
    dtype = params["stage0"]["kernel"].dtype
    x = image.astype(dtype) / 255 - 0.5
    for i in range(len(params)):
        stage = params[f"stage{i}"]
        x = jax.nn.silu(rms_norm(stage["norm"], _convolve(stage, x)))
    return x.reshape(x.shape[0], -1)


def _init_stage(rng: np.random.Generator, inputs: int, outputs: int) -> Params:
    """kernel float32[height, width, inputs, outputs], bias float32[outputs], and the norm's scale."""
    return {
        "kernel": normal(rng, (KERNEL, KERNEL, inputs, outputs), (KERNEL * KERNEL * inputs) ** -0.5),
        "bias": normal(rng, (outputs,), 0.1),
        "norm": init_norm(rng, outputs),
    }


def _convolve(params: Params, x: Array) -> Array:
    """dtype[B, height, width, inputs] -> dtype[B, height / 2, width / 2, outputs]."""
    y: Array = jax.lax.conv_general_dilated(
        x,
        params["kernel"],
        window_strides=(STRIDE, STRIDE),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    y += params["bias"]
    return y
