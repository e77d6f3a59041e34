"""The table: StableHLO op name -> one small function that returns its results by `jax.lax` calls.

To add an op, write a `Handler` and name it in `table()`. Handlers use lax with explicit dtypes, so that they
behave the same under x64 and strict promotion. What a handler cannot express exactly it refuses by raising
Undecomposable; a TypeError, ValueError or NotImplementedError of lax itself is turned into one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import primitives

from opcompat.stablehlo import regions, wide
from opcompat.stablehlo.program import Op, Splat, Undecomposable
from opcompat.stablehlo.values import (
    Value,
    array,
    constant_scalar,
    is_float,
    is_integer,
    scalar_or_array,
    type_of,
)
from opcompat.stablehlo.wide import Small, Words, x64_enabled


@dataclass(frozen=True)
class Call:
    """One op with its operands' values; what a handler may use.

    Attributes:
        regions: one function per region, from values to a tuple of values.
        function: calls a function of the module by name.
        definitions: the op that made a value, by the value's number.
        avoid: names of primitives that may not come back.
    """

    op: Op
    args: tuple[Value, ...]
    regions: tuple[Callable[..., tuple[Value, ...]], ...]
    function: Callable[[str, Sequence[Value]], tuple[Value, ...]]
    definitions: Mapping[int, Op]
    avoid: frozenset[str]

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        return tuple(array(a) for a in self.args)

    @property
    def bodies(self) -> tuple[Callable[..., tuple[jax.Array, ...]], ...]:
        """One function per region, from arrays to a tuple of arrays, as lax wants them."""

        def on_arrays(region: Callable[..., tuple[Value, ...]]) -> Callable[..., tuple[jax.Array, ...]]:
            return lambda *args: tuple(array(v) for v in region(*args))

        return tuple(on_arrays(region) for region in self.regions)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.result_types[0].shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.op.result_types[0].dtype

    def attr(self, name: str, default: Any = None) -> Any:
        return self.op.attrs.get(name, default)

    def refuse(self, reason: str) -> Undecomposable:
        return Undecomposable(f"{self.op}: {reason}")


Handler = Callable[[Call], Sequence[Value]]


def table() -> Mapping[str, Handler]:
    """Every op that the importer knows."""
    return {
        # Elementwise
        "stablehlo.abs": _abs,
        "stablehlo.add": _on_small(wide.add, _elementwise(lax.add, on_bool=lax.bitwise_or)),
        "stablehlo.and": _elementwise(lax.bitwise_and),
        "stablehlo.atan2": _elementwise(lax.atan2),
        "stablehlo.bitcast_convert": _bitcast_convert,
        "stablehlo.cbrt": _elementwise(lax.cbrt),
        "stablehlo.ceil": _elementwise(lax.ceil),
        "stablehlo.clamp": _clamp,
        "stablehlo.compare": _compare,
        "stablehlo.complex": _elementwise(lax.complex),
        "stablehlo.convert": _convert,
        "stablehlo.cosine": _elementwise(lax.cos),
        "stablehlo.count_leading_zeros": _count_leading_zeros,
        "stablehlo.divide": _elementwise(lax.div),
        "stablehlo.exponential": _elementwise(lax.exp),
        "stablehlo.exponential_minus_one": _elementwise(lax.expm1),
        "stablehlo.floor": _elementwise(lax.floor),
        "stablehlo.imag": _imag,
        "stablehlo.is_finite": _elementwise(lax.is_finite),
        "stablehlo.log": _elementwise(lax.log),
        "stablehlo.log_plus_one": _elementwise(lax.log1p),
        "stablehlo.logistic": _elementwise(lax.logistic),
        "stablehlo.maximum": _elementwise(lax.max),
        "stablehlo.minimum": _elementwise(lax.min),
        "stablehlo.multiply": _on_small(wide.multiply, _elementwise(lax.mul, on_bool=lax.bitwise_and)),
        "stablehlo.negate": _elementwise(lax.neg),
        "stablehlo.not": _elementwise(lax.bitwise_not),
        "stablehlo.or": _elementwise(lax.bitwise_or),
        "stablehlo.popcnt": _popcnt,
        "stablehlo.power": _power,
        "stablehlo.real": _real,
        "stablehlo.reduce_precision": _reduce_precision,
        "stablehlo.remainder": _elementwise(lax.rem),
        "stablehlo.round_nearest_afz": _elementwise(_round(lax.RoundingMethod.AWAY_FROM_ZERO)),
        "stablehlo.round_nearest_even": _elementwise(_round(lax.RoundingMethod.TO_NEAREST_EVEN)),
        "stablehlo.rsqrt": _elementwise(lax.rsqrt),
        "stablehlo.select": _select,
        "stablehlo.shift_left": _elementwise(lax.shift_left),
        "stablehlo.shift_right_arithmetic": _elementwise(lax.shift_right_arithmetic),
        "stablehlo.shift_right_logical": _on_small(wide.shift_right_logical, _elementwise(lax.shift_right_logical)),
        "stablehlo.sign": _elementwise(lax.sign),
        "stablehlo.sine": _elementwise(lax.sin),
        "stablehlo.sqrt": _elementwise(lax.sqrt),
        "stablehlo.subtract": _elementwise(lax.sub),
        "stablehlo.tan": _elementwise(lax.tan),
        "stablehlo.tanh": _elementwise(lax.tanh),
        "stablehlo.xor": _elementwise(lax.bitwise_xor),
        # Constants and shapes
        "stablehlo.broadcast_in_dim": _broadcast_in_dim,
        "stablehlo.concatenate": _concatenate,
        "stablehlo.constant": lambda c: (c.attr("value"),),
        "stablehlo.dynamic_slice": _dynamic_slice,
        "stablehlo.dynamic_update_slice": _dynamic_update_slice,
        "stablehlo.iota": _iota,
        "stablehlo.pad": _pad,
        "stablehlo.reshape": _reshape,
        "stablehlo.reverse": lambda c: (lax.rev(c.arrays[0], c.attr("dimensions")),),
        "stablehlo.slice": _slice,
        "stablehlo.transpose": lambda c: (lax.transpose(c.arrays[0], c.attr("permutation")),),
        # Reductions, sorting, indexing
        "stablehlo.gather": _gather,
        "stablehlo.reduce": _reduce,
        "stablehlo.reduce_window": _reduce_window,
        "stablehlo.scatter": _scatter,
        "stablehlo.select_and_scatter": _select_and_scatter,
        "stablehlo.sort": _sort,
        # Linear algebra, signals, random bits
        "stablehlo.convolution": _convolution,
        "stablehlo.dot_general": _dot_general,
        "stablehlo.fft": _fft,
        "stablehlo.rng_bit_generator": _rng_bit_generator,
        # Control flow and calls
        "func.call": lambda c: c.function(c.attr("callee"), c.args),
        "sdy.sharding_constraint": lambda c: c.args,
        "stablehlo.case": _case,
        "stablehlo.composite": _composite,
        "stablehlo.custom_call": _custom_call,
        "stablehlo.if": _if,
        "stablehlo.optimization_barrier": lambda c: c.args,
        "stablehlo.while": _while,
        **{name: _chlo(fn) for name, fn in _chlo_functions().items()},
    }


# Elementwise


def _elementwise(fn: Callable[..., jax.Array], on_bool: Callable[..., jax.Array] | None = None) -> Handler:
    """`fn` on all operands; `on_bool` where StableHLO's arithmetic on i1 is logic and lax refuses it."""

    def handle(call: Call) -> Sequence[Value]:
        chosen = on_bool if on_bool is not None and call.dtype == np.bool_ else fn
        return (chosen(*_operands(call)),)

    return handle


