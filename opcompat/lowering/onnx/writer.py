"""Writes graphs as .onnx files that share one file of weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opcompat import errors
from opcompat.lowering.graph import Graph, Node, Tensor, Weight
from opcompat.lowering.onnx.dtypes import numpy_dtype

WEIGHTS_FILE = "weights.bin"
PAGE, LINE = 4096, 64
LARGE = 256 * PAGE
"""Large arrays start at a page of the weights file, so that runtimes can map them; for smaller ones that would
cost more room than it saves, so they start at a cache line."""
INLINE_BYTES = 4096
"""A constant above this size goes into the weights file."""

_DTYPE_ATTRIBUTES = {("Cast", "to"), ("BitCast", "to")}


class _Store:
    """The weights file: arrays in order of first use, each (leaf, transform) and each large constant once."""

    def __init__(self, folder: Path, weights: Mapping[str, np.ndarray]) -> None:
        self.folder = folder
        self.weights = weights
        self.places: dict[Any, tuple[int, int]] = {}
        self.end = 0
        self.path = folder / WEIGHTS_FILE

    def weight(self, weight: Weight) -> tuple[int, int]:
        """(offset, length) of a weight. Reshaping alone does not change the bytes."""
        moved = any(step != "reshape" for step, _ in weight.transform)
        key = weight if moved else Weight(weight.leaf)
        if key not in self.places:
            if weight.leaf not in self.weights:
                raise errors.OutputError(f"no value for the weight {weight.leaf!r}")
            self._append(key, key.apply(np.asarray(self.weights[weight.leaf])))
        return self.places[key]

    def constant(self, array: np.ndarray) -> tuple[int, int]:
        """(offset, length) of a constant; equal ones share their place."""
        key = (array.dtype.name, array.tobytes())
        if key not in self.places:
            self._append(key, array)
        return self.places[key]

    def _append(self, key: Any, array: np.ndarray) -> None:
        alignment = PAGE if array.nbytes >= LARGE else LINE
        start = -(-self.end // alignment) * alignment
        data = np.ascontiguousarray(array).tobytes()
        with self.path.open("ab" if self.places else "wb") as file:
            file.write(b"\0" * (start - self.end) + data)
        self.places[key] = start, len(data)
        self.end = start + len(data)


class _Writer:
    """Turns one graph into an ir.Graph. Names are unique over the whole model, bodies included."""

    def __init__(self, store: _Store, name: str, opset: int) -> None:
        self.store = store
        self.name = name
        self.opset = opset
        self.values: dict[int, ir.Value] = {}
        self.keep: list[Tensor] = []  # ids in `values` stay valid as long as their tensors live
        self.initializers: dict[Any, ir.Value] = {}
        self.taken: set[str] = set()
        self.count = 0

    def model(self, graph: Graph, output_names: Sequence[str]) -> ir.Model:
        names = [x.name for x in graph.inputs] + list(output_names)
        twice = sorted({n for n in names if names.count(n) > 1 or not n})
        if twice or len(output_names) != len(graph.outputs):
            raise errors.OutputError(
                f"entry point {self.name!r}: inputs and outputs need names of their own in an ONNX file "
                f"(repeated, empty or missing: {twice or list(output_names)})"
            )
        self.taken.update(names)
        inputs = [self.declare(x, x.name) for x in graph.inputs]
        produced = {id(x) for node in graph.nodes for x in node.outputs}
        direct: dict[int, str] = {}
        for tensor, name in zip(graph.outputs, output_names, strict=True):
            if id(tensor) in produced:
                direct.setdefault(id(tensor), name)
        nodes = list(self.nodes(graph.nodes, direct))
        outputs = []
        for tensor, name in zip(graph.outputs, output_names, strict=True):
            if direct.get(id(tensor)) == name:
                outputs.append(self.values[id(tensor)])
            else:
                node = self.identity(tensor, name)
                nodes.append(node)
                outputs.append(node.outputs[0])
        built = ir.Graph(
            inputs,
            outputs,
            nodes=nodes,
            initializers=list(self.initializers.values()),
            opset_imports={"": self.opset},
            name=self.name,
        )
        version = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", self.opset)])
        return ir.Model(built, ir_version=version, producer_name="opcompat")

    # -- names and values

    def unique(self, wish: str) -> str:
        name = wish
        while name in self.taken:
            self.count += 1
            name = f"{wish}_{self.count}"
        self.taken.add(name)
        return name

    def declare(self, x: Tensor, name: str) -> ir.Value:
        """A new value for a tensor, its type and shape declared."""
        shape = ir.Shape(x.shape)
        value = ir.Value(name=name, shape=shape, type=ir.TensorType(_dtype(x.dtype)))
        self.values[id(x)] = value
        self.keep.append(x)
        return value

    def value(self, x: Tensor) -> ir.Value:
        if id(x) in self.values:
            return self.values[id(x)]
        if x.weight is not None:
            return self.initializer(x, x.weight, _weight_name(x.weight), x.weight)
        if x.data is not None:
            data = np.ascontiguousarray(x.data).reshape(x.shape)
            return self.initializer(x, (x.dtype, x.shape, data.tobytes()), "constant", data)
        raise AssertionError(f"{x.dtype}{list(x.shape)} {x.name!r} is used before any node makes it")

    def initializer(self, x: Tensor, key: Any, name: str, content: Weight | np.ndarray) -> ir.Value:
        if key not in self.initializers:
            value = self.declare(x, self.unique(name))
            assert value.name is not None
            value.const_value = self.tensor(value.name, x, content)
            self.initializers[key] = value
        return self.initializers[key]

    def tensor(self, name: str, x: Tensor, content: Weight | np.ndarray) -> ir.TensorProtocol:
        if isinstance(content, np.ndarray) and content.nbytes <= INLINE_BYTES:
            return ir.Tensor(content, dtype=_dtype(x.dtype), name=name)
        offset, length = self.store.weight(content) if isinstance(content, Weight) else self.store.constant(content)
        return ir.ExternalTensor(
            WEIGHTS_FILE,
            offset,
            length,
            _dtype(x.dtype),
            shape=ir.Shape(x.shape),
            name=name,
            base_dir=self.store.folder,
        )

    # -- nodes

    def nodes(self, nodes: Sequence[Node], named: Mapping[int, str]) -> Iterator[ir.Node]:
        for node in nodes:
            if node.problem:
                raise errors.UnsupportedError(f"{node.source}: {node.problem}")
            yield self.node(node, named)

    def node(self, node: Node, named: Mapping[int, str]) -> ir.Node:
        inputs = [None if x is None else self.value(x) for x in node.inputs]
        attributes = [_attribute(node.op, k, v) for k, v in sorted(node.attrs.items())]
        for key, body in sorted(node.bodies.items()):
            attributes.append(ir.AttrGraph(key, self.body(body)))
        self.count += 1
        name = self.unique(f"{node.source}/{node.op}_{self.count}" if node.source else f"{node.op}_{self.count}")
        outputs = [
            self.declare(x, named.get(id(x)) or self.unique(f"{name}.{i}" if i else name))
            for i, x in enumerate(node.outputs)
        ]
        return ir.Node("", node.op, inputs, attributes, outputs=outputs, name=name)

    def identity(self, x: Tensor, name: str) -> ir.Node:
        """A node that gives a value a name (again)."""
        copy = Tensor(x.shape, x.dtype)
        return ir.Node(
            "",
            "Identity",
            [self.value(x)],
            outputs=[self.declare(copy, name)],
            name=self.unique(f"{name}/Identity"),
        )

    def body(self, graph: Graph) -> ir.Graph:
        """A body's outputs have to be made by its own nodes, each once: others go through Identity."""
        inputs = [self.declare(x, self.unique("in")) for x in graph.inputs]
        nodes = list(self.nodes(graph.nodes, {}))
        own = {id(x) for node in graph.nodes for x in node.outputs}
        outputs = []
        for x in graph.outputs:
            if id(x) not in own:
                nodes.append(self.identity(x, self.unique("out")))
                outputs.append(nodes[-1].outputs[0])
            else:
                own.discard(id(x))
                outputs.append(self.values[id(x)])
        return ir.Graph(inputs, outputs, nodes=nodes, name=self.unique(graph.name))


