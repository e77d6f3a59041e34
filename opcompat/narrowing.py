"""Computes 64-bit values in 32 bits, on request: for targets that have no 64-bit arithmetic.

It changes results, so it happens only where the user allows it, and verification then compares the artifact with
the 64-bit reference. Inputs, outputs and parameters keep their dtype. Operations on the bits of 64-bit values, and
integers that 32 bits cannot hold, stay as they are, and the target refuses them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opcompat import jaxcompat
from opcompat.retype import Retyping, as_is, bind, retype

RULE = "OC211"
"""Stands in the provenance of everything that this pass emits."""

BY_BITS = frozenset(
    {
        "and",
        "bitcast_convert_type",
        "clz",
        "nextafter",
        "not",
        "or",
        "population_count",
        "reduce_precision",
        "rng_bit_generator",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "xor",
    }
)
"""Primitives that mean the 64-bit format itself."""


def narrow(closed: Any) -> Any:
    """The closed jaxpr (calls dissolved, keys erased) with 32-bit arithmetic in place of 64-bit."""
    return retype(closed, _NARROW)


def _in_32_bits(eqn: Any) -> Callable[..., list[Any]]:
    if eqn.primitive.name in BY_BITS or not all(map(_fits, eqn.invars)):
        return as_is(eqn, _NARROW)
    params = _NARROW.params(eqn.params)
    return lambda *operands: bind(eqn, list(operands), params)


def _fits(atom: Any) -> bool:
    """Whether a literal integer fits into 32 bits; other operands count as fitting."""
    if not jaxcompat.is_literal(atom) or atom.aval.dtype.kind not in "iu" or not _NARROW.applies(atom.aval):
        return True
    limits = np.iinfo(_NARROW.dtypes[str(atom.aval.dtype)])
    return bool(limits.min <= int(atom.val) <= limits.max)


_NARROW = Retyping(
    RULE, {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}, _in_32_bits
)