def _operands(call: Call) -> tuple[Any, ...]:
    """Splats as scalars, which lax broadcasts, as long as one operand has the full shape."""
    if all(isinstance(a, Splat) for a in call.args):
        return call.arrays
    return tuple(scalar_or_array(a) for a in call.args)


def _on_small(function: Callable[[Value, Value], Small], otherwise: Handler) -> Handler:
    """`function` if an operand is a uint64 that JAX cannot hold."""

    def handle(call: Call) -> Sequence[Value]:
        if not any(isinstance(a, Small) for a in call.args):
            return otherwise(call)
        return (function(*call.args),)

    return handle


def _round(method: lax.RoundingMethod) -> Callable[[jax.Array], jax.Array]:
    return lambda x: lax.round(x, method)


def _abs(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    return (x if jax.numpy.issubdtype(x.dtype, np.unsignedinteger) else lax.abs(x),)


def _real(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    return (lax.real(x) if x.dtype.kind == "c" else x,)


def _imag(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    return (lax.imag(x) if x.dtype.kind == "c" else lax.full_like(x, 0),)


def _clamp(call: Call) -> Sequence[Value]:
    low, x, high = call.args
    return (lax.clamp(scalar_or_array(low), array(x), scalar_or_array(high)),)


def _select(call: Call) -> Sequence[Value]:
    return (lax.select(*call.arrays),)


def _convert(call: Call) -> Sequence[Value]:
    if isinstance(call.args[0], Small):
        return (lax.convert_element_type(call.args[0].low, call.dtype),)
    (x,) = call.arrays
    if x.dtype.kind == "c" and call.dtype.kind != "c":
        x = lax.real(x)
    return (lax.convert_element_type(x, call.dtype),)


def _compare(call: Call) -> Sequence[Value]:
    comparisons = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}
    operands = _operands(call)
    if call.attr("compare_type") == "TOTALORDER":
        operands = tuple(_total_order_key(x) for x in call.arrays)
    return (comparisons[call.attr("comparison_direction")](*operands),)


def _total_order_key(x: jax.Array) -> jax.Array:
    """Integers that compare like IEEE 754's totalOrder: -NaN < -inf < -0 < +0 < inf < NaN.

    Read as an integer, the bits of a float are in order if it is positive, in reverse if negative.
    """
    if not is_float(x.dtype):
        return x
    width = 8 * x.dtype.itemsize
    dtype = np.dtype(f"int{width}")
    bits = lax.bitcast_convert_type(x, dtype)
    sign = lax.shift_right_arithmetic(bits, lax.full_like(bits, width - 1))
    return lax.bitwise_xor(bits, lax.shift_right_logical(sign, lax.full_like(bits, 1)))


def _reduce_precision(call: Call) -> Sequence[Value]:
    return (lax.reduce_precision(call.arrays[0], call.attr("exponent_bits"), call.attr("mantissa_bits")),)


def _power(call: Call) -> Sequence[Value]:
    base, exponent = call.args
    if is_integer(call.dtype):
        known = constant_scalar(exponent)
        if known is None or int(known) < 0:
            raise call.refuse("an integer power needs a constant exponent of at least 0")
        return (lax.integer_pow(array(base), int(known)),)
    return (lax.pow(*_operands(call)),)


def _bitcast_convert(call: Call) -> Sequence[Value]:
    (x,) = call.args
    if isinstance(x, Words):
        if call.dtype != np.uint32:
            raise call.refuse("uint64 values need jax_enable_x64")
        return (x.words,)
    if call.dtype == np.uint64 and type_of(x).dtype == np.uint32 and not x64_enabled():
        return (Words(array(x)),)
    return (lax.bitcast_convert_type(array(x), call.dtype),)


def _popcnt(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    return (_count_ones(x) if "population_count" in call.avoid else lax.population_count(x),)


def _count_leading_zeros(call: Call) -> Sequence[Value]:
    (x,) = call.arrays
    if "clz" not in call.avoid:
        return (lax.clz(x),)
    width = 8 * x.dtype.itemsize
    shift = 1
    while shift < width:
        x = lax.bitwise_or(x, lax.shift_right_logical(x, lax.full_like(x, shift)))
        shift *= 2
    return (_count_ones(lax.bitwise_not(x)),)


def _count_ones(x: jax.Array) -> jax.Array:
    """The number of set bits, added up in ever wider fields (Hacker's Delight, 5-1). Keeps x's dtype."""
    width = 8 * x.dtype.itemsize
    bits = lax.bitcast_convert_type(x, np.dtype(f"uint{width}"))

    def repeat(byte: int) -> jax.Array:
        return lax.full_like(bits, int.from_bytes(bytes([byte]) * x.dtype.itemsize))

    def right(value: jax.Array, by: int) -> jax.Array:
        return lax.shift_right_logical(value, lax.full_like(value, by))

    bits = lax.sub(bits, lax.bitwise_and(right(bits, 1), repeat(0x55)))
    bits = lax.add(lax.bitwise_and(bits, repeat(0x33)), lax.bitwise_and(right(bits, 2), repeat(0x33)))
    bits = lax.bitwise_and(lax.add(bits, right(bits, 4)), repeat(0x0F))
    # The product's highest byte is the sum of all bytes.
    bits = right(lax.mul(bits, repeat(0x01)), width - 8)
    return lax.bitcast_convert_type(bits, x.dtype)


# Shapes


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


# Reductions


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
    if len(operands) != 2 or len(dimensions) != 1 or not _is_ordered(operands[0].dtype):
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


def _is_ordered(dtype: Any) -> bool:
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
    if len(operands) != 1 or not _is_ordered(operands[0].dtype) or not isinstance(initial[0], np.ndarray):
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


# Sorting and indexing


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
        x = _total_order_key(x)
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


# Linear algebra, signals, random bits


def _precision(call: Call) -> tuple[lax.Precision, lax.Precision] | None:
    names = call.attr("precision_config") or ("DEFAULT", "DEFAULT")
    if set(names) == {"DEFAULT"}:
        return None
    lhs, rhs = (lax.Precision[name] for name in names)
    return lhs, rhs


def _dot_general(call: Call) -> Sequence[Value]:
    if "algorithm" in call.op.attrs:
        raise call.refuse(f"the algorithm {call.attr('algorithm')} is not mapped")
    numbers = call.attr("dot_dimension_numbers")
    contracting = numbers["lhs_contracting_dimensions"], numbers["rhs_contracting_dimensions"]
    batching = numbers["lhs_batching_dimensions"], numbers["rhs_batching_dimensions"]
    lhs, rhs = call.arrays
    result = lax.dot_general(
        lhs, rhs, (contracting, batching), precision=_precision(call), preferred_element_type=call.dtype
    )
    return (result,)


def _convolution(call: Call) -> Sequence[Value]:
    lhs, rhs = call.arrays
    n = call.attr("dimension_numbers")
    spatial = n["kernel_spatial_dimensions"]
    reversal = call.attr("window_reversal", (False,) * len(spatial))
    reversed_dims = tuple(d for d, back in zip(spatial, reversal, strict=True) if back)
    kernel = lax.rev(rhs, reversed_dims) if reversed_dims else rhs
    numbers = lax.ConvDimensionNumbers(
        (n["input_batch_dimension"], n["input_feature_dimension"], *n["input_spatial_dimensions"]),
        (n["kernel_output_feature_dimension"], n["kernel_input_feature_dimension"], *spatial),
        (n["output_batch_dimension"], n["output_feature_dimension"], *n["output_spatial_dimensions"]),
    )
    ones = (1,) * len(spatial)
    result = lax.conv_general_dilated(
        lhs,
        kernel,
        window_strides=call.attr("window_strides", ones),
        padding=call.attr("padding", ((0, 0),) * len(spatial)),
        lhs_dilation=call.attr("lhs_dilation", ones),
        rhs_dilation=call.attr("rhs_dilation", ones),
        dimension_numbers=numbers,
        feature_group_count=call.attr("feature_group_count"),
        batch_group_count=call.attr("batch_group_count"),
        precision=_precision(call),
        preferred_element_type=call.dtype,
    )
    return (result,)


def _fft(call: Call) -> Sequence[Value]:
    return (lax.fft(call.arrays[0], lax.FftType[call.attr("fft_type")], call.attr("fft_length")),)


def _rng_bit_generator(call: Call) -> Sequence[Value]:
    algorithms = {
        "DEFAULT": lax.RandomAlgorithm.RNG_DEFAULT,
        "PHILOX": lax.RandomAlgorithm.RNG_PHILOX,
        "THREE_FRY": lax.RandomAlgorithm.RNG_THREE_FRY,
    }
    (state,) = call.args
    key = lax.reshape(state.words, (4,)) if isinstance(state, Words) else array(state)
    output = call.op.result_types[1]
    algorithm = algorithms[call.attr("rng_algorithm")]
    generate: Any = lax.rng_bit_generator
    new_key, bits = generate(key, output.shape, output.dtype, algorithm=algorithm)
    return (Words(lax.reshape(new_key, (2, 2))) if isinstance(state, Words) else new_key), bits


# Control flow and calls


def _while(call: Call) -> Sequence[Value]:
    condition, body = call.bodies
    return tuple(lax.while_loop(lambda xs: condition(*xs)[0], lambda xs: body(*xs), call.arrays))


def _if(call: Call) -> Sequence[Value]:
    on_true, on_false = call.bodies
    return tuple(lax.cond(call.arrays[0], on_true, on_false))


def _case(call: Call) -> Sequence[Value]:
    known = constant_scalar(call.args[0])
    if known is not None:
        # Which platform's code to take is decided before anything runs: the others' need not be expressible.
        return call.regions[int(known) if 0 <= int(known) < len(call.regions) else -1]()
    (index,) = call.arrays
    branches = call.bodies
    if len(branches) == 1:
        return branches[0]()
    # Any index outside the branches, a negative one too, takes the last; lax.switch would clamp it.
    if len(branches) == 2:
        return tuple(lax.cond(lax.eq(index, lax.full_like(index, 0)), *branches))
    unsigned = lax.bitcast_convert_type(index, np.dtype(np.uint32))
    bounded = lax.min(unsigned, lax.full_like(unsigned, len(branches) - 1))
    return tuple(lax.switch(lax.convert_element_type(bounded, np.dtype(np.int32)), branches))


def _custom_call(call: Call) -> Sequence[Value]:
    target = call.attr("call_target_name")
    annotations = ("Sharding", "annotate_device_placement", "xla.sdy.FuncResultSharding")
    if target in annotations and len(call.args) == len(call.op.results) == 1:
        return call.args
    raise call.refuse(f"the custom call @{target} is opaque: a library's code, not StableHLO")


def _composite(call: Call) -> Sequence[Value]:
    """As the lax function of that name where there is one, else by the decomposition that comes with it."""
    name = call.attr("name")
    attributes = call.attr("composite_attributes", {})
    function = _chlo_functions().get(name)
    if function is not None and _primitive_name(name) not in call.avoid:
        if not attributes and name != "chlo.top_k":
            return (function(*call.arrays),)
        if name == "chlo.top_k" and set(attributes) == {"k"}:
            return tuple(lax.top_k(call.arrays[0], attributes["k"]))
    return call.function(call.attr("decomposition"), call.args)


def _chlo(function: Callable[..., Any]) -> Handler:
    def handle(call: Call) -> Sequence[Value]:
        if call.op.name == "chlo.top_k":
            return tuple(lax.top_k(call.arrays[0], call.attr("k")))
        return (function(*call.arrays),)

    return handle


def _primitive_name(composite: str) -> str:
    return {"chlo.next_after": "nextafter"}.get(composite, composite.removeprefix("chlo."))


def _chlo_functions() -> Mapping[str, Callable[..., Any]]:
    """The client ops that are one JAX primitive each."""
    return {
        "chlo.acos": lax.acos,
        "chlo.acosh": lax.acosh,
        "chlo.asin": lax.asin,
        "chlo.asinh": lax.asinh,
        "chlo.atan": lax.atan,
        "chlo.atanh": lax.atanh,
        "chlo.bessel_i1e": lax.bessel_i1e,
        "chlo.conj": lax.conj,
        "chlo.cosh": lax.cosh,
        "chlo.digamma": lax.digamma,
        "chlo.erf": lax.erf,
        "chlo.erf_inv": lax.erf_inv,
        "chlo.erfc": lax.erfc,
        "chlo.lgamma": lax.lgamma,
        "chlo.next_after": lax.nextafter,
        "chlo.polygamma": lax.polygamma,
        "chlo.sinh": lax.sinh,
        "chlo.square": lax.square,
        "chlo.tan": lax.tan,
        "chlo.top_k": lax.top_k,
        "chlo.zeta": lax.zeta,
    }
