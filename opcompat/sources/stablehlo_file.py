"""StableHLO, as text or bytecode: each public function is an entry point. Weights are the constants in it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from opcompat import jaxcompat
from opcompat.errors import OpcompatError, SourceError
from opcompat.model import EntryPoint, Model
from opcompat.sources import names
from opcompat.sources.base import Loaded, Options
from opcompat.stablehlo import Undecomposable, import_module
from opcompat.stablehlo.module import with_shapes
from opcompat.stablehlo.parse import interfaces
from opcompat.stablehlo.program import Interface, TensorType

MAX_BYTES = 1 << 31


def load(source: str, options: Options) -> Loaded:
    """Raises SourceError for what does not parse, or holds what no JAX function can be made of."""
    options.check(source, "dims")
    path = Path(source)
    module = read(path)
    name, found = guarded(source, lambda: interfaces(module))
    if not found:
        raise SourceError(f"{source}: the module has no public function, so no entry point")
    entry_points = {}
    for function, interface in found.items():
        own = name.removeprefix("jit_") if function == "main" else function
        entry = names.entry_name(own, function)
        where = f"{source}: @{function}"
        function_of, types = bound(where, module, interface, options.dims, entry=function)
        entry_points[entry] = EntryPoint(
            without_params(function_of),
            tuple(jaxcompat.shape_dtype(t.shape, t.dtype) for t in types),
            names.results([r.name for r in interface.results]),
            names.unique([a.name for a in interface.arguments], "arg"),
        )
    return Loaded(Model(names.model_name(source), {}, entry_points), source, path.parent.resolve(), guess_keys=True)


def read(path: Path) -> bytes:
    """A file's bytes. Raises SourceError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SourceError(f"{path}: more than 2 GiB, which MLIR does not read")
        return path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error


def guarded(where: str, function: Callable[[], Any]) -> Any:
    """`function()`, whose refusals become SourceErrors that begin with `where`."""
    try:
        return function()
    except SourceError:
        raise
    except Undecomposable as error:
        raise SourceError(f"{where}: {error.reason}") from error
    except OpcompatError as error:
        raise SourceError(f"{where}: {error}") from error
    except RecursionError as error:
        raise SourceError(f"{where}: nested too deeply") from error


def without_params(function: Callable[..., Any]) -> Callable[..., Any]:
    """As an entry point without parameters calls it."""
    return lambda _, *args: function(*args)


def bound(
    where: str,
    module: bytes,
    interface: Interface,
    dims: Mapping[str, int],
    *,
    entry: str = "main",
    platform: int | None = None,
    shapes: Sequence[tuple[int, ...]] | None = None,
) -> tuple[Callable[..., tuple[jax.Array, ...]], tuple[TensorType, ...]]:
    """(a function of the user's arguments, their types), with every dimension bound and the platform chosen.

    `shapes` are those of all the user's arguments where the caller knows them; else `dims` has the open sizes, under
    the names that the module tells or NAME[AXIS]. Switches on 64-bit values in JAX if the interface has any, as a
    Python factory would. Raises SourceError.
    """
    own = [a for a in interface.arguments if not a.constant]
    extra = [a.constant for a in interface.arguments if a.constant and a.constant != "_platform_index"]
    if extra:
        raise SourceError(f"{where}: takes {', '.join(extra)}, which only JAX's own caller passes")
    if platform is None and len(own) != len(interface.arguments):
        raise SourceError(
            f"{where}: made for several platforms, and the module alone does not tell which; next: give the jax.export "
            "file itself, or export for one platform"
        )
    if shapes is None:
        shapes = _shapes(where, module, interface, dims)
    types = tuple(TensorType(tuple(shape), a.type.dtype) for a, shape in zip(own, shapes, strict=True))
    _check_sizes(where, [*types, *(r.type for r in interface.results)])
    _allow_wide([*types, *(r.type for r in interface.results)])
    if any(None in a.type.shape for a in own):
        if entry != "main":
            raise SourceError(f"{where}: only @main can have open sizes")
        rest = iter(shapes)
        all_shapes = [() if a.constant else next(rest) for a in interface.arguments]
        module = guarded(where, lambda: with_shapes(module, all_shapes))
    inner = guarded(where, lambda: import_module(module, entry=entry, places=True, fixed=_fixed(interface, platform)))
    return inner, types


def _fixed(interface: Interface, platform: int | None) -> dict[int, Any]:
    return {i: np.asarray(platform, a.type.dtype) for i, a in enumerate(interface.arguments) if a.constant}


def _check_sizes(where: str, types: Sequence[TensorType]) -> None:
    for type_ in types:
        # A size may still be open in a result: it follows from the arguments.
        if math.prod(n or 1 for n in type_.shape) * type_.dtype.itemsize > MAX_BYTES:
            raise SourceError(f"{where}: takes or returns {type_}, more than the 2 GiB that a file can pass")


def _allow_wide(types: Sequence[TensorType]) -> None:
    if any(t.dtype in (np.int64, np.uint64, np.float64, np.complex128) for t in types):
        configuration: Any = jax.config
        configuration.update("jax_enable_x64", True)


def _shapes(where: str, module: bytes, interface: Interface, dims: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The shapes of the user's arguments, with `dims` for the sizes that the module leaves open."""
    own = [a for a in interface.arguments if not a.constant]
    spoken = names.unique([a.name for a in own], "arg")
    return aligned(where, module, [(n, a.type.shape) for n, a in zip(spoken, own, strict=True)], dims)


def aligned(
    where: str, module: bytes, arguments: Sequence[tuple[str, tuple[Any, ...]]], dims: Mapping[str, int]
) -> list[tuple[int, ...]]:
    """The shapes of named arguments, with `dims` for open sizes: by the names that the module tells, or NAME[AXIS].

    Raises SourceError for a size that is not bound.
    """
    shapes, specifications = [], iter(_specifications(module))
    for name, known in arguments:
        said = next((s for s in specifications if _fits(s, known)), ()) if None in known else ()
        open_names = said or tuple(f"{name}[{axis}]" for axis in range(len(known)))
        shapes.append(
            tuple(
                names.size(open_name, dims, f"{where}: {name}") if n is None else n
                for n, open_name in zip(known, open_names, strict=True)
            )
        )
    return shapes


_SPECIFICATIONS = re.compile(rb"the following polymorphic shapes specifications: (.{1,100000}?)\. Obtained", re.DOTALL)
_SPECIFICATION = re.compile(r"\.shape = \((.*?)\)(?:,[^,]*(?=\.shape)|\Z)")


def _specifications(module: bytes) -> list[tuple[str, ...]]:
    """The shapes as the exporter wrote them, (("b", "3"), ("b", "c")): JAX puts them into its messages, and there only.

    They stand in the order of the arguments, some of which may be gone.
    """
    found = _SPECIFICATIONS.search(module)
    texts = _SPECIFICATION.findall(found[1].decode("utf-8", "replace")) if found else []
    return [tuple(part.strip() for part in re.split(r",(?![^()]*\))", text) if part.strip()) for text in texts]


def _fits(specification: tuple[str, ...], shape: tuple[Any, ...]) -> bool:
    """Whether a shape with None for open sizes may be this one."""
    return len(specification) == len(shape) and all(
        said == str(n) if n is not None else not said.isdecimal() for said, n in zip(specification, shape, strict=True)
    )
