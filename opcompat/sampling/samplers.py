"""The functions of `jax.random` that the sampling modes know, and how a call of one is recognised.

A name proves nothing: a jitted function called `_normal` may be the user's own. So the name only says which
function of `jax.random` to try. That function is traced at the call's own types, and the call is one of it if both
jaxprs are equal up to the names of their variables. Nothing here depends on how a JAX version writes them.

| function | noise mode asks for | greedy mode takes |
|---|---|---|
| normal | standard normal | 0: mode, mean and median |
| gumbel (in categorical, too) | standard gumbel | 0, its mode: what is left is the argmax (or top k) of the logits |
| uniform | uniform in [0, 1) | the middle of its range: mean and median |
| bernoulli | uniform in [0, 1) | p > 0.5: the mode, False on a tie |
| laplace, logistic, cauchy | uniform in [0, 1) | 0: mode and median |
| truncated_normal | uniform in [0, 1) | 0, or the bound next to it: the mode |
| exponential | uniform in [0, 1) | 1, the mean: its mode is the edge of its support |
| bits, and whatever else is made of bits | uniform uint32 bits | refused: no value is likelier than another |

# Table
# Recognition
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.inline import CALLS, inline
from opcompat.rule import freeze

# Table


@dataclass(frozen=True)
class Sampler:
    """One function of `jax.random`.

    Attributes:
      name: the function's.
      jits: what JAX calls the jitted functions inside it whose bodies are this draw.
      forms: the ways to call it, as `form(key, *operands, shape=, dtype=)`, tried in order.
      noise: the distribution that noise mode asks for, "" to look for draws inside the body instead.
      standard: `standard(key, shape=, dtype=)`, the noise that JAX itself would draw; by default the form.
      draw: `draw(noise, *operands)`, the result for given noise.
      centre: `centre(shape, dtype, *operands)`, what greedy mode takes; None where there is no such value.
      within: the functions of `jax.random` for whose draws the centre of this one is right.
    """

    name: str
    jits: tuple[str, ...]
    forms: tuple[Callable[..., Any], ...]
    noise: str = ""
    standard: Callable[..., Any] | None = None
    draw: Callable[..., Any] = lambda noise: noise
    centre: Callable[..., Any] | None = None
    within: tuple[str, ...] = ()


def _zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    return jnp.zeros(shape, dtype)


def _ones(shape: tuple[int, ...], dtype: Any) -> Any:
    return jnp.ones(shape, dtype)


def _scale(unit: Any, low: Any, high: Any) -> Any:
    """`unit` in [0, 1) to [low, high), by the operations of `jax.random.uniform`."""
    low, high = (jnp.broadcast_to(lax.convert_element_type(x, unit.dtype), unit.shape) for x in (low, high))
    return lax.max(low, lax.add(lax.mul(unit, lax.sub(high, low)), low))


def _middle(shape: tuple[int, ...], dtype: Any, low: Any, high: Any) -> Any:
    return _scale(jnp.full(shape, 0.5, dtype), low, high)


def _likelier(shape: tuple[int, ...], _: Any, p: Any) -> Any:
    return jnp.broadcast_to(lax.gt(p, lax.full_like(p, 0.5)), shape)


def _nearest_to_zero(shape: tuple[int, ...], dtype: Any, low: Any, high: Any) -> Any:
    """Zero, moved into the open interval (low, high)."""
    low, high = (jnp.broadcast_to(lax.convert_element_type(x, dtype), shape) for x in (low, high))
    above = lax.nextafter(low, lax.full_like(low, np.inf))
    below = lax.nextafter(high, lax.full_like(high, -np.inf))
    return lax.min(below, lax.max(above, jnp.zeros(shape, dtype)))


def _form(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    def call(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
        return function(key, shape=shape, dtype=dtype, **options)

    return call


def _uniform(key: Any, low: Any, high: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.random.uniform(key, shape, dtype, low, high)


def _truncated_normal(key: Any, low: Any, high: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.random.truncated_normal(key, low, high, shape, dtype)


def _bernoulli(mode: str, key: Any, p: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.random.bernoulli(key, p, shape, mode)


SAMPLERS: tuple[Sampler, ...] = (
    Sampler(
        "normal",
        ("_normal", "_normal_real"),
        (_form(jax.random.normal),),
        noise="normal",
        centre=_zeros,
        within=("normal", "multivariate_normal"),
    ),
    Sampler(
        "gumbel",
        ("_gumbel",),
        tuple(_form(jax.random.gumbel, mode=mode) for mode in ("low", "high", "highest")),
        noise="gumbel",
        centre=_zeros,
        within=("gumbel", "categorical"),
    ),
    Sampler(
        "uniform",
        ("_uniform",),
        (_uniform,),
        noise="uniform",
        standard=_form(jax.random.uniform),
        draw=_scale,
        centre=_middle,
        within=("uniform", "bernoulli"),
    ),
    Sampler(
        "bernoulli",
        ("_bernoulli",),
        (partial(_bernoulli, "low"), partial(_bernoulli, "high")),
        centre=_likelier,
        within=("bernoulli",),
    ),
    Sampler("laplace", ("_laplace",), (_form(jax.random.laplace),), centre=_zeros, within=("laplace",)),
    Sampler("logistic", ("_logistic",), (_form(jax.random.logistic),), centre=_zeros, within=("logistic",)),
    Sampler("cauchy", ("_cauchy",), (_form(jax.random.cauchy),), centre=_zeros, within=("cauchy",)),
    Sampler(
        "truncated_normal",
        ("_truncated_normal",),
        (_truncated_normal,),
        centre=_nearest_to_zero,
        within=("truncated_normal",),
    ),
    Sampler(
        "exponential",
        ("_exponential",),
        (_form(jax.random.exponential),),
        centre=_ones,
        within=("exponential",),
    ),
)


# Recognition


@dataclass(frozen=True)
class Draw:
    """A call that was recognised.

    `shape` and `dtype` are those of its noise. All functions take the call's operands after the key: `result`
    after the noise, `noise` after the key.
    """

    sampler: str
    distribution: str
    shape: tuple[int, ...]
    dtype: Any
    noise: Callable[..., Any]
    result: Callable[..., Any]
    centre: Callable[..., Any] | None
    within: tuple[str, ...] = ()


def recognise(eqn: Any, mode: str) -> Draw | None:
    """What an equation of a jaxpr draws; None if it is no draw that `mode` ("noise" or "greedy") replaces whole.

    Calls count as draws by what they do, see above; the primitive `random_bits` is always one.
    """
    if eqn.primitive.name == "random_bits":
        return _bits(eqn)
    if eqn.primitive.name not in CALLS or len(eqn.outvars) != 1 or not eqn.invars:
        return None
    if not jaxcompat.is_key(eqn.invars[0].aval.dtype):
        return None
    name = eqn.params.get("name", "")
    for sampler in SAMPLERS:
        if name in sampler.jits and (mode == "greedy" or sampler.noise):
            found = _match(eqn, sampler)
            if found:
                return found
    return None


def _match(eqn: Any, sampler: Sampler) -> Draw | None:
    body = next(v for v in eqn.params.values() if jaxcompat.is_jaxpr(v))
    avals = [v.aval for v in jaxcompat.parts(body).invars]
    keys, out = avals[0].shape, eqn.outvars[0].aval
    wanted = _canonical(body)
    float_type = out.dtype if jnp.issubdtype(out.dtype, jnp.floating) else avals[-1].dtype
    if out.shape[: len(keys)] != keys:
        return None
    for form in sampler.forms:
        for axes in _axes(len(keys), avals[1:]):
            call = partial(form, shape=out.shape[len(keys) :], dtype=float_type)
            if _example(eqn, _lift(call, len(keys), (0, *axes)), avals) == wanted:
                return _draw(sampler, call, axes, keys, out.shape, float_type)
    return None


def _axes(layers: int, operands: Sequence[Any]) -> Iterator[tuple[int | None, ...]]:
    """Which operands besides the key a vmap may have batched: all or none, and without a vmap none."""
    yield (None,) * len(operands)
    if layers and operands and all(a.ndim >= layers for a in operands):
        yield (0,) * len(operands)


def _lift(function: Callable[..., Any], layers: int, axes: tuple[int | None, ...]) -> Callable[..., Any]:
    for _ in range(layers):
        function = jax.vmap(function, in_axes=axes)
    return function


def _example(eqn: Any, call: Callable[..., Any], avals: Sequence[Any]) -> Hashable:
    with eqn.ctx.manager:
        try:
            return _canonical(jaxcompat.trace(call, avals))
        except (TypeError, ValueError):  # the function does not take operands of these types
            return None


def _draw(
    sampler: Sampler,
    call: Callable[..., Any],
    axes: tuple[int | None, ...],
    keys: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: Any,
) -> Draw:
    layers, inner = len(keys), shape[len(keys) :]
    standard = call if sampler.standard is None else partial(sampler.standard, shape=inner, dtype=dtype)
    centre = sampler.centre and partial(sampler.centre, shape, dtype)

    def noise(key: Any, *_: Any) -> Any:
        return _lift(standard, layers, (0,))(key)

    def centred(*operands: Any) -> Any:
        assert sampler.centre is not None
        one = partial(sampler.centre, inner, dtype)
        if layers and 0 in axes:
            return _lift(one, layers, axes)(*operands)
        return jnp.broadcast_to(one(*operands), shape)

    return Draw(
        sampler.name,
        sampler.noise,
        shape,
        dtype,
        noise,
        _lift(sampler.draw, layers, (0, *axes)),
        centred if centre else None,
        sampler.within,
    )


def _bits(eqn: Any) -> Draw:
    """Bits of 64 stay uint64. Fewer than 32 are the low bits of a uint32: no runtime's interface lacks that."""
    out = eqn.outvars[0].aval
    dtype = out.dtype if out.dtype.itemsize > 4 else np.dtype(np.uint32)

    def noise(key: Any) -> Any:
        return lax.convert_element_type(eqn.primitive.bind(key, **eqn.params), dtype)

    return Draw("bits", "bits", out.shape, dtype, noise, lambda bits: lax.convert_element_type(bits, out.dtype), None)


