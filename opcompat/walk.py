"""Every original equation of a marked trace: its id, primitive, types and place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opcompat import jaxcompat
from opcompat.inline import bodies
from opcompat.jaxcompat import Place
from opcompat.provenance import provenance, scopes


@dataclass(frozen=True)
class Original:
    """An equation as the user's function traced it. `operands` reads "float32[1,32], int32[1]".

    `scope` is the path of the user's named scopes and the function that the line is in: "actor/dense:act".
    """

    id: str
    primitive: str
    operands: str
    place: Place
    scope: str = ""


def originals(closed: Any) -> Mapping[str, Original]:
    """The original equations of a marked jaxpr (`inline(..., mark=True)`), bodies included, by id, in order."""
    return {o.id: o for o in _walk(closed)}


def _walk(closed: Any) -> Iterator[Original]:
    for eqn in jaxcompat.parts(closed).eqns:
        place = jaxcompat.place_of(eqn.source_info)
        yield Original(
            provenance(eqn).source,
            eqn.primitive.name,
            ", ".join(describe(v.aval) for v in eqn.invars),
            place,
            ":".join(filter(None, ("/".join(scopes(eqn)), place.function))),
        )
        for _, body in bodies(eqn):
            yield from _walk(body)


def describe(aval: Any) -> str:
    """dtype[shape] of an aval, as in "float32[1,32]"."""
    return f"{aval.dtype}[{','.join(str(n) for n in aval.shape)}]"
