"""Proves a noise form: given the noise that JAX itself draws from a key, it must act like the policy with that key.

The policy runs as the user wrote it. A copy of it that is changed in nothing else shows the noise of each draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend import core as jexc

from opcompat import jaxcompat
from opcompat.comparison import Comparison
from opcompat.inline import inline
from opcompat.keys import erase_keys
from opcompat.reference import COMPILER_OPTIONS, Arrays, Reference
from opcompat.report import Check
from opcompat.sampler import sample
from opcompat.sampling.draws import Slot, replace_draws
from opcompat.sampling.interface import Sampled, live, with_draws
from opcompat.trace import Trace
from opcompat.verification import Recorder

KEYS = 200
"""How many keys each entry point is tried with."""

SEED = 7_000_003
"""Apart from the seeds that rollouts count from 0."""


def prove(sampled: Sampled, recorder: Recorder, steps: int) -> tuple[Check, ...]:
    """One check for each entry point whose draws became inputs. `steps`: of the rollout that gives it states."""
    return tuple(_check(sampled, recorder, name, steps) for name, slots in sampled.slots.items() if slots)


def _check(sampled: Sampled, recorder: Recorder, name: str, steps: int) -> Check:
    model, traces = sampled.original
    original, noisy, entry = traces[name], sampled.traces[name], model.entry_points[name]
    policy, tapped = Reference(model, original), _tapped(original, [n for _, n in sampled.slots[name]])
    rollout = recorder.rollout(name, 0, steps)
    comparison = Comparison(noisy, recorder.tolerances(name, [rollout]))
    reference = recorder.references[name]
    for step in range(KEYS):
        shared = {x.name: rollout.inputs[step % steps][x.name] for x in noisy.inputs if x.noise is None}
        given = {**sample(entry, original, SEED, step), **shared}
        fed = {**shared, **tapped(given)}
        comparison.add(reference.step(fed), policy.step(given), partial(reference.precision, fed))
    draws = recorder.precision(name, rollout, 0).decisions * KEYS
    return Check(
        format="jax",
        runtime=f"jax {jax.__version__}",
        entry_point=name,
        kind="sampling",
        steps=KEYS,
        seeds=1,
        passed=comparison.passed(draws),
        outputs=comparison.outputs(),
        draws=draws,
        mismatched=comparison.mismatched,
        note=_note(sampled, name),
    )


def _tapped(one: Trace, names: list[str]) -> Callable[[Arrays], Mapping[str, np.ndarray]]:
    """A function of the policy's own inputs, keys included, that returns the noise that JAX draws, by input name."""
    closed, params, weights = with_draws(one, "tap")
    shown, slots = replace_draws(closed, live(one, params), "tap", one.entry_point)
    p = jaxcompat.parts(shown)
    only = jaxcompat.dead_code_free(jaxcompat.build(shown, p._replace(outvars=p.outvars[len(one.outputs) :])))
    run = jax.jit(jexc.jaxpr_as_fun(erase_keys(inline(only))), compiler_options=COMPILER_OPTIONS)
    values = [weights[leaf.name] for leaf in params]

    def taps(given: Arrays) -> Mapping[str, np.ndarray]:
        words = [np.asarray(given[leaf.name], jax.numpy.dtype(leaf.dtype)) for leaf in one.inputs]
        return {name: np.asarray(x) for name, x in zip(names, run(*values, *words), strict=True) if name}

    assert len(slots) == len(names)
    return taps


def _note(sampled: Sampled, name: str) -> str:
    slots: list[tuple[Slot, str]] = [(slot, n) for slot, n in sampled.slots[name] if n]
    inputs = f"{len(slots)} draw{'s' * (len(slots) != 1)} became inputs"
    gone = f"without {', '.join(sampled.dropped[name])}" if sampled.dropped[name] else ""
    reused: list[Any] = sorted({str(slot.place) for slot, _ in slots if slot.reused})
    warning = f"one key serves several draws at {', '.join(reused)}: noise makes them independent" if reused else ""
    return "; ".join(filter(None, (inputs, gone, warning)))
