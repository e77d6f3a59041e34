"""A key that reaches no output.

Finds: a PRNG key among the inputs on which no output depends, or none but the key that is fed back for the next step.

Why: the policy is deterministic, though its caller believes that it samples. Often the draw is there and its result is
dropped, or a mode is returned in its place.

Next: use the draw, or take the key out of the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from opcompat.lint import Example, Lint, Remark, View, is_key
from opcompat.model import EntryPoint, Model


def look(view: View) -> Iterator[Remark]:
    keys = {leaf.name for leaf in view.trace.inputs if is_key(leaf)}
    for key in sorted(keys):
        reached = {output for output, inputs in view.reach.items() if key in inputs}
        if all(view.contract.feedback.get(output) in keys for output in reached):
            what = f"no output but {', '.join(sorted(reached))}" if reached else "no output"
            yield Remark(
                f"the key '{key}' reaches {what}: the policy does not sample",
                view.first_use(key),
                "use what is drawn from it, or take it out of the arguments (convert --prune-inputs leaves it out)",
            )


def _act(params: jax.Array, key: jax.Array, obs: jax.Array) -> jax.Array:
    mean = obs @ params
    sample = mean + jax.random.normal(key, mean.shape)
    return mean if params.size else sample


def _chain(params: jax.Array, obs: jax.Array, rng: jax.Array) -> dict[str, jax.Array]:
    return {"action": obs @ params, "rng": jax.random.split(rng)[0]}


def _draw(params: jax.Array, rng: jax.Array, obs: jax.Array) -> jax.Array:
    def body(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        key, best = carry
        key, now = jax.random.split(key)
        return key, jnp.maximum(best, obs @ params + jax.random.normal(now, (1, 2)))

    best: jax.Array = jax.lax.fori_loop(0, 3, body, (jax.random.wrap_key_data(rng), jnp.zeros((1, 2))))[1]
    return best


def _unused() -> Model:
    entry = EntryPoint(_act, (jax.random.key(0), jnp.zeros((1, 4))), outputs=("action",))
    return Model("unused_key", jnp.ones((4, 2)), {"act": entry})


def _chained() -> Model:
    args, key = (jnp.zeros((1, 4)), jax.random.key(0)), jax.random.key(1)
    entry = EntryPoint(_chain, args, feedback={"rng": "rng"}, init={"rng": key})
    return Model("chained_key", jnp.ones((4, 2)), {"act": entry})


def _drawn() -> Model:
    entry = EntryPoint(_draw, (jnp.zeros(2, jnp.uint32), jnp.zeros((1, 4))), outputs=("action",))
    return Model("drawn_in_a_loop", jnp.ones((4, 2)), {"act": entry})


LINT = Lint(
    id="OC701",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(Example("sample dropped", _unused), Example("only the next key", _chained)),
    declines=(Example("drawn in a loop", _drawn),),
)
