"""The API: a StableHLO module as a JAX function, and a JAX primitive as simpler ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax import export

from opcompat import jaxcompat
from opcompat.stablehlo.evaluate import Evaluator
from opcompat.stablehlo.ops import table
from opcompat.stablehlo.parse import parse
from opcompat.stablehlo.program import TensorType, Undecomposable
from opcompat.stablehlo.values import type_of
from opcompat.stablehlo.wide import x64_enabled

ArrayFunction = Callable[..., tuple[jax.Array, ...]]

_WRAPPERS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")


def import_module(
    module: bytes | str | Any, *, entry: str = "main", places: bool = False, fixed: Mapping[int, Any] | None = None
) -> ArrayFunction:
    """Turns a StableHLO module into a JAX function that computes it with `jax.lax`.

    The function takes the entry's arguments as flat arrays, of exactly the declared shapes and dtypes, and
    returns a tuple of arrays. It can be jitted, traced by `jax.make_jaxpr`, vmapped and differentiated where
    its ops can. Nothing of MLIR stays alive in it. The module is checked whole, here and now: every op is
    traced once, and each result's type compared with the one declared.

    Args:
        module: what `jax.export` stores (`Exported.mlir_module_serialized`), MLIR bytecode, MLIR text, or an
            `ir.Module`. An Exported drops unused arguments: see its `module_kept_var_idx`.
        entry: the function to import.
        places: the equations of the function's jaxpr stand where the module says, file and line, not here.
        fixed: arguments, by position, that always have these values; the function does not take them.

    Raises:
        InvalidModule: it does not parse, or has no such function.
        Undecomposable: it holds an op, type or custom call that JAX has no equivalent for; the message names
            it and, where the module tells, its file:line.
    """
    return _import(module, entry, frozenset(), places, fixed or {})


def decompose(fn: Callable[..., Any], *avals: Any) -> ArrayFunction:
    """Takes `fn` apart by JAX's own lowering for the CPU.

    Args:
        fn: a function of flat arrays, typically `lambda *xs: primitive.bind(*xs, **params)`.
        avals: one `jax.ShapeDtypeStruct` (or array) per argument.

    Returns:
        A function with the same arguments as `fn` that returns its results as a flat tuple. A primitive that
        `fn` binds itself does not come back through a composite that JAX decomposes (erf, top_k), as cumsum,
        cumprod, cummax, cummin, argmax or argmin, nor as population_count or clz. One that JAX lowers to a
        single basic op (dot_general, sort, fft) comes back as itself: callers that iterate must check.

    Raises:
        Undecomposable: the lowering holds a custom call (LAPACK), or an op outside the table, or JAX cannot
            lower it at all.
    """
    avoid = frozenset(_bound_names(jaxcompat.trace(fn, avals)))
    try:
        exported = export.export(jax.jit(fn), platforms=("cpu",))(*avals)
    except (ValueError, NotImplementedError) as error:
        raise Undecomposable(f"JAX cannot export it: {error}") from error
    inner = _import(exported.mlir_module_serialized, "main", avoid)
    kept = exported.module_kept_var_idx
    count = len(exported.in_avals)

    def decomposed(*args: jax.Array) -> tuple[jax.Array, ...]:
        if len(args) != count:
            raise TypeError(f"expected {count} arrays, got {len(args)}")
        return inner(*(args[i] for i in kept))

    return decomposed


def _import(
    module: bytes | str | Any,
    entry: str,
    avoid: frozenset[str],
    places: bool = False,
    fixed: Mapping[int, Any] = MappingProxyType({}),
) -> ArrayFunction:
    program = parse(module, entry)
    evaluator = Evaluator(program, table(), avoid, places)
    everything = program.functions[entry].argument_types
    types = tuple(t for i, t in enumerate(everything) if i not in fixed)
    for number, declared in enumerate(types):
        wide = declared.dtype in (np.int64, np.uint64, np.float64, np.complex128)
        if wide and not x64_enabled():
            raise Undecomposable(f"argument {number} of @{entry} is {declared}; set jax_enable_x64")

    def imported(*args: jax.Array) -> tuple[jax.Array, ...]:
        _check_arguments(args, types, entry)
        rest = iter(args)
        return evaluator.entry(tuple(fixed[i] if i in fixed else next(rest) for i in range(len(everything))))

    jax.eval_shape(imported, *(_struct(t) for t in types))
    return imported


def _struct(type_: TensorType) -> Any:
    struct: Any = jax.ShapeDtypeStruct
    return struct(type_.shape, type_.dtype)


def _check_arguments(args: tuple[Any, ...], types: tuple[TensorType, ...], entry: str) -> None:
    if len(args) != len(types):
        raise TypeError(f"@{entry} takes {len(types)} arrays, got {len(args)}")
    for number, (arg, declared) in enumerate(zip(args, types, strict=True)):
        actual = type_of(arg if hasattr(arg, "dtype") else np.asarray(arg))
        if actual != declared:
            raise TypeError(f"argument {number} of @{entry} must be {declared}, got {actual}")


def _bound_names(closed: Any) -> Iterator[str]:
    """The primitives that a function binds itself, seen through calls that only wrap (jit, custom_jvp)."""
    for eqn in jaxcompat.parts(closed).eqns:
        wrapped = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        if eqn.primitive.name in _WRAPPERS and wrapped is not None:
            yield from _bound_names(wrapped)
        else:
            yield str(eqn.primitive.name)
