"""What a handler gets: one op with the values of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from opcompat.stablehlo.program import Op, Undecomposable
from opcompat.stablehlo.values import (
    Value,
    array,
)


@dataclass(frozen=True)
class Call:
    """One op with its operands' values; what a handler may use.

    Attributes:
        regions: one function per region, from values to a tuple of values.
        function: calls a function of the module by name.
        definitions: the op that made a value, by the value's number.
        avoid: names of primitives that may not come back.
    """

    op: Op
    args: tuple[Value, ...]
    regions: tuple[Callable[..., tuple[Value, ...]], ...]
    function: Callable[[str, Sequence[Value]], tuple[Value, ...]]
    definitions: Mapping[int, Op]
    avoid: frozenset[str]

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        return tuple(array(a) for a in self.args)

    @property
    def bodies(self) -> tuple[Callable[..., tuple[jax.Array, ...]], ...]:
        """One function per region, from arrays to a tuple of arrays, as lax wants them."""

        def on_arrays(region: Callable[..., tuple[Value, ...]]) -> Callable[..., tuple[jax.Array, ...]]:
            return lambda *args: tuple(array(v) for v in region(*args))

        return tuple(on_arrays(region) for region in self.regions)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.result_types[0].shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.op.result_types[0].dtype

    def attr(self, name: str, default: Any = None) -> Any:
        return self.op.attrs.get(name, default)

    def refuse(self, reason: str) -> Undecomposable:
        return Undecomposable(f"{self.op}: {reason}")


Handler = Callable[[Call], Sequence[Value]]
