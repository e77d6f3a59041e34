"""SavedModels, written by the real producers: TensorFlow, Keras and TFP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import tensorflow_probability as tfp

ACTION, CONDITION, HIDDEN, LAYERS = 4, 3, 64, 4


class RealNVP(tf.Module):
    """A conditional RealNVP policy over actions in (-1, 1): couplings by Keras, flow and density by TFP."""

    def __init__(self) -> None:
        super().__init__(name="realnvp")
        self.nets = [self._net(i) for i in range(LAYERS)]

    @staticmethod
    def _net(index: int) -> Any:
        return keras.Sequential(
            [
                keras.layers.Input((ACTION // 2 + CONDITION,)),
                keras.layers.Dense(HIDDEN, activation="tanh", name=f"coupling_{index}_hidden"),
                keras.layers.Dense(ACTION, name=f"coupling_{index}_out"),
            ]
        )

    def _flow(self, condition: Any) -> Any:
        tfb = tfp.bijectors
        parts = [tfb.Tanh()]
        for net in self.nets:
            parts.append(tfb.RealNVP(num_masked=ACTION // 2, shift_and_log_scale_fn=_coupling(net, condition)))
            parts.append(tfb.Permute(permutation=list(reversed(range(ACTION)))))
        return tfb.Chain(parts)

    def _distribution(self, condition: Any) -> Any:
        base = tfp.distributions.MultivariateNormalDiag(loc=tf.zeros(ACTION), scale_diag=tf.ones(ACTION))
        return tfp.distributions.TransformedDistribution(base, self._flow(condition))

    def sample(self, condition: Any, noise: Any) -> dict[str, Any]:
        flow = self._flow(condition)
        action = flow.forward(noise)
        return {"action": action, "log_prob": self._distribution(condition).log_prob(action)}

    def log_prob(self, condition: Any, action: Any) -> dict[str, Any]:
        return {"log_prob": self._distribution(condition).log_prob(tf.clip_by_value(action, -0.99, 0.99))}

    def forward(self, condition: Any, latents: Any) -> dict[str, Any]:
        flow = self._flow(condition)
        return {"action": flow.forward(latents), "log_det": flow.forward_log_det_jacobian(latents, event_ndims=1)}


def _coupling(net: Any, condition: Any) -> Any:
    def shift_and_log_scale(x: Any, units: int, **_: Any) -> tuple[Any, Any]:
        shift, log_scale = tf.split(net(tf.concat([x, condition], -1)), 2, axis=-1)
        return shift, tf.tanh(log_scale)

    return shift_and_log_scale


def realnvp(folder: Path, *, batch: int | None = None) -> Path:
    """Three signatures; `batch` None leaves the first size open."""
    tf.keras.utils.set_random_seed(0)
    module = RealNVP()
    condition = tf.TensorSpec((batch, CONDITION), tf.float32, name="condition")
    action = tf.TensorSpec((batch, ACTION), tf.float32)
    signatures = {
        "sample": tf.function(module.sample).get_concrete_function(condition, action),
        "log_prob": tf.function(module.log_prob).get_concrete_function(condition, action),
        "forward": tf.function(module.forward).get_concrete_function(condition, action),
    }
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


def save(folder: Path, variables: dict[str, Any] | None = None, /, **functions: tuple[Any, list[Any]]) -> Path:
    """A module with a signature for each (function of (module, *tensors), specs)."""
    module = tf.Module()
    for name, value in (variables or {}).items():
        setattr(module, name, value)
    signatures = {}
    for name, (function, specs) in functions.items():
        wrapped = tf.function(lambda *tensors, f=function: f(module, *tensors), autograph=False)
        signatures[name] = wrapped.get_concrete_function(*specs)
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


def keras_policy(folder: Path) -> Path:
    """What `model.export` writes: a convolutional policy over images with two outputs."""
    keras.utils.set_random_seed(0)
    image = keras.layers.Input((16, 16, 3), name="image")
    x = keras.layers.Conv2D(8, 3, strides=2, activation="relu", padding="same")(image)
    x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.LayerNormalization()(keras.layers.Dense(32, activation="gelu")(x))
    logits = keras.layers.Dense(5, name="logits")(x)
    value = keras.layers.Dense(1, name="value")(x)
    model = keras.Model(image, {"logits": logits, "value": value})
    model.export(str(folder), verbose=False)
    return folder
