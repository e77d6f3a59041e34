"""Dropout that is on.

Finds: values that are kept or zeroed by a mask of random bits alone, with probability p, and scaled by 1/p: dropout as
flax, haiku, equinox and most people write it. Other random choices (epsilon-greedy, random masks that are not scaled)
are left alone.

Why: the exported policy forgets a part of its activations at every step. It runs, and it even agrees with JAX, because
the function that was exported is the one for training.

Next: `deterministic=True`, `train=False`, `inference_mode`: whatever the library calls it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from opcompat import jaxcompat
from opcompat.flow import Flag, Rules, join, run
from opcompat.lint import Example, Lint, Remark, View, is_key
from opcompat.model import EntryPoint, Model

_NOISE, _VALUE = 1, 2
_MOVES = frozenset({"broadcast_in_dim", "reshape", "convert_element_type", "copy", "copy_p", "squeeze"})


def look(view: View) -> Iterator[Remark]:
    pure = _pure_noise(view)
    for eqn in view.equations:
        rate = _rate(view, pure, eqn)
        if rate is not None:
            yield Remark(
                f"dropout with rate {rate:.3g} is on",
                view.place(eqn),
                "export the function for inference (deterministic=True, train=False, inference_mode)",
            )


def _pure_noise(view: View) -> set[Any]:
    """The variables that depend on random bits, and else on constants alone."""
    if not any(e.primitive.name == "random_bits" for e in view.equations):
        return set()
    pure: set[Any] = set()

    def transfer(eqn: Any, flags: Sequence[Flag]) -> Sequence[Flag]:
        flag = _NOISE if eqn.primitive.name == "random_bits" else join(flags)
        outs = [0 if jaxcompat.is_key(v.aval.dtype) else flag for v in eqn.outvars]
        for variable, flag in zip(eqn.outvars, outs, strict=True):
            (pure.add if flag == _NOISE else pure.discard)(variable)
        return outs

    given = [_VALUE] * len(view.trace.params) + [0 if is_key(leaf) else _VALUE for leaf in view.trace.inputs]
    run(view.live, given, Rules(transfer))
    return pure


def _rate(view: View, pure: set[Any], eqn: Any) -> float | None:
    """The rate of the dropout that ends with this equation; None if none does.

    Either it masks what is scaled, or it scales what is masked.
    """
    masked = _masked(view, pure, eqn)
    if masked is None:
        factor, inner = _scaled(view, eqn)
        masked = _masked(view, pure, view.producer(inner))
        if masked is None:
            return None
    else:
        factor = next((f for f in (_scaled(view, _made(view, v))[0] for v in masked[1:]) if f != 1.0), 1.0)
    kept = [p for p in (masked[0], 1 - masked[0]) if math.isclose(p * factor, 1, rel_tol=1e-3)]
    return 1 - kept[0] if kept and 0 < kept[0] < 1 else None


def _masked(view: View, pure: set[Any], eqn: Any) -> tuple[Any, ...] | None:
    """(probability, operands) of an equation that puts a random mask on a value: by a select or a product."""
    if eqn is None or eqn.primitive.name not in ("select_n", "mul"):
        return None
    if eqn.primitive.name == "select_n":
        mask, *cases = eqn.invars
        zeros = [view.constant(case) == 0 for case in cases]
        if not _among(pure, mask) or sum(zeros) != 1:
            return None
        return _with(_probability(view, mask), cases[zeros.index(False)])
    for mask, value in (eqn.invars, eqn.invars[::-1]):
        if _among(pure, mask) and not _among(pure, value):
            scaled = _made(view, mask)
            inner = _scaled(view, scaled)[1] if scaled is not None else None
            return _with(_probability(view, mask if inner is None else inner), value, mask)
    return None


def _among(variables: set[Any], atom: Any) -> bool:
    return not jaxcompat.is_literal(atom) and atom in variables


def _with(probability: float | None, *operands: Any) -> tuple[Any, ...] | None:
    return None if probability is None else (probability, *operands)


def _probability(view: View, mask: Any) -> float | None:
    """The constant that uniform noise is compared with to make a mask."""
    eqn = _made(view, mask)
    if eqn is None or eqn.primitive.name not in ("lt", "le", "gt", "ge"):
        return None
    found = [c for c in map(view.constant, eqn.invars) if c is not None]
    return float(found[0]) if len(found) == 1 else None


def _made(view: View, atom: Any) -> Any:
    """The equation that computes `atom`, behind what only moves or casts it."""
    eqn = view.producer(atom)
    while eqn is not None and eqn.primitive.name in _MOVES:
        eqn = view.producer(eqn.invars[0])
    return eqn


def _scaled(view: View, eqn: Any) -> tuple[float, Any]:
    """(factor, operand) of an equation that multiplies by a constant or divides by one; (1, None) for others."""
    if eqn is None or eqn.primitive.name not in ("mul", "div"):
        return 1.0, None
    left, right = eqn.invars
    by = view.constant(right)
    if by is not None and by != 0:
        return (1 / float(by) if eqn.primitive.name == "div" else float(by)), left
    by = view.constant(left) if eqn.primitive.name == "mul" else None
    return (float(by), right) if by is not None else (1.0, None)


def _select(params: jax.Array, key: jax.Array, obs: jax.Array) -> jax.Array:
    hidden = obs @ params
    mask = jax.random.bernoulli(key, 0.9, hidden.shape)
    return jax.lax.select(mask, hidden / 0.9, jnp.zeros_like(hidden))


def _product(params: jax.Array, key: jax.Array, obs: jax.Array) -> jax.Array:
    """In a loop, and the mask is scaled."""

    def layer(carry: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        mask = jax.random.bernoulli(key, 0.75, (1, 4)).astype(jnp.float32) / 0.75
        return jnp.tanh(carry @ params) * mask, None

    return jax.lax.scan(layer, obs, jax.random.split(key, 3))[0]


def _explore(params: jax.Array, key: jax.Array, obs: jax.Array) -> jax.Array:
    """Epsilon-greedy, and noise on an action that is scaled."""
    action = obs @ params
    noise = jax.random.normal(key, action.shape) / 0.9
    explore = jax.random.uniform(key, (1, 1)) < 0.1
    return jnp.where(explore, noise, action / 0.9) + jnp.where(explore, 0.0, action) * (2.0 * jnp.ones(4))


def _model(function: Any) -> Model:
    entry = EntryPoint(function, (jax.random.key(0), jnp.zeros((1, 4))), outputs=("action",))
    return Model("dropout", jnp.ones((4, 4)), {"act": entry})


LINT = Lint(
    id="OC711",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(Example("select", lambda: _model(_select)), Example("product in a loop", lambda: _model(_product))),
    declines=(Example("exploration", lambda: _model(_explore)),),
)
