"""MLIR -> Program. The only file that touches MLIR objects; none of them leaves it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.extend import mlir
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from opcompat.stablehlo.program import InvalidModule, Op, Program, Region, Splat, TensorType, Undecomposable

# A module of unknown origin can double its size with every call. No real policy comes near this.
MAX_OPS = 2_000_000

_BYTECODE_MAGIC = b"ML\xefR"
_PLACE = re.compile(r'"([^"]+)":(\d+)')
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


def parse(source: bytes | str | Any, entry: str) -> Program:
    """Reads a module.

    Args:
        source: a portable artifact (what `jax.export` stores), MLIR bytecode, MLIR text, or an `ir.Module`.
        entry: the name of the function to start from.

    Raises:
        InvalidModule: it does not parse, has no function `entry`, calls itself, or unfolds beyond MAX_OPS.
        Undecomposable: a type that no array has (tokens, tuples, dynamic shapes).
    """
    with _module(source) as module:
        bodies = {
            ir.StringAttr(f.attributes["sym_name"]).value: f.regions[0]
            for f in module.body.operations
            if f.operation.name == "func.func"
        }
        program = _Parser().program(bodies, entry)
    _check_size(program)
    return program


@contextmanager
def _module(source: bytes | str | Any) -> Iterator[Any]:
    if not isinstance(source, bytes | str):
        if not hasattr(source, "context"):
            raise InvalidModule(f"expected bytes, text or an ir.Module, not {type(source).__name__}")
        with source.context:
            yield source
        return
    with _context(source):
        try:
            module = _deserialize(source)
        except (ir.MLIRError, jax.errors.JaxRuntimeError, ValueError) as error:
            raise InvalidModule(f"not a StableHLO module: {error}") from error
        yield module


def _context(source: bytes | str) -> Any:
    if _is_portable(source):
        return ir.Context()
    # `jax.extend.mlir` cannot register the func and sdy dialects, and text does not parse without them.
    # A lowering of our own comes with a context that has every dialect JAX writes.
    lowered: Any = jax.jit(lambda: ()).lower().compiler_ir("stablehlo")
    return lowered.context


def _is_portable(source: bytes | str) -> bool:
    # The producer's name and version follow the magic number of a bytecode file.
    return isinstance(source, bytes) and source.startswith(_BYTECODE_MAGIC) and b"StableHLO_v" in source[:64]


def _deserialize(source: bytes | str) -> Any:
    if _is_portable(source):
        module = mlir.deserialize_portable_artifact(source, ir.Context.current)
        return module if isinstance(module, ir.Module) else ir.Module.parse(module)
    if isinstance(source, bytes) and not source.startswith(_BYTECODE_MAGIC):
        source = source.decode()
    return ir.Module.parse(source)


class _Parser:
    """Numbers the values of one module while reading it."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._definitions: dict[int, Op] = {}

    def program(self, bodies: Mapping[str, Any], entry: str) -> Program:
        functions: dict[str, Region] = {}
        waiting = [entry]
        while waiting:
            name = waiting.pop()
            if name in functions:
                continue
            if name not in bodies or not len(bodies[name].blocks):
                others = ", ".join(sorted(bodies)) or "none"
                raise InvalidModule(f"no function @{name}; the module has {others}")
            functions[name] = self._region(bodies[name])
            waiting.extend(callee for op in walk(functions[name]) for callee in callees(op))
        return Program(entry, functions, self._definitions)

    def _region(self, region: Any) -> Region:
        if len(region.blocks) != 1:
            raise InvalidModule(f"a region has {len(region.blocks)} blocks, StableHLO has one")
        block = region.blocks[0]
        arguments = tuple(self._define(a) for a in block.arguments)
        types = tuple(_tensor_type(a.type, "an argument") for a in block.arguments)
        *body, terminator = block.operations
        ops = tuple(self._op(o.operation) for o in body)
        return Region(arguments, types, ops, tuple(self._numbers[v] for v in terminator.operation.operands))

    def _op(self, op: Any) -> Op:
        location = _location(op.location)
        where = f"{op.name} at {location}" if location else str(op.name)
        operands = tuple(self._numbers[v] for v in op.operands)
        regions = tuple(self._region(r) for r in op.regions)
        result_types = tuple(_tensor_type(r.type, where) for r in op.results)
        parsed = Op(
            name=op.name,
            operands=operands,
            results=tuple(self._define(r) for r in op.results),
            result_types=result_types,
            attrs=_attributes(op, result_types, where),
            regions=regions,
            location=location,
        )
        self._definitions.update(dict.fromkeys(parsed.results, parsed))
        return parsed

    def _define(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))


def callees(op: Op) -> tuple[str, ...]:
    """The functions that `op` needs."""
    return tuple(op.attrs[key] for key in ("callee", "decomposition") if key in op.attrs)


def walk(region: Region) -> Iterator[Op]:
    """Every op of a region, bodies included."""
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from walk(inner)


def _check_size(program: Program) -> None:
    """Refuses recursion and call trees that unfold beyond MAX_OPS, before anybody walks them."""
    sizes: dict[str, int] = {}

    def size(name: str, callers: tuple[str, ...]) -> int:
        if name in callers:
            raise InvalidModule(f"function @{name} calls itself")
        if name not in sizes:
            ops = list(walk(program.functions[name]))
            sizes[name] = len(ops) + sum(size(c, (*callers, name)) for op in ops for c in callees(op))
        if sizes[name] > MAX_OPS:
            raise InvalidModule(f"function @{name} unfolds into more than {MAX_OPS} operations")
        return sizes[name]

    size(program.entry, ())


def _location(location: Any) -> str:
    # The innermost frame comes first in a call site's text.
    place = _PLACE.search(str(location))
    return f"{place[1]}:{place[2]}" if place else ""


def _tensor_type(type_: Any, where: str) -> TensorType:
    try:
        tensor = ir.RankedTensorType(type_)
    except ValueError as error:
        raise Undecomposable(f"{where}: no array has the type {type_}") from error
    if not tensor.has_static_shape:
        raise Undecomposable(f"{where}: dynamic shape {type_}; bind the symbolic dimensions first")
    element = str(tensor.element_type)
    if element not in _DTYPES:
        raise Undecomposable(f"{where}: JAX has no element type {element}")
    return TensorType(tuple(tensor.shape), jax.numpy.dtype(_DTYPES[element]))


# Attributes


def _attributes(op: Any, result_types: tuple[TensorType, ...], where: str) -> Mapping[str, Any]:
    if op.name == "stablehlo.constant":
        return {"value": _constant(op, result_types[0], where)}
    if op.name == "stablehlo.custom_call":
        # The rest are layouts and opaque payloads for a library that is not there.
        return {"call_target_name": ir.StringAttr(op.attributes["call_target_name"]).value}
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
