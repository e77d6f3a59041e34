"""The one file that knows differences between JAX versions, and the few JAX mechanics that others need.

Public API only: `jax.extend`, `jax.interpreters` and attributes of the objects that they hand out.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core as jexc
from jax.interpreters import partial_eval

shape_dtype: Any = jax.ShapeDtypeStruct  # untyped in JAX

_ONE_CLASS = issubclass(jexc.ClosedJaxpr, jexc.Jaxpr)  # since jax 0.11

Atom = Any  # jexc.Var | jexc.Literal
Eqn = Any  # jexc.JaxprEqn


class Place(NamedTuple):
    """A line of source. `file` is absolute, or "" where nothing is known.

    `library` is true where the line is an installed library's, because no line of the user's is known.
    """

    file: str
    line: int
    function: str
    library: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "unknown place"


NOWHERE = Place("", 0, "", library=True)


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
    fields: dict[str, Any] = {
        "constvars": list(new.constvars),
        "invars": list(new.invars),
        "outvars": list(new.outvars),
        "eqns": list(new.eqns),
        "effects": effects(new.eqns),
    }
    if changed:
        names = tuple("" for _ in new.invars), tuple("" for _ in new.outvars)
        fields["debug_info"] = jaxpr.debug_info._replace(arg_names=names[0], result_paths=names[1])
    if _ONE_CLASS:
        return jaxpr.replace(**fields, consts=list(new.consts))
    return jexc.ClosedJaxpr(jaxpr.replace(**fields), list(new.consts))


def effects(items: Iterable[Any]) -> set[Any]:
    """All effects of some equations, or of some jaxprs."""
    return {effect for item in items for effect in getattr(item, "jaxpr", item).effects}


def combiner(params: Mapping[str, Any]) -> Any:
    """The body of a reduction as a closed jaxpr: `reduce` has one, `reduce_window` a jaxpr and its constants."""
    body = params["jaxpr"]
    return body if isinstance(body, jexc.ClosedJaxpr) else jexc.ClosedJaxpr(body, list(params["consts"]))


def with_combiner(params: Mapping[str, Any], closed: Any) -> dict[str, Any]:
    """A reduction's params with another body."""
    if isinstance(params["jaxpr"], jexc.ClosedJaxpr):
        return {**params, "jaxpr": closed}
    return {**params, "jaxpr": closed.jaxpr, "consts": tuple(closed.consts)}


def new_var(aval: Any) -> Any:
    return jexc.Var(aval)


def is_literal(atom: Atom) -> bool:
    return isinstance(atom, jexc.Literal)


def is_key(dtype: Any) -> bool:
    """Whether `dtype` is a typed PRNG key's."""
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def enable_x64() -> Any:
    """A context in which 64-bit types exist, whatever the configuration says."""
    return jax.enable_x64(True)


def configuration() -> dict[str, Any]:
    """The JAX settings that change what a function computes."""
    config: Any = jax.config
    return {
        "x64": bool(config.jax_enable_x64),
        "threefry_partitionable": bool(config.jax_threefry_partitionable),
        "default_prng_impl": str(config.jax_default_prng_impl),
        "default_matmul_precision": str(config.jax_default_matmul_precision),
        "numpy_dtype_promotion": str(config.jax_numpy_dtype_promotion),
        "numpy_rank_promotion": str(config.jax_numpy_rank_promotion),
    }


def key_implementation(dtype: Any) -> str:
    """The name of a typed key's implementation, as `jax.random.key_impl` gives it: "threefry2x32", "rbg", ..."""
    found: list[str] = []
    jax.eval_shape(lambda key: found.append(str(jax.random.key_impl(key))), shape_dtype((), dtype))
    return found[0]


def key_words(dtype: Any) -> tuple[int, ...]:
    """The shape of the uint32 words of one key."""
    return tuple(jax.eval_shape(jax.random.key_data, shape_dtype((), dtype)).shape)


def gamma_sampler(eqn: Eqn) -> Callable[..., Any]:
    """A function of (typed keys, concentration) that computes a random_gamma equation by simpler primitives.

    It is what JAX compiles the primitive to, and a vmap over samples where the keys allow that.
    """
    implementation, params = eqn.primitive.impl, dict(eqn.params)
    if "use_vmap" in inspect.signature(implementation).parameters:
        params["use_vmap"] = True
    return partial(implementation, **params)


