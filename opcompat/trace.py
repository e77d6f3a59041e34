"""Model -> Trace: an entry point as one flat jaxpr, its interface named by pytree paths."""

from __future__ import annotations

import hashlib
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opcompat import jaxcompat
from opcompat.complexes import from_pairs, is_complex, pairs_of, part_dtype, split_complex
from opcompat.errors import TraceError
from opcompat.inline import IDENTITIES, inline, shown
from opcompat.jaxcompat import Parts
from opcompat.keys import STRUCTURAL
from opcompat.manifest import WIDTHS, Noise
from opcompat.model import EntryPoint, Model
from opcompat.params import arrays_of, call_with
from opcompat.purity import difference
from opcompat.walk import Original, describe, originals

LONGEST_NAME = 1024
"""Of a leaf, in characters."""

CLOSURE_SIZE = 64
"""Closed-over arrays with more elements than this are stored as weights, smaller ones as constants."""


@dataclass(frozen=True)
class Leaf:
    """One array of the interface.

    `key` names the implementation ("threefry2x32") if it is a PRNG key, typed or raw; `dtype` is then "uint32" and
    `shape` that of its words. `pair`: it is complex in the function; `dtype` and the last axis are then those of its
    real and imaginary part. `noise` says what an input is filled with that stands for a draw.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    key: str = ""
    typed_key: bool = False
    pair: bool = False
    noise: Noise | None = None

    @property
    def file_dtype(self) -> str:
        """The dtype in files: half precision is float32 there, which numpy and every runtime can pass."""
        return "float32" if self.dtype in ("bfloat16", "float16") else self.dtype

    @property
    def is_float(self) -> bool:
        return bool(jnp.issubdtype(jnp.dtype(self.dtype), jnp.floating))


@dataclass(frozen=True)
class Trace:
    """One entry point.

    `closed` is a closed jaxpr without calls whose inputs are the params' leaves, then the arguments' leaves,
    every equation marked with its id. `params` name the first inputs, `inputs` the rest. `weights` has the
    params' values, where they are known. `in_tree` is the structure of the arguments of `call_with`, and None if
    `closed` is no longer the function's own because its draws were replaced. `nested` is the jaxpr as JAX traced
    it, with its calls. `shows`: whether the function shows values as it runs (jax.debug.print), which `closed` does
    not. `arguments` are the inputs before some were pruned, which the function still takes; empty if
    none was.
    """

    entry_point: str
    closed: Any
    params: tuple[Leaf, ...]
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    weights: Mapping[str, Any]
    originals: Mapping[str, Original]
    in_tree: Any
    nested: Any = None
    shows: bool = False
    arguments: tuple[Leaf, ...] = ()

    @property
    def computes_in_half(self) -> bool:
        """Whether any equation works on float16 or bfloat16."""
        return any("float16[" in original.operands for original in self.originals.values())


def trace(model: Model, name: str) -> Trace:
    """Traces one entry point.

    Raises TraceError, with the user's file and line, if its function fails on the example arguments, if names
    collide, or if `outputs` does not fit what it returns.
    """
    entry = model.entry_points[name]
    params, inputs = _input_leaves(name, model, entry)
    args = (arrays_of(model.params), *entry.args)
    leaves, in_tree = jax.tree_util.tree_flatten(args)
    out_parts: list[tuple[str, Any]] = []

    def flat(*xs: Any) -> list[Any]:
        own = [x if not is_complex(leaf) else from_pairs(x) for x, leaf in zip(xs, avals, strict=True)]
        result = call_with(entry.function, *jax.tree_util.tree_unflatten(in_tree, own))
        parts = _name_result(name, entry, result)
        out_parts[:] = [(part_name, jax.tree_util.tree_map(_abstract, part)) for part_name, part in parts]
        return [pairs_of(x) for x in jax.tree_util.tree_leaves([part for _, part in parts])]

    avals = [_abstract(x) for x in leaves]
    given = [jax.eval_shape(pairs_of, x) if is_complex(x) else x for x in avals]

    def traced(advice: str = "") -> Any:
        try:
            # A function of its own each time: JAX remembers what it traced.
            return jax.make_jaxpr(lambda *xs: flat(*xs))(*given)
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(_explain(name, entry, error, advice)) from error

    nested = traced()
    parted = difference(nested, traced(_KEEPS))
    if parted is not None:
        raise TraceError(
            f"{name}: the function is another program each time it is traced: at {parted.place} there is "
            f"{parted.before} and then {parted.after}\n  next: {_CHANGES}"
        )
    outputs = tuple(leaf for part_name, part in out_parts for leaf in _leaves(part, part_name))
    for kind, found in (("inputs", inputs), ("outputs", outputs)):
        _check_names(name, kind, found)
        for leaf in found:
            if leaf.file_dtype not in WIDTHS:
                raise TraceError(f"{name}: {leaf.name} is {leaf.dtype}, which no file can pass; next: cast it")
    if not outputs:
        raise TraceError(f"{name}: the function returns no arrays, so there is nothing to export")
    closed, hoisted = hoist(inline(nested, mark=True))
    original = originals(closed)
    closed = split_complex(closed)
    params = (*hoisted, *params)
    inputs = _mark_raw_keys(closed, inputs, len(params))
    values = [in_files(x) for x in (*hoisted.values(), *leaves[: len(params) - len(hoisted)])]
    weights = dict(zip((p.name for p in params), values, strict=True))
    return Trace(name, closed, params, inputs, outputs, weights, original, in_tree, nested, any(shown(nested)))


def in_files(value: Any) -> Any:
    """An array as files hold it: a typed key by its words, a complex one by its parts, anything else as it is."""
    aval = jaxcompat.aval_of(value)
    if isinstance(value, jaxcompat.shape_dtype):
        return value
    if jaxcompat.is_key(aval.dtype):
        return jax.random.key_data(value)
    return pairs_of(jax.numpy.asarray(value)) if is_complex(aval) else value


def from_files(value: Any, leaf: Leaf) -> Any:
    """What the function takes for a leaf of its interface: `in_files` undone."""
    if leaf.typed_key:
        return jax.random.wrap_key_data(value, impl=leaf.key)
    return from_pairs(value) if leaf.pair else value


def path_name(path: Sequence[Any]) -> str:
    """The dotted name of a pytree path: "obs.vector"."""
    return str(jax.tree_util.keystr(tuple(path), simple=True, separator="."))


def _abstract(leaf: Any) -> Any:
    """What `jax.make_jaxpr` needs to know of an example argument: shape, dtype and weak type."""
    return jaxcompat.struct(jaxcompat.aval_of(leaf))


def _leaves(tree: Any, prefix: str, advice: str = "") -> tuple[Leaf, ...]:
    found = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = ".".join(part for part in (prefix, path_name(path)) if part)
        try:
            aval = jaxcompat.aval_of(leaf)
        except TypeError as error:
            raise TraceError(f"{name}: {error}; next: give arrays, numbers or jax.ShapeDtypeStruct{advice}") from error
        found.append(_leaf(name, aval))
    return tuple(found)


def _leaf(name: str, aval: Any) -> Leaf:
    if is_complex(aval):
        return Leaf(name, (*aval.shape, 2), part_dtype(aval.dtype).name, pair=True)
    if not jaxcompat.is_key(aval.dtype):
        return Leaf(name, tuple(aval.shape), aval.dtype.name)
    implementation = jaxcompat.key_implementation(aval.dtype)
    words = jaxcompat.key_words(aval.dtype)
    return Leaf(name, (*aval.shape, *words), "uint32", implementation, typed_key=True)


def _input_leaves(name: str, model: Model, entry: EntryPoint) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...]]:
    params = _leaves(arrays_of(model.params), "params")
    arguments = zip(entry.argument_names(), entry.args, strict=True)
    advice = ", or name what is fixed in static={...}"
    inputs = [leaf for arg, tree in arguments for leaf in _leaves(tree, arg, advice)]
    _check_names(name, "params", params)
    return params, tuple(inputs)


def _check_names(entry_point: str, kind: str, leaves: Sequence[Leaf]) -> None:
    """Names go into files and onto terminals: each once, printable, and not endless."""
    seen: set[str] = set()
    for leaf in leaves:
        if not leaf.name.isprintable() or not leaf.name or len(leaf.name) > LONGEST_NAME or leaf.name == "self":
            raise TraceError(
                f"{entry_point}: {leaf.name[:100]!r} cannot name one of the {kind}: up to {LONGEST_NAME} printable "
                "characters, and not 'self'; next: rename the argument or the key of the pytree"
            )
        if leaf.name in seen:
            raise TraceError(f"{entry_point}: two {kind} are named {leaf.name!r}; rename one of them")
        seen.add(leaf.name)


def _name_result(name: str, entry: EntryPoint, result: Any) -> list[tuple[str, Any]]:
    """The parts of the function's result with their names, in the order in which JAX flattens them."""
    is_tuple = isinstance(result, tuple) and not hasattr(result, "_fields")
    if entry.outputs is not None:
        whole = not is_tuple or (len(entry.outputs) == 1 and len(result) != 1)
        parts = (result,) if whole else result
        if len(parts) != len(entry.outputs):
            raise TraceError(
                f"{name}: outputs= has {len(entry.outputs)} names {list(entry.outputs)}, the result {len(parts)} parts"
            )
        return list(zip(entry.outputs, parts, strict=True))
    if isinstance(result, dict):
        keys = list(result) if isinstance(result, OrderedDict) else sorted(result)
        return [(str(key), result[key]) for key in keys]
    if is_tuple:
        raise TraceError(f"{name}: the function returns a tuple of {len(result)}; name its parts with outputs=(...)")
    if hasattr(result, "_fields"):
        return list(zip(result._fields, result, strict=True))
    return [("output", result)]


