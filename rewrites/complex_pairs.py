"""Complex numbers as pairs of floats.

Before: any equation on complex64 (complex128).

After: the same on float32[..., 2] (float64[..., 2]), whose last axis holds the real and the imaginary part: data
movement and sums on both parts alike, products as four real ones, elementary functions by their textbook formulas,
discrete Fourier transforms of up to 1,024 elements as products with matrices. Complex inputs, outputs and parameters
have this form in files.

Why: neither ONNX nor TFLite has kernels for complex numbers.

Exactness: that of the real functions behind each formula, relative to the size of the complex number, not to that of
each part. Where infinities meet, the parts follow the formulas, not C's Annex G.
"""

from __future__ import annotations

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from opcompat.rule import Exactness, Example, Rule

_RNG = np.random.default_rng(0)
_X, _Y = (_RNG.standard_normal(64).astype(np.float32) for _ in range(2))


def _z(x: jax.Array, y: jax.Array) -> jax.Array:
    return lax.complex(x, y)


def _both(z: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.real(z), jnp.imag(z)


def _recurrence(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A linear recurrent unit: h = a h + b, by an associative scan."""

    def join(left: tuple[jax.Array, ...], right: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return left[0] * right[0], right[0] * left[1] + right[1]

    turn = jnp.exp(_z(-jnp.abs(x), y))
    return _both(lax.associative_scan(join, (turn, _z(y, x)))[1])


RULE = Rule(
    id="OC225",
    stage="types",
    primitives=frozenset(),
    apply=lambda _: None,  # changes types, so it is a pass of the engine: opcompat.complexes
    exactness=Exactness("ulp", 16, absolute=2e-5),
    page=__doc__,
    module=__name__,
    examples=(
        Example("arithmetic", lambda x, y: _both(_z(x, y) * _z(y, x) - _z(x, x) / _z(y, y)), (_X, _Y)),
        Example("elementary functions", lambda x, y: _both(jnp.log(jnp.exp(_z(x, y))) + jnp.sqrt(_z(y, x))), (_X, _Y)),
        Example("magnitude", lambda x, y: jnp.abs(_z(x, y)), (_X, _Y)),
        Example("power", lambda x, y: _both(_z(x, y) ** 3), (_X, _Y)),
        Example("matrices", lambda x, y: _both(_z(x, y).reshape(8, 8) @ _z(y, x).reshape(8, 8)), (_X, _Y)),
        Example("recurrence", _recurrence, (_X, _Y)),
        Example("constant", lambda x: _both(_z(x, x) * (1 - 2j)), (_X,)),
        Example("spectrum", lambda x: jnp.abs(jnp.fft.rfft(x)), (_X,)),
        Example("filter", lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 0.5j, 64), (_X,)),
    ),
)
