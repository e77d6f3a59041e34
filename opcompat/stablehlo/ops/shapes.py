"""Constants, and ops that move, cut and lay out elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jax import lax

from opcompat.stablehlo import wide
from opcompat.stablehlo.ops.call import Call, Handler
from opcompat.stablehlo.program import Splat
from opcompat.stablehlo.values import (
    Value,
    constant_scalar,
    type_of,
)
from opcompat.stablehlo.wide import x64_enabled


def _iota(call: Call) -> Sequence[Value]:
    dimension = call.attr("iota_dimension")
    if call.dtype == np.uint64 and not x64_enabled():
        return (wide.iota(call.shape, dimension),)
    return (lax.broadcasted_iota(call.dtype, call.shape, dimension),)


def _broadcast_in_dim(call: Call) -> Sequence[Value]:
    known = constant_scalar(call.args[0])
    if known is not None:
        return (Splat(known, call.shape) if call.shape else known,)
    (x,) = call.arrays
    return (lax.broadcast_in_dim(x, call.shape, call.attr("broadcast_dimensions")),)


def _reshape(call: Call) -> Sequence[Value]:
    known = constant_scalar(call.args[0])
    if known is not None:
        return (Splat(known, call.shape) if call.shape else known,)
    return (lax.reshape(call.arrays[0], call.shape),)


def _concatenate(call: Call) -> Sequence[Value]:
    return (lax.concatenate(call.arrays, call.attr("dimension")),)


def _get_dimension_size(call: Call) -> Sequence[Value]:
    return (np.asarray(type_of(call.args[0]).shape[call.attr("dimension")], call.dtype),)


def _broadcast(call: Call) -> Sequence[Value]:
    return (lax.broadcast(call.arrays[0], call.attr("broadcast_sizes")),)


def _slice(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    return (lax.slice(x, call.attr("start_indices"), call.attr("limit_indices"), call.attr("strides")),)


def _pad(call: Call) -> Sequence[Value]:
    x, padding = call.arrays
    edges = (call.attr("edge_padding_low"), call.attr("edge_padding_high"), call.attr("interior_padding"))
    return (lax.pad(x, padding, tuple(zip(*edges, strict=True))),)


def _dynamic_slice(call: Call) -> Sequence[Value]:
    x, *starts = call.arrays
    # StableHLO clamps a negative start to 0, where lax would count from the end.
    return (lax.dynamic_slice(x, starts, call.attr("slice_sizes"), allow_negative_indices=False),)


def _dynamic_update_slice(call: Call) -> Sequence[Value]:
    x, update, *starts = call.arrays
    return (lax.dynamic_update_slice(x, update, starts, allow_negative_indices=False),)


OPS: Mapping[str, Handler] = {
    "stablehlo.broadcast": _broadcast,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": lambda c: (c.attr("value"),),
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.get_dimension_size": _get_dimension_size,
    "stablehlo.iota": _iota,
    "stablehlo.pad": _pad,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": lambda c: (lax.rev(c.arrays[0], c.attr("dimensions")),),
    "stablehlo.slice": _slice,
    "stablehlo.transpose": lambda c: (lax.transpose(c.arrays[0], c.attr("permutation")),),
}
