"""Further batch sizes: an entry point `policy@16` beside `policy`, with the same function and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from opcompat import jaxcompat
from opcompat.errors import ConfigError
from opcompat.model import EntryPoint, Model
from opcompat.params import arrays_of, call_with

SEPARATOR = "@"


def with_batches(model: Model, sizes: Sequence[int]) -> Model:
    """The model with a further entry point NAME@N for each size N that is not the examples' own.

    The examples' batch is the first dimension that all arguments' arrays share, keys and scalars apart. An entry
    point without such arguments (an initial state from the weights alone) has no batch: its result is repeated
    where it starts a state of size N. Raises ConfigError if there is no common first dimension, or for a size
    below one.
    """
    if any(size < 1 for size in sizes):
        raise ConfigError(f"batch sizes must be positive, not {list(sizes)}")
    if not sizes:
        return model
    entries = dict(model.entry_points)
    for name, entry in model.entry_points.items():
        base = _batch_of(name, entry)
        for size in sizes:
            if base is None or size == base:
                continue
            wide = f"{name}{SEPARATOR}{size}"
            if wide in model.entry_points:
                raise ConfigError(f"the model has an entry point {wide!r} of its own; next: rename it")
            entries[wide] = _resized(model, entry, base, size)
    return replace(model, entry_points=entries)


def sizes_of(model: Model, entry_points: Sequence[str]) -> tuple[int, ...]:
    """The sizes that `with_batches` was called with, from the names that it made and the model lacks."""
    made = (name for name in entry_points if name not in model.entry_points)
    ends = {name.rpartition(SEPARATOR)[2] for name in made if name.rpartition(SEPARATOR)[0] in model.entry_points}
    return tuple(sorted(int(end) for end in ends if end.isdecimal()))


def _batched(leaf: Any) -> bool:
    aval = jaxcompat.aval_of(leaf)
    return aval.ndim > 0 and not jaxcompat.is_key(aval.dtype)


def _batch_of(name: str, entry: EntryPoint) -> int | None:
    key_arguments = {n for n, arg in zip(entry.argument_names(), entry.args, strict=True) if _is_raw_key(n, arg)}
    leaves = [
        leaf
        for arg_name, arg in zip(entry.argument_names(), entry.args, strict=True)
        if arg_name not in key_arguments
        for leaf in jax.tree_util.tree_leaves(arg)
        if _batched(leaf)
    ]
    sizes = {jaxcompat.aval_of(leaf).shape[0] for leaf in leaves}
    if len(sizes) > 1:
        raise ConfigError(
            f"{name}: its arguments have different first dimensions {sorted(sizes)}, so there is no batch to change; "
            "next: give the batched form as an entry point of its own"
        )
    return sizes.pop() if sizes else None


def _is_raw_key(name: str, arg: Any) -> bool:
    """Raw keys are uint32[2] and called key or rng: their first dimension is not a batch."""
    aval = jaxcompat.aval_of(arg) if len(jax.tree_util.tree_leaves(arg)) == 1 and hasattr(arg, "dtype") else None
    raw = aval is not None and str(aval.dtype) == "uint32" and aval.shape in ((2,), (4,))
    return raw and any(word in name for word in ("key", "rng"))


def _resized(model: Model, entry: EntryPoint, base: int, size: int) -> EntryPoint:
    names = entry.argument_names()

    def resize(name: str, arg: Any) -> Any:
        def leaf(x: Any) -> Any:
            if not _batched(x) or _is_raw_key(name, arg):
                return x
            aval = jaxcompat.aval_of(x)
            return jaxcompat.shape_dtype((size, *aval.shape[1:]), aval.dtype)

        return jax.tree_util.tree_map(leaf, arg)

    args = tuple(resize(n, a) for n, a in zip(names, entry.args, strict=True))
    sampler = entry.inputs
    inputs = None if sampler is None else lambda rng: _stacked([sampler(rng) for _ in range(size)], base)
    init = {name: _init(model, source, base, size) for name, source in entry.init.items()}
    return replace(entry, args=args, names=names, inputs=inputs, init=init)


def _stacked(samples: list[tuple[Any, ...]], base: int) -> tuple[Any, ...]:
    """One sample of size N from N samples: their first rows, one after the other; keys are the first one's."""

    def join(*leaves: Any) -> Any:
        if not _batched(leaves[0]) or jaxcompat.aval_of(leaves[0]).shape[0] != base:
            return leaves[0]
        return np.concatenate([np.asarray(x)[:1] for x in leaves])

    joined: tuple[Any, ...] = jax.tree_util.tree_map(join, *samples)
    return joined


def _init(model: Model, source: Any, base: int, size: int) -> Any:
    """Where a state of the other size starts: the same entry point resized, or its result repeated."""
    if not isinstance(source, str):
        return _repeated(source, base, size)
    name, _, output = source.partition(".")
    origin = model.entry_points.get(name)
    if origin is None:
        return source
    if _batch_of(name, origin) is not None:
        return f"{name}{SEPARATOR}{size}.{output}"
    result = jax.jit(partial(call_with, origin.function))(arrays_of(model.params), *origin.args)
    for part in _parts(origin, result, output):
        return _repeated(part, base, size)
    return source


def _parts(origin: EntryPoint, result: Any, output: str) -> list[Any]:
    named: Mapping[str, Any]
    if origin.outputs is None:
        named = result if isinstance(result, dict) else {"output": result}
    else:
        named = dict(zip(origin.outputs, result if len(origin.outputs) > 1 else (result,), strict=True))
    return [named[output]] if output in named else []


def _repeated(tree: Any, base: int, size: int) -> Any:
    def repeat(x: Any) -> Any:
        array = np.asarray(x)
        if array.ndim == 0 or array.shape[0] != base:
            return x
        return np.repeat(array[:1], size, axis=0) if base == 1 else np.resize(array, (size, *array.shape[1:]))

    return jax.tree_util.tree_map(repeat, tree)