def _mark_raw_keys(closed: Any, inputs: tuple[Leaf, ...], skip: int) -> tuple[Leaf, ...]:
    """Inputs of raw words that the function wraps into keys are keys, too."""
    origin = dict(zip(jaxcompat.parts(closed).invars[skip:], range(len(inputs)), strict=True))
    wrapped = _wrapped(closed, origin)
    return tuple(
        replace(leaf, key=wrapped[i]) if i in wrapped and not leaf.key else leaf for i, leaf in enumerate(inputs)
    )


def _wrapped(closed: Any, origin: dict[Any, int]) -> dict[int, str]:
    """Which inputs are wrapped into keys, and of which implementation; `origin` tells variables' inputs."""
    found: dict[int, str] = {}
    for eqn in jaxcompat.parts(closed).eqns:
        for body, operands in _body_operands(eqn):
            pairs = zip(jaxcompat.parts(body).invars, operands, strict=True)
            known = {v: origin[x] for v, x in pairs if not jaxcompat.is_literal(x) and x in origin}
            found.update(_wrapped(body, known))
        if eqn.primitive.name in IDENTITIES:
            pairs = zip(eqn.outvars, eqn.invars, strict=True)
            origin.update({v: origin[x] for v, x in pairs if not jaxcompat.is_literal(x) and x in origin})
            continue
        first = eqn.invars[0] if eqn.invars and not jaxcompat.is_literal(eqn.invars[0]) else None
        if first not in origin:
            continue
        if eqn.primitive.name == "random_wrap":
            found[origin[first]] = jaxcompat.key_implementation(eqn.outvars[0].aval.dtype)
        elif eqn.primitive.name in STRUCTURAL:
            origin.update((v, origin[first]) for v in eqn.outvars)
    return found


