"""State that begins outside of the range that it comes out in.

Finds: declared state whose first value lies where the function itself never puts it: an array that begins at 255 and
comes out of a tanh, a first state by another entry point that is scaled otherwise. The range in which a state comes
out is proven from the operations that make it (tanh, sigmoid, clip, argmax, casts, selects and arithmetic); where
they prove nothing, nothing is said. -1 in an integer state is left alone: it stands for none yet.

Why: the network has not seen such values in training, or one of the two ends forgot a scale (pixels of 0 to 255
beside 0 to 1, an action before and after its squashing). The first steps on the device are then wrong, and no
comparison shows it, since JAX does the same.

Next: begin with a value that the function could have made, or scale where it is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from opcompat.lint import Example, Lint, Remark, View
from opcompat.model import EntryPoint, Model
from opcompat.ranges import Range, of_array

_ROUNDING = 1e-5
"""Relative: rounding may leave a range by as much."""


def look(view: View) -> Iterator[Remark]:
    for output, into in view.contract.feedback.items():
        start, out = view.contract.starts[into], view.range_of(output)
        if start.array is None:
            first = view.views[start.entry_point].range_of(start.output)
            wrong = first.low > _wider(out).high or first.high < _wider(out).low
        elif jnp.issubdtype(start.array.dtype, jnp.number) and start.array.size:
            first = of_array(_counted(start.array))
            wrong = not _inside(first, _wider(out))
        else:
            continue
        if wrong:
            yield Remark(
                f"the state {into} begins in {first}, but {output} always comes out in {out}",
                view.source(output),
                "begin with what the function could have made, or scale where it is missing",
            )


def _counted(array: np.ndarray) -> np.ndarray:
    """Without the -1 of integers that stands for none."""
    return array[array != -1] if jnp.issubdtype(array.dtype, jnp.integer) else array


def _wider(found: Range) -> Range:
    return Range(found.low - _ROUNDING * abs(found.low), found.high + _ROUNDING * abs(found.high))


def _inside(inner: Range, outer: Range) -> bool:
    return (outer.low <= inner.low and inner.high <= outer.high) or not np.isfinite(inner).all()


def _step(params: jax.Array, obs: jax.Array, hidden: jax.Array, last: jax.Array) -> dict[str, jax.Array]:
    hidden = jnp.where(obs[:, :1] > 9, 0.0, jnp.tanh(obs @ params + hidden))
    return {"hidden": hidden, "last": jnp.argmax(hidden, -1)}


def _frames(params: jax.Array, image: jax.Array, frames: jax.Array) -> dict[str, jax.Array]:
    """The frame that is kept is scaled, the ones that it began with are not."""
    frames = jnp.concatenate([frames[1:], image.astype(jnp.float32)[None] / 255])
    return {"action": jnp.tanh(frames.mean() * params[0]), "frames": jnp.clip(frames, 0, 1)}


def _reset(params: jax.Array) -> jax.Array:
    return 10 + jax.nn.sigmoid(params[:1])


def _model(hidden: float, last: int) -> Model:
    state = {"hidden": jnp.full((1, 4), hidden), "last": jnp.full((1,), last, jnp.int32)}
    entry = EntryPoint(_step, (jnp.zeros((1, 4)), *state.values()), feedback={n: n for n in state}, init=state)
    return Model("range", jnp.ones((4, 4)), {"act": entry})


def _stack() -> Model:
    first = jnp.full((3, 8, 8), 128.0)
    entry = EntryPoint(
        _frames, (jnp.zeros((8, 8), jnp.uint8), first), feedback={"frames": "frames"}, init={"frames": first}
    )
    return Model("frames", jnp.ones(4), {"act": entry})


def _from_entry_point() -> Model:
    def act(params: jax.Array, obs: jax.Array, hidden: jax.Array) -> dict[str, jax.Array]:
        return {"hidden": jnp.tanh(obs @ params + hidden)}

    entry = EntryPoint(
        act, (jnp.zeros((1, 4)), jnp.zeros((1, 4))), feedback={"hidden": "hidden"}, init={"hidden": "reset.hidden"}
    )
    return Model("reset", jnp.ones((4, 4)), {"act": entry, "reset": EntryPoint(_reset, outputs=("hidden",))})


LINT = Lint(
    id="OC707",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(
        Example("beyond tanh", lambda: _model(2.0, 0)),
        Example("an action that does not exist", lambda: _model(0.0, 4)),
        Example("pixels", _stack),
        Example("by another entry point", _from_entry_point),
    ),
    declines=(Example("zeros, and no action yet", lambda: _model(0.0, -1)),),
)
