"""A signature's graph with its functions inlined and all that depends on no input folded, as TensorFlow itself does it.

tf2jax needs shapes as values, and TensorFlow's graphs compute them: with fixed sizes, folding leaves none of that.
Variables become inputs, so that they stay apart from the constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opcompat.sources.classic.install import tensorflow
from opcompat.sources.classic.signatures import Signature


@dataclass(frozen=True)
class Folded:
    """`graph` is a GraphDef. `variables` and `inputs` name its placeholders, the latter in the signature's order;
    `outputs` its tensors. `taken` are the variables themselves, in the order of `variables`."""

    graph: Any
    variables: tuple[str, ...]
    taken: tuple[Any, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def folded(signature: Signature) -> Folded:
    """Raises what TensorFlow raises for a graph that it cannot freeze."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    made = signature.function.get_concrete_function(**signature.specs)
    handles = {v.handle.ref(): v for v in made.variables}
    count = len(made.inputs) - len(made.captured_inputs)
    places = {
        inner.op.name: handles[outer.ref()]
        for inner, outer in zip(made.inputs[count:], made.captured_inputs, strict=True)
        if outer.ref() in handles
    }
    frozen = convert_variables_to_constants_v2(made, lower_control_flow=False, aggressive_inlining=True)
    graph = frozen.graph.as_graph_def(add_shapes=True)
    variables = tuple(node.name for node in graph.node if node.name in places and node.op == "Const")
    for node in graph.node:
        if node.name in variables:
            _open(node, places[node.name])
    inputs = tuple(t.op.name for t in made.inputs[:count])
    _, keywords = made.structured_input_signature
    by_key = dict(zip(sorted(keywords), inputs, strict=True))
    order = tuple(by_key[x.name] for x in signature.inputs)
    ends = dict(zip(sorted(made.structured_outputs), (t.name for t in frozen.outputs), strict=True))
    outputs = tuple(ends[x.name] for x in signature.outputs)
    done = _optimized(graph, [*variables, *inputs], outputs)
    return Folded(done, variables, tuple(places[name] for name in variables), order, outputs)


def _open(node: Any, variable: Any) -> None:
    """Turns the constant that a variable has become into an input."""
    tf = tensorflow()
    node.op = "Placeholder"
    node.ClearField("attr")
    node.ClearField("input")
    node.attr["dtype"].type = variable.dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(variable.shape).as_proto())


def _optimized(graph: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """Constant folding by grappler; no rewriting of the arithmetic."""
    tf = tensorflow()
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.grappler import tf_optimizer

    settings = config_pb2.ConfigProto()
    settings.graph_options.infer_shapes = True
    settings.graph_options.rewrite_options.optimizers[:] = ["constfold", "function", "dependency"]
    with tf.Graph().as_default() as whole:
        tf.import_graph_def(graph, name="")
        meta = tf.compat.v1.train.export_meta_graph(graph_def=whole.as_graph_def(add_shapes=True), graph=whole)
    kept = meta.collection_def["train_op"].node_list.value
    kept.extend([f"{name}:0" for name in inputs])
    kept.extend(outputs)
    done = tf_optimizer.OptimizeGraph(settings, meta)
    for node in done.node:
        # Nothing in such a graph has effects that order matters for, and folding leaves ties to inputs behind.
        data = [name for name in node.input if not name.startswith("^")]
        del node.input[:]
        node.input.extend(data)
    return done
