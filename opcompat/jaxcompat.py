"""The one file that knows differences between JAX versions, and the few JAX mechanics that others need.

Public API only: `jax.extend`, `jax.interpreters` and attributes of the objects that they hand out.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.extend import core as jexc
from jax.extend import source_info_util as siu
from jax.interpreters import partial_eval

Atom = Any  # jexc.Var | jexc.Literal
Eqn = Any  # jexc.JaxprEqn


class Place(NamedTuple):
    """A line of source. `file` is absolute, or "" where nothing is known."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "unknown place"


NOWHERE = Place("", 0, "")


class Parts(NamedTuple):
    """A closed jaxpr taken apart: the same on versions where ClosedJaxpr is Jaxpr and where it is not."""

    constvars: tuple[Any, ...]
    consts: tuple[Any, ...]
    invars: tuple[Any, ...]
    outvars: tuple[Atom, ...]
    eqns: tuple[Eqn, ...]


def is_jaxpr(value: Any) -> bool:
    return isinstance(value, jexc.Jaxpr | jexc.ClosedJaxpr)


def parts(closed: Any) -> Parts:
    """Takes a (closed) jaxpr apart. An open jaxpr has no consts."""
    jaxpr = getattr(closed, "jaxpr", closed)
    return Parts(
        tuple(jaxpr.constvars),
        tuple(getattr(closed, "consts", ()) or ()),
        tuple(jaxpr.invars),
        tuple(jaxpr.outvars),
        tuple(jaxpr.eqns),
    )


def build(template: Any, new: Parts) -> Any:
    """A closed jaxpr with the contents of `new`, and what else there is from `template`."""
    jaxpr = getattr(template, "jaxpr", template)
    changed = len(new.invars) != len(jaxpr.invars) or len(new.outvars) != len(jaxpr.outvars)
    debug = {"debug_info": None} if changed else {}
    if jexc.ClosedJaxpr is jexc.Jaxpr or issubclass(jexc.ClosedJaxpr, jexc.Jaxpr):
        return jaxpr.replace(
            constvars=list(new.constvars),
            invars=list(new.invars),
            outvars=list(new.outvars),
            eqns=list(new.eqns),
            consts=list(new.consts),
            **debug,
        )
    jaxpr = jaxpr.replace(
        constvars=list(new.constvars),
        invars=list(new.invars),
        outvars=list(new.outvars),
        eqns=list(new.eqns),
        **debug,
    )
    return jexc.ClosedJaxpr(jaxpr, list(new.consts))


def new_var(aval: Any) -> Any:
    return jexc.Var(aval)


def is_literal(atom: Atom) -> bool:
    return isinstance(atom, jexc.Literal)


def is_key(dtype: Any) -> bool:
    """Whether `dtype` is a typed PRNG key's."""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def scan_counts(eqn: Eqn) -> tuple[int, int]:
    """(number of constants, number of carried values) of a scan equation."""
    if "num_consts" in eqn.params:
        return int(eqn.params["num_consts"]), int(eqn.params["num_carry"])
    consts, carry, _ = eqn.params["ft_in"].unpack()
    return len(consts), len(carry)


def dead_code_free(closed: Any) -> Any:
    """The closed jaxpr without equations whose results are not used; inputs and outputs stay."""
    p = parts(closed)
    jaxpr = getattr(closed, "jaxpr", closed)
    if jexc.ClosedJaxpr is not jexc.Jaxpr:
        pruned, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(p.outvars), instantiate=True)
        return jexc.ClosedJaxpr(pruned, list(p.consts))
    pruned, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(p.outvars), instantiate=True)
    return pruned


def trace(fn: Callable[..., Any], avals: Sequence[Any]) -> Any:
    """The closed jaxpr of `fn`, a function of flat arrays, at the given avals."""
    return jax.make_jaxpr(fn)(*[struct(a) for a in avals])


def struct(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


_LIBRARIES = tuple(
    sorted({sysconfig.get_paths()[k] for k in ("purelib", "platlib", "stdlib", "platstdlib")})
)
_HERE = str(Path(__file__).parent)


def place_of(source_info: Any) -> Place:
    """The innermost line outside installed libraries, the standard library and this package.

    Falls back to the innermost line outside JAX (a library's own), then to NOWHERE.
    """
    traceback = source_info.traceback
    if traceback is None:
        return NOWHERE
    fallback = NOWHERE
    for frame in traceback.frames:
        name = frame.file_name
        if name.startswith(_HERE) or name.startswith("<"):
            continue
        here = Place(name, frame.line_num, frame.function_name)
        if not name.startswith(_LIBRARIES):
            return here
        if not fallback.file and f"{'/'}jax{'/'}" not in name:
            fallback = here
    return fallback


def extend_name_stack(source_info: Any, name: str) -> Any:
    return source_info.replace(name_stack=source_info.name_stack.extend(name))


def name_scopes(source_info: Any) -> tuple[str, ...]:
    """The names on the stack, outermost first, transformations left out."""
    return tuple(str(s.name) for s in source_info.name_stack.stack if hasattr(s, "name"))


def push_name_stack(outer: Any, inner: Any) -> Any:
    """`inner`'s source info with `outer`'s names in front, and outer's place where inner has none."""
    traceback = inner.traceback
    if traceback is None or not place_of(inner).file:
        traceback = outer.traceback
    return inner.replace(name_stack=outer.name_stack + inner.name_stack, traceback=traceback)


__all__ = [
    "NOWHERE",
    "Atom",
    "Eqn",
    "Parts",
    "Place",
    "build",
    "dead_code_free",
    "extend_name_stack",
    "is_jaxpr",
    "is_key",
    "is_literal",
    "name_scopes",
    "new_var",
    "parts",
    "place_of",
    "push_name_stack",
    "scan_counts",
    "siu",
    "struct",
    "trace",
]
