"""Half precision as float32, rounded after every equation.

Before: any equation on float16 or bfloat16.

After: the same equation on float32, and its result cast to the half-precision dtype and back. Results that are
among the operands (max, select, reshape, ...) need no rounding. `logistic`, `integer_pow`, `exp2` and inverse
hyperbolic functions are first taken apart as JAX and XLA do, each step rounded.

Why: runtimes lack half-precision kernels for most operations, and where they have them they round elsewhere than
JAX does. JAX's reference (compiled without excess precision) rounds after every operation, and so does this.

Exactness: bit for bit for single operations, except where float32 functions differ by an ulp next to a rounding
boundary. Under jit, XLA adds sums in another order, and divides by a constant by multiplying with its rounded
reciprocal: results there are within the resolution of the dtype.
"""

from __future__ import annotations

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from opcompat.rule import BITWISE, Example, Rule

_X = np.linspace(-4, 4, 257, dtype=np.float32)


def _in_loop(x: jax.Array) -> jax.Array:
    def step(carry: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = carry * y + jnp.bfloat16(0.125)
        return carry, jnp.maximum(carry, y)

    return lax.scan(step, jnp.bfloat16(1), x.astype(jnp.bfloat16))[1]


RULE = Rule(
    id="OC210",
    stage="types",
    primitives=frozenset(),
    apply=lambda _: None,  # changes types, so it is a pass of the engine: opcompat.halves
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example("bfloat16", lambda x: x.astype(jnp.bfloat16) * jnp.bfloat16(1.7) + jnp.bfloat16(0.3), (_X,)),
        Example("float16", lambda x: x.astype(jnp.float16) / x[::-1].astype(jnp.float16) - 1, (_X + 9,)),
        Example("logistic", lambda x: jax.nn.sigmoid(x.astype(jnp.bfloat16)), (_X,)),
        Example("power", lambda x: x.astype(jnp.float16) ** 5, (_X,)),
        Example("loop", _in_loop, (_X,)),
    ),
)
