"""JAX's own answers: the function under `jax.jit`, its rounding error, and how close its decisions are.

The reference is compiled with `xla_allow_excess_precision=False`: otherwise XLA drops bfloat16 roundings and JAX
does not agree with itself. All arrays here are in the form that files have: keys as uint32 words, half precision
as float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.keys import erase_keys
from opcompat.model import Model
from opcompat.params import arrays_of, call_with
from opcompat.shadow import NO_LIMIT, shadow, shadow_in_pieces
from opcompat.trace import Leaf, Trace, from_files, in_files

COMPILER_OPTIONS = {"xla_allow_excess_precision": False}

PIECE = 1000
"""Equations of the float64 shadow that are compiled together."""

Arrays = Mapping[str, np.ndarray]


class Precision(NamedTuple):
    """Of one step: each float output's largest float32-against-float64 error, and the decisions made.

    `tied` names the outputs that depend on a decision that is a near tie. `margins`: see `report.Check`. `ends`: False
    if a loop was stopped at the limit; the rest is then of no use.
    """

    errors: Mapping[str, float]
    decisions: int
    near_ties: int
    tied: frozenset[str]
    margins: tuple[int, ...] = ()
    ends: bool = True


class Reference:
    """One entry point under JAX. Raises nothing of its own; JAX's errors pass through."""

    def __init__(self, model: Model, trace: Trace) -> None:
        self.trace = trace
        self._entry = model.entry_points[trace.entry_point]
        # Verifying must not print what the policy prints, hundreds of times: then its trace stands for the function.
        self._traced = trace.in_tree is None or trace.shows
        own = self._weights if self._traced else jax.tree_util.tree_leaves(arrays_of(model.params))
        self._params: list[Any] = [jax.numpy.asarray(x) for x in own]
        self._step = jax.jit(self._call, compiler_options=COMPILER_OPTIONS)

    def _call(self, params: list[Any], words: list[Any]) -> list[Any]:
        if self._traced:
            leaves = (*self.trace.params, *self.trace.inputs)
            given = [_typed(x, leaf) for x, leaf in zip((*params, *words), leaves, strict=True)]
            return list(jexc.jaxpr_as_fun(self.trace.closed)(*given))
        known = dict(zip((leaf.name for leaf in self.trace.inputs), words, strict=True))
        inputs = [from_files(known.get(x.name, _zeros(x)), x) for x in self.trace.arguments or self.trace.inputs]
        args = jax.tree_util.tree_unflatten(self.trace.in_tree, [*params, *inputs])
        outs = [jax.numpy.asarray(x) for x in jax.tree_util.tree_leaves(call_with(self._entry.function, *args))]
        return [in_files(x) for x in outs]

    def step(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """One call; inputs and outputs by leaf name."""
        return self._named(self._step(self._params, self._words(inputs)))

    def default_step(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """`step` under `jax.jit` with its default options."""
        return self._named(self._default(self._params, self._words(inputs)))

    def unfused_step(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """`step` with each equation compiled alone.

        XLA simplifies what it sees together (a mask times infinity becomes a select, which gives 0 and not NaN), so
        JAX has two answers for some values that are not finite.
        """
        closed = jaxcompat.dead_code_free(erase_keys(self.trace.closed))
        return self._named(jexc.jaxpr_as_fun(closed)(*self._weights, *self._words(inputs)))

    @cached_property
    def _default(self) -> Any:
        return jax.jit(self._call)

    def _named(self, outs: Any) -> dict[str, np.ndarray]:
        return {leaf.name: np.asarray(x) for leaf, x in zip(self.trace.outputs, outs, strict=True)}

    def arguments(self, inputs: Arrays) -> list[Any]:
        """What the trace's program takes, keys erased: the parameters, then the inputs."""
        return [*self._weights, *self._words(inputs)]

    def _words(self, inputs: Arrays) -> list[Any]:
        return [np.asarray(inputs[leaf.name], jax.numpy.dtype(leaf.dtype)) for leaf in self.trace.inputs]

    @cached_property
    def _precise(self) -> Any:
        closed = jaxcompat.dead_code_free(erase_keys(self.trace.closed))
        # Run a few times only: a quick compilation matters more than a quick program.
        quick = {"xla_backend_optimization_level": 0}
        noise = [leaf.noise is not None for leaf in (*self.trace.params, *self.trace.inputs)]
        options = COMPILER_OPTIONS | quick
        if len(jaxcompat.parts(closed).eqns) <= PIECE:
            return jax.jit(shadow(closed, noise), compiler_options=options)
        return shadow_in_pieces(closed, noise, PIECE, lambda run: jax.jit(run, compiler_options=options))

    @cached_property
    def _weights(self) -> list[Any]:
        return [jax.numpy.asarray(self.trace.weights[leaf.name]) for leaf in self.trace.params]

    def precision(self, inputs: Arrays, limit: int = int(NO_LIMIT)) -> Precision:
        """Runs one step in float32 and float64 together; while loops take `limit` steps at most."""
        weights = self._weights
        with jaxcompat.enable_x64(), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            values, shadows, made, tied = self._precise(np.int32(limit), *weights, *self._words(inputs))
        errors = {
            leaf.name: _largest(np.asarray(v, np.float64), np.asarray(s))
            for leaf, v, s in zip(self.trace.outputs, values, shadows, strict=True)
            if leaf.is_float
        }
        names = [leaf.name for leaf in self.trace.outputs]
        on_ties = frozenset(name for name, flag in zip(names, tied, strict=True) if flag)
        margins = tuple(map(int, made.margins))
        return Precision(errors, int(made.total), int(made.near), on_ties, margins, not made.stopped)


def _typed(words: Any, leaf: Leaf) -> Any:
    """What a trace takes for a leaf: complex numbers are pairs in it, keys still keys."""
    return jax.random.wrap_key_data(words, impl=leaf.key) if leaf.typed_key else words


def _zeros(leaf: Leaf) -> np.ndarray:
    """For an argument that was pruned: no output depends on it."""
    return np.zeros(leaf.shape, jax.numpy.dtype(leaf.dtype))


def _largest(a: np.ndarray, b: np.ndarray) -> float:
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))
