"""An output that is the same whatever is observed.

Finds: an output on which no observation has any influence, now or by way of the state, in an entry point that takes
observations. Observations are all inputs but keys and declared state. Outputs that are fed back are left alone: a step
counter is one.

Why: an action that ignores the world is a wiring mistake (a wrong variable, a mask that is always on), and every
other check passes, because JAX does the same.

Next: look at the line that computes it.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from opcompat.lint import Example, Lint, Remark, View, is_key, listed
from opcompat.model import EntryPoint, Model


def look(view: View) -> Iterator[Remark]:
    keys = {leaf.name for leaf in view.trace.inputs if is_key(leaf)}
    observed = [x.name for x in view.trace.inputs if x.name not in keys | view.state]
    if not observed:
        return
    seen = _seen(view, set(observed))
    for output, inputs in view.reach.items():
        if output in view.contract.feedback or inputs & seen:
            continue
        rest = f"it depends on {listed(sorted(inputs))} alone" if inputs else "it is a constant of the policy"
        yield Remark(
            f"{output} is the same whatever {listed(observed)} {'is' if len(observed) == 1 else 'are'}: {rest}",
            view.source(output),
            "return what was meant, or leave the output out",
        )


def _seen(view: View, observed: set[str]) -> set[str]:
    """The inputs through which an observation can come: itself, or a state that saw one earlier."""
    feedback, seen = view.contract.feedback, set(observed)
    for name, start in view.contract.starts.items():
        others = view.views[start.entry_point].trace.inputs if start.array is None else ()
        if name not in feedback.values() or not all(map(is_key, others)):
            seen.add(name)
    for _ in feedback:
        seen |= {into for output, into in feedback.items() if view.reach[output] & seen}
    return seen


def _act(params: jax.Array, key: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    logits = jnp.zeros_like(obs @ params) + params[0]
    return jax.random.categorical(key, logits), obs @ params


def _delayed(params: jax.Array, obs: jax.Array, hidden: jax.Array, step: jax.Array) -> tuple[jax.Array, ...]:
    return hidden @ params, jnp.tanh(obs), step + 1


def _wrong() -> Model:
    entry = EntryPoint(_act, (jax.random.key(0), jnp.zeros((1, 4))), outputs=("action", "logits"))
    return Model("constant_action", jnp.ones((4, 2)), {"act": entry})


def _right() -> Model:
    """The action depends on the last observation through the state, and the step on nothing."""
    entry = EntryPoint(
        _delayed,
        (jnp.zeros((1, 4)), jnp.zeros((1, 4)), jnp.int32(0)),
        outputs=("action", "hidden", "step"),
        feedback={"hidden": "hidden", "step": "step"},
        init={"hidden": jnp.zeros((1, 4)), "step": 0},
    )
    return Model("delayed_action", jnp.ones((4, 2)), {"act": entry})


LINT = Lint(
    id="OC702",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(Example("action of the parameters alone", _wrong),),
    declines=(Example("by way of the state", _right),),
)
