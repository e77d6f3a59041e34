"""64-bit values in the policy.

Finds: values of float64, int64, uint64 or complex128 that outputs depend on. Without `jax_enable_x64` there are none.

Why: most runtimes for devices have no 64-bit arithmetic, and where they have it, it is slow. Usually nobody wanted it:
a Python or numpy number met an array without a dtype, or the setting was left on by another library.

Next: cast to 32 bits where it begins, turn the setting off, or convert with `--allow-narrowing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opcompat import jaxcompat
from opcompat.lint import Example, Lint, Remark, View, listed
from opcompat.model import EntryPoint, Model
from opcompat.trace import Leaf

_WIDE = ("float64", "int64", "uint64", "complex128")


def look(view: View) -> Iterator[Remark]:
    if not any(str(v.aval.dtype) in _WIDE for v in _values(view)):
        return
    leaves = (*view.trace.params, *view.trace.inputs)
    read = dict(zip(leaves, jaxcompat.parts(view.live).invars, strict=True))
    for dtype in _WIDE:
        made = [e for e in view.equations if any(str(v.aval.dtype) == dtype for v in e.outvars)]
        # Where it begins: what comes from a 64-bit operand only goes on with it.
        begin = [e for e in made if not any(_is_wide(v) for v in e.invars)] or made
        given = [leaf.name for leaf, v in read.items() if leaf.dtype == dtype and leaf.name in _read(view, read)]
        if not made and not given:
            continue
        parts = (
            f"{len(made)} equation{'s' * (len(made) != 1)} compute{'s' * (len(made) == 1)} in it" if made else "",
            f"{listed(given)} {'is' if len(given) == 1 else 'are'} given in it" if given else "",
        )
        yield Remark(
            f"{dtype}: {' and '.join(filter(None, parts))}",
            view.first_use(given[0]) if given else view.place(begin[0]),
            "cast to 32 bits where it begins, turn jax_enable_x64 off, or convert with --allow-narrowing",
        )


def _values(view: View) -> Iterator[Any]:
    yield from jaxcompat.parts(view.live).invars
    for eqn in view.equations:
        yield from eqn.outvars


def _is_wide(atom: Any) -> bool:
    return not jaxcompat.is_literal(atom) and str(atom.aval.dtype) in _WIDE


def _read(view: View, read: Mapping[Leaf, Any]) -> set[str]:
    """The names of the params and inputs that something reads."""
    atoms = {v for e in view.equations for v in e.invars if not jaxcompat.is_literal(v)}
    return {leaf.name for leaf, v in read.items() if v in atoms}


def _act(params: np.ndarray, obs: jax.Array) -> jax.Array:
    scaled = obs * np.linspace(0.5, 1.5, 4)
    return (scaled @ params).astype(jnp.float32)


def _narrow(params: np.ndarray, obs: jax.Array) -> jax.Array:
    return obs * 1.5 @ params


def _model(function: Any) -> Model:
    entry = EntryPoint(function, (jnp.zeros((1, 4), jnp.float32),), outputs=("action",))
    return Model("wide", np.ones((4, 2), np.float32), {"act": entry})


LINT = Lint(
    id="OC560",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(Example("a numpy array in float64", lambda: _model(_act), x64=True),),
    declines=(
        Example("Python numbers", lambda: _model(_narrow), x64=True),
        Example("without the setting", lambda: _model(_act)),
    ),
)
