"""Out-of-range reads by a select.

Before: `gather[mode=fill]`, as `x.at[i].get(mode="fill")` and `jnp.take_along_axis` give it: windows that do not
lie within the operand read as the fill value.

After: `gather[mode=clip]`, a comparison of the indices with the operand's ends, and a select of the fill value.

Why: runtimes have no such mode; out of range they raise an error or read elsewhere.

Exactness: bit for bit. The fill value is JAX's: as given, else NaN, True, the lowest signed or the highest unsigned
integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Example, Replacement, Rule, Site

from .gather import as_int32


def apply(site: Site) -> Replacement | None:
    if lax.GatherScatterMode.from_any(site.params["mode"]) != lax.GatherScatterMode.FILL_OR_DROP:
        return None
    return site.replace(_filled(site.eqn.primitive, dict(site.params), site.result.shape))


def _filled(primitive: Any, params: dict[str, Any], shape: tuple[int, ...]) -> Callable[[Array, Array], Array]:
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]

    def gather(operand: Array, indices: Array) -> Array:
        fill = lax.full(shape, _fill_value(params["fill_value"], operand.dtype), operand.dtype)
        if operand.size == 0:
            return fill
        clipped = primitive.bind(
            operand, indices, **(params | {"mode": lax.GatherScatterMode.CLIP, "fill_value": None})
        )
        inside = lax.full(indices.shape[:-1], True)
        signed = as_int32(indices)
        for column, dim in enumerate(numbers.start_index_map):
            start = lax.index_in_dim(signed, column, indices.ndim - 1, keepdims=False)
            last = lax.full_like(start, operand.shape[dim] - sizes[dim])
            within = lax.bitwise_and(lax.ge(start, lax.full_like(start, 0)), lax.le(start, last))
            inside = lax.bitwise_and(inside, within)
        batch = [dim for dim in range(len(shape)) if dim not in numbers.offset_dims]
        return lax.select(lax.broadcast_in_dim(inside, shape, batch), clipped, fill)

    return gather


def _fill_value(given: Any, dtype: np.dtype) -> Any:
    if given is not None:
        return given
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.nan
    if dtype == np.bool_:
        return True
    limits = np.iinfo(dtype)
    return limits.min if jnp.issubdtype(dtype, jnp.signedinteger) else limits.max


_T = np.arange(24, dtype=np.float32).reshape(4, 6)
_I = np.array([[0], [3], [-1], [9]], np.int32)

RULE = Rule(
    id="OC303",
    stage="legalize",
    primitives=frozenset({"gather"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("take_along_axis", lambda t, i: jnp.take_along_axis(t, i, 1), (_T, _I)),
        Example("two indices", lambda t, i: t.at[i[:, 0], i[::-1, 0]].get(mode="fill", fill_value=7.0), (_T, _I)),
        Example("integers", lambda t, i: t.astype(np.int32).at[i[:, 0]].get(mode="fill"), (_T, _I)),
        Example("unsigned", lambda t, i: t.astype(np.uint32).at[i[:, 0]].get(mode="fill"), (_T, _I)),
        Example("bytes", lambda t, i: t.at[i.astype(np.int8)[:, 0]].get(mode="fill"), (np.tile(_T, (25, 1)), _I)),
        Example("64 bits", lambda t, i: t.at[i.astype(np.int64)[:, 0] << 40].get(mode="fill"), (_T, _I), x64=True),
        Example("bool", lambda t, i: (t > 3).at[i[:, 0]].get(mode="fill"), (_T, _I)),
    ),
    declines=(Example("clip", lambda t, i: jnp.take_along_axis(t, i, 1, mode="clip"), (_T, _I)),),
)
