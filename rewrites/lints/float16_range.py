"""Numbers that float16 cannot hold.

Finds, where float16 is computed in: constants and parameters that are finite before they are cast to float16 and
infinite after, constants that the cast makes zero, additions of a constant that is zero in float16, and parameters
stored in float16 that are infinite. For a target that rounds all floats to float16 as it runs (mobile GPUs do), the
same of constants and parameters in float32.

Why: float16 ends at 65504 and its smallest number is 6e-8. An epsilon of 1e-8 guards nothing: the division by zero
that it was there for gives infinity or NaN. A mask of -1e9 becomes minus infinity, and a softmax over a row of them
NaN. JAX computes the same, so no comparison shows it.

Next: an epsilon of 1e-4 or so, a mask of `jnp.finfo(dtype).min`, or bfloat16, which has float32's range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opcompat import jaxcompat
from opcompat.lint import Example, Lint, Remark, View, listed
from opcompat.model import EntryPoint, Model

_HALF = np.dtype(np.float16)
_MOVES = frozenset({"broadcast_in_dim", "reshape", "squeeze", "transpose", "copy", "copy_p", "slice"})
_NEXT_EPSILON = "use an epsilon that float16 holds beside the values it guards (1e-4), or compute this in float32"
_NEXT_RANGE = "use a number within 65504 (jnp.finfo(dtype).min for masks), or bfloat16"


def look(view: View) -> Iterator[Remark]:
    live = jaxcompat.parts(view.live)
    params = dict(zip(live.invars, view.trace.params, strict=False))
    stored: set[str] = set()
    for eqn in view.equations:
        place = view.place(eqn)
        if eqn.primitive.name == "convert_element_type" and eqn.outvars[0].aval.dtype == _HALF:
            value = view.constant(eqn.invars[0])
            leaf = params.get(_origin(view, eqn.invars[0]))
            if value is not None:
                yield from _constant(value, place, view)
            elif leaf is not None and _largest(view, leaf.name) > _edge():
                yield Remark(f"values of {leaf.name} become infinite in float16", place, _NEXT_RANGE)
        if eqn.primitive.name in ("add", "sub") and any(map(_zero, eqn.invars)):
            yield Remark("adds a constant that is zero in float16", place, _NEXT_EPSILON)
        stored |= {params[v].name for v in eqn.invars if not jaxcompat.is_literal(v) and v in params}
    if view.half:
        yield from _rounded(view, stored)
    for leaf in view.trace.params:
        if leaf.dtype == "float16" and leaf.name in stored and not np.isfinite(_largest(view, leaf.name)):
            yield Remark(f"{leaf.name} holds infinities in float16", view.first_use(leaf.name), _NEXT_RANGE)


def _rounded(view: View, read: set[str]) -> Iterator[Remark]:
    """What a target that computes float32 in float16 makes of constants and of the params that are read."""
    on = f", which {listed(view.half)} compute{'s' * (len(view.half) == 1)} in"
    for eqn in view.equations:
        if all(view.constant(v) is not None for v in eqn.outvars):
            continue  # It counts where it meets a value.
        for value in (view.constant(v) for v in eqn.invars if v.aval.dtype == np.float32):
            if value is not None:
                for remark in _constant(value, view.place(eqn), view):
                    yield replace(remark, message=remark.message + on)
    for leaf in view.trace.params:
        if leaf.dtype == "float32" and leaf.name in read and np.inf > _largest(view, leaf.name) > _edge():
            yield Remark(
                f"values of {leaf.name} become infinite in float16{on}", view.first_use(leaf.name), _NEXT_RANGE
            )


def _constant(value: Any, place: Any, view: View) -> Iterator[Remark]:
    with np.errstate(over="ignore", under="ignore"):
        half = np.asarray(value).astype(_HALF)
    if np.isfinite(value) and not np.isfinite(half):
        yield Remark(f"{value:g} becomes {float(half):g} in float16", place, _NEXT_RANGE)
    elif value != 0 and half == 0:
        yield Remark(f"{value:g} becomes 0 in float16", place, _NEXT_EPSILON)


def _edge() -> float:
    """The largest number that rounds to a finite float16."""
    return float(np.nextafter(65520.0, 0.0))


def _zero(atom: Any) -> bool:
    """A literal zero that was written there: nobody adds one on purpose."""
    return jaxcompat.is_literal(atom) and atom.aval.dtype == _HALF and np.ndim(atom.val) == 0 and not atom.val


def _origin(view: View, atom: Any) -> Any:
    """The variable that `atom` only moves the elements of."""
    eqn = view.producer(atom)
    while eqn is not None and eqn.primitive.name in _MOVES:
        atom = eqn.invars[0]
        eqn = view.producer(atom)
    return None if jaxcompat.is_literal(atom) else atom


def _largest(view: View, name: str) -> float:
    """The largest magnitude in a parameter, 0 where its values are not known; NaN is no matter of range."""
    value = view.trace.weights[name]
    if isinstance(value, jaxcompat.shape_dtype) or not jnp.issubdtype(jaxcompat.aval_of(value).dtype, jnp.floating):
        return 0.0
    magnitudes = np.abs(np.asarray(value, np.float64))
    return float(np.max(magnitudes, initial=0.0, where=~np.isnan(magnitudes)))


def _model(function: Any, scale: float = 1.0) -> Model:
    entry = EntryPoint(function, (jnp.zeros((1, 4), jnp.float16),), outputs=("action",))
    return Model("half", jnp.full((4, 4), scale, jnp.float32), {"act": entry})


def _epsilon(params: jax.Array, obs: jax.Array) -> jax.Array:
    return obs / (jnp.abs(obs).sum() + 1e-8)


def _mask(params: jax.Array, obs: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.where(obs > 0, obs, -1e9))


def _cast(params: jax.Array, obs: jax.Array) -> jax.Array:
    return obs @ params.T.astype(jnp.float16)


def _careful(params: jax.Array, obs: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(obs @ params.astype(obs.dtype))
    return jnp.where(obs > 0, hidden, np.finfo(np.float16).min) / (jnp.abs(hidden).sum() + 1e-4)


def _wide_mask(params: jax.Array, obs: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.where(obs > 0, obs.astype(jnp.float32), -1e9))


def _single(params: jax.Array, obs: jax.Array) -> jax.Array:
    return obs.astype(jnp.float32) @ params / (jnp.abs(obs.astype(jnp.float32)).sum() + 1e-8)


LINT = Lint(
    id="OC561",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(
        Example("epsilon", lambda: _model(_epsilon)),
        Example("mask", lambda: _model(_mask)),
        Example("weights", lambda: _model(_cast, 1e5)),
        Example("epsilon and weights in float32", lambda: _model(_single, 1e5), half=True),
        Example("mask in float32", lambda: _model(_wide_mask), half=True),
    ),
    declines=(
        Example("numbers that fit", lambda: _model(_careful)),
        Example("float32 arithmetic", lambda: _model(_single, 1e5)),
        Example("numbers that fit, rounded", lambda: _model(_careful), half=True),
    ),
)
