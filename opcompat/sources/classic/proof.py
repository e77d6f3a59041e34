"""Another form of a SavedModel against TensorFlow itself, which is the reference: on random and on boundary inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from opcompat.comparison import Comparison, Tolerance, is_float, size
from opcompat.contract import contracts
from opcompat.errors import VerificationError
from opcompat.model import Model
from opcompat.reference import Arrays, Precision
from opcompat.sampler import boundary, sample
from opcompat.sources.classic.install import tensorflow
from opcompat.sources.classic.signatures import SavedModel, Signature
from opcompat.trace import Trace, trace
from opcompat.verification import Recorder

TOLERANCE = 1e-4
"""What a float may differ from TensorFlow's, in absolute terms up to a size of one, and beyond relative to it."""

STEPS = 16

Form = Callable[[Arrays], Mapping[str, Any]]


def prove_model(source: str, model: Model, saved: SavedModel) -> None:
    """Compares every entry point of a model in JAX with its signature. Raises VerificationError."""
    traces = {name: trace(model, name) for name in model.entry_points}
    recorder = Recorder(model, traces, contracts(model, traces))
    wrong = []
    for name, signature in zip(traces, saved.signatures, strict=True):
        reference = recorder.references[name]
        forms: tuple[Form, ...] = (reference.step, reference.unfused_step)
        wrong += differences(signature, traces[name], model, forms, reference.precision)
    if wrong:
        raise VerificationError(
            f"{source}: what tf2jax made of it does not act like TensorFlow:\n"
            + "\n".join(f"  {line}" for line in wrong)
            + "\nnext: nothing was written; express these parts by other ops, or convert --via tf2onnx"
        )


def differences(
    signature: Signature,
    one: Trace,
    model: Model,
    forms: tuple[Form, ...],
    precision: Callable[[Arrays], Precision],
) -> list[str]:
    """A line for each input for which no one of `forms` (the same thing, computed in other ways) is TensorFlow's.

    Inputs that TensorFlow itself refuses (an index out of range) are left out; that it takes none is a difference, too.
    """
    tf = tensorflow()
    wrong, compared = [], 0
    for what, given in inputs_of(one, model):
        try:
            want = _in_policy_dtypes(signature.call(given), one)
        except tf.errors.OpError:
            continue
        compared += 1
        tolerances = {x.name: _tolerance(want[x.name]) for x in one.outputs}
        found = []
        for form in forms:
            comparison = Comparison(one, tolerances)
            if comparison.add(form(given), want, partial(precision, given)):
                break
            found.append(_shown(comparison, tolerances))
        else:
            wrong.append(f"{signature.name}, {what}: differs in {found[0]}")
    if not compared:
        wrong.append(f"{signature.name}: TensorFlow refuses every input that was tried")
    return wrong


def inputs_of(one: Trace, model: Model) -> Iterator[tuple[str, Arrays]]:
    """(what, inputs by name): random ones, then those with a boundary value in all inputs of a kind."""
    entry = model.entry_points[one.entry_point]
    for step in range(STEPS):
        yield f"random input {step}", sample(entry, one, 0, step)
    for what, given in boundary(one, frozenset(), sample(entry, one, 0, 0), small=False):
        yield f"input {what}", given


def _tolerance(want: np.ndarray[Any, Any]) -> Tolerance:
    if not is_float(want):
        return Tolerance(0.0, None)
    step = float(jax.numpy.finfo(want.dtype).eps)  # type: ignore[no-untyped-call]
    return Tolerance(max(TOLERANCE, 8 * step) * size(want), 0.0)


def _shown(comparison: Comparison, tolerances: Mapping[str, Tolerance]) -> str:
    bad = [(n, comparison.worst[n][0]) for n in sorted(comparison.failed) if n in comparison.worst]
    return ", ".join(f"{name} by {error:.3g} (allowed {tolerances[name].allowed:.3g})" for name, error in bad)


def _in_policy_dtypes(found: Mapping[str, Any], one: Trace) -> dict[str, np.ndarray[Any, Any]]:
    return {x.name: np.asarray(found[x.name]) for x in one.outputs}
