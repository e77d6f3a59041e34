"""Products, convolutions, transforms, and random bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jax import lax

from opcompat.stablehlo.ops.call import Call, Handler
from opcompat.stablehlo.values import (
    Value,
    array,
)
from opcompat.stablehlo.wide import Words


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


def _dot(call: Call) -> Sequence[Value]:
    lhs, rhs = call.arrays
    dimensions: Any = (((lhs.ndim - 1,), (0,)), ((), ()))
    return (lax.dot_general(lhs, rhs, dimensions, precision=_precision(call), preferred_element_type=call.dtype),)


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


OPS: Mapping[str, Handler] = {
    "stablehlo.convolution": _convolution,
    "stablehlo.dot": _dot,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.fft": _fft,
    "stablehlo.rng_bit_generator": _rng_bit_generator,
}
