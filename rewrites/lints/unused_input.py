"""An input that no output depends on.

Finds: an input other than a key that is read by nothing, or only by what is thrown away, unless another entry point
uses an input of the same name: then the caller has it anyway.

Why: the caller on the device must compute and pass it all the same. Usually it is there for training alone (rewards,
`is_last`, a value target), or the policy ignores a sensor that it was meant to see.

Next: take it out of the arguments, or convert with `--prune-inputs`, which leaves it out of the files.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from opcompat.jaxcompat import Place
from opcompat.lint import Example, Lint, Remark, View, is_key, listed
from opcompat.model import EntryPoint, Model


def look(view: View) -> Iterator[Remark]:
    used = frozenset[str]().union(*(other.used for other in view.views.values()))
    by_place: dict[Place, list[str]] = {}
    for leaf in view.trace.inputs:
        if leaf.name not in used and not is_key(leaf):
            by_place.setdefault(view.first_use(leaf.name), []).append(leaf.name)
    for place, names in by_place.items():
        yield Remark(
            f"no output depends on {listed(names)}",
            place,
            "take it out of the arguments; convert --prune-inputs leaves it out of the files",
        )


def _act(params: jax.Array, obs: dict[str, jax.Array]) -> jax.Array:
    """The reward is carried through the loop, but nothing that comes out of it depends on it."""

    def body(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        hidden, total = carry
        return jnp.tanh(hidden @ params), total + obs["reward"]

    last: jax.Array = jax.lax.fori_loop(0, 2, body, (obs["vector"], obs["reward"]))[0]
    return last


def _both(params: jax.Array, obs: dict[str, jax.Array]) -> jax.Array:
    """The reward decides how often the loop runs."""
    start = (obs["vector"], obs["reward"])
    last: jax.Array = jax.lax.while_loop(lambda c: c[1] > 0, lambda c: (c[0] @ params, c[1] - 1), start)[0]
    return last


def _args() -> tuple[dict[str, jax.Array]]:
    return ({"vector": jnp.zeros((1, 4)), "reward": jnp.zeros(())},)


LINT = Lint(
    id="OC704",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(Example("carried to nowhere", lambda: Model("m", jnp.ones((4, 4)), {"act": EntryPoint(_act, _args())})),),
    declines=(Example("decides a loop", lambda: Model("m", jnp.ones((4, 4)), {"act": EntryPoint(_both, _args())})),),
)
