"""argmax and argmin with 64-bit indices by 32-bit ones.

Before: `argmax[index_dtype=int64]`, as JAX gives it when 64-bit types are on.

After: `argmax[index_dtype=int32]`, converted to int64.

Why: an index fits into 32 bits unless the axis has 2**31 elements and more (then the rule declines), and runtimes
have 32-bit kernels.

Exactness: bit for bit.
"""

from __future__ import annotations

import math

import numpy as np
from jax import Array, lax

from opcompat.rule import BITWISE, Declined, Example, Replacement, Rule, Site


def apply(site: Site) -> Replacement | Declined | None:
    if np.dtype(site.params["index_dtype"]).itemsize <= 4:
        return None
    if math.prod(site.aval(0).shape) >= 2**31:
        return Declined("the index needs 64 bits")
    primitive, params, wide = site.eqn.primitive, dict(site.params), site.result.dtype

    def narrow(x: Array) -> Array:
        index = primitive.bind(x, **(params | {"index_dtype": np.dtype(np.int32)}))
        return lax.convert_element_type(index, wide)

    return site.replace(narrow)


RULE = Rule(
    id="OC220",
    stage="legalize",
    primitives=frozenset({"argmax", "argmin"}),
    apply=apply,
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(Example("int64", lambda x: lax.argmax(x, 0, np.int64), (np.array([1, 3, 3, 2], np.float32),), x64=True),),
    declines=(Example("int32", lambda x: lax.argmax(x, 0, np.int32), (np.array([1, 3], np.float32),)),),
)
