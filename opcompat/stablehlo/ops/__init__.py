"""The table: StableHLO op name -> one small function that returns its results by `jax.lax` calls.

To add an op, write a `Handler` in the room that fits and name it in that room's OPS. Handlers use lax with explicit
dtypes, so that they behave the same under x64 and strict promotion. What a handler cannot express exactly it refuses by
raising Undecomposable; a TypeError, ValueError or NotImplementedError of lax itself is turned into one.
"""

from __future__ import annotations

from collections.abc import Mapping

from opcompat.stablehlo.ops import algebra, client, control, elementwise, indexing, linear, reductions, shapes
from opcompat.stablehlo.ops.call import Call, Handler

__all__ = ["Call", "Handler", "table"]


def table() -> Mapping[str, Handler]:
    """Every op that the importer knows."""
    rooms = (elementwise, shapes, reductions, indexing, linear, algebra, control, client)
    return {name: handler for room in rooms for name, handler in room.OPS.items()}
