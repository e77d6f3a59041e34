"""Control flow, calls, composites and custom calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.random import threefry2x32_p

from opcompat.stablehlo.ops import algebra
from opcompat.stablehlo.ops.call import Call, Handler
from opcompat.stablehlo.ops.client import functions
from opcompat.stablehlo.values import (
    Value,
    constant_scalar,
)


def _while(call: Call) -> Sequence[Value]:
    condition, body = call.bodies
    return tuple(lax.while_loop(lambda xs: condition(*xs)[0], lambda xs: body(*xs), call.arrays))


def _if(call: Call) -> Sequence[Value]:
    on_true, on_false = call.bodies
    return tuple(lax.cond(call.arrays[0], on_true, on_false))


def _case(call: Call) -> Sequence[Value]:
    known = constant_scalar(call.args[0])
    if known is not None:
        # Which platform's code to take is decided before anything runs: the others' need not be expressible.
        return call.regions[int(known) if 0 <= int(known) < len(call.regions) else -1]()
    (index,) = call.arrays
    branches = call.bodies
    if len(branches) == 1:
        return branches[0]()
    # Any index outside the branches, a negative one too, takes the last; lax.switch would clamp it.
    if len(branches) == 2:
        return tuple(lax.cond(lax.eq(index, lax.full_like(index, 0)), *branches))
    unsigned = lax.bitcast_convert_type(index, np.dtype(np.uint32))
    bounded = lax.min(unsigned, lax.full_like(unsigned, len(branches) - 1))
    return tuple(lax.switch(lax.convert_element_type(bounded, np.dtype(np.int32)), branches))


def _custom_call(call: Call) -> Sequence[Value]:
    target = str(call.attr("call_target_name"))
    if target in _ANNOTATIONS and len(call.args) == len(call.op.results) == 1:
        return call.args
    known = _CUSTOM_CALLS.get(target)
    if known is not None:
        return known(call, call.attr("backend_config", {}))
    if target.startswith("mhlo."):
        return _client_call(call, target, call.attr("attributes", {}))
    raise call.refuse(f"the custom call @{target} is opaque: a library's code, not StableHLO")


_ANNOTATIONS = ("Sharding", "annotate_device_placement", "xla.sdy.FuncResultSharding")


def _client_call(call: Call, target: str, attributes: Mapping[str, Any]) -> Sequence[Value]:
    """Before there were composites, jax.export wrote client ops as custom calls: @mhlo.erf, @mhlo.topk."""
    name = {"mhlo.topk": "chlo.top_k"}.get(target, target.replace("mhlo.", "chlo."))
    if name == "chlo.top_k" and set(attributes) == {"k", "largest"} and attributes["largest"]:
        return tuple(lax.top_k(call.arrays[0], attributes["k"]))
    if name not in functions() or name == "chlo.top_k" or attributes:
        raise call.refuse(f"the custom call @{target} with {dict(attributes)} is none of JAX's functions")
    return (functions()[name](*call.arrays),)


def _threefry(call: Call, config: Mapping[str, Any]) -> Sequence[Value]:
    """The bits of JAX's own generator, which a lowering for GPUs leaves to a kernel."""
    bind: Any = threefry2x32_p.bind
    return tuple(bind(*call.arrays[:4]))


def _top_k(call: Call, config: Mapping[str, Any]) -> Sequence[Value]:
    raise call.refuse("an approximate top k differs between devices; next: use jax.lax.top_k")


_CUSTOM_CALLS: Mapping[str, algebra.Known] = {
    **algebra.CUSTOM_CALLS,
    "ApproxTopK": _top_k,
    "cu_threefry2x32": _threefry,
    "cu_threefry2x32_ffi": _threefry,
}


def _composite(call: Call) -> Sequence[Value]:
    """As the lax function of that name where there is one, else by the decomposition that comes with it."""
    name = call.attr("name")
    attributes = call.attr("composite_attributes", {})
    function = functions().get(name)
    if function is not None and _primitive_name(name) not in call.avoid:
        if not attributes and name != "chlo.top_k":
            return (function(*call.arrays),)
        if name == "chlo.top_k" and set(attributes) == {"k"}:
            return tuple(lax.top_k(call.arrays[0], attributes["k"]))
    return call.function(call.attr("decomposition"), call.args)


def _primitive_name(composite: str) -> str:
    return {"chlo.next_after": "nextafter"}.get(composite, composite.removeprefix("chlo."))


def _map(call: Call) -> Sequence[Value]:
    (body,) = call.bodies
    for _ in call.shape:
        body = jax.vmap(body)
    return tuple(body(*call.arrays))


def _zero(call: Call) -> Sequence[Value]:
    """The number of this device among one."""
    return (np.zeros((), call.dtype),)


def _rng(call: Call) -> Sequence[Value]:
    raise call.refuse("draws without a key, other numbers on every device and at every run; next: use jax.random")


OPS: Mapping[str, Handler] = {
    "func.call": lambda c: c.function(c.attr("callee"), c.args),
    "sdy.sharding_constraint": lambda c: c.args,
    "stablehlo.case": _case,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.if": _if,
    "stablehlo.map": _map,
    "stablehlo.optimization_barrier": lambda c: c.args,
    "stablehlo.partition_id": _zero,
    "stablehlo.replica_id": _zero,
    "stablehlo.rng": _rng,
    "stablehlo.while": _while,
}
