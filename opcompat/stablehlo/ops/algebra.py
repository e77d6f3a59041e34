"""Factorizations and solves: as StableHLO's own ops, and as the custom calls that JAX lowers to.

LAPACK's conventions are those of jaxlib's `lapack_*_ffi` targets: letters are their ASCII codes, pivots count from 1,
and `info` is 0 unless the factorization failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from opcompat.stablehlo.ops.call import Call, Handler
from opcompat.stablehlo.values import Value

Known = Callable[[Call, Mapping[str, Any]], Sequence[Value]]


def _cholesky(call: Call) -> Sequence[Value]:
    return (_factor(call, call.arrays[0], bool(call.attr("lower", False))),)


def _factor(call: Call, x: jax.Array, lower: bool) -> jax.Array:
    """The triangular factor; only the named triangle of `x` is read."""
    _forbid(call, "cholesky")
    if not lower:
        return _adjoint(_factor(call, _adjoint(x), True))
    return lax.linalg.cholesky(x, symmetrize_input=False)


def _adjoint(x: jax.Array) -> jax.Array:
    swapped = lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return lax.conj(swapped) if x.dtype.kind == "c" else swapped


def _triangular_solve(call: Call) -> Sequence[Value]:
    _forbid(call, "triangular_solve")
    a, b = call.arrays
    transposed = str(call.attr("transpose_a", "NO_TRANSPOSE"))
    result = lax.linalg.triangular_solve(
        a,
        b,
        left_side=bool(call.attr("left_side")),
        lower=bool(call.attr("lower")),
        unit_diagonal=bool(call.attr("unit_diagonal")),
        transpose_a="NO_TRANSPOSE" not in transposed,
        conjugate_a="ADJOINT" in transposed,
    )
    return (result,)


def _potrf(call: Call, config: Mapping[str, Any]) -> Sequence[Value]:
    lower = config["lower"] if "lower" in config else config["uplo"] == ord("L")
    factor = _factor(call, call.arrays[0], bool(lower))
    # JAX's factor is NaN where there is none; LAPACK tells that by `info`.
    failed = lax.reduce(lax.ne(factor, factor), np.bool_(False), lax.bitwise_or, (factor.ndim - 2, factor.ndim - 1))
    return factor, lax.convert_element_type(failed, np.dtype(np.int32))


def _trsm(call: Call, config: Mapping[str, Any]) -> Sequence[Value]:
    _forbid(call, "triangular_solve")
    a, b = call.arrays
    result = lax.linalg.triangular_solve(
        a,
        b,
        left_side=config["side"] == ord("L"),
        lower=config["uplo"] == ord("L"),
        unit_diagonal=config["diag"] == ord("U"),
        transpose_a=config["trans_x"] != ord("N"),
        conjugate_a=config["trans_x"] == ord("C"),
    )
    return (result,)


def _getrf(call: Call, config: Mapping[str, Any]) -> Sequence[Value]:
    _forbid(call, "lu")
    factors, pivots, _ = lax.linalg.lu(call.arrays[0])
    info = lax.full(factors.shape[:-2], 0, np.dtype(np.int32))
    return factors, lax.add(pivots, lax.full_like(pivots, 1)), info


def _lu(call: Call, config: Mapping[str, Any]) -> Sequence[Value]:
    _forbid(call, "lu")
    return tuple(lax.linalg.lu(call.arrays[0]))


def _pivots_to_permutation(call: Call, config: Mapping[str, Any]) -> Sequence[Value]:
    _forbid(call, "lu_pivots_to_permutation")
    return (lax.linalg.lu_pivots_to_permutation(call.arrays[0], call.shape[-1]),)


def _forbid(call: Call, primitive: str) -> None:
    """What is being taken apart may not come back as itself."""
    if primitive in call.avoid:
        raise call.refuse(f"the custom call of {primitive} is opaque: a library's code, not StableHLO")


CUSTOM_CALLS: Mapping[str, Known] = {
    "LuDecomposition": _lu,
    "cu_lu_pivots_to_permutation": _pivots_to_permutation,
    "cusolver_getrf_ffi": _getrf,
    "cusolver_potrf_ffi": _potrf,
    **{f"lapack_{kind}potrf_ffi": _potrf for kind in "sdcz"},
    **{f"lapack_{kind}trsm_ffi": _trsm for kind in "sdcz"},
    **{f"lapack_{kind}getrf_ffi": _getrf for kind in "sdcz"},
}
"""The custom calls that are one JAX function each, by target; the handlers get the backend's settings."""

OPS: Mapping[str, Handler] = {
    "stablehlo.cholesky": _cholesky,
    "stablehlo.triangular_solve": _triangular_solve,
}
