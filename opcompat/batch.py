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
from opcompat.trace import trace

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
    for name in model.entry_points:
        base = _batch_of(model, name)
        for size in sizes:
            if base is None or size == base:
                continue
            wide = f"{name}{SEPARATOR}{size}"
            if wide in model.entry_points:
                raise ConfigError(f"the model has an entry point {wide!r} of its own; next: rename it")
            entries[wide] = _resized(model, name, base, size)
    return replace(model, entry_points=entries)


def sizes_of(model: Model, entry_points: Sequence[str]) -> tuple[int, ...]:
    """The sizes that `with_batches` was called with, from the names that it made and the model lacks."""
    made = (name for name in entry_points if name not in model.entry_points)
    ends = {name.rpartition(SEPARATOR)[2] for name in made if name.rpartition(SEPARATOR)[0] in model.entry_points}
    return tuple(sorted(int(end) for end in ends if end.isdecimal()))


def _batched(leaf: Any) -> bool:
    aval = jaxcompat.aval_of(leaf)
    return aval.ndim > 0 and not jaxcompat.is_key(aval.dtype)


def _batch_of(model: Model, name: str) -> int | None:
    """The first dimension that an entry point's arrays share; None if there are none."""
    leaves = jax.tree_util.tree_leaves(model.entry_points[name].args)
    own = zip(leaves, _raw_keys(model, name), strict=True)
    sizes = {jaxcompat.aval_of(leaf).shape[0] for leaf, is_key in own if _batched(leaf) and not is_key}
    if len(sizes) > 1:
        raise ConfigError(
            f"{name}: its arguments have different first dimensions {sorted(sizes)}, so there is no batch to change; "
            "next: give the batched form as an entry point of its own"
        )
    return sizes.pop() if sizes else None


def _raw_keys(model: Model, name: str) -> list[bool]:
    """Of each leaf of an entry point's arguments, whether it is one key in raw words, as the function uses it.

    Its first dimension is not a batch, whatever the argument is called. The function is traced only if there are
    arguments that can be such words.
    """
    avals = [jaxcompat.aval_of(x) for x in jax.tree_util.tree_leaves(model.entry_points[name].args)]
    words = [str(aval.dtype) == "uint32" and aval.shape in ((2,), (4,)) for aval in avals]
    if not any(words):
        return words
    used = [bool(leaf.key) for leaf in trace(model, name).inputs]
    return [is_words and is_key for is_words, is_key in zip(words, used, strict=True)]


def _resized(model: Model, name: str, base: int, size: int) -> EntryPoint:
    entry = model.entry_points[name]
    leaves, structure = jax.tree_util.tree_flatten(entry.args)

    def resize(leaf: Any, is_key: bool) -> Any:
        if not _batched(leaf) or is_key:
            return leaf
        aval = jaxcompat.aval_of(leaf)
        return jaxcompat.shape_dtype((size, *aval.shape[1:]), aval.dtype)

    args = jax.tree_util.tree_unflatten(structure, map(resize, leaves, _raw_keys(model, name)))
    sampler = entry.inputs
    inputs = None if sampler is None else lambda rng: _stacked([sampler(rng) for _ in range(size)], base)
    init = {name: _init(model, source, base, size) for name, source in entry.init.items()}
    return replace(entry, args=args, names=entry.argument_names(), inputs=inputs, init=init)


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
    if _batch_of(model, name) is not None:
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
