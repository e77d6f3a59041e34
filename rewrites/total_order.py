"""Total order of floats by ordinary comparisons.

Before: `lt_to`, `le_to` or `eq_to` on floats that were made canonical for sorting: one zero, one NaN, as in
`jnp.searchsorted`.

After: `a < b`, or b is NaN and a is not; `a <= b`, or b is NaN; `a == b`, or both are NaN.

Why: the total order tells zeros and NaNs apart by their bits, which ONNX cannot see before opset 26. Canonical
floats need none of that: NaN is above everything, and zeros are equal.

Exactness: bit for bit. Floats that are not known to be canonical are declined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.extend.core import primitives

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def _lt(a: Array, b: Array) -> Array:
    missing = lax.bitwise_and(lax.ne(b, b), lax.eq(a, a))
    return lax.bitwise_or(lax.lt(a, b), missing)


def _le(a: Array, b: Array) -> Array:
    return lax.bitwise_or(lax.le(a, b), lax.ne(b, b))


def _eq(a: Array, b: Array) -> Array:
    return lax.bitwise_or(lax.eq(a, b), lax.bitwise_and(lax.ne(a, a), lax.ne(b, b)))


_FORMS = {"lt_to": _lt, "le_to": _le, "eq_to": _eq}


def _is_canonical(site: Site, atom: Any) -> bool:
    """Whether `atom` has one NaN and one zero: selects of NaN where x != x and of 0 where x == 0 made it from x."""
    known = site.splat(atom)
    if known is not None:
        return bool(known != 0 or not np.signbit(known)) and not np.isnan(known)
    for shape_only in ("broadcast_in_dim", "reshape"):
        if (moved := site.producer(atom, shape_only)) is not None:
            return _is_canonical(moved, moved.operands[0])
    chain, tests = [atom], []
    while (chosen := site.producer(chain[-1], "select_n")) is not None and len(chosen.operands) == 3:
        tests.append((chosen.operands[0], site.splat(chosen.operands[2])))
        chain.append(chosen.operands[1])
    # Each select leaves alone what the other looks for, so it does not matter which of the chain is tested.
    made = {_replaced(site, which, value, chain) for which, value in tests if value is not None}
    return {"nan", "zero"} <= made


def _replaced(site: Site, which: Any, value: Any, chain: Sequence[Any]) -> str:
    """What select(which, value, one of the chain) makes canonical."""
    differs, equals = site.producer(which, "ne"), site.producer(which, "eq")
    if differs and np.isnan(value) and differs.operands[0] is differs.operands[1]:
        return "nan" if any(differs.operands[0] is v for v in chain) else ""
    if equals and value == 0 and not np.signbit(value) and any(equals.operands[0] is v for v in chain):
        zero = site.splat(equals.operands[1])
        return "zero" if zero is not None and zero == 0 else ""
    return ""


def apply(site: Site) -> Replacement | Declined | None:
    if not jnp.issubdtype(site.aval(0).dtype, jnp.floating):
        return None
    if not all(_is_canonical(site, v) for v in site.operands):
        return Declined("zeros and NaNs of both signs may be among the operands")
    return site.replace(_FORMS[site.name])


_SORTED = np.array([-np.inf, -1, -0.0, 0.0, 2, np.inf, np.nan], np.float32)
_QUERY = np.array([np.nan, -0.0, 0.0, 2, 3, np.inf, -np.inf, -2], np.float32)


def _canonical(x: Array) -> Array:
    positive = lax.select(lax.eq(x, lax.full_like(x, 0)), lax.full_like(x, 0), x)
    return lax.select(lax.ne(x, x), lax.full_like(x, np.nan), positive)


def _compare(primitive: Any) -> Callable[[Array, Array], Array]:
    def run(a: Array, b: Array) -> Array:
        return jnp.asarray(primitive.bind(_canonical(a), _canonical(b)))

    return run


_A, _B = np.repeat(_SORTED, _QUERY.size), np.tile(_QUERY, _SORTED.size)

RULE = Rule(
    id="OC504",
    stage="legalize",
    primitives=frozenset(_FORMS),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("less", _compare(primitives.lt_to_p), (_A, _B)),
        Example("less or equal", _compare(primitives.le_to_p), (_A, _B)),
        Example("equal", _compare(primitives.eq_to_p), (_A, _B)),
        Example("a constant", lambda a: primitives.le_to_p.bind(_canonical(a), jnp.full_like(a, 2)), (_A,)),
    ),
    declines=(
        Example("any floats", lambda a, b: primitives.le_to_p.bind(a, b), (_A, _B)),
        Example(
            "one zero only", lambda a, b: primitives.le_to_p.bind(jnp.where(a == 0, np.float32(0), a), b), (_A, _B)
        ),
        Example("int32", lambda a, b: primitives.le_to_p.bind(a, b), (_A > 0, _B > 0)),
    ),
)
