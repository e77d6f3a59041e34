"""MLIR attributes and types as plain Python and numpy values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from opcompat.stablehlo.program import Splat, TensorType, Undecomposable

_DENSE = re.compile(r"dense<(.*?)> : tensor<", re.DOTALL)

_DTYPES: Mapping[str, str] = {
    "i1": "bool", "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "ui4": "uint4", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64",
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
    "f8E4M3FNUZ": "float8_e4m3fnuz", "f8E5M2FNUZ": "float8_e5m2fnuz",
    "complex<f32>": "complex64", "complex<f64>": "complex128",
}  # fmt: skip

_ENUMS: Mapping[str, Any] = {
    "comparison_direction": stablehlo.ComparisonDirectionAttr,
    "compare_type": stablehlo.ComparisonTypeAttr,
    "fft_type": stablehlo.FftTypeAttr,
    "rng_algorithm": stablehlo.RngAlgorithmAttr,
}

_DIMENSIONS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "stablehlo.dot_general": (
        stablehlo.DotDimensionNumbers,
        (
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
        ),
    ),
    "stablehlo.gather": (
        stablehlo.GatherDimensionNumbers,
        (
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
            "start_index_map",
            "index_vector_dim",
        ),
    ),
    "stablehlo.scatter": (
        stablehlo.ScatterDimensionNumbers,
        (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
            "scattered_dims_to_operand_dims",
            "index_vector_dim",
        ),
    ),
    "stablehlo.convolution": (
        stablehlo.ConvDimensionNumbers,
        (
            "input_batch_dimension",
            "input_feature_dimension",
            "input_spatial_dimensions",
            "kernel_input_feature_dimension",
            "kernel_output_feature_dimension",
            "kernel_spatial_dimensions",
            "output_batch_dimension",
            "output_feature_dimension",
            "output_spatial_dimensions",
        ),
    ),
}


def tensor_type(type_: Any, where: str) -> TensorType:
    """A type with None for each size that is not known. Raises Undecomposable for one that no array has."""
    try:
        tensor = ir.RankedTensorType(type_)
    except ValueError as error:
        raise Undecomposable(f"{where}: no array has the type {type_}") from error
    element = str(tensor.element_type)
    if element not in _DTYPES:
        raise Undecomposable(f"{where}: JAX has no element type {element}")
    rank = tensor.rank
    shape = tuple(None if tensor.is_dynamic_dim(i) else int(tensor.get_dim_size(i)) for i in range(rank))
    return TensorType(shape, jax.numpy.dtype(_DTYPES[element]))


def attributes(op: Any, result_types: tuple[TensorType, ...], where: str) -> Mapping[str, Any]:
    if op.name == "stablehlo.constant":
        return {"value": _constant(op, result_types[0], where)}
    if op.name == "stablehlo.custom_call":
        # The rest are layouts, and payloads whose meaning only the target's own handler knows.
        found = {"call_target_name": ir.StringAttr(op.attributes["call_target_name"]).value}
        for name in ("mhlo.backend_config", "mhlo.attributes"):
            if name in op.attributes and isinstance(op.attributes[name], ir.DictAttr):
                found[name.removeprefix("mhlo.")] = _generic(op.attributes[name])
        return found
    # A dot marks another dialect's annotation, such as a sharding.
    return {name: _attribute(op, name) for name in op.attributes if "." not in name}


def _attribute(op: Any, name: str) -> Any:
    attribute = op.attributes[name]
    if name in _ENUMS and op.name.startswith("stablehlo."):
        return _ENUMS[name](attribute).value
    if name == "precision_config":
        return tuple(stablehlo.PrecisionAttr(a).value for a in attribute)
    if name.endswith("dimension_numbers") and op.name in _DIMENSIONS:
        kind, fields = _DIMENSIONS[op.name]
        return {field: _plain(getattr(kind(attribute), field)) for field in fields}
    return _generic(attribute)


def _plain(value: Any) -> int | tuple[int, ...]:
    return value if isinstance(value, int) else tuple(value)


def _generic(attribute: Any) -> Any:
    for kind, read in _readers():
        if isinstance(attribute, kind):
            return read(attribute)
    return str(attribute)


def _readers() -> tuple[tuple[Any, Callable[[Any], Any]], ...]:
    scalars = (ir.BoolAttr, ir.IntegerAttr, ir.FloatAttr, ir.StringAttr, ir.FlatSymbolRefAttr)
    arrays = (ir.DenseBoolArrayAttr, ir.DenseI32ArrayAttr, ir.DenseI64ArrayAttr)
    return (
        (scalars, lambda a: a.value),
        (arrays, tuple),
        (ir.UnitAttr, lambda a: True),
        (ir.DenseElementsAttr, lambda a: _nested(np.asarray(a).tolist())),
        (ir.ArrayAttr, lambda a: tuple(_generic(x) for x in a)),
        (ir.DictAttr, lambda a: {n: _generic(a[n]) for n in _names(a)}),
    )


def _names(attribute: Any) -> tuple[str, ...]:
    return tuple(a.name for a in attribute)


def _nested(value: Any) -> Any:
    return tuple(_nested(v) for v in value) if isinstance(value, list) else value


# Constants


def _constant(op: Any, type_: TensorType, where: str) -> np.ndarray[Any, Any] | Splat:
    try:
        attribute = op.attributes["value"]
        view = np.asarray(attribute)
    except TypeError:
        # bf16, 4-bit, 8-bit float and complex attributes have no buffer (jaxlib 0.10, 0.12): read the text.
        values = _constant_text(op, type_, where)
    else:
        values = view[(slice(0, 1),) * view.ndim] if attribute.is_splat else view
        values = values.astype(type_.dtype)  # copies: the buffer belongs to the context
    if type_.shape and values.size == 1:
        return Splat(np.asarray(values).reshape(()), type_.shape)
    # A scalar read from a buffer is no array yet.
    return np.asarray(values).reshape(type_.shape)


def _constant_text(op: Any, type_: TensorType, where: str) -> np.ndarray[Any, Any]:
    """The elements of a constant from its textual form: all of them, or one for a splat."""
    match = _DENSE.search(op.get_asm(enable_debug_info=False))
    if not match:
        raise Undecomposable(f"{where}: the constant's data is not in the module")
    text = match[1]
    if text.startswith('"0x'):
        raw = bytes.fromhex(text[3:-1])
        # Four-bit elements are stored one a byte.
        storage = np.dtype(np.int8) if type_.dtype.name in ("int4", "uint4") else type_.dtype
        return np.frombuffer(raw, storage).astype(type_.dtype)
    if type_.dtype.kind == "c":
        part = np.dtype(np.float32 if type_.dtype.itemsize == 8 else np.float64)
        pairs = re.findall(r"\(([^,()]+),([^,()]+)\)", text)
        parts = [_number(token.strip(), part) for pair in pairs for token in pair]
        return np.array(parts, part).view(type_.dtype)
    return np.array([_number(t, type_.dtype) for t in re.findall(r"[^\s,\[\]]+", text)], type_.dtype)


def _number(token: str, dtype: np.dtype[Any]) -> Any:
    """One element. MLIR writes NaN, infinities and what decimals cannot say as the bits, in hexadecimal."""
    if token.startswith("0x"):
        return np.array(int(token, 16), f"uint{8 * dtype.itemsize}").view(dtype)[()]
    return dtype.type(int(token) if re.fullmatch(r"-?\d+", token) else float(token))
