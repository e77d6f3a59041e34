"""Whether a function is the same program each time it is traced: where two traces of it first differ.

A function that reads the time, numpy's random numbers or an object that it changes gives JAX another program at every
trace. What one trace saw would be a constant of the artifact, though nobody meant it to be one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from opcompat import jaxcompat
from opcompat.inline import OUTSIDE, inline
from opcompat.jaxcompat import NOWHERE, Place


class Difference(NamedTuple):
    """Where two traces part, and what is there in the one and in the other."""

    place: Place
    before: str
    after: str


def difference(first: Any, again: Any) -> Difference | None:
    """The first difference of two closed jaxprs of one function: an operation, a constant or a setting.

    What reaches no result does not count (JAX numbers the errors of checkify anew at each trace), and a program that
    leaves JAX is refused for that.
    """
    if _difference(first, again) is None:
        return None
    lives = [jaxcompat.dead_code_free(inline(closed)) for closed in (first, again)]
    return None if _leaves(lives[0]) else _difference(*lives)


def _leaves(closed: Any) -> bool:
    eqns = jaxcompat.parts(closed).eqns
    return any(e.primitive.name in OUTSIDE or any(map(_leaves, _bodies(e))) for e in eqns)


def _difference(first: Any, again: Any) -> Difference | None:
    a, b = jaxcompat.parts(first), jaxcompat.parts(again)
    for x, y in zip(a.eqns, b.eqns, strict=False):
        parted = _equations(x, y)
        if parted is not None:
            return Difference(jaxcompat.place_of(x.source_info), *parted)
        for body, other in zip(_bodies(x), _bodies(y), strict=False):
            inner = _difference(body, other)
            if inner is not None:
                return inner._replace(place=_better(inner.place, jaxcompat.place_of(x.source_info)))
    if len(a.eqns) != len(b.eqns):
        longer = max(a.eqns, b.eqns, key=len)[min(len(a.eqns), len(b.eqns))]
        counts = f"{len(a.eqns)} operations", f"{len(b.eqns)} operations"
        return Difference(jaxcompat.place_of(longer.source_info), *counts)
    for variable, x, y in zip(a.constvars, a.consts, b.consts, strict=False):
        if not _equal(x, y):
            reader = next((e for e in a.eqns if any(v is variable for v in e.invars)), None)
            place = NOWHERE if reader is None else jaxcompat.place_of(reader.source_info)
            return Difference(place, _shown(x), _shown(y))
    return None


def _equations(x: Any, y: Any) -> tuple[str, str] | None:
    if x.primitive.name != y.primitive.name:
        return x.primitive.name, y.primitive.name
    for v, w in zip(x.invars, y.invars, strict=False):
        if jaxcompat.is_literal(v) and jaxcompat.is_literal(w) and not _equal(v.val, w.val):
            return _shown(v.val), _shown(w.val)
    for name, value in x.params.items():
        other = y.params.get(name)
        # Only what can be compared: functions and layouts are other objects at every trace.
        if isinstance(value, int | float | str) and type(value) is type(other) and repr(value) != repr(other):
            return f"{name} {value}", f"{name} {other}"
    return None


def _bodies(eqn: Any) -> Iterator[Any]:
    for value in eqn.params.values():
        yield from (v for v in (value if isinstance(value, tuple) else (value,)) if jaxcompat.is_jaxpr(v))


def _better(inner: Place, outer: Place) -> Place:
    return outer if inner.library else inner


def _equal(x: Any, y: Any) -> bool:
    if x is y:
        return True
    if isinstance(x, jax.core.Tracer) or isinstance(y, jax.core.Tracer):
        return False
    a, b = _array(x), _array(y)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _array(value: Any) -> np.ndarray:
    is_key = jaxcompat.is_key(jaxcompat.aval_of(value).dtype)
    return np.asarray(jax.random.key_data(value) if is_key else value)


def _shown(value: Any) -> str:
    if isinstance(value, jax.core.Tracer):
        return "a value of the call before"
    array = _array(value)
    return (
        f"{array.item():.9g}" if array.ndim == 0 else f"{array.dtype}{list(array.shape)} beginning with {array.flat[0]}"
    )


__all__ = ["Difference", "difference"]
