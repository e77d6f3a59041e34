"""Batch norm in train mode.

Finds: activations that are multiplied or divided by a root of a sum over their own batch: the variance of batch norm,
computed from the batch instead of read from the running statistics. The batch is the first dimension of the inputs,
followed through layers; an activation is what depends on parameters, too. Layer, group and instance norm sum over
other dimensions and are left alone.

Why: on the device the batch is one, so that every activation equals its mean and the output is that of the bias,
whatever is observed; with a larger batch, one environment's action depends on the others' observations. The artifact
agrees with JAX, because the function that was exported is the one for training.

Next: `use_running_average=True`, `is_training=False`, `inference_mode`: whatever the library calls it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from opcompat.flow import Flag, Rules, join, run
from opcompat.lint import Example, Lint, Remark, View, is_key
from opcompat.model import EntryPoint, Model

# A value's flag: bit k says that its dimension k is the batch. Further bits: it depends on parameters; it is a sum
# over the batch; it is a root of such a sum. The last two are for values that have no batch dimension any more.
_RANKS = 16
_AXES = (1 << _RANKS) - 1
_PARAMS, _SUM, _ROOT = 1 << _RANKS, 2 << _RANKS, 4 << _RANKS

_ELEMENTWISE = frozenset(
    {
        "abs", "add", "and", "atan2", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos", "div", "eq",
        "erf", "erf_inv", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p",
        "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow", "reduce_precision", "rem",
        "round", "rsqrt", "select_n", "sign", "sin", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
    }
)  # fmt: skip
_REDUCTIONS = frozenset(
    {"argmax", "argmin", "psum", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum"}
)
_ALONG = {"cumsum": "axis", "cumprod": "axis", "cummax": "axis", "cummin": "axis", "cumlogsumexp": "axis",
          "sort": "dimension", "concatenate": "dimension", "split": "axis"}  # fmt: skip
"""Primitives that keep every dimension but the one that a parameter of theirs names."""


def look(view: View) -> Iterator[Remark]:
    found: dict[Any, None] = {}

    def transfer(eqn: Any, flags: Sequence[Flag]) -> Sequence[Flag]:
        if _normalizes(eqn, flags):
            found.setdefault(view.place(eqn))
        return [_result(eqn, flags, v.aval.ndim) for v in eqn.outvars]

    inputs = [1 if x.shape and not is_key(x) else 0 for x in view.trace.inputs]
    run(view.live, [_PARAMS] * len(view.trace.params) + inputs, Rules(transfer, _sliced, _stacked))
    for place in found:
        yield Remark(
            "statistics of the batch normalize activations: batch norm in train mode",
            place,
            "export the function for inference (use_running_average=True, is_training=False, inference_mode)",
        )


def _normalizes(eqn: Any, flags: Sequence[Flag]) -> bool:
    def is_root(flag: Flag) -> bool:
        return bool(flag & _ROOT) and not flag & _AXES

    pairs = {"mul": ((0, 1), (1, 0)), "div": ((0, 1),)}.get(eqn.primitive.name, ())
    return any(flags[x] & _AXES and is_root(flags[by]) for x, by in pairs)


def _result(eqn: Any, flags: Sequence[Flag], rank: int) -> Flag:
    name = eqn.primitive.name
    axes = 0
    for index, flag in enumerate(flags):
        for k in range(_RANKS if flag & _AXES else 0):
            to = _moved(eqn, index, k) if flag >> k & 1 else None
            axes |= 1 << to if to is not None and to < rank else 0
    everything = join(flags)
    if axes:
        return axes | (everything & _PARAMS)
    rest = everything & (_PARAMS | _SUM | _ROOT)
    if name in ("reduce_sum", "psum") and rank and flags[0] & _PARAMS and _sums_over_batch(eqn, flags[0]):
        rest |= _SUM
    if name in ("sqrt", "rsqrt", "pow") and rest & _SUM:
        rest |= _ROOT
    return rest


def _sums_over_batch(eqn: Any, flag: Flag) -> bool:
    return any(flag >> axis & 1 for axis in eqn.params["axes"])


def _moved(eqn: Any, index: int, k: int) -> int | None:
    """Where dimension k of an operand is in the results; None if it is nowhere, or if that is not known."""
    name, shape = eqn.primitive.name, eqn.invars[index].aval.shape
    result = eqn.outvars[0].aval.shape
    if name in _ELEMENTWISE:
        return k if len(shape) == len(result) and shape[k] == result[k] else None
    if name in _REDUCTIONS:
        axes = [axis for axis in eqn.params["axes"] if not isinstance(axis, str)]
        return None if k in axes else k - sum(axis < k for axis in axes)
    if name in _ALONG:
        return None if k == eqn.params[_ALONG[name]] else k
    if name in ("pad", "slice", "dynamic_slice", "rev", "reduce_window_max", "reduce_window_sum"):
        return k if index == 0 and shape[k] == result[k] else None
    rule = _MOVES.get(name)
    return None if rule is None else rule(eqn, index, k)


def _broadcast(eqn: Any, index: int, k: int) -> int | None:
    to = eqn.params["broadcast_dimensions"][k] if index == 0 else None
    same = to is not None and eqn.outvars[0].aval.shape[to] == eqn.invars[0].aval.shape[k]
    return to if same else None


def _transpose(eqn: Any, index: int, k: int) -> int | None:
    return tuple(eqn.params["permutation"]).index(k)


def _squeeze(eqn: Any, index: int, k: int) -> int | None:
    gone = eqn.params["dimensions"]
    return None if k in gone else k - sum(axis < k for axis in gone)


def _reshape(eqn: Any, index: int, k: int) -> int | None:
    """The dimension of the same size behind as many elements."""
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    ahead = math.prod(before[:k])
    places = [j for j, n in enumerate(after) if n == before[k] and math.prod(after[:j]) == ahead]
    return places[0] if places else None


def _dot(eqn: Any, index: int, k: int) -> int | None:
    contracting, batch = eqn.params["dimension_numbers"]
    if k in contracting[index]:
        return None
    if k in batch[index]:
        return list(batch[index]).index(k)
    free = [
        [d for d in range(v.aval.ndim) if d not in (*contracting[side], *batch[side])]
        for side, v in enumerate(eqn.invars[:2])
    ]
    return len(batch[0]) + (len(free[0]) if index else 0) + free[index].index(k)


def _convolution(eqn: Any, index: int, k: int) -> int | None:
    numbers = eqn.params["dimension_numbers"]
    return int(numbers.out_spec[0]) if index == 0 and k == numbers.lhs_spec[0] else None


_MOVES: Mapping[str, Callable[[Any, int, int], int | None]] = {
    "broadcast_in_dim": _broadcast,
    "conv_general_dilated": _convolution,
    "dot_general": _dot,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": _transpose,
}


def _sliced(flag: Flag) -> Flag:
    """Of an operand that a scan goes through along its first dimension."""
    return (flag & _AXES) >> 1 | flag & ~_AXES


def _stacked(flag: Flag) -> Flag:
    return (flag & _AXES) << 1 & _AXES | flag & ~_AXES


def _batch_norm(params: jax.Array, obs: jax.Array) -> jax.Array:
    hidden = obs @ params
    mean, mean_of_squares = hidden.mean(0), (hidden**2).mean(0)
    scale = jax.lax.rsqrt(mean_of_squares - mean**2 + 1e-5)
    return jax.nn.relu((hidden - mean) * scale) @ params


def _image(params: jax.Array, obs: jax.Array) -> jax.Array:
    """In a scan over layers, with channels last."""

    def layer(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        x = jax.lax.conv_general_dilated(
            x, params[None, None], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        axes = (0, 1, 2)
        return (x - x.mean(axes)) / (x.std(axes) + 1e-5), None

    return jax.lax.scan(layer, obs, None, length=2)[0].mean((1, 2))


def _layer_norm(params: jax.Array, obs: jax.Array) -> jax.Array:
    hidden = obs @ params
    centered = hidden - hidden.mean(-1, keepdims=True)
    hidden = centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return jax.nn.softmax(hidden @ params)


def _running(params: jax.Array, obs: jax.Array) -> jax.Array:
    hidden = obs @ params
    return (hidden - params[0]) * jax.lax.rsqrt(params[1] ** 2 + 1e-5)


def _model(function: Any, shape: tuple[int, ...]) -> Model:
    entry = EntryPoint(function, (jnp.zeros(shape),), outputs=("action",))
    return Model("norm", jnp.linspace(-1, 1, 16).reshape(4, 4), {"act": entry})


LINT = Lint(
    id="OC710",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(
        Example("dense", lambda: _model(_batch_norm, (1, 4))),
        Example("convolutions in a loop", lambda: _model(_image, (2, 8, 8, 4))),
    ),
    declines=(
        Example("layer norm", lambda: _model(_layer_norm, (1, 4))),
        Example("layer norm without a batch", lambda: _model(_layer_norm, (4,))),
        Example("running statistics", lambda: _model(_running, (1, 4))),
    ),
)
