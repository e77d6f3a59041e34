"""Inputs for verification: plausible random ones, boundary values, and keys as the policy's caller would make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from opcompat import jaxcompat
from opcompat.errors import ConfigError
from opcompat.manifest import Noise
from opcompat.model import EntryPoint
from opcompat.reference import Arrays
from opcompat.runtime.noise import draw
from opcompat.trace import Leaf, Trace, in_files, path_name

RESET_RATE = 0.01
"""How often an input called is_first is set, after step 0."""

_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e4, np.inf, -np.inf, np.nan)


def sample(entry: EntryPoint, trace: Trace, seed: int, step: int) -> dict[str, np.ndarray]:
    """The inputs of one step by leaf name, reproducible from `seed` and `step`.

    Keys are `fold_in(key(seed), step)`. Without a sampler of the entry point's own: floats are unit normal, bools
    true one time in ten (`is_first`: on step 0 and one time in a hundred), integers small and not negative. Noise
    has its own distribution.
    Raises ConfigError if the entry point's sampler returns something that does not fit.
    """
    rng = np.random.default_rng([seed, step])
    values = {leaf.name: plausible(leaf, rng, step) for leaf in trace.inputs if leaf.noise is None}
    values.update(noise(trace, seed, step))
    if entry.inputs is not None:
        values.update(_from_user(entry, trace, rng))
    values.update(keys(trace, seed, step))
    return values


def keys(trace: Trace, seed: int, step: int) -> dict[str, np.ndarray]:
    """The key inputs of one step. Several keys are told apart by their position."""
    found = {}
    for index, leaf in enumerate(x for x in trace.inputs if x.key):
        key = jax.random.fold_in(jax.random.key(seed, impl=leaf.key), step)
        key = jax.random.fold_in(key, index) if index else key
        lead = leaf.shape[: len(leaf.shape) - 1]
        key = jax.random.split(key, lead) if lead else key
        found[leaf.name] = np.asarray(jax.random.key_data(key))
    return found


def noise(trace: Trace, seed: int, step: int) -> dict[str, np.ndarray]:
    """The noise inputs of one step, in the dtypes of the policy."""
    rng = np.random.default_rng([seed, step, 1])
    found = ((leaf, draw(leaf, rng)) for leaf in trace.inputs if leaf.noise)
    return {leaf.name: array.astype(jax.numpy.dtype(leaf.dtype)) for leaf, array in found}


def boundary(
    trace: Trace, fed_back: frozenset[str], base: Arrays, small: bool = False
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """(what, inputs) with one boundary value in all inputs of a kind; keys and state as in `base`.

    Noise takes the ends of what its distribution gives, and its middle. `small`: integers of 32 and more bits stay
    small, as they must where 64 bits are computed in 32, or where they may be the length of a loop.
    """
    for index, value in enumerate(_FLOATS):
        inputs = dict(base)
        for leaf in trace.inputs:
            if leaf.key or leaf.name in fed_back:
                continue
            dtype = jax.numpy.dtype(leaf.dtype)
            if leaf.noise is not None:
                inputs[leaf.name] = np.full(leaf.shape, _ends(leaf.noise, dtype)[index % 3], dtype)
            elif dtype.kind == "b":
                inputs[leaf.name] = np.full(leaf.shape, index % 2 == 0)
            elif dtype.kind in "iu":
                limits = np.iinfo(dtype)
                ints = (0, limits.min, limits.max, 1, limits.max - 1)
                if small and dtype.itemsize >= 4:
                    ints = (0, 1, 1000, 1, 2)
                inputs[leaf.name] = np.full(leaf.shape, ints[index % len(ints)], dtype)
            else:
                inputs[leaf.name] = np.full(leaf.shape, value, dtype)
        yield f"{value:g}", inputs


def _ends(noise: Noise, dtype: Any) -> tuple[Any, Any, Any]:
    """The smallest and largest values that a draw can be, as good as, and one between."""
    if noise.distribution == "bits":
        return 0, np.iinfo(dtype).max, np.iinfo(dtype).max // 2
    one = np.ones((), dtype)
    ends = {"normal": (-5.5, 5.5, 0.0), "gumbel": (-4.5, 16.0, 0.0), "uniform": (0.0, np.nextafter(one, one * 0), 0.5)}
    return ends[noise.distribution]


def plausible(leaf: Leaf, rng: np.random.Generator, step: int = 1) -> np.ndarray:
    """A random value of an input that is neither key nor noise: see `sample`."""
    dtype = jax.numpy.dtype(leaf.dtype)
    if dtype.kind == "b":
        if leaf.name.rpartition(".")[2] == "is_first":
            return np.full(leaf.shape, step == 0) | (rng.random(leaf.shape) < RESET_RATE)
        return rng.random(leaf.shape) < 0.1
    if dtype.kind in "iu":
        high = 256 if dtype.itemsize == 1 else 8
        return rng.integers(0, min(high, np.iinfo(dtype).max + 1), leaf.shape).astype(dtype)
    return rng.standard_normal(leaf.shape).astype(dtype)


def _from_user(entry: EntryPoint, trace: Trace, rng: np.random.Generator) -> dict[str, np.ndarray]:
    assert entry.inputs is not None
    try:
        args = tuple(entry.inputs(rng))
    except Exception as error:
        raise ConfigError(
            f"{trace.entry_point}: inputs(rng) fails: {type(error).__name__}: {error}; next: call it by hand with "
            "numpy.random.default_rng(0); it must return the arguments as a tuple"
        ) from error
    found = {}
    for name, tree in zip(entry.argument_names(), args, strict=False):
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            full = ".".join(part for part in (name, path_name(path)) if part)
            try:
                is_key = jaxcompat.is_key(jax.typeof(leaf).dtype)
            except TypeError as error:
                raise ConfigError(f"{trace.entry_point}: inputs(rng) gives no array for {full}: {error}") from error
            if not is_key:
                found[full] = np.asarray(in_files(leaf))
    for leaf in trace.inputs:
        if leaf.key or leaf.noise:
            continue
        if leaf.name not in found or found[leaf.name].shape != leaf.shape:
            got = found[leaf.name].shape if leaf.name in found else "nothing"
            raise ConfigError(f"{trace.entry_point}: inputs(rng) gives {got} for {leaf.name}, not {leaf.shape}")
    return {x.name: found[x.name].astype(x.dtype) for x in trace.inputs if x.name in found and not x.key}
