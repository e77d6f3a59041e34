"""Entry points of a policy that returns a distribution: one for each method that the device is to have.

Neither distrax nor TFP is imported: both are asked through their public methods, as `METHODS` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from opcompat import jaxcompat
from opcompat.errors import ConfigError, OpcompatError
from opcompat.model import EntryPoint
from opcompat.params import arrays_of, call_with
from opcompat.sampler import plausible
from opcompat.trace import Leaf


@dataclass(frozen=True)
class Method:
    """How one method is asked of a distribution.

    Attributes:
      takes: what the entry point takes behind the policy's arguments: "key", "action", "latents" or nothing. The
        library gets it as the only argument, a key as `seed=`.
      outputs: names of the results.
      calls: the attribute to call: distrax's, and TFP's where it has another name.
    """

    takes: str
    outputs: tuple[str, ...]
    calls: tuple[str, ...]


METHODS: Mapping[str, Method] = {
    "sample": Method("key", ("action", "log_prob"), ("sample_and_log_prob", "experimental_sample_and_log_prob")),
    "log_prob": Method("action", ("log_prob",), ("log_prob",)),
    "mode": Method("", ("action",), ("mode",)),
    "mean": Method("", ("mean",), ("mean",)),
    "stddev": Method("", ("stddev",), ("stddev",)),
    "variance": Method("", ("variance",), ("variance",)),
    "entropy": Method("", ("entropy",), ("entropy",)),
    "forward": Method("latents", ("action",), ("bijector.forward",)),
    "inverse": Method("action", ("latents",), ("bijector.inverse",)),
}

DEFAULT = ("sample", "log_prob", "mode", "entropy", "forward")


def distribution_entry_points(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    methods: Sequence[str] = DEFAULT,
    *,
    names: tuple[str, ...] | None = None,
    key: Any = None,
    inputs: Callable[[Any], tuple[Any, ...]] | None = None,
    tolerance: float | None = None,
) -> dict[str, EntryPoint]:
    """Entry points by the name of their method, for a policy that returns a distrax or TFP distribution.

        opcompat.Model("policy", params, opcompat.distribution_entry_points(fn, (observation,), ["sample", "mode"]))

    All of them call `fn(params, *args)`, so they share its weights. With B the batch shape and E the event shape of
    the distribution:

        sample(args..., key)        action [B, E] and log_prob float[B], from one pass where the library has one
        log_prob(args..., action)   log_prob float[B] of an action [B, E]
        mode(args...)               action [B, E]
        mean, stddev, variance      of that name, [B, E]
        entropy(args...)            entropy float[B]
        forward(args..., latents)   action [B, E]: a transformed distribution's bijector applied to the latents,
                                    which have the shape that its base distribution draws
        inverse(args..., action)    latents

    Dtypes are those of the distribution: a Categorical's action is int32.

    `fn` may return a dict of distributions. Actions, latents and all results are then dicts with the same keys, named
    as in `action.gripper`. In `sample` head number i, in the order of sorted keys, draws with
    `jax.random.split(key, number of heads)[i]`. `log_prob` and `entropy` are each head's own; heads are independent, so
    the whole action's is their sum.

    Shapes are found by `jax.eval_shape` when the entry points become part of a `Model`, which knows the parameters;
    `fn` is not run for it. For verification, actions and latents are drawn from the distribution itself, so that they
    are such as it has.

    Args:
      fn: called as `fn(params, *args)`; returns a distribution or a dict of distributions.
      args: its example arguments, pytrees of arrays or `jax.ShapeDtypeStruct`, as for `EntryPoint`.
      methods: of those above. By default sample, log_prob, mode, entropy and forward.
      names: names of the arguments; by default those of fn's own signature.
      key: an example key, where it is not to be a typed threefry key.
      inputs: optional sampler for verification, `inputs(rng) -> args`.
      tolerance: largest absolute error allowed, for all float outputs.

    Raises ConfigError for a method that is not in the list, an argument that is called as what a method takes, and,
    from `Model`, if fn fails on its arguments or does not return distributions, or for a method that its distribution
    does not have. The message names the method, the distribution, its key in the dict, and what to ask for instead.
    """
    if isinstance(methods, str) or not methods or any(m not in METHODS for m in methods):
        raise ConfigError(f"distribution_entry_points: methods must be some of {list(METHODS)}, not {methods!r}")
    if not isinstance(args, tuple):
        raise ConfigError(f"distribution_entry_points: args must be a tuple, not {type(args).__name__}; next: (x,)")
    own = EntryPoint(fn, args, names=names, inputs=inputs, tolerance=tolerance)
    key = jax.random.key(0) if key is None else key
    return {name: _entry_point(own, name, key) for name in methods}


def _entry_point(own: EntryPoint, name: str, key: Any) -> EntryPoint:
    """One method's entry point, which waits for the params; `own` is the policy's function and its arguments."""
    method, names = METHODS[name], own.argument_names()
    if method.takes in names:
        raise ConfigError(
            f"distribution_entry_points: {name} takes {method.takes!r}, but an argument of the policy has that name; "
            "next: rename it with names="
        )

    def run(params: Any, *args: Any) -> Any:
        heads = _heads(own.function(params, *args[: len(names)]))
        taken = _taken(method.takes, args[len(names) :], heads)
        answers = {h: _or_refuse(name, heads, h, partial(_ask, name, heads[h], *taken[h])) for h in heads}
        return tuple(_tree({h: answer[i] for h, answer in answers.items()}) for i in range(len(method.outputs)))

    return EntryPoint(
        run,
        own.args,
        outputs=method.outputs,
        names=(*names, method.takes) if method.takes else names,
        tolerance=own.tolerance,
        complete=lambda entry, params: _completed(entry, params, own, name, key),
    )


def _completed(entry: EntryPoint, params: Any, own: EntryPoint, name: str, key: Any) -> EntryPoint:
    """The entry point with the argument that its method takes, of the shape that the distribution has."""
    takes, arrays = METHODS[name].takes, arrays_of(params)

    def draw(params: Any, *args: Any) -> Any:
        heads = _heads(own.function(params, *args[:-1]))
        keys = _taken("key", args[-1:], heads)
        return _tree({h: _or_refuse(name, heads, h, partial(_draw, takes, heads[h], *keys[h])) for h in heads})

    draws = takes in ("action", "latents")
    try:
        extra: tuple[Any, ...] = (key,) if takes == "key" else ()
        if draws:
            drawn = jax.eval_shape(partial(call_with, draw), arrays, *own.args, key)
            extra = (jax.tree_util.tree_map(lambda x: jaxcompat.shape_dtype(x.shape, x.dtype), drawn),)
        jax.eval_shape(partial(call_with, entry.function), arrays, *own.args, *extra)
    except OpcompatError:
        raise
    except Exception as error:
        raise ConfigError(
            f"distribution_entry_points: {name}: the policy fails on its example arguments: {type(error).__name__}: "
            f"{_first_line(error)}; next: call jax.eval_shape(fn, params, *args) by hand"
        ) from error
    jitted = jax.jit(partial(call_with, draw))

    def inputs(rng: Any) -> tuple[Any, ...]:
        args = own.inputs(rng) if own.inputs else _plausible(own.args, rng)
        seeded = jax.random.fold_in(key, int(rng.integers(2**31)))
        return (*args, jitted(arrays, *args, seeded)) if draws else (*args, *extra)

    return replace(entry, args=(*own.args, *extra), inputs=inputs if draws or own.inputs else None, complete=None)


# Heads: the distributions by their key in the policy's dict, or the only one under None.


def _heads(result: Any) -> dict[Any, Any]:
    """Raises ConfigError if the policy returns anything else than distributions."""
    heads = (
        dict(sorted(result.items(), key=lambda item: str(item[0]))) if isinstance(result, Mapping) else {None: result}
    )
    for head, distribution in heads.items():
        if not all(callable(getattr(distribution, name, None)) for name in ("sample", "log_prob")):
            raise ConfigError(
                f"distribution_entry_points: the policy returns {type(distribution).__name__}{_at(head)}, which is no "
                "distribution; next: return a distribution of distrax or tfp.substrates.jax, or a dict of them"
            )
    if not heads:
        raise ConfigError("distribution_entry_points: the policy returns an empty dict; next: return a distribution")
    return heads


def _taken(takes: str, given: tuple[Any, ...], heads: Mapping[Any, Any]) -> dict[Any, tuple[Any, ...]]:
    """What each head's method is called with: its own key, or its entry of the given dict; nothing if nothing is."""
    if not given or None in heads:
        return dict.fromkeys(heads, given)
    each = jax.random.split(given[0], len(heads)) if takes == "key" else [given[0][head] for head in heads]
    return {head: (value,) for head, value in zip(heads, each, strict=True)}


