"""64-bit values in 32 bits, where the user allows it.

Before: equations on float64, int64 and uint64, as JAX makes them when `jax_enable_x64` is on.

After: the same equations on float32, int32 and uint32. Inputs, outputs and parameters keep their dtype, with casts
where they are used.

Why: LiteRT and many devices have no 64-bit arithmetic. Without `--allow-narrowing` such a model is refused there.

Exactness: it changes results. Floats lose half their digits, and integers beyond 32 bits wrap around; the artifact
is verified against the 64-bit reference with the entry point's own tolerance. Operations on the bits of 64-bit
values, and literals that 32 bits cannot hold, are left alone, so the target refuses them.
"""

from __future__ import annotations

import numpy as np
from jax import lax
from jax import numpy as jnp

from opcompat.rule import Exactness, Example, Rule

RULE = Rule(
    id="OC211",
    stage="types",
    primitives=frozenset(),
    apply=lambda _: None,  # changes types, so it is a pass of the engine: opcompat.narrowing
    exactness=Exactness("ulp", 8, absolute=1e-5),
    page=__doc__,
    module=__name__,
    optional=True,
    examples=(
        Example(
            "float64",
            lambda x: jnp.tanh(lax.convert_element_type(x, np.float64) * 3).astype(np.float32),
            (np.linspace(-2, 2, 33, dtype=np.float32),),
            x64=True,
        ),
        Example(
            "int64",
            lambda x: lax.convert_element_type(jnp.cumsum(lax.convert_element_type(x, np.int64)), np.int32),
            (np.arange(9, dtype=np.int32),),
            x64=True,
        ),
    ),
)
