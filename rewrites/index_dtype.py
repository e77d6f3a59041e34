"""argmax and argmin with int32 indices, converted.

Before: `argmax[index_dtype=int64]`, as JAX gives it when 64-bit types are on, or with indices of 8 or 16 bits.

After: `argmax[index_dtype=int32]`, converted.

Why: runtimes have kernels for 32-bit indices. Where the axis has more elements than either dtype can count, the rule
declines: JAX's narrow indices wrap around before it compares them.

Exactness: bit for bit.
"""

from __future__ import annotations

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def apply(site: Site) -> Replacement | Declined | None:
    own = np.dtype(site.params["index_dtype"])
    if own.itemsize == 4:
        return None
    (axis,) = site.params["axes"]
    if site.aval(0).shape[axis] - 1 > min(np.iinfo(own).max, np.iinfo(np.int32).max):
        return Declined(f"int32 and {own} do not both count to {site.aval(0).shape[axis] - 1}")
    primitive, params = site.eqn.primitive, dict(site.params)

    def converted(x: Array) -> Array:
        index = primitive.bind(x, **(params | {"index_dtype": np.dtype(np.int32)}))
        return lax.convert_element_type(index, own)

    return site.replace(converted)


_X = np.array([1, 3, 3, 2], np.float32)

RULE = Rule(
    id="OC220",
    stage="legalize",
    primitives=frozenset({"argmax", "argmin"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("int64", lambda x: lax.argmax(x, 0, np.int64), (_X,), x64=True),
        Example("int8", lambda x: lax.argmin(x, 0, np.int8), (_X,)),
        Example("all of uint8", lambda x: lax.argmax(x, 0, np.uint8), (np.arange(256, dtype=np.float32),)),
    ),
    declines=(
        Example("int32", lambda x: lax.argmax(x, 0, np.int32), (np.array([1, 3], np.float32),)),
        Example("too many for int8", lambda x: lax.argmax(x, 0, np.int8), (np.arange(129, dtype=np.float32),)),
    ),
)