def _dtype(name: str) -> ir.DataType:
    return ir.DataType.from_numpy(numpy_dtype(name))


def _weight_name(weight: Weight) -> str:
    steps = ("_".join([step[0], *map(str, argument)]) for step, argument in weight.transform)
    return ".".join([weight.leaf, *steps])


def _attribute(op: str, key: str, value: Any) -> ir.Attr:
    if (op, key) in _DTYPE_ATTRIBUTES:
        return ir.AttrInt64(key, int(_dtype(value)))
    if isinstance(value, str):
        return ir.AttrString(key, value)
    if isinstance(value, float):
        return ir.AttrFloat32(key, value)
    if isinstance(value, list | tuple):
        return ir.AttrInt64s(key, [int(n) for n in value])
    return ir.AttrInt64(key, int(value))


def write(
    graphs: Mapping[str, Graph],
    weights: Mapping[str, np.ndarray],
    folder: Path,
    *,
    output_names: Mapping[str, Sequence[str]],
    opset: int,
) -> tuple[Path, ...]:
    """Writes NAME.onnx for each graph and, if there are weights, weights.bin beside them; returns the paths.

    Inputs keep their tensors' names, outputs get `output_names`. The same arguments give the same bytes. The
    folder exists, and is new: files of these names are overwritten.
    """
    store = _Store(folder, weights)
    paths = []
    for name, graph in graphs.items():
        model = ir.to_proto(_Writer(store, name, opset).model(graph, output_names[name]))
        path = folder / f"{name}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        paths.append(path)
    return (*paths, store.path) if store.places else tuple(paths)