def _canonical(closed: Any) -> Hashable:
    """Equal for jaxprs that are equal up to the names of variables and to calls."""
    p = jaxcompat.parts(inline(closed))
    numbers = {v: i for i, v in enumerate((*p.constvars, *p.invars))}
    rows: list[Hashable] = []

    def atom(a: Any) -> Hashable:
        return (freeze(np.asarray(a.val)), str(a.aval.dtype)) if jaxcompat.is_literal(a) else numbers[a]

    for eqn in p.eqns:
        operands = tuple(atom(v) for v in eqn.invars)
        results = tuple((v.aval.shape, str(v.aval.dtype)) for v in eqn.outvars)
        for var in eqn.outvars:
            if not isinstance(var, jexc.DropVar):
                numbers[var] = len(numbers)
        rows.append((eqn.primitive.name, freeze(eqn.params), operands, results))
    types = tuple((v.aval.shape, str(v.aval.dtype)) for v in (*p.constvars, *p.invars))
    return types, freeze(p.consts), tuple(rows), tuple(atom(v) for v in p.outvars)


_JAX = Path(jax.__file__).parent
_STANDARD = Path(sysconfig.get_path("stdlib"))


def caller(source_info: Any) -> str:
    """The function of `jax.random` that the user, or a library, called for a draw: "choice". "" if unknown."""
    return "" if source_info.traceback is None else _caller(source_info.traceback)


@lru_cache(maxsize=4096)
def _caller(traceback: Any) -> str:
    found = ""
    for frame in traceback.frames:
        path = Path(frame.file_name)
        if not path.is_relative_to(_JAX):
            if found and path.parent != _STANDARD:
                break
            continue
        if any(part.startswith("random") for part in path.relative_to(_JAX).parts):
            found = frame.function_name
    return found
