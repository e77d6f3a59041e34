"""The client ops (CHLO), each of which is one JAX function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax import lax

from opcompat.stablehlo.ops.call import Call, Handler
from opcompat.stablehlo.values import (
    Value,
)


def _chlo(function: Callable[..., Any]) -> Handler:
    def handle(call: Call) -> Sequence[Value]:
        if call.op.name == "chlo.top_k":
            return tuple(lax.top_k(call.arrays[0], call.attr("k")))
        return (function(*call.arrays),)

    return handle


def functions() -> Mapping[str, Callable[..., Any]]:
    """The client ops that are one JAX primitive each."""
    return {
        "chlo.acos": lax.acos,
        "chlo.acosh": lax.acosh,
        "chlo.asin": lax.asin,
        "chlo.asinh": lax.asinh,
        "chlo.atan": lax.atan,
        "chlo.atanh": lax.atanh,
        "chlo.bessel_i1e": lax.bessel_i1e,
        "chlo.conj": lax.conj,
        "chlo.cosh": lax.cosh,
        "chlo.digamma": lax.digamma,
        "chlo.erf": lax.erf,
        "chlo.erf_inv": lax.erf_inv,
        "chlo.erfc": lax.erfc,
        "chlo.lgamma": lax.lgamma,
        "chlo.next_after": lax.nextafter,
        "chlo.polygamma": lax.polygamma,
        "chlo.sinh": lax.sinh,
        "chlo.square": lax.square,
        "chlo.tan": lax.tan,
        "chlo.top_k": lax.top_k,
        "chlo.zeta": lax.zeta,
    }


OPS: Mapping[str, Handler] = {name: _chlo(function) for name, function in functions().items()}
