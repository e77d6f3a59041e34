"""Reductions, over axes and windows, and cumulations, which JAX writes as windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import primitives

from opcompat.stablehlo import regions
from opcompat.stablehlo.ops.call import Call, Handler
from opcompat.stablehlo.values import (
    Value,
    array,
    constant_scalar,
    is_float,
    is_integer,
)


def _monoid(call: Call) -> Callable[..., jax.Array] | None:
    """The lax function that the body applies, by which lax finds its own specialised reduction."""
    functions: Mapping[str, Callable[..., jax.Array]] = {
        "add": lax.add,
        "multiply": lax.mul,
        "maximum": lax.max,
        "minimum": lax.min,
        "and": lax.bitwise_and,
        "or": lax.bitwise_or,
        "xor": lax.bitwise_xor,
    }
    if len(call.op.results) != 1:
        return None
    name = regions.binary(call.op.regions[0], call.definitions)
    if call.dtype == np.bool_:
        # Arithmetic on i1 is logic.
        name = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}.get(name or "", name)
    return functions.get(name or "")


def _combiner(call: Call, count: int) -> Callable[[Any, Any], Any]:
    """The body as lax.reduce and its kin want it: on two arrays, or on two tuples of arrays."""
    (body,) = call.bodies
    if count == 1:
        return lambda x, y: body(x, y)[0]
    return lambda xs, ys: body(*xs, *ys)


def _initial(value: Value) -> Any:
    """Constant if it can be: lax specialises a reduction only from a value that it can look at."""
    known = constant_scalar(value)
    return array(value) if known is None else known


def _reduce(call: Call) -> Sequence[Value]:
    count = len(call.op.results)
    operands = tuple(array(a) for a in call.args[:count])
    initial = tuple(_initial(a) for a in call.args[count:])
    dimensions = call.attr("dimensions")
    found = _arg_reduction(call, operands, initial)
    if found is not None:
        return found
    if count == 1:
        combine = _monoid(call) or _combiner(call, 1)
        return (lax.reduce(operands[0], initial[0], combine, dimensions),)
    return tuple(lax.reduce(operands, initial, _combiner(call, count), dimensions))


def _arg_reduction(call: Call, operands: Sequence[jax.Array], initial: Sequence[Any]) -> Sequence[Value] | None:
    """(extreme, its index) by lax.argmax or lax.argmin, where the reduction is just that."""
    dimensions = call.attr("dimensions")
    if len(operands) != 2 or len(dimensions) != 1 or not is_ordered(operands[0].dtype):
        return None
    name = regions.arg_reduction(call.op.regions[0], call.definitions)
    index = call.definitions.get(call.op.operands[1])
    if name is None or name in call.avoid or index is None:
        return None
    counts = index.name == "stablehlo.iota" and index.attrs["iota_dimension"] == dimensions[0]
    worst = _identity("maximum" if name == "argmax" else "minimum", operands[0].dtype)
    if not counts or not all(isinstance(i, np.ndarray) for i in initial):
        return None
    if initial[0] != worst or initial[1] != 0 or not operands[0].shape[dimensions[0]]:
        return None
    pick = lax.argmax if name == "argmax" else lax.argmin
    extreme = lax.max if name == "argmax" else lax.min
    value = lax.reduce(operands[0], initial[0], extreme, dimensions)
    return value, pick(operands[0], dimensions[0], operands[1].dtype)


def is_ordered(dtype: Any) -> bool:
    return is_float(dtype) or is_integer(dtype)


def _identity(name: str, dtype: np.dtype[Any]) -> Any:
    """The value that `name` leaves others alone with; max and min of floats: an infinity."""
    if name in ("add", "multiply"):
        return dtype.type(0 if name == "add" else 1)
    if is_float(dtype):
        return dtype.type(-np.inf if name == "maximum" else np.inf)
    if dtype == np.bool_:
        return np.bool_(name == "minimum")
    info: Any = jax.numpy.iinfo(dtype)  # type: ignore[no-untyped-call, unused-ignore]
    return dtype.type(info.min if name == "maximum" else info.max)


def _reduce_window(call: Call) -> Sequence[Value]:
    count = len(call.op.results)
    operands = tuple(array(a) for a in call.args[:count])
    initial = tuple(_initial(a) for a in call.args[count:])
    scanned = _cumulative(call, operands, initial)
    if scanned is not None:
        return scanned
    rank = operands[0].ndim
    single = count == 1
    results = lax.reduce_window(
        operands[0] if single else operands,
        initial[0] if single else initial,
        (_monoid(call) if single else None) or _combiner(call, count),
        call.attr("window_dimensions"),
        call.attr("window_strides"),
        call.attr("padding", ((0, 0),) * rank),
        call.attr("base_dilations"),
        call.attr("window_dilations"),
    )
    return (results,) if single else tuple(results)


def _cumulative(call: Call, operands: Sequence[jax.Array], initial: Sequence[Any]) -> Sequence[Value] | None:
    """JAX writes cumsum and its kin as a window over the whole axis: n*n work, and a kernel nobody has.

    The named ones come back as themselves; a general body becomes an associative scan of basic ops.
    """
    found = _cumulative_axis(call, operands[0].shape)
    if found is None:
        return None
    axis, backward = found
    named = _named_cumulation(call, operands, initial)
    if named is not None and named.__name__ not in call.avoid:
        return (named(operands[0], axis, reverse=backward),)
    (reducer,) = call.bodies

    def combine(xs: Sequence[jax.Array], ys: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        return _over_elements(reducer, xs, ys)

    scan = lax.associative_scan(combine, tuple(operands), reverse=backward, axis=axis)
    if named is not None:
        return tuple(scan)  # it starts from the identity
    starts = tuple(lax.full(x.shape, i, x.dtype) for x, i in zip(operands, initial, strict=True))
    return combine(starts, scan)


def _named_cumulation(
    call: Call, operands: Sequence[jax.Array], initial: Sequence[Any]
) -> Callable[..., jax.Array] | None:
    """The lax function of this cumulation, if it has one and starts from that one's identity."""
    functions: Mapping[str, Callable[..., jax.Array]] = {
        "add": lax.cumsum,
        "multiply": lax.cumprod,
        "maximum": lax.cummax,
        "minimum": lax.cummin,
    }
    if len(operands) != 1 or not is_ordered(operands[0].dtype) or not isinstance(initial[0], np.ndarray):
        return None
    name = regions.binary(call.op.regions[0], call.definitions) or ""
    if name not in functions or initial[0] != _identity(name, operands[0].dtype):
        return None
    return functions[name]