def _tree(by_head: Mapping[Any, Any]) -> Any:
    return by_head[None] if None in by_head else dict(by_head)


def _at(head: Any) -> str:
    return "" if head is None else f" under {head!r}"


# Methods of one distribution


class _LackingError(Exception):
    """A distribution has no such attribute."""


def _or_refuse(name: str, heads: Mapping[Any, Any], head: Any, call: Callable[[], Any]) -> Any:
    """`call()`, which asks a head for a method. Raises ConfigError if the head has none, or its own fails."""
    try:
        return call()
    except Exception as error:
        lacks = isinstance(error, NotImplementedError | _LackingError)
        reason = (
            f"has no {name}: {error}" if lacks else f"fails at {name}: {type(error).__name__}: {_first_line(error)}"
        )
        has = [m for m in METHODS if all(_has(m, distribution) for distribution in heads.values())]
        whose = "which every head has" if len(heads) > 1 else "which it has"
        advice = f"ask for methods={has}, {whose}" if has else "call it by hand, under jax.eval_shape"
        raise ConfigError(
            f"distribution_entry_points: {type(heads[head]).__name__}{_at(head)} {reason}; next: {advice}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]


def _has(name: str, distribution: Any) -> bool:
    takes, key = METHODS[name].takes, jax.random.key(0)
    try:
        taken = () if not takes else (key,) if takes == "key" else (_draw(takes, distribution, key),)
        _ask(name, distribution, *taken)
    except Exception:  # noqa: BLE001 - only what surely works is recommended
        return False
    return True


def _ask(name: str, distribution: Any, *taken: Any) -> tuple[Any, ...]:
    """The results of a method, in the order of its outputs. Raises NotImplementedError or _LackingError."""
    method = METHODS[name]
    calls = [call for path in method.calls if (call := _attribute(distribution, path)) is not None]
    if calls and method.takes == "key":
        return tuple(calls[0](seed=taken[0]))
    if calls:
        return (calls[0](*taken),)
    if method.takes != "key":
        raise _LackingError(f"there is no {method.calls[0]}")
    action = _draw("action", distribution, *taken)
    return action, distribution.log_prob(action)


def _draw(what: str, distribution: Any, key: Any) -> Any:
    """An action, or the latents that the bijector makes one of. Raises _LackingError if there is no bijector."""
    if what == "action":
        return distribution.sample(seed=key)
    base = _attribute(distribution, "distribution")
    if base is None or _attribute(distribution, "bijector") is None:
        raise _LackingError("there is no bijector")
    latents = base.sample(seed=key)
    if not hasattr(distribution, "experimental_sample_and_log_prob") or not hasattr(latents, "shape"):
        return latents
    # TFP draws for the batch of the whole distribution, which its bijector may widen; distrax for that of the base.
    return jnp.broadcast_to(latents, (*distribution.batch_shape, *base.event_shape))


def _attribute(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


# Inputs for verification


def _plausible(args: tuple[Any, ...], rng: Any) -> tuple[Any, ...]:
    """Values of the policy's own arguments, as verification makes them by itself."""

    def value(example: Any) -> Any:
        aval = jaxcompat.aval_of(example)
        if not jaxcompat.is_key(aval.dtype):
            return plausible(Leaf("", aval.shape, aval.dtype.name), rng)
        key = jax.random.key(int(rng.integers(2**31)), impl=jaxcompat.key_implementation(aval.dtype))
        return jax.random.split(key, aval.shape) if aval.shape else key

    values: tuple[Any, ...] = jax.tree_util.tree_map(value, args)
    return values
