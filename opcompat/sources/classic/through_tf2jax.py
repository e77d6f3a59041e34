"""Signatures as JAX functions, by tf2jax; variables as parameters, each once, by its name in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from opcompat import jaxcompat
from opcompat.errors import SourceError, UnsupportedError
from opcompat.model import EntryPoint, Model
from opcompat.sources import names
from opcompat.sources.classic.folding import Folded, folded
from opcompat.sources.classic.install import tensorflow
from opcompat.sources.classic.signatures import Array, SavedModel, Signature

_WIDE = ("int64", "uint64", "float64")
_SETTINGS = {
    "convert_custom_gradient": False,  # artifacts do not learn
    "infer_relu_from_jax2tf": False,  # TensorFlow's Maximum and Relu differ at NaN
    "raise_on_prevent_gradient": False,
}


def model_of(source: str, saved: SavedModel) -> Model:
    """The model, unproven. Raises SourceError and UnsupportedError; sets JAX's x64 where the interface has 64 bits."""
    graphs = {s.name: _folded(f"{source}: {s.name}", s) for s in saved.signatures}
    variables = {v.ref(): v for g in graphs.values() for v in g.taken}
    interface = [x.dtype for s in saved.signatures for x in (*s.inputs, *s.outputs)]
    if any(dtype in _WIDE for dtype in (*interface, *(v.dtype.name for v in variables.values()))):
        configuration: Any = jax.config
        configuration.update("jax_enable_x64", True)
    spoken = names.unique([_spoken(v.name) for v in variables.values()], "variable")
    by_ref = dict(zip(variables, spoken, strict=True))
    params = {by_ref[ref]: np.asarray(v.numpy()) for ref, v in variables.items()}
    entry_points = {}
    for s in saved.signatures:
        graph = graphs[s.name]
        taken = tuple(by_ref[v.ref()] for v in graph.taken)
        entry_points[names.entry_name(s.name)] = _entry_point(f"{source}: {s.name}", s, graph, params, taken)
    if len(entry_points) != len(saved.signatures):
        raise SourceError(f"{source}: two signatures have the same name but for characters that names cannot have")
    return Model(names.model_name(source), params, entry_points)


def _folded(where: str, signature: Signature) -> Folded:
    try:
        return folded(signature)
    except Exception as error:  # TensorFlow raises anything
        raise SourceError(f"{where}: TensorFlow cannot freeze it: {' '.join(str(error).split())[:500]}") from error


def _spoken(name: str) -> str:
    return name.removesuffix(":0").replace("/", ".")


def _entry_point(
    where: str, signature: Signature, graph: Folded, params: Mapping[str, Any], taken: tuple[str, ...]
) -> EntryPoint:
    import tf2jax

    for key, value in _SETTINGS.items():
        tf2jax.update_config(key, value)
    tf = tensorflow()
    places = (*graph.variables, *graph.inputs)

    def imported(*tensors: Any) -> Any:
        given = {f"{name}:0": tensor for name, tensor in zip(places, tensors, strict=True)}
        return tf.import_graph_def(graph.graph, input_map=given, return_elements=list(graph.outputs), name="")

    specs = [tf.TensorSpec(params[name].shape, params[name].dtype) for name in taken]
    specs += [tf.TensorSpec(x.shape, x.dtype) for x in signature.inputs]
    args = tuple(jaxcompat.shape_dtype(x.shape, jax.numpy.dtype(x.dtype)) for x in signature.inputs)
    try:
        converted = tf2jax.convert_functional(tf.function(imported, autograph=False), *specs)
        function = _named(converted, taken, signature.outputs)
        jax.eval_shape(function, params, *args)
    except Exception as error:  # tf2jax raises ValueError, KeyError and AssertionError alike
        raise _failed(where, error) from error
    return EntryPoint(function, args, names=tuple(x.name for x in signature.inputs))


def _named(converted: Any, taken: tuple[str, ...], outputs: tuple[Array, ...]) -> Callable[..., Any]:
    """The function on parameters by their names in the model, with the signature's own names and dtypes out."""

    def function(params: Any, *args: Any) -> dict[str, Any]:
        found = converted(*(params[name] for name in taken), *args)
        return {
            x.name: jax.numpy.asarray(value, jax.numpy.dtype(x.dtype)).reshape(x.shape)
            for x, value in zip(outputs, found, strict=True)
        }

    return function


def _failed(where: str, error: Exception) -> UnsupportedError:
    text = " ".join(str(error).split())[:500]
    return UnsupportedError(
        f"{where}: tf2jax cannot convert it: {type(error).__name__}: {text}; next: express it by other ops, or "
        "convert --via tf2onnx"
    )
