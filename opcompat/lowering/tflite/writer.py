"""Graphs -> one .tflite file: a flatbuffer with a signature per entry point and each weight stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opcompat.errors import OutputError
from opcompat.lowering.graph import Graph, Node, Tensor, Weight
from opcompat.lowering.tflite.options import (
    BODY_FIELDS,
    DERIVED,
    ENUM_FIELDS,
    OPTIONS,
    TENSOR_TYPES,
    version,
)

ALIGNMENT = 16
"""Bytes. What the schema asks of buffers (`force_align: 16`), and kernels rely on."""

LIMIT = 2**31 - 2**20
"""Bytes of constants that fit: flatbuffer offsets are signed 32-bit, and the tables need room too."""

_FILE_IDENTIFIER = b"TFL3"


def write(
    graphs: Mapping[str, Graph],
    weights: Mapping[str, np.ndarray],
    *,
    output_names: Mapping[str, Sequence[str]],
) -> bytes:
    """Writes one file with one signature per entry of `graphs`, in their order.

    Signature inputs are named like `Graph.inputs`, outputs like `output_names[key]`. `weights` holds the
    value of each leaf that the graphs name. The same arguments give the same bytes.

    Raises OutputError where the constants exceed 2 GB, a weight is missing or has another shape, or an op
    or dtype has no word in the format.
    """
    model = _Model(weights)
    # Entry points come first, so that their subgraph numbers do not depend on what bodies they have.
    numbers = {key: model.reserve() for key in graphs}
    for key, graph in graphs.items():
        model.subgraph(numbers[key], graph, key)
    for key, graph in graphs.items():
        model.signature(key, numbers[key], [x.name for x in graph.inputs], output_names[key])
    return model.pack()


class _Model:
    """The file under construction."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.schema: Any = schema
        self.weights = weights
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.description = "opcompat"
        self.model.operatorCodes = []
        self.model.subgraphs = []
        self.model.signatureDefs = []
        self.buffers: list[np.ndarray] = [np.empty(0, np.uint8)]  # number 0 means "no data", by the format
        self.numbers: dict[Any, int] = {}
        self.size = 0
        self.codes: dict[tuple[str, int], int] = {}

    # --- buffers -------------------------------------------------------------------------------------

    def buffer(self, tensor: Tensor) -> int:
        """The number of the buffer with a constant's bytes, stored once; 0 for a computed tensor."""
        if tensor.size == 0 or not tensor.is_constant:
            return 0
        if tensor.weight is not None:
            key: Any = _stored(tensor.weight)
            if key not in self.numbers:
                self.make_room(tensor)
                self.numbers[key] = self.add(_bytes(self.weight(tensor, tensor.weight)))
            return self.numbers[key]
        assert tensor.data is not None
        data = _bytes(tensor.data)
        digest = hashlib.sha256(data.data).digest()
        if digest not in self.numbers:
            self.numbers[digest] = self.add(data)
        return self.numbers[digest]

    def make_room(self, tensor: Tensor) -> None:
        """Refuses a weight that no longer fits, before its bytes are copied."""
        leaf = self.weights.get(tensor.weight.leaf) if tensor.weight else None
        self.size += ALIGNMENT + (0 if leaf is None else np.asarray(leaf).dtype.itemsize * tensor.size)
        if self.size > LIMIT:
            raise OutputError(
                f"the weights take more than {self.size / 2**30:.2f} GiB, but a .tflite file holds less than "
                "2 GiB; store them in a smaller dtype or split the entry points into several files"
            )

    def add(self, data: np.ndarray) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1

    def weight(self, tensor: Tensor, weight: Weight) -> np.ndarray:
        if weight.leaf not in self.weights:
            raise OutputError(f"no value was given for the weight {weight.leaf!r}")
        array = weight.apply(np.asarray(self.weights[weight.leaf]))
        if array.dtype.name != tensor.dtype and {array.dtype.name, tensor.dtype} != {"int32", "uint32"}:
            raise OutputError(f"weight {weight.leaf!r} is {array.dtype.name}, the graph reads {tensor.dtype}")
        if array.shape != tensor.shape:
            raise OutputError(f"weight {weight.leaf!r} has shape {array.shape}, not {tensor.shape}")
        return array

    # --- subgraphs -----------------------------------------------------------------------------------

    def reserve(self) -> int:
        self.model.subgraphs.append(self.schema.SubGraphT())
        return len(self.model.subgraphs) - 1

    def subgraph(self, number: int, graph: Graph, name: str, carried: bool = False) -> None:
        """Fills subgraph `number`. `carried`: its outputs replace its inputs, as in a loop's body."""
        _Subgraph(self, self.model.subgraphs[number], name, carried).fill(graph)

    def signature(self, key: str, number: int, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        graph = self.model.subgraphs[number]
        signature = self.schema.SignatureDefT()
        signature.signatureKey = key
        signature.subgraphIndex = number
        signature.inputs = self.named(key, inputs, graph.inputs)
        signature.outputs = self.named(key, outputs, graph.outputs)
        self.model.signatureDefs.append(signature)

    def named(self, key: str, names: Sequence[str], tensors: Sequence[int]) -> list[Any]:
        if len(names) != len(tensors):
            raise OutputError(f"{key!r} has {len(tensors)} values, but {len(names)} names: {list(names)}")
        if len(set(names)) != len(names) or not all(names):
            raise OutputError(f"names in {key!r} must be unique and not empty: {list(names)}")
        entries = []
        for name, tensor in zip(names, tensors, strict=True):
            entry = self.schema.TensorMapT()
            entry.name, entry.tensorIndex = name, tensor
            entries.append(entry)
        return entries

    def code(self, node: Node) -> int:
        key = node.op, version(node)
        if key not in self.codes:
            number = getattr(self.schema.BuiltinOperator, node.op, None)
            if number is None or node.op not in OPTIONS:
                raise OutputError(f"the TFLite writer does not know the op {node.op!r}: {node.problem}")
            code = self.schema.OperatorCodeT()
            code.builtinCode, code.version = number, key[1]
            code.deprecatedBuiltinCode = min(number, 127)  # what readers from before 2020 look at
            self.codes[key] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(code)
        return self.codes[key]

    def options(self, node: Node) -> Any:
        """The filled options table of a node, its bodies written as subgraphs; None where it has none."""
        table = OPTIONS[node.op]
        if not table:
            return None
        options = getattr(self.schema, table + "T")()
        derived = DERIVED[node.op](node) if node.op in DERIVED else {}
        for field, value in {**derived, **node.attrs}.items():
            if not hasattr(options, field):
                raise OutputError(f"{node.op} has no option {field!r}")
            enum = ENUM_FIELDS.get(field)
            setattr(options, field, getattr(getattr(self.schema, enum), value) if enum else value)
        for body, graph in node.bodies.items():
            number = self.reserve()
            carried = (node.op, body) == ("WHILE", "body")
            self.subgraph(number, graph, graph.name or f"{node.op.lower()}_{body}", carried)
            setattr(options, BODY_FIELDS[node.op][body], number)
        return options

    # --- bytes ---------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        import flatbuffers

        size = sum(data.nbytes + ALIGNMENT for data in self.buffers)
        if size > LIMIT:
            raise OutputError(f"the constants take {size / 2**30:.2f} GiB, but a .tflite file holds less than 2 GiB")
        self.model.buffers = [aligned_buffer(self.schema, data) for data in self.buffers]
        # A builder that never has to grow copies the weights once.
        builder = flatbuffers.Builder(size + 2**16)
        builder.Finish(self.model.Pack(builder), _FILE_IDENTIFIER)
        return bytes(memoryview(builder.Bytes)[builder.Head() :])


def aligned_buffer(schema: Any, data: np.ndarray) -> Any:
    """A schema BufferT whose data is aligned as the schema demands (the generated Pack aligns to 4)."""

    class AlignedBuffer(schema.BufferT):  # type: ignore[misc]
        def Pack(self, builder: Any) -> Any:  # noqa: N802 - the generated name
            vector = _aligned_vector(builder, data) if data.size else None
            schema.BufferStart(builder)
            if vector is not None:
                schema.BufferAddData(builder, vector)
            return schema.BufferEnd(builder)

    return AlignedBuffer()


def _aligned_vector(builder: Any, data: np.ndarray) -> Any:
    builder.StartVector(1, data.size, ALIGNMENT)
    builder.head = start = builder.head - data.size
    builder.Bytes[start : start + data.size] = data.data
    return builder.EndVector()


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _stored(weight: Weight) -> Weight:
    """What tells stored bytes apart: a reshape at the end does not change them."""
    steps = weight.transform
    while steps and steps[-1][0] == "reshape":
        steps = steps[:-1]
    return Weight(weight.leaf, steps)


class _Subgraph:
    """Fills one subgraph. Tensors are numbered in the order in which they first appear."""

    def __init__(self, model: _Model, subgraph: Any, name: str, carried: bool) -> None:
        self.model = model
        self.schema = model.schema
        self.out = subgraph
        self.carried = carried
        subgraph.name = name
        subgraph.tensors, subgraph.operators = [], []
        self.numbers: dict[Tensor, int] = {}

    def fill(self, graph: Graph) -> None:
        self.out.inputs = [self.define(x) for x in graph.inputs]
        for node in graph.nodes:
            self.node(node)
        self.out.outputs = [self.result(x, graph, i) for i, x in enumerate(graph.outputs)]

    def define(self, tensor: Tensor, name: str = "") -> int:
        """Adds a tensor that is computed, given or constant; returns its number."""
        if tensor.dtype not in TENSOR_TYPES:
            raise OutputError(f"TFLite has no type for {tensor.dtype}")
        entry = self.schema.TensorT()
        entry.name = name or tensor.name or f"t{len(self.out.tensors)}"
        entry.shape = list(tensor.shape)
        entry.hasRank = True
        entry.type = getattr(self.schema.TensorType, TENSOR_TYPES[tensor.dtype])
        entry.buffer = self.model.buffer(tensor)
        number = self.numbers[tensor] = len(self.out.tensors)
        self.out.tensors.append(entry)
        return number

    def use(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return -1
        if tensor in self.numbers:
            return self.numbers[tensor]
        if tensor.is_constant or tensor.size == 0:
            return self.define(tensor)
        raise OutputError(
            f"subgraph {self.out.name!r} uses a value that it neither computes nor takes as an input: "
            f"{tensor.dtype}{list(tensor.shape)} {tensor.name!r}"
        )

    def node(self, node: Node) -> None:
        operator = self.schema.OperatorT()
        operator.opcodeIndex = self.model.code(node)
        operator.inputs = [self.use(x) for x in node.inputs]
        operator.outputs = [self.define(x) for x in node.outputs]
        options = self.model.options(node)
        if options is not None:
            operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, OPTIONS[node.op])
            operator.builtinOptions = options
        self.out.operators.append(operator)

    def result(self, tensor: Tensor, graph: Graph, position: int) -> int:
        """The number of an output. Inputs, constants and earlier outputs are copied first.

        Without that a signature gives one value under two names, and a WHILE that swaps two carried values
        overwrites the first before it reads it. A carried value that stays in its place needs no copy.
        """
        unchanged = self.carried and position < len(graph.inputs) and tensor is graph.inputs[position]
        known = tensor.is_constant or tensor in graph.inputs or tensor in graph.outputs[:position]
        if unchanged or not known:
            return self.use(tensor)
        copy = Tensor(tensor.shape, tensor.dtype)
        shape = np.asarray(tensor.shape, np.int32)
        self.node(Node("RESHAPE", (tensor, Tensor(shape.shape, "int32", data=shape)), (copy,)))
        return self.numbers[copy]
