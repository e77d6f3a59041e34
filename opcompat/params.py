"""Parameters of any kind as a pytree of arrays: what in them is no array is set aside while functions are traced.

Libraries keep settings among the parameters: activation functions and switches in Equinox modules, a module beside its
variables. They are no weights, but the function needs them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class _Setting:
    """A part of the parameters that is no array: a pytree node without leaves. Equal only to the same object's."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Setting) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def arrays_of(params: Any) -> Any:
    """The same pytree with only its arrays and floats as leaves.

    Python's bools and ints are switches, sizes and counts, which functions branch on and make shapes of. So are floats
    that are attributes of an object (a module's dropout rate, which it compares with zero); elsewhere they are arrays,
    as for `jax.jit`. What has a dtype but is no array of JAX's (numpy's text, another framework's tensor) stays
    a leaf, for the caller to refuse.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _Setting(leaf) if _is_setting(path, leaf) else leaf, params
    )


def call_with(function: Callable[..., Any], params: Any, *args: Any) -> Any:
    """`function(params, *args)`, where `params` came from `arrays_of`: with the settings back in their places."""
    return function(jax.tree_util.tree_map(_restored, params, is_leaf=_is_wrapped), *args)


def _is_setting(path: tuple[Any, ...], leaf: Any) -> bool:
    if isinstance(leaf, float | complex):
        return bool(path) and isinstance(path[-1], jax.tree_util.GetAttrKey)
    return callable(leaf) or not hasattr(leaf, "dtype")


def _is_wrapped(node: Any) -> bool:
    return isinstance(node, _Setting)


def _restored(node: Any) -> Any:
    return node.value if isinstance(node, _Setting) else node
