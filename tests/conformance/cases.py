"""The cases of JAX's suite: functions, their own arguments, and boundary values of the same shapes and dtypes.

The suite is not public API of JAX; it is used here alone. A case is known by its full name: the order of the list
differs between processes.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax._src.internal_test_util import test_harnesses

from tests.matrix import values

PER_GROUP = 10
"""Cases of each group in the sample."""

DECOMPOSITIONS = frozenset({"svd", "eig", "eigh", "qr", "lu", "schur"})
"""Groups that are LAPACK's work; they are reported apart."""

_SUMS = "cumsum cumlogsumexp reduce_sum reduce_window_add scatter_add select_and_scatter_add dot_general fft"
_PRODUCTS = "cumprod reduce_prod reduce_window_mul scatter_mul conv_general_dilated reduce"
_SOLVERS = "custom_linear_solve triangular_solve tridiagonal_solve lu"
ACCUMULATING = frozenset(f"{_SUMS} {_PRODUCTS} {_SOLVERS}".split())
"""Groups whose results depend on the order of additions where values overflow or cancel: JAX promises none. Their
boundary values are zeros, infinities, NaN and numbers of ordinary size, for which every order gives the same."""

WITHOUT_NAN = frozenset({"approx_top_k", "lu"})
"""Groups that look for the largest of some elements by `>`, which is no order where one is NaN: JAX itself takes
different ones in vectors of different lengths. Their boundary values hold no NaN."""


@cache
def all_cases() -> Mapping[str, Any]:
    """Full name -> harness, for every case that JAX implements on the CPU."""
    return {h.fullname: h for h in test_harnesses.all_harnesses if h.filter("cpu")}


def sample() -> tuple[str, ...]:
    """At most PER_GROUP names of each group, the same in every process."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, harness in all_cases().items():
        groups[harness.group_name].append(name)
    chosen = [sorted(names, key=lambda n: zlib.crc32(n.encode()))[:PER_GROUP] for names in groups.values()]
    return tuple(sorted(name for names in chosen for name in names))


def dtype_of(harness: Any) -> str:
    """The dtype that the suite files a case under."""
    return str(jax.numpy.dtype(harness.dtype)) if harness.dtype is not None else "none"


def arguments(harness: Any) -> list[np.ndarray]:
    """The case's own arguments, the static ones left out. The same in every process."""
    rng = np.random.RandomState(zlib.crc32(harness.fullname.encode()))
    return [np.asarray(jax.numpy.asarray(x)) for x in harness.dyn_args_maker(rng)]


def boundaries(harness: Any, own: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """`own` with boundary values in every argument that the case takes at random; None if there is none.

    Arguments that the case makes itself (indices, matrices with a structure) keep their values.
    """
    kinds = [a for a in harness.arg_descriptors if not isinstance(a, test_harnesses.StaticArg)]
    free = [isinstance(a, test_harnesses.RandArg) and x.dtype.kind in "biufcV" for a, x in zip(kinds, own, strict=True)]
    if not any(free):
        return None
    found = []
    mixed = len({x.dtype.kind in "biu" for x in own}) > 1
    for shift, (x, is_free) in enumerate(zip(own, free, strict=True)):
        if not is_free:
            found.append(x)
            continue
        special = _special(x.dtype)
        if harness.group_name in ACCUMULATING and (x.dtype.kind not in "biu" or mixed):
            size = np.abs(special.astype(np.result_type(special.dtype, np.float64)))
            special = special[~((size > 100) & np.isfinite(size)) & (size != 1e-30)]
        if harness.group_name == "conv_general_dilated" and shift == 1:
            # XLA has two answers for an infinite weight on padding, NaN and nothing, by the program it chooses.
            special = special[np.isfinite(special)]
        if harness.group_name == "pow" and x.dtype.kind == "c":
            special = special[np.abs(special) < 10]  # beyond, the angle of a power is all rounding
        if harness.group_name == "fft":
            special = special[np.isfinite(special)]  # sums that are not finite depend on the order of additions
        if harness.group_name in WITHOUT_NAN and x.dtype.kind not in "biu":
            special = special[special == special]
        # Each operand's list is turned by another amount.
        found.append(np.resize(np.roll(special, -5 * shift), x.shape))
    return found


def _special(dtype: Any) -> np.ndarray:
    letter = {"bool": "b", "float32": "f", "float16": "h", "bfloat16": "g"}.get(dtype.name)
    if letter:
        return values.boundary(letter)
    if dtype.kind == "c":
        # Products of larger ones overflow part by part: to infinity or NaN, as the compiler fuses them.
        modest = values.FLOATS[(np.abs(values.FLOATS) < 1e7) & (np.abs(values.FLOATS) != 1e-30)]
        return (modest + 1j * np.roll(modest, 3)).astype(dtype)
    if dtype.kind == "f":
        return values.FLOATS.astype(dtype)
    limits = np.iinfo(dtype)
    small = [0, 1, 2, 3, 5, 7, 31, 32, 33, limits.max, limits.max - 1, limits.min, limits.min + 1]
    return np.array([*small, *([-1, -2, -5] if limits.min else [])], dtype)
