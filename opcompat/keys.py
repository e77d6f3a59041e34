"""Erases PRNG key types: every key becomes its uint32 words, every `random_*` primitive JAX's own expansion.

The expansions are the public implementations in `jax.extend.random`, traced under the equation's own context
(`jax_threefry_partitionable` changes the bits and is recorded there). They are written for one key; arrays of
keys are a `vmap` of them, which is how JAX defines their bits: for threefry, those of each key alone; for rbg,
`vmap` of the bit generator draws from the first key for all. Structural operations on key arrays (slice, reshape,
select, ...) act on the words with one more, innermost dimension. `random_gamma` is expanded by JAX's own
implementation, a rejection sampler that splits keys as it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.random as jax_random
from jax import numpy as jnp

from opcompat import jaxcompat
from opcompat.editor import Editor
from opcompat.errors import UnsupportedError
from opcompat.inline import IDENTITIES, bodies, inline, map_bodies
from opcompat.provenance import mark_rule

RULE = "OC100"
"""Stands in the provenance of everything that this pass emits."""

STRUCTURAL = IDENTITIES | frozenset(
    {
        "broadcast_in_dim",
        "concatenate",
        "dynamic_slice",
        "dynamic_update_slice",
        "expand_dims",
        "gather",
        "pad",
        "reshape",
        "rev",
        "scatter",
        "select_n",
        "slice",
        "split",
        "squeeze",
        "stack",
        "transpose",
        "unstack",
    }
)


def erase_keys(closed: Any) -> Any:
    """The closed jaxpr (calls dissolved) with uint32[..., words] wherever there was a key.

    Raises UnsupportedError for a key implementation without a public expansion, and for computations with keys
    that have none.
    """
    if not _mentions_keys(closed):
        return closed
    editor = Editor(closed)
    for var, value in zip(editor.parts.constvars, editor.parts.consts, strict=True):
        if jaxcompat.is_key(var.aval.dtype):
            editor.retype(var, _erased(var.aval))
            editor.set_const(var, jax.random.key_data(value))
    for var in editor.parts.invars:
        if jaxcompat.is_key(var.aval.dtype):
            editor.retype(var, _erased(var.aval))
    for eqn in editor.parts.eqns:
        _edit(editor, eqn)
    return editor.finish()


def _edit(editor: Editor, eqn: Any) -> None:
    if list(bodies(eqn)):
        for var in eqn.outvars:
            if jaxcompat.is_key(var.aval.dtype):
                editor.retype(var, _erased(var.aval))
        editor.keep(eqn, params=map_bodies(eqn.params, lambda body, _: erase_keys(body)))
    elif any(jaxcompat.is_key(v.aval.dtype) for v in (*eqn.invars, *eqn.outvars)):
        operands = [editor.read(v) for v in eqn.invars]
        with eqn.ctx.manager:
            body = inline(jaxcompat.trace(_expansion(eqn), [v.aval for v in operands]))
        body = erase_keys(body)  # an expansion may use keys in its turn
        editor.splice(eqn, body, operands, mark_rule(eqn.source_info, RULE))
    else:
        editor.keep(eqn)


def _mentions_keys(closed: Any) -> bool:
    p = jaxcompat.parts(closed)
    if any(jaxcompat.is_key(v.aval.dtype) for v in (*p.constvars, *p.invars)):
        return True
    return any(
        any(jaxcompat.is_key(v.aval.dtype) for v in e.outvars) or any(_mentions_keys(b) for _, b in bodies(e))
        for e in p.eqns
    )


def _erased(aval: Any) -> Any:
    words = jaxcompat.key_words(aval.dtype)
    return jax.typeof(jax.eval_shape(lambda: jnp.zeros((*aval.shape, *words), jnp.uint32)))


# One expansion per primitive: (equation) -> function of erased operands.


def _expansion(eqn: Any) -> Callable[..., Any]:
    name = eqn.primitive.name
    if name in IDENTITIES:
        return lambda *operands: operands
    if name in _RANDOM:
        return _RANDOM[name](eqn)
    if name in STRUCTURAL:
        return _structural(eqn)
    raise UnsupportedError(
        f"{name} on PRNG keys at {jaxcompat.place_of(eqn.source_info)}: no expansion into integers is known; "
        "next: draw from the key where it is split, instead of computing with keys"
    )


def _implementation(eqn: Any) -> Any:
    """The public implementation behind the keys of an equation."""
    name = jaxcompat.key_implementation(_key_dtype(eqn))
    implementations = {
        "threefry2x32": jax_random.threefry_prng_impl,
        "rbg": jax_random.rbg_prng_impl,
        "unsafe_rbg": jax_random.unsafe_rbg_prng_impl,
    }
    if name not in implementations:
        raise UnsupportedError(
            f"{eqn.primitive.name} with PRNG keys of {name!r} at {jaxcompat.place_of(eqn.source_info)}: "
            "only JAX's own implementations can be expanded; next: use threefry2x32 keys"
        )
    return implementations[name]


def _key_dtype(eqn: Any) -> Any:
    return next(v.aval.dtype for v in (*eqn.invars, *eqn.outvars) if jaxcompat.is_key(v.aval.dtype))


def _per_key(function: Callable[..., Any], dims: int) -> Callable[..., Any]:
    for _ in range(dims):
        function = jax.vmap(function)
    return function


def _bits(eqn: Any) -> Callable[..., Any]:
    implementation, params = _implementation(eqn), eqn.params

    def one(words: Any) -> Any:
        return implementation.random_bits(words, params["bit_width"], params["shape"])

    return _per_key(one, eqn.invars[0].aval.ndim)


def _split(eqn: Any) -> Callable[..., Any]:
    implementation, shape = _implementation(eqn), eqn.params["shape"]
    return _per_key(lambda words: implementation.split(words, shape), eqn.invars[0].aval.ndim)


def _fold_in(eqn: Any) -> Callable[..., Any]:
    """Keys and data of one shape, or one of them a scalar, or of size one along some dimensions."""
    implementation = _implementation(eqn)
    keys, data = (v.aval.shape for v in eqn.invars)
    rank = max(len(keys), len(data))
    pairs = list(zip(keys or (1,) * rank, data or (1,) * rank, strict=True))
    function = implementation.fold_in
    for k, d in reversed(pairs):
        function = jax.vmap(function, in_axes=(None if k != d and k == 1 else 0, None if k != d and d == 1 else 0))

    def run(words: Any, numbers: Any) -> Any:
        # What a scalar lacks, and what does not vary along a dimension, is not mapped over.
        words = jnp.reshape(words, [k for k, d in pairs if k == d or k != 1] + list(words.shape[len(keys) :]))
        return function(words, jnp.reshape(numbers, [d for k, d in pairs if k == d or d != 1]))

    return run


def _seed(eqn: Any) -> Callable[..., Any]:
    return _per_key(_implementation(eqn).seed, eqn.invars[0].aval.ndim)


def _gamma(eqn: Any) -> Callable[..., Any]:
    """JAX's own rejection sampler; threefry keys at once, as JAX compiles it for the CPU, others one by one."""
    name = jaxcompat.key_implementation(_key_dtype(eqn))
    sampler = jaxcompat.gamma_sampler(eqn)

    def run(words: Any, concentration: Any) -> Any:
        return sampler(jax.random.wrap_key_data(words, impl=name), concentration)

    return run


def _same(_: Any) -> Callable[..., Any]:
    return lambda words: words


_RANDOM: Mapping[str, Callable[[Any], Callable[..., Any]]] = {
    "random_bits": _bits,
    "random_split": _split,
    "random_fold_in": _fold_in,
    "random_seed": _seed,
    "random_wrap": _same,
    "random_unwrap": _same,
    "random_clone": _same,
    "random_gamma": _gamma,
}


def _structural(eqn: Any) -> Callable[..., Any]:
    def bind(*operands: Any) -> Any:
        return eqn.primitive.bind(*operands, **eqn.params)

    in_axes: Sequence[int | None] = [-1 if jaxcompat.is_key(v.aval.dtype) else None for v in eqn.invars]
    return jax.vmap(bind, in_axes=tuple(in_axes), out_axes=-1)
