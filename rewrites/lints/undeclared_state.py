"""State that comes out and is not fed back.

Finds: an output and an input that are called alike (`hidden` and `hidden`, `carry` and `new_carry`, `last_action` and
`action`) and are not declared as feedback. Either they have the same shape and dtype and could be, or their name says
that they are recurrent state and they differ, so that they cannot be.

Why: without feedback the bundle does not say how the policy is run, devices do not feed the state back by
themselves, and verification leaves out the closed loop, in which errors grow. A state that changes its dtype or shape
fails at the second step on the device, where nothing promotes it.

Next: declare `feedback` and `init`, after a cast where the two differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from opcompat.lint import Example, Lint, Remark, View
from opcompat.model import EntryPoint, Model
from opcompat.trace import Leaf

_EDGES = re.compile(r"^(?:prev|previous|last|old|new|next|updated)_|_(?:prev|previous|last|old|new|next|in|out)$")
_RECURRENT = re.compile(r"(?:^|[._])(?:state|carry|hidden|memory|cache|recurrent|lstm|gru|rnn|deter|stoch)s?(?:$|[._])")
_MAPPED = frozenset({"x", "obs", "observation", "observations", "input", "inputs", "image", "images"})
"""What comes out under these names is the input, changed: not state."""


def look(view: View) -> Iterator[Remark]:
    fed_back = view.contract.feedback
    inputs = {_core(x): x for x in view.trace.inputs if x.name not in fed_back.values() and not _is_mapped(x)}
    pairs = [(x, inputs[_core(x)]) for x in view.trace.outputs if x.name not in fed_back and _core(x) in inputs]
    alike: dict[tuple[str, str], None] = {}
    for output, into in pairs:
        heads = (output.name.partition(".")[0], into.name.partition(".")[0])
        if _type(output) == _type(into):
            alike.setdefault(heads if _whole(view, pairs, heads) else (output.name, into.name))
        elif _RECURRENT.search(into.name):
            yield Remark(
                f"the state {into.name} goes in as {_type(into)} and comes out as {_type(output)}: "
                "it cannot be fed back",
                view.source(output.name),
                f"cast or reshape {output.name} to what {into.name} takes, and declare it as feedback",
            )
    for output_name, input_name in alike:
        called = (
            f"{output_name} comes out as it went in"
            if output_name == input_name
            else (f"{output_name} comes out as {input_name} goes in")
        )
        yield Remark(
            f"{called}, and nothing says that it is fed back",
            view.function,
            f'if it is state: feedback={{"{output_name}": "{input_name}"}} and init= on the entry point',
        )


def _core(leaf: Leaf) -> str:
    """The leaf's name without what tells the old from the new."""
    head, dot, rest = leaf.name.partition(".")
    return _EDGES.sub("", head) + dot + rest


def _is_mapped(leaf: Leaf) -> bool:
    return leaf.name.partition(".")[0] in _MAPPED


def _type(leaf: Leaf) -> str:
    return f"{leaf.key or leaf.dtype}[{','.join(map(str, leaf.shape))}]"


def _whole(view: View, pairs: list[tuple[Leaf, Leaf]], heads: tuple[str, str]) -> bool:
    """Whether all leaves of the two pytrees are pairs of one type, so that their heads can be named."""
    inside = [(o.name, i.name) for o, i in pairs if _type(o) == _type(i)]
    outs = [x.name for x in view.trace.outputs if x.name.partition(".")[0] == heads[0]]
    ins = [x.name for x in view.trace.inputs if x.name.partition(".")[0] == heads[1]]
    return {o for o, _ in inside} >= set(outs) and {i for _, i in inside} >= set(ins) and len(outs) == len(ins)


def _step(params: jax.Array, obs: jax.Array, carry: tuple[jax.Array, jax.Array]) -> dict[str, object]:
    cell, hidden = carry
    cell = jnp.tanh(cell + obs @ params)
    return {"action": hidden.sum(-1), "new_carry": (cell, jnp.tanh(cell))}


def _mixed(params: jax.Array, obs: jax.Array, hidden: jax.Array) -> dict[str, jax.Array]:
    return {"action": obs.sum(-1), "hidden": jnp.tanh(obs @ params + hidden).astype(jnp.bfloat16)}


def _forward(params: jax.Array, obs: jax.Array, latents: jax.Array) -> dict[str, jax.Array]:
    return {"obs": obs @ params, "action": jnp.tanh(latents)}


def _carry() -> tuple[jax.Array, jax.Array]:
    return jnp.zeros((1, 4)), jnp.zeros((1, 4))


def _undeclared() -> Model:
    return Model("lstm", jnp.ones((4, 4)), {"act": EntryPoint(_step, (jnp.zeros((1, 4)), _carry()))})


def _differing() -> Model:
    return Model("mixed", jnp.ones((4, 4)), {"act": EntryPoint(_mixed, (jnp.zeros((1, 4)), jnp.zeros((1, 4))))})


def _declared() -> Model:
    entry = EntryPoint(_step, (jnp.zeros((1, 4)), _carry()), feedback={"new_carry": "carry"}, init={"carry": _carry()})
    return Model("lstm", jnp.ones((4, 4)), {"act": entry})


def _mapped() -> Model:
    return Model("flow", jnp.ones((4, 4)), {"act": EntryPoint(_forward, (jnp.zeros((1, 4)), jnp.zeros((1, 4))))})


LINT = Lint(
    id="OC703",
    look=look,
    page=__doc__,
    module=__name__,
    examples=(Example("carry", _undeclared), Example("another dtype", _differing)),
    declines=(Example("declared", _declared), Example("no state", _mapped)),
)