def _over_elements(
    body: Callable[..., tuple[jax.Array, ...]], xs: Sequence[jax.Array], ys: Sequence[jax.Array]
) -> tuple[jax.Array, ...]:
    """A body of scalars on whole arrays."""
    mapped = body
    for _ in range(xs[0].ndim):
        mapped = jax.vmap(mapped)
    return tuple(mapped(*xs, *ys))


def _cumulative_axis(call: Call, shape: Sequence[int]) -> tuple[int, bool] | None:
    """(axis, from the end) if each window is all elements up to (from) its own, else None."""
    window = call.attr("window_dimensions")
    strided = ("window_strides", "base_dilations", "window_dilations")
    if any(set(call.attr(name, (1,))) != {1} for name in strided):
        return None
    axes = [axis for axis, size in enumerate(window) if size != 1]
    if len(axes) != 1 or window[axes[0]] != shape[axes[0]]:
        return None
    padding = call.attr("padding", ((0, 0),) * len(shape))
    if any(tuple(pair) != (0, 0) for axis, pair in enumerate(padding) if axis != axes[0]):
        return None
    before = window[axes[0]] - 1
    directions = {(before, 0): False, (0, before): True}
    backward = directions.get(tuple(padding[axes[0]]))
    return None if backward is None else (axes[0], backward)


def _select_and_scatter(call: Call) -> Sequence[Value]:
    operand, source = (array(a) for a in call.args[:2])
    initial = constant_scalar(call.args[2])
    (picked,) = regions.expressions(call.op.regions[0], call.definitions)
    selects = {"GE": primitives.ge_p, "LE": primitives.le_p}
    direction = picked[1][0] if picked[0] == "compare" else ""
    ordered = picked[2:] == (regions.argument(0), regions.argument(1))
    adds = regions.binary(call.op.regions[1], call.definitions) == "add" and initial is not None and not initial
    if direction not in selects or not ordered or not adds:
        raise call.refuse("JAX has only the sum of the picked >= or <= elements, from 0")
    ones = (1,) * operand.ndim
    result = primitives.select_and_scatter_add_p.bind(
        source,
        operand,
        select_prim=selects[direction],
        window_dimensions=call.attr("window_dimensions", ones),
        window_strides=call.attr("window_strides", ones),
        padding=call.attr("padding", ((0, 0),) * operand.ndim),
    )
    return (result,)


OPS: Mapping[str, Handler] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
