"""What the extra `tensorflow` holds, and how to say that it is missing."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from opcompat.errors import SourceError

PACKAGES = ("tensorflow", "tf2jax", "tf2onnx")


def require(source: str) -> None:
    """Raises SourceError, with the command that installs the extra, unless all of it can be imported."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise SourceError(
            f"{source}: is a SavedModel of TensorFlow's own ops, and reading it needs {', '.join(missing)}; next: "
            'pip install "opcompat[tensorflow]"'
        )


def tensorflow() -> Any:
    """The module, imported quietly. The reference is its CPU kernels, without oneDNN, whose ReLU turns NaN into 0."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    return tf
