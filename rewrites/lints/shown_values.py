"""Values that are shown as the policy runs.

Finds: `jax.debug.print`, `jax.debug.callback` and `checkify.debug_check`, which look at values and give none back.

Why: they call Python, which a device does not have. They change no result, so artifacts leave them out, and nothing
is shown or checked there. What runs the policy under JAX to verify an artifact leaves them out, too.

Next: nothing, if they are for debugging; return what the device should see as an output.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from opcompat.inline import shown
from opcompat.lint import Example, Lint, Remark, View
from opcompat.model import EntryPoint, Model

_NAMES = {
    "debug_print": "jax.debug.print",
    "debug_callback": "jax.debug.callback",
    "inspect_sharding": "jax.debug.inspect_array_sharding",
    "check": "checkify.debug_check",
}


def look(view: View) -> Iterator[Remark]:
    if not view.trace.shows:
        return
    for eqn in shown(view.trace.nested):
        yield Remark(
            f"{_NAMES[eqn.primitive.name]} is left out: artifacts show nothing",
            view.place(eqn),
            "return the value as an output if the device is to see it; else ignore this, or remove the call",
        )


def _printing(params: jax.Array, obs: jax.Array) -> jax.Array:
    hidden = obs @ params
    jax.debug.print("hidden {}", hidden)
    return jnp.tanh(hidden)


def _in_a_loop(params: jax.Array, obs: jax.Array) -> jax.Array:
    @jax.jit
    def step(carry: jax.Array) -> jax.Array:
        jax.debug.callback(lambda value: None, carry)
        return jnp.tanh(carry @ params)

    found: jax.Array = jax.lax.fori_loop(0, 3, lambda _, carry: step(carry), obs)
    return found


def _quiet(params: jax.Array, obs: jax.Array) -> jax.Array:
    print("this shows while the function is traced, and never again")
    return jnp.tanh(obs @ params)


def _example(name: str, function: object) -> Example:
    entry = EntryPoint(function, (jnp.zeros((1, 4)),), outputs=("action",))  # type: ignore[arg-type]
    return Example(name, lambda: Model("shown", jnp.ones((4, 4)), {"act": entry}))


LINT = Lint(
    id="OC706",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(_example("a print", _printing), _example("a callback in a loop", _in_a_loop)),
    declines=(_example("print while tracing", _quiet),),
)
