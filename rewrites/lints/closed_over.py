"""Large arrays that are closed over instead of passed as parameters.

Finds: arrays that the function reaches without its arguments, of 16 KiB and more together.

Why: they are weights to the bundle but have no names: a checkpoint cannot be exchanged, a report cannot say which
weight is meant, and `verify` cannot tell new weights from a changed function. In a model whose `params` are empty the
whole network may be among them.

Next: put them into the model's `params` and take them from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from opcompat.lint import Example, Lint, Remark, View
from opcompat.model import EntryPoint, Model
from opcompat.trace import Leaf

LARGE = 16 * 1024
"""Bytes. Smaller ones are tables and constants of a policy, which need no names."""


def look(view: View) -> Iterator[Remark]:
    arrays = [leaf for leaf in view.trace.params if leaf.name.startswith("closure.")]
    total = sum(map(_bytes, arrays))
    if total < LARGE:
        return
    largest = max(arrays, key=_bytes)
    kind = f"{largest.dtype}[{','.join(map(str, largest.shape))}]"
    what = f"an array {kind} is" if len(arrays) == 1 else f"{len(arrays)} arrays, the largest {kind}, are"
    yield Remark(
        f"{what} closed over: {total:,} bytes of weights without names",
        view.first_use(largest.name),
        "put them into the model's params",
    )


def _bytes(leaf: Leaf) -> int:
    return math.prod(leaf.shape) * int(jnp.dtype(leaf.dtype).itemsize)


def _model(width: int, passed: bool) -> Model:
    weights = np.linspace(-1, 1, width * width, dtype=np.float32).reshape(width, width)

    def act(params: dict[str, jax.Array], obs: jax.Array) -> jax.Array:
        return jnp.tanh(obs @ (params["w"] if passed else weights))

    params = {"w": weights} if passed else {}
    return Model("closure", params, {"act": EntryPoint(act, (jnp.zeros((1, width)),), outputs=("action",))})


LINT = Lint(
    id="OC705",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(Example("weights", lambda: _model(64, passed=False)),),
    declines=(
        Example("a small table", lambda: _model(16, passed=False)),
        Example("params", lambda: _model(64, passed=True)),
    ),
)
