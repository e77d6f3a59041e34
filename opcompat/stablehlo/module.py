"""MLIR modules from bytes and text, and the same module with static shapes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import jax
from jax.extend import mlir
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from opcompat.stablehlo.program import InvalidModule

BYTECODE = b"ML\xefR"
_PRODUCER = re.compile(rb"StableHLO_v(\d+)\.(\d+)\.(\d+)")


@contextmanager
def opened(source: bytes | str | Any) -> Iterator[Any]:
    """The `ir.Module` of a portable artifact, MLIR bytecode or text, in its context. Raises InvalidModule."""
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
            raise InvalidModule(_explain(source, error)) from error
        yield module


def with_shapes(source: bytes | str | Any, shapes: Sequence[tuple[int, ...]]) -> bytes:
    """The module, as bytecode, with these shapes of the arguments of @main, and so with static shapes everywhere.

    Raises InvalidModule if the module does not take these shapes.
    """
    with opened(source) as module, ir.Location.unknown():
        (main,) = (f for f in module.body.operations if _is_main(f))
        block = main.regions[0].blocks[0]
        for argument, shape in zip(block.arguments, shapes, strict=True):
            _bind(block, argument, shape)
        inputs = [a.type for a in block.arguments]
        results = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
        text = io.BytesIO()
        module.operation.write_bytecode(text)
        try:
            return bytes(mlir.refine_polymorphic_shapes(text.getvalue(), True, True))
        except (ir.MLIRError, jax.errors.JaxRuntimeError, ValueError) as error:
            raise InvalidModule(f"the module cannot be used with the sizes given by --dim: {error}") from error


def _bind(block: Any, argument: Any, shape: tuple[int, ...]) -> None:
    """Gives an argument a static type. Its uses see a value of the type that they know, of which refinement rids us."""
    old = ir.RankedTensorType(argument.type)
    if old.has_static_shape:
        return
    argument.set_type(ir.RankedTensorType.get(shape, old.element_type))
    with ir.InsertionPoint.at_block_begin(block):
        seen = stablehlo.ConvertOp(old, argument)
    argument.replace_all_uses_except(seen.result, seen.operation)


def _is_main(function: Any) -> bool:
    return function.operation.name == "func.func" and ir.StringAttr(function.attributes["sym_name"]).value == "main"


def _context(source: bytes | str) -> Any:
    if _is_portable(source):
        return ir.Context()
    # `jax.extend.mlir` cannot register the func and sdy dialects, and text does not parse without them.
    # A lowering of our own comes with a context that has every dialect JAX writes.
    lowered: Any = jax.jit(lambda: ()).lower().compiler_ir("stablehlo")
    return lowered.context


def _is_portable(source: bytes | str) -> bool:
    # The producer's name and version follow the magic number of a bytecode file.
    return isinstance(source, bytes) and source.startswith(BYTECODE) and b"StableHLO_v" in source[:64]


def _deserialize(source: bytes | str) -> Any:
    if _is_portable(source):
        module = mlir.deserialize_portable_artifact(source, ir.Context.current)
        return module if isinstance(module, ir.Module) else ir.Module.parse(module)
    if isinstance(source, bytes) and not source.startswith(BYTECODE):
        source = source.decode()
    return ir.Module.parse(source)


def _explain(source: bytes | str, error: Exception) -> str:
    """Why the source does not parse: often it is newer than the reader."""
    written = _PRODUCER.search(source[:64]) if isinstance(source, bytes) else None
    reads = stablehlo.get_current_version()
    if written and tuple(map(int, written.groups())) > tuple(map(int, reads.split("."))):
        version = ".".join(part.decode() for part in written.groups())
        return (
            f"the module is StableHLO {version}, and the installed jaxlib {metadata.version('jaxlib')} reads up to "
            f"{reads}; next: install a newer jax, or export with an older target version"
        )
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"not a StableHLO module: {' '.join(line.strip() for line in lines[:3])}"
