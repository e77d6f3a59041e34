"""Says of a model without Python source what its file cannot say: feedback, first values, keys, tolerances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from opcompat import jaxcompat
from opcompat.config import Wiring, did_you_mean
from opcompat.errors import ConfigError
from opcompat.model import EntryPoint, Model

_WORDS = {2: "threefry2x32", 4: "rbg"}
"""The implementation whose keys have so many uint32 words."""


def connect(model: Model, tables: Mapping[str, Wiring], flags: Wiring, *, guess_keys: bool = False) -> Model:
    """The model with `tables` of the configuration and, over them, `flags` of the command line in its entry points.

    Flags name no entry point: each holds where its input and output are, and must hold somewhere. `guess_keys`: where
    neither names keys, inputs of the shape and dtype of one key are keys.
    Raises ConfigError for names that do not exist and for values that do not fit.
    """
    for name in tables:
        if name not in model.entry_points:
            known = ", ".join(model.entry_points)
            raise ConfigError(f"no entry point {name!r}{did_you_mean(name, model.entry_points)} (there are {known})")
    inputs = {leaf for entry in model.entry_points.values() for leaf in leaves_of(entry)}
    for option, names in (("--feedback", flags.feedback.values()), ("--init", flags.init), ("--key", flags.keys or {})):
        for leaf in names:
            if leaf not in inputs and not any(n.startswith(leaf + ".") for n in inputs):
                raise ConfigError(f"{option}: no entry point has an input {leaf!r}{did_you_mean(leaf, inputs)}")
    return replace(
        model,
        entry_points={
            name: _connected(name, entry, tables.get(name, Wiring()), _local(entry, flags), guess_keys)
            for name, entry in model.entry_points.items()
        },
    )


def leaves_of(entry: EntryPoint) -> dict[str, Any]:
    """The example arguments of an entry point as arrays, by their dotted names."""
    found = {}
    for name, tree in zip(entry.argument_names(), entry.args, strict=True):
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            found[name + _dotted(path)] = leaf
    return found


def _dotted(path: Any) -> str:
    return "." + str(jax.tree_util.keystr(path, simple=True, separator=".")) if path else ""


def _local(entry: EntryPoint, flags: Wiring) -> Wiring:
    """What of the flags names inputs of this entry point."""
    leaves = leaves_of(entry)

    def is_here(name: str) -> bool:
        return any(leaf == name or leaf.startswith(name + ".") for leaf in leaves)

    return Wiring(
        feedback={output: target for output, target in flags.feedback.items() if is_here(target)},
        init={target: value for target, value in flags.init.items() if is_here(target)},
        keys=None if flags.keys is None else {n: impl for n, impl in flags.keys.items() if is_here(n)},
    )


def _connected(name: str, entry: EntryPoint, table: Wiring, flags: Wiring, guess_keys: bool) -> EntryPoint:
    keys = table.keys if flags.keys is None else flags.keys
    if keys is None:
        keys = _guessed(entry) if guess_keys else {}
    if keys:
        entry = _with_keys(name, entry, keys)
    init = {**table.init, **flags.init}
    return replace(
        entry,
        feedback={**entry.feedback, **table.feedback, **flags.feedback},
        init={**entry.init, **{n: _first(name, entry, n, value) for n, value in init.items()}},
        tolerance=entry.tolerance if table.tolerance is None else table.tolerance,
    )


def _first(name: str, entry: EntryPoint, target: str, value: Any) -> Any:
    """A first value as EntryPoint takes it: a number becomes an array that is full of it."""
    if isinstance(value, str | dict):
        return value
    found = leaves_of(entry)
    if target not in found:
        raise ConfigError(f"{name}: init names the input {target!r}, but there are only {', '.join(found) or 'none'}")
    aval = jaxcompat.aval_of(found[target])
    try:
        array = np.asarray(value)
        return np.broadcast_to(array, aval.shape) if array.ndim == 0 else array
    except ValueError as error:
        raise ConfigError(f"{name}: init {target!r} is no array of numbers: {value!r}") from error


def _with_keys(name: str, entry: EntryPoint, keys: Mapping[str, str]) -> EntryPoint:
    """The entry point with `keys` of its inputs as typed PRNG keys; its function still gets their words."""
    names = entry.argument_names()
    arguments = dict(zip(names, entry.args, strict=True))
    for key in keys:
        if key not in arguments:
            raise ConfigError(f"{name}: no input {key!r}{did_you_mean(key, names)} (there are {', '.join(names)})")
        arguments[key] = _as_key(name, key, arguments[key], keys[key])
    function, positions = entry.function, frozenset(names.index(key) for key in keys)

    def with_words(params: Any, *args: Any) -> Any:
        return function(params, *(jax.random.key_data(x) if i in positions else x for i, x in enumerate(args)))

    return replace(entry, function=with_words, names=names, args=tuple(arguments.values()))


def _as_key(name: str, key: str, words: Any, implementation: str) -> Any:
    """The example argument of the key whose uint32 words are `words`."""
    leaves = jax.tree_util.tree_leaves(words)
    aval = jaxcompat.aval_of(leaves[0]) if len(leaves) == 1 else None
    shape = aval.shape if aval is not None and aval.dtype == np.uint32 else ()
    refusal = ConfigError(f"{name}: the input {key!r} cannot be a PRNG key: it is not uint32[..., 2] or uint32[..., 4]")
    if not shape or shape[-1] not in _WORDS:
        raise refusal
    implementation = implementation or _WORDS[shape[-1]]
    try:
        dtype = jax.eval_shape(lambda: jax.random.key(0, impl=implementation)).dtype
    except ValueError as error:
        raise ConfigError(f"{name}: the key {key!r}: there is no implementation {implementation!r}") from error
    if shape[-1:] != jaxcompat.key_words(dtype):
        raise refusal
    return jaxcompat.shape_dtype(shape[:-1], dtype)


def _guessed(entry: EntryPoint) -> dict[str, str]:
    """The inputs that look like one key each: nothing else in a policy is uint32[2] or uint32[4]."""
    found = {}
    for name, value in zip(entry.argument_names(), entry.args, strict=True):
        aval = jaxcompat.aval_of(value) if jax.tree_util.all_leaves([value]) else None
        if aval is not None and aval.dtype == np.uint32 and aval.shape in [(n,) for n in _WORDS]:
            found[name] = _WORDS[aval.shape[0]]
    return found
