"""PRNG keys as integer words.

Before: typed keys, and `random_bits`, `random_split`, `random_fold_in`, `random_seed`, `random_gamma` on them.

After: each key is its `uint32[2]` words (four for rbg), and each primitive is JAX's own public expansion of it
(`jax.extend.random`), traced under the equation's own setting of `jax_threefry_partitionable`.

Why: no runtime has key types. A key stays an input of the artifact, so the caller can pass the very key that
JAX would use.

Exactness: bit for bit, arrays of keys included: with rbg keys, `vmap` draws other bits than a loop over keys, and
it is JAX's own `vmap` that is kept. `random_gamma` rejects candidates by comparing floats, so a draw may differ
where two floats nearly tie.
"""

from __future__ import annotations

import jax
import numpy as np

from opcompat.rule import BITWISE, Example, Rule

RULE = Rule(
    id="OC100",
    stage="types",
    primitives=frozenset(
        {
            "random_bits",
            "random_split",
            "random_fold_in",
            "random_seed",
            "random_wrap",
            "random_unwrap",
            "random_clone",
            "random_gamma",
        }
    ),
    apply=lambda _: None,  # changes types, so it is a pass of the engine: opcompat.keys
    exactness=BITWISE,
    page=__doc__,
    module=__name__,
    examples=(
        Example(
            "split",
            lambda words: jax.random.key_data(jax.random.split(jax.random.wrap_key_data(words), 3)),
            (np.array([7, 2**31 + 5], np.uint32),),
        ),
        Example(
            "fold_in",
            lambda words, n: jax.random.bits(jax.random.fold_in(jax.random.wrap_key_data(words), n), (4,), np.uint32),
            (np.array([1, 2], np.uint32), np.int32(-3)),
        ),
        Example(
            "a batch of rbg keys",
            jax.vmap(lambda words: jax.random.bits(jax.random.wrap_key_data(words, impl="rbg"), (3,), np.uint32)),
            (np.arange(8, dtype=np.uint32).reshape(2, 4),),
        ),
    ),
)
