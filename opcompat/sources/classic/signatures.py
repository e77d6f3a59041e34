"""A SavedModel loaded in TensorFlow: each signature as a function of fixed shapes, with its own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from opcompat.errors import SourceError
from opcompat.sources import names
from opcompat.sources.classic.install import tensorflow

_SUPPORTED = frozenset(
    {
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    }
)


@dataclass(frozen=True)
class Array:
    """One input or output of a signature."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Signature:
    """`function` is a tf.function that takes the inputs by keyword and returns the outputs by name.

    `call` runs it: numpy arrays by name to numpy arrays by name. Raises what TensorFlow raises.
    """

    name: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    function: Any
    specs: Mapping[str, Any]

    def call(self, given: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        tf = tensorflow()
        tensors = {x.name: tf.constant(np.asarray(given[x.name]), dtype=x.dtype) for x in self.inputs}
        return {name: value.numpy() for name, value in self.function(**tensors).items()}


@dataclass(frozen=True)
class SavedModel:
    """`root` is what tf.saved_model.load returned: it owns the variables, and they live as long as it does."""

    signatures: tuple[Signature, ...]
    root: Any


def opened(source: str, wanted: tuple[str, ...], dims: Mapping[str, int], *, xla: bool) -> SavedModel:
    """Loads a SavedModel, the sizes that its signatures leave open bound by `dims`. `xla`: compile it with XLA.

    Raises SourceError for open sizes, dtypes that no artifact has, and what TensorFlow cannot load.
    """
    tf = tensorflow()
    try:
        root = tf.saved_model.load(source)
    except Exception as error:  # TensorFlow raises anything for a damaged file
        raise SourceError(f"{source}: TensorFlow {tf.__version__} cannot load it: {_first_line(error)}") from error
    return SavedModel(tuple(_signature(source, name, root.signatures[name], dims, xla) for name in wanted), root)


def _signature(source: str, name: str, restored: Any, dims: Mapping[str, int], xla: bool) -> Signature:
    tf = tensorflow()
    where = f"{source}: {name}"
    _, keywords = restored.structured_input_signature
    inputs = tuple(
        Array(n, _bound(s.shape, n, dims, where), _dtype(s.dtype, n, where)) for n, s in sorted(keywords.items())
    )
    specs = {x.name: tf.TensorSpec(x.shape, x.dtype, name=x.name) for x in inputs}
    function = tf.function(lambda **given: restored(**given), jit_compile=xla or None)
    try:
        made = function.get_concrete_function(**specs)
    except Exception as error:  # whatever TensorFlow makes of these shapes
        raise SourceError(f"{where}: TensorFlow cannot trace it with these sizes: {_first_line(error)}") from error
    outputs = []
    for output, spec in sorted(made.structured_outputs.items()):
        if spec.shape.rank is None or None in spec.shape.as_list():
            raise SourceError(
                f"{where}: the shape {spec.shape} of its output {output!r} stays open; next: give it a fixed shape"
            )
        outputs.append(Array(output, tuple(spec.shape.as_list()), _dtype(spec.dtype, output, where)))
    return Signature(name, inputs, tuple(outputs), function, specs)


def _bound(shape: Any, name: str, dims: Mapping[str, int], where: str) -> tuple[int, ...]:
    """An open first size is called "batch", another one NAME[AXIS]; both names bind either."""
    if shape.rank is None:
        raise SourceError(f"{where}: not even the rank of {name!r} is known; next: save it with a shape")
    sizes = []
    for axis, size in enumerate(shape.as_list()):
        own = f"{name}[{axis}]"
        if size is not None:
            sizes.append(int(size))
        elif own in dims or axis:
            sizes.append(names.size(own, dims, f"{where}: {name}"))
        else:
            sizes.append(names.size("batch", dims, f"{where}: {name}"))
    return tuple(sizes)


def _dtype(dtype: Any, name: str, where: str) -> str:
    found = str(dtype.name)
    if found not in _SUPPORTED:
        raise SourceError(f"{where}: {name!r} is {found}, which no artifact can hold; next: leave it out")
    return found


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:500]}" if text else type(error).__name__
