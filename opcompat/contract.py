"""Resolves an entry point's feedback and init from names of pytrees to names of leaves, and checks that they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from opcompat.errors import ConfigError
from opcompat.model import Model
from opcompat.trace import Leaf, Trace, in_files, path_name


@dataclass(frozen=True)
class Start:
    """Where an input's first value comes from: another entry point's output leaf, or an array."""

    entry_point: str = ""
    output: str = ""
    array: np.ndarray | None = None


@dataclass(frozen=True)
class Contract:
    """`feedback`: output leaf -> input leaf. `starts`: input leaf -> where its first value comes from."""

    feedback: Mapping[str, str]
    starts: Mapping[str, Start]


def contracts(model: Model, traces: Mapping[str, Trace]) -> dict[str, Contract]:
    """The contract of each entry point.

    Raises ConfigError if feedback or init name what is not there, or connect leaves of different shape or dtype,
    or if an input is fed back and nothing says where its first value comes from.
    """
    return {name: _contract(model, traces, name) for name in model.entry_points}


def _contract(model: Model, traces: Mapping[str, Trace], name: str) -> Contract:
    entry, trace = model.entry_points[name], traces[name]
    feedback: dict[str, str] = {}
    for output, target in entry.feedback.items():
        outs = _under(trace.outputs, output, f"{name}: feedback names the output {output!r}")
        ins = _under(trace.inputs, target, f"{name}: feedback names the input {target!r}")
        links = _connect(outs, ins, f"{name}: feedback {output!r} -> {target!r}")
        twice = sorted(set(links.values()) & set(feedback.values()))
        if twice:
            raise ConfigError(f"{name}: feedback gives {', '.join(twice)} two values")
        feedback.update(links)
    _check_tolerance(name, entry.tolerance, trace)
    starts: dict[str, Start] = {}
    for target, source in entry.init.items():
        ins = _under(trace.inputs, target, f"{name}: init names the input {target!r}")
        starts.update(_starts(traces, name, target, ins, source))
    missing = sorted(set(feedback.values()) - set(starts))
    if missing:
        raise ConfigError(
            f"{name}: {', '.join(missing)} is fed back, but init= does not say where its first value comes from; "
            'next: init={"state": "init_policy.state"}, or an array'
        )
    return Contract(feedback, starts)


def _check_tolerance(name: str, tolerance: Any, trace: Trace) -> None:
    by_name = tolerance if isinstance(tolerance, Mapping) else {"": tolerance}
    known = {leaf.name for leaf in trace.outputs} | {leaf.name.partition(".")[0] for leaf in trace.outputs} | {""}
    for output, value in by_name.items():
        if output not in known:
            raise ConfigError(
                f"{name}: tolerance names {output!r}, but the outputs are {', '.join(sorted(known - {''}))}"
            )
        if value is not None and not (isinstance(value, int | float | np.number) and 0 <= value < np.inf):
            raise ConfigError(f"{name}: tolerance must be a finite number of 0 or more, not {value!r}")


def _under(leaves: Sequence[Leaf], prefix: str, what: str) -> dict[str, Leaf]:
    """The leaves of the pytree called `prefix`, by what follows it in their names ("" for a single leaf)."""
    found = {
        leaf.name[len(prefix) :]: leaf for leaf in leaves if leaf.name == prefix or leaf.name.startswith(prefix + ".")
    }
    if not found:
        raise ConfigError(f"{what}, but there are only {', '.join(leaf.name for leaf in leaves) or 'none'}")
    return found


def _connect(outs: Mapping[str, Leaf], ins: Mapping[str, Leaf], what: str) -> dict[str, str]:
    if outs.keys() != ins.keys():
        odd = sorted(x.name for k, x in (*outs.items(), *ins.items()) if (k in outs) != (k in ins))
        raise ConfigError(f"{what}: the two have different leaves: {', '.join(odd)} has no partner")
    for key, out in outs.items():
        target = ins[key]
        if (out.shape, out.dtype) != (target.shape, target.dtype):
            raise ConfigError(
                f"{what}: {out.name} is {out.dtype}{list(out.shape)}, "
                f"but {target.name} takes {target.dtype}{list(target.shape)}"
            )
    return {out.name: ins[key].name for key, out in outs.items()}


def _starts(
    traces: Mapping[str, Trace], name: str, target: str, ins: Mapping[str, Leaf], source: Any
) -> dict[str, Start]:
    if isinstance(source, str):
        entry_point, _, output = source.partition(".")
        if entry_point not in traces or not output:
            raise ConfigError(
                f"{name}: init {target!r} comes from {source!r}, which is not ENTRY_POINT.OUTPUT with an entry "
                f"point of {', '.join(traces)}"
            )
        outs = _under(traces[entry_point].outputs, output, f"{name}: init {target!r} names {source!r}")
        links = _connect(outs, ins, f"{name}: init {source!r} -> {target!r}")
        return {into: Start(entry_point, out) for out, into in links.items()}
    arrays = {
        ("." if path else "") + path_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(source)[0]
    }
    if arrays.keys() != ins.keys():
        raise ConfigError(f"{name}: init {target!r} has leaves {sorted(arrays)}, the input {sorted(ins)}")
    starts = {}
    for key, leaf in ins.items():
        value = arrays[key]
        array = np.asarray(in_files(value) if leaf.pair or leaf.key else value)
        # Numbers are taken as JAX takes them: a Python 0 or a float64 array starts a float32 state, but 0.5 no integer.
        fits = np.can_cast(array.dtype, leaf.dtype, "same_kind") or (
            array.ndim == 0 and array == array.astype(leaf.dtype)
        )
        if array.shape != leaf.shape or array.dtype == object or not fits:
            raise ConfigError(
                f"{name}: init {target!r}: {leaf.name} is {array.dtype}{list(array.shape)}, "
                f"but the input takes {leaf.dtype}{list(leaf.shape)}"
            )
        starts[leaf.name] = Start(array=array.astype(leaf.dtype))
    return starts