def expanded(eqn: Eqn) -> Callable[..., Any]:
    """A function of an equation's operands that computes a call_hi_primitive by simpler primitives (since jax 0.11)."""
    definition = eqn.params["_prim"]

    def run(*operands: Any) -> Any:
        arguments = jax.tree_util.tree_unflatten(definition.in_tree, operands)
        return tuple(jax.tree_util.tree_leaves(definition.expand(*arguments)))

    return run


def scan_counts(eqn: Eqn) -> tuple[int, int]:
    """(number of constants, number of carried values) of a scan equation."""
    if "num_consts" in eqn.params:
        return int(eqn.params["num_consts"]), int(eqn.params["num_carry"])
    consts, carry, _ = eqn.params["ft_in"].unpack()
    return len(consts), len(carry)


def dead_code_free(closed: Any) -> Any:
    """The closed jaxpr without equations whose results are not used, in bodies too; inputs and outputs stay."""
    p = parts(closed)
    jaxpr = getattr(closed, "jaxpr", closed)
    pruned, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(p.outvars), instantiate=True)
    left = parts(pruned)._replace(consts=p.consts)
    return build(pruned, left._replace(eqns=tuple(_with_pruned_bodies(e) for e in left.eqns)))


def _with_pruned_bodies(eqn: Eqn) -> Eqn:
    """Before 0.11, JAX itself leaves the body of a `while` as it is."""

    def prune(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(prune(v) for v in value)
        return dead_code_free(value) if is_jaxpr(value) else value

    if eqn.primitive.name not in ("scan", "while", "cond"):
        return eqn
    return eqn.replace(params={k: prune(v) for k, v in eqn.params.items()})


def trace(fn: Callable[..., Any], avals: Sequence[Any]) -> Any:
    """The closed jaxpr of `fn`, a function of flat arrays, at the given avals."""
    return jax.make_jaxpr(fn)(*[struct(a) for a in avals])


def aval_of(leaf: Any) -> Any:
    """The aval of an array, a Python number, a typed key or a ShapeDtypeStruct, as JAX sees it."""
    return leaf if isinstance(leaf, shape_dtype) else jax.typeof(leaf)


def struct(aval: Any) -> Any:
    """What `jax.make_jaxpr` needs of an aval."""
    return shape_dtype(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


_LIBRARIES = tuple({sysconfig.get_paths()[k] + os.sep for k in ("purelib", "platlib", "stdlib", "platstdlib")})
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_JAX = str(Path(jax.__file__).parent) + os.sep
_HERE = str(Path(__file__).parent) + os.sep


def place_of(source_info: Any) -> Place:
    """The innermost line outside installed libraries, the standard library and this package.

    Falls back to the innermost line outside JAX (a library's own), then to NOWHERE.
    """
    return NOWHERE if source_info.traceback is None else _place(source_info.traceback)


@lru_cache(maxsize=65536)
def _place(traceback: Any) -> Place:
    return user_line([(f.file_name, f.line_num, f.function_name) for f in traceback.frames])


def user_line(frames: Sequence[tuple[str, int, str]]) -> Place:
    """Of (file, line, function) frames, innermost first: the first of the user's, else of a library's."""
    fallback = NOWHERE
    for file, line, function in frames:
        if file.startswith((_HERE, "<")):
            continue
        if not _is_library(file):
            return Place(file, line, function)
        if not fallback.file and not file.startswith(_JAX):
            fallback = Place(file, line, function, library=True)
    return fallback


@lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    """Whether a file is installed, in this environment or in one that it builds on (its packages, the user's own)."""
    return file.startswith(_LIBRARIES) or not _INSTALLED.isdisjoint(Path(file).parts)


def extend_name_stack(source_info: Any, name: str) -> Any:
    return source_info.replace(name_stack=source_info.name_stack.extend(name))


def under(outer: Any, inner: Any) -> Any:
    """The source info of an equation from a function called at `outer`: names in front, and the caller's place
    where its own is not the user's (a library's jitted function knows only the library's lines)."""
    traceback = inner.traceback
    if outer.traceback is not None and place_of(inner).library:
        traceback = outer.traceback
    return inner.replace(name_stack=outer.name_stack + inner.name_stack, traceback=traceback)


__all__ = [
    "NOWHERE",
    "Atom",
    "Eqn",
    "Parts",
    "Place",
    "aval_of",
    "build",
    "dead_code_free",
    "effects",
    "expanded",
    "extend_name_stack",
    "gamma_sampler",
    "is_jaxpr",
    "is_key",
    "is_literal",
    "new_var",
    "parts",
    "place_of",
    "scan_counts",
    "shape_dtype",
    "struct",
    "trace",
    "under",
]
