"""The ops in an artifact's file, and copies of the file that give inner values as further outputs.

The bundle's own file is what is read and copied: its ops, attributes and constants stay as they are.

# Reading: Value, Op, Program
# Exposing: a copy in another folder, with a manifest that names the further outputs
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opcompat.lowering.tflite.options import TENSOR_TYPES
from opcompat.lowering.tflite.writer import aligned_buffer
from opcompat.manifest import WIDTHS, EntryPointInfo, Leaf, Manifest

# Reading


@dataclass(frozen=True)
class Value:
    """One tensor of a file. `key` is its name in ONNX, and its number in the subgraph in TFLite."""

    key: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Op:
    """One op of the main graph; what stands in bodies is not looked at. None: an optional input that is left out."""

    name: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True)
class Program:
    """The main graph of one entry point, in order. `outputs` maps its outputs' keys to their names in the file."""

    ops: tuple[Op, ...]
    outputs: Mapping[str, str]


def read(folder: Path, manifest: Manifest, form: str, entry_point: str) -> Program:
    """Reads one entry point of a bundle in one format."""
    path = folder / manifest.formats[form].path_of(entry_point)
    return _READERS[form](path, entry_point)


def _read_onnx(path: Path, _: str) -> Program:
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    known = {v.name: _onnx_value(v) for v in (*graph.value_info, *graph.input, *graph.output)}

    def value(name: str) -> Value | None:
        return known.get(name, Value(name, (), "")) if name else None

    ops = tuple(
        Op(n.op_type, tuple(map(value, n.input)), tuple(v for v in map(value, n.output) if v is not None))
        for n in graph.node
    )
    return Program(ops, {v.name: v.name for v in graph.output})


def _onnx_value(info: Any) -> Value:
    import onnx

    tensor = info.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name if tensor.elem_type else ""
    return Value(info.name, tuple(d.dim_value for d in tensor.shape.dim), dtype)


def _read_tflite(path: Path, entry_point: str) -> Program:
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    signature, graph = _signature(model, entry_point)
    ops = {number: name for name, number in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    types = {getattr(schema.TensorType, word): name for name, word in TENSOR_TYPES.items()}

    def value(number: int) -> Value | None:
        if number < 0:
            return None
        tensor = graph.tensors[number]
        shape = tuple(int(n) for n in tensor.shape) if tensor.shape is not None else ()
        return Value(str(number), shape, types.get(tensor.type, ""))

    found = []
    for operator in graph.operators:
        inputs = tuple(value(int(n)) for n in operator.inputs)
        outputs = tuple(v for v in (value(int(n)) for n in operator.outputs) if v is not None)
        found.append(Op(ops[model.operatorCodes[operator.opcodeIndex].builtinCode], inputs, outputs))
    return Program(tuple(found), {str(x.tensorIndex): _text(x.name) for x in signature.outputs})


def _signature(model: Any, entry_point: str) -> tuple[Any, Any]:
    """A signature and its subgraph."""
    signature = next(s for s in model.signatureDefs if _text(s.signatureKey) == entry_point)
    return signature, model.subgraphs[signature.subgraphIndex]


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


# Exposing


def can_expose(value: Value) -> bool:
    """Whether a runtime can give a tensor as an output: numpy has its dtype."""
    return value.dtype in WIDTHS


def expose(
    folder: Path, manifest: Manifest, form: str, entry_point: str, values: Sequence[Value], into: Path
) -> tuple[Manifest, dict[str, str]]:
    """Copies the files of one entry point below `into`, with `values` as further outputs.

    Returns a manifest to open the copy with, and by the key of each value the name of the output that has it.
    """
    program = read(folder, manifest, form, entry_point)
    stored, info = manifest.formats[form], manifest.entry_points[entry_point]
    leaves = {stored.output_name(entry_point, leaf.name): leaf.name for leaf in info.outputs}
    named = {v.key: leaves[program.outputs[v.key]] for v in values if v.key in program.outputs}
    fresh = [v for v in dict.fromkeys(values) if v.key not in named]
    labels = {v.key: f"\N{BULLET}{n}" for n, v in enumerate(fresh)}  # no leaf of a policy begins like this
    outputs = (*info.outputs, *(Leaf(labels[v.key], v.shape, v.dtype, v.dtype) for v in fresh))
    for path in filter(None, (stored.path_of(entry_point), stored.weights)):
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        if path != stored.path_of(entry_point):
            shutil.copyfile(folder / path, into / path)
    renamed = _EXPOSERS[form](
        folder / stored.path_of(entry_point), into / stored.path_of(entry_point), entry_point, fresh
    )
    files = {leaf: name for leaf, name in ((labels[key], name) for key, name in renamed.items()) if leaf != name}
    changed: EntryPointInfo = replace(info, outputs=outputs)
    names = {**stored.outputs, entry_point: {**stored.outputs.get(entry_point, {}), **files}}
    copied = replace(
        manifest,
        formats={form: replace(stored, outputs=names)},
        entry_points={**manifest.entry_points, entry_point: changed},
    )
    return copied, {**named, **labels}


def _expose_onnx(source: Path, target: Path, _: str, values: Sequence[Value]) -> dict[str, str]:
    import onnx

    model = onnx.load(source, load_external_data=False)
    for value in values:
        kind = onnx.helper.np_dtype_to_tensor_dtype(_numpy(value.dtype))
        model.graph.output.append(onnx.helper.make_tensor_value_info(value.key, kind, value.shape))
    target.write_bytes(model.SerializeToString())
    return {value.key: value.key for value in values}


def _numpy(name: str) -> Any:
    from opcompat.lowering.onnx.dtypes import numpy_dtype

    return numpy_dtype(name)


def _expose_tflite(source: Path, target: Path, entry_point: str, values: Sequence[Value]) -> dict[str, str]:
    import flatbuffers
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    data = source.read_bytes()
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    signature, graph = _signature(model, entry_point)
    names = {value.key: f"value {value.key}" for value in values}
    graph.outputs = [*(int(n) for n in graph.outputs), *(int(value.key) for value in values)]
    for value in values:
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = names[value.key], int(value.key)
        signature.outputs.append(entry)
    empty = np.empty(0, np.uint8)
    model.buffers = [
        aligned_buffer(schema, empty if b.data is None else np.asarray(b.data, np.uint8)) for b in model.buffers
    ]
    builder = flatbuffers.Builder(len(data) + 2**16)
    builder.Finish(model.Pack(builder), b"TFL3")
    target.write_bytes(bytes(memoryview(builder.Bytes)[builder.Head() :]))
    return names


_READERS: dict[str, Callable[[Path, str], Program]] = {"onnx": _read_onnx, "tflite": _read_tflite}
_EXPOSERS: dict[str, Callable[[Path, Path, str, Sequence[Value]], dict[str, str]]] = {
    "onnx": _expose_onnx,
    "tflite": _expose_tflite,
}
