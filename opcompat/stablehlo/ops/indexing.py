"""Sorting, gathering and scattering."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from opcompat.stablehlo import regions
from opcompat.stablehlo.ops.call import Call, Handler
from opcompat.stablehlo.ops.elementwise import total_order_key
from opcompat.stablehlo.values import (
    Value,
    is_float,
)


def _sort(call: Call) -> Sequence[Value]:
    operands = call.arrays
    keys = regions.sort_keys(call.op.regions[0], call.definitions)
    if keys is None or any(operands[k.operand].dtype.kind == "c" for k in keys):
        raise call.refuse("the comparator is not a lexicographic < or > of real operands")
    dimension, stable = call.attr("dimension"), bool(call.attr("is_stable", False))
    by_first = all(k.operand == i and not k.descending for i, k in enumerate(keys))
    plain = all(not (k.total and is_float(operands[k.operand].dtype)) for k in keys)
    if by_first and plain:
        return tuple(lax.sort(operands, dimension, stable, len(keys)))
    ordered = tuple(_sort_key(operands[k.operand], k) for k in keys)
    return tuple(lax.sort((*ordered, *operands), dimension, stable, len(keys))[len(keys) :])


def _sort_key(x: jax.Array, key: regions.SortKey) -> jax.Array:
    """An array whose ascending order is the wanted order of `x`."""
    if is_float(x.dtype):
        if not key.total:
            x = lax.select(lax.eq(x, lax.full_like(x, 0)), lax.full_like(x, 0), x)
            x = lax.select(lax.ne(x, x), lax.full_like(x, np.nan), x)
        x = total_order_key(x)
    # The complement reverses the order of signed, unsigned and boolean values alike, without overflow.
    return lax.bitwise_not(x) if key.descending else x


def _indices(indices: jax.Array, vector_dimension: int, batching: Sequence[int]) -> tuple[jax.Array, tuple[int, ...]]:
    """lax wants the index vectors in the last dimension; StableHLO has them anywhere, or nowhere."""
    if vector_dimension == indices.ndim:
        return lax.reshape(indices, (*indices.shape, 1)), tuple(batching)
    others = [d for d in range(indices.ndim) if d != vector_dimension]
    moved = tuple(others.index(d) for d in batching)
    if vector_dimension == indices.ndim - 1:
        return indices, moved
    return lax.transpose(indices, (*others, vector_dimension)), moved


def _gather(call: Call) -> Sequence[Value]:
    operand, indices = call.arrays
    numbers = call.attr("dimension_numbers")
    batching = numbers["start_indices_batching_dims"]
    indices, batching = _indices(indices, numbers["index_vector_dim"], batching)
    dimension_numbers = lax.GatherDimensionNumbers(
        offset_dims=numbers["offset_dims"],
        collapsed_slice_dims=numbers["collapsed_slice_dims"],
        start_index_map=numbers["start_index_map"],
        operand_batching_dims=numbers["operand_batching_dims"],
        start_indices_batching_dims=batching,
    )
    result = lax.gather(
        operand,
        indices,
        dimension_numbers,
        call.attr("slice_sizes"),
        indices_are_sorted=bool(call.attr("indices_are_sorted", False)),
        mode=lax.GatherScatterMode.CLIP,
    )
    return (result,)


def _scatter(call: Call) -> Sequence[Value]:
    if len(call.args) != 3:
        raise call.refuse("JAX scatters one operand at a time")
    operand, indices, updates = call.arrays
    numbers = call.attr("scatter_dimension_numbers")
    batching = numbers["scatter_indices_batching_dims"]
    indices, batching = _indices(indices, numbers["index_vector_dim"], batching)
    dimension_numbers = lax.ScatterDimensionNumbers(
        update_window_dims=numbers["update_window_dims"],
        inserted_window_dims=numbers["inserted_window_dims"],
        scatter_dims_to_operand_dims=numbers["scattered_dims_to_operand_dims"],
        operand_batching_dims=numbers["input_batching_dims"],
        scatter_indices_batching_dims=batching,
    )
    options: dict[str, Any] = {
        "indices_are_sorted": bool(call.attr("indices_are_sorted", False)),
        "unique_indices": bool(call.attr("unique_indices", False)),
        "mode": lax.GatherScatterMode.FILL_OR_DROP,
    }
    if regions.ignores_update(call.op.regions[0]):
        (body,) = call.bodies
        result = lax.scatter_apply(
            operand,
            indices,
            lambda x: body(x, x)[0],
            dimension_numbers,
            update_shape=updates.shape,
            **options,
        )
        return (result,)
    function = _scatter_function(call)
    return (function(operand, indices, updates, dimension_numbers, **options),)


def _scatter_function(call: Call) -> Callable[..., jax.Array]:
    if regions.returns_update(call.op.regions[0]):
        return lax.scatter
    name = regions.binary(call.op.regions[0], call.definitions) or ""
    if call.dtype == np.bool_:
        # Arithmetic on i1 is logic, and logic is max and min.
        name = {"add": "maximum", "or": "maximum", "multiply": "minimum", "and": "minimum"}.get(name, name)
    functions: Mapping[str, Callable[..., jax.Array]] = {
        "add": lax.scatter_add,
        "subtract": lax.scatter_sub,
        "multiply": lax.scatter_mul,
        "maximum": lax.scatter_max,
        "minimum": lax.scatter_min,
    }
    if name not in functions:
        raise call.refuse("the body is none of set, add, subtract, multiply, maximum, minimum, f(old)")
    return functions[name]


OPS: Mapping[str, Handler] = {
    "stablehlo.gather": _gather,
    "stablehlo.scatter": _scatter,
    "stablehlo.sort": _sort,
}
