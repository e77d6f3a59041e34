"""What runs in a child process (`opcompat.isolation`) before this one touches a SavedModel: TensorFlow can crash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opcompat.sources.classic.install import tensorflow
from opcompat.sources.classic.signatures import opened

_TF = tensorflow()  # imported here, so that the child's limits of time and memory are for the file alone


def try_out(source: str, wanted: list[str], dims: Mapping[str, int], xla: bool) -> None:
    """Loads the SavedModel and runs each signature on zeros. Raises SourceError; may die."""
    for signature in opened(source, tuple(wanted), dims, xla=xla).signatures:
        zeros: dict[str, Any] = {
            x.name: np.zeros(x.shape, _TF.as_dtype(x.dtype).as_numpy_dtype) for x in signature.inputs
        }
        try:
            signature.call(zeros)
        except _TF.errors.OpError:
            continue  # TensorFlow refuses zeros, which is no crash