def _body_operands(eqn: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Each body of a loop or branch, and the atoms that its inputs are first bound to."""
    params, operands = eqn.params, eqn.invars
    if eqn.primitive.name == "scan":
        yield params["jaxpr"], operands
    elif eqn.primitive.name == "cond":
        yield from ((branch, operands[1:]) for branch in params["branches"])
    elif eqn.primitive.name == "while":
        in_cond, in_both = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        yield params["cond_jaxpr"], [*operands[:in_cond], *operands[in_both:]]
        yield params["body_jaxpr"], operands[in_cond:]


_KEEPS = (
    "the function stores values of one call outside of itself and reads them in the next: return them as outputs, and "
    "take them back as inputs (feedback= and init=)"
)

_CHANGES = (
    "make what changes (a random number of numpy's, the time, an attribute that the function sets) an argument: draw "
    "with jax.random and a key, and feed state back (feedback= and init=)"
)

_ADVICE: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((jax.errors.UnexpectedTracerError,), _KEEPS),
    (
        (jax.errors.TracerArrayConversionError,),
        "call jax.numpy where the function calls numpy, or fix the argument with static={...}",
    ),
    (
        (jax.errors.NonConcreteBooleanIndexError,),
        "select with jax.numpy.where: a mask as an index gives a result whose shape depends on values",
    ),
    (
        (jax.errors.ConcretizationTypeError, jax.errors.TracerIntegerConversionError),
        "fix what the function branches on, with static={...}, or write the branch with jax.lax.cond",
    ),
    ((TypeError, ValueError), "check args= of the entry point against what the function expects"),
    ((Exception,), "repair the function: jax.eval_shape(function, params, *args) fails in the same way"),
)
"""What helps against an error in the user's function; the first kind that fits."""


def _explain(name: str, entry: EntryPoint, error: Exception, advice: str = "") -> str:
    """The first line of an error in the user's function, with its arguments, the user's line and what helps."""
    summary = (str(error).strip().splitlines() or [type(error).__name__])[0]
    frames = traceback.extract_tb(error.__traceback__)
    place = jaxcompat.user_line([(f.filename, f.lineno or 0, f.name) for f in reversed(frames)])
    shapes = {
        arg: jax.tree_util.tree_map(lambda x: describe(jaxcompat.aval_of(x)), tree)
        for arg, tree in zip(entry.argument_names(), entry.args, strict=True)
    }
    advice = advice or next(text for kinds, text in _ADVICE if isinstance(error, kinds))
    return (
        f"{name}: the function fails on its example arguments: {type(error).__name__}: {summary}\n"
        f"  at {place}\n  called with {shapes}\n  next: {advice}"
    )


def hoist(closed: Any) -> tuple[Any, dict[Leaf, Any]]:
    """Turns large closed-over arrays into leading inputs, named after their content; others stay constants."""
    p = jaxcompat.parts(closed)
    hoisted: dict[Leaf, Any] = {}
    new_invars: list[Any] = []
    constvars: dict[Any, Any] = {}
    for var, value in zip(p.constvars, p.consts, strict=True):
        if np.size(value) <= CLOSURE_SIZE or jaxcompat.is_key(var.aval.dtype):
            constvars[var] = value
            continue
        array = np.asarray(value)
        digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()[:12]
        leaf = _leaf(f"closure.{digest}", var.aval)
        if leaf in hoisted:
            leaf = replace(leaf, name=f"{leaf.name}.{len(hoisted)}")
        hoisted[leaf] = value
        new_invars.append(var)
    changed = Parts(tuple(constvars), tuple(constvars.values()), (*new_invars, *p.invars), p.outvars, p.eqns)
    return jaxcompat.build(closed, changed), hoisted
