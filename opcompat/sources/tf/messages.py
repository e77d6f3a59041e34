"""TensorFlow's protobuf messages, as far as a SavedModel is read here.

The numbers are those of tensorflow/core/framework/*.proto and tensorflow/core/protobuf/*.proto, which never change.
The messages live in a pool of their own, so that TensorFlow can be imported beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from opcompat.errors import SourceError

_PACKAGE = "opcompat.tf"

# Message -> field -> (number, type); "*" is repeated, "<" a map from text to that type.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "SavedModel": {"meta_graphs": (2, "MetaGraphDef*")},
    "MetaGraphDef": {
        "meta_info_def": (1, "MetaInfoDef"),
        "graph_def": (2, "GraphDef"),
        "saver_def": (3, "SaverDef"),
        "signature_def": (5, "SignatureDef<"),
        "object_graph_def": (7, "SavedObjectGraph"),
    },
    "SavedObjectGraph": {"nodes": (1, "SavedObject*")},
    "SavedObject": {"asset": (5, "SavedAsset"), "resource": (10, "SavedResource")},
    "SavedAsset": {"asset_file_def_index": (1, "int32")},
    "SavedResource": {"device": (1, "string")},
    "MetaInfoDef": {"tags": (4, "string*"), "tensorflow_version": (5, "string")},
    "SaverDef": {"restore_op_name": (3, "string")},
    "GraphDef": {"node": (1, "NodeDef*"), "library": (2, "FunctionDefLibrary")},
    "NodeDef": {
        "name": (1, "string"),
        "op": (2, "string"),
        "input": (3, "string*"),
        "attr": (5, "AttrValue<"),
    },
    "AttrValue": {
        "list": (1, "ListValue"),
        "s": (2, "bytes"),
        "i": (3, "int64"),
        "f": (4, "float"),
        "b": (5, "bool"),
        "type": (6, "int32"),
        "shape": (7, "TensorShapeProto"),
        "tensor": (8, "TensorProto"),
        "func": (10, "NameAttrList"),
    },
    "ListValue": {
        "s": (2, "bytes*"),
        "type": (6, "int32*"),
        "shape": (7, "TensorShapeProto*"),
        "func": (9, "NameAttrList*"),
    },
    "NameAttrList": {"name": (1, "string")},
    "FunctionDefLibrary": {"function": (1, "FunctionDef*")},
    "FunctionDef": {"signature": (1, "OpDef"), "node_def": (3, "NodeDef*"), "ret": (4, "string<")},
    "OpDef": {"name": (1, "string"), "input_arg": (2, "ArgDef*"), "output_arg": (3, "ArgDef*")},
    "ArgDef": {"name": (1, "string"), "type": (3, "int32")},
    "SignatureDef": {"inputs": (1, "TensorInfo<"), "outputs": (2, "TensorInfo<"), "method_name": (3, "string")},
    "TensorInfo": {"name": (1, "string"), "dtype": (2, "int32"), "tensor_shape": (3, "TensorShapeProto")},
    "TensorShapeProto": {"dim": (2, "Dim*"), "unknown_rank": (3, "bool")},
    "Dim": {"size": (1, "int64")},
    "TensorProto": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, "TensorShapeProto"),
        "tensor_content": (4, "bytes"),
        "half_val": (13, "int32*"),
        "float_val": (5, "float*"),
        "double_val": (6, "double*"),
        "int_val": (7, "int32*"),
        "string_val": (8, "bytes*"),
        "int64_val": (10, "int64*"),
        "bool_val": (11, "bool*"),
        "uint32_val": (16, "uint32*"),
        "uint64_val": (17, "uint64*"),
    },
    "BundleHeaderProto": {"num_shards": (1, "int32"), "endianness": (2, "int32")},
    "BundleEntryProto": {
        "dtype": (1, "int32"),
        "shape": (2, "TensorShapeProto"),
        "shard_id": (3, "int32"),
        "offset": (4, "int64"),
        "size": (5, "int64"),
        "crc32c": (6, "fixed32"),
        "slices": (7, "bytes*"),
    },
}  # fmt: skip

DTYPES: Mapping[int, str] = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn",
}  # fmt: skip
"""TensorFlow's numbers for the dtypes that JAX has, too."""

_VALUES = ("float_val", "double_val", "int_val", "int64_val", "bool_val", "uint32_val", "uint64_val")
LARGEST_CONSTANT = 1 << 31
"""In bytes, as protobuf allows for one message."""


def parse(name: str, data: bytes, where: str) -> Any:
    """The message `name`. Raises SourceError if `data` is not one; protobuf itself bounds the nesting."""
    found = _classes()[name]()
    try:
        found.ParseFromString(data)
    except message.DecodeError as error:
        raise SourceError(f"{where}: damaged, or no {name} at all: {error}") from error
    return found


def shape_of(proto: Any, where: str) -> tuple[int | None, ...]:
    """A TensorShapeProto as a tuple, with None for open sizes. Raises SourceError for an unknown rank."""
    if proto.unknown_rank:
        raise SourceError(f"{where}: not even the rank of its shape is known; next: save it with a shape")
    return tuple(d.size if d.size >= 0 else None for d in proto.dim)


def dtype_of(number: int, where: str) -> np.dtype[Any]:
    """Raises SourceError for a dtype that JAX does not have, such as text."""
    import jax.numpy as jnp  # knows bfloat16 and the like

    if number not in DTYPES:
        raise SourceError(f"{where}: TensorFlow's dtype {number} has no counterpart in JAX")
    return np.dtype(jnp.dtype(DTYPES[number]))


def array_of(proto: Any, where: str) -> np.ndarray[Any, Any]:
    """A TensorProto's value. Raises SourceError for one that does not hold what its shape says."""
    dtype, shape = dtype_of(proto.dtype, where), shape_of(proto.tensor_shape, where)
    count = int(np.prod([int(n or 0) for n in shape], dtype=object)) if shape else 1
    if count * dtype.itemsize > LARGEST_CONSTANT:
        raise SourceError(f"{where}: a constant of {count:,} elements")
    if proto.tensor_content:
        flat = np.frombuffer(proto.tensor_content, dtype)
    elif dtype.itemsize == 2 and dtype.kind not in "iu":
        flat = np.array(list(proto.half_val), np.uint16).view(dtype)
    else:
        values = next((list(getattr(proto, field)) for field in _VALUES if len(getattr(proto, field))), [])
        flat = np.array(values).astype(dtype)
    if flat.size == 0 and count:
        flat = np.zeros(1, dtype)  # what is not written is zero
    if flat.size < count:
        flat = np.concatenate([flat, np.full(count - flat.size, flat[-1], dtype)])  # the last one is repeated
    if flat.size != count:
        raise SourceError(f"{where}: the constant has {flat.size} elements, and its shape {list(shape)} has {count}")
    return flat.reshape([int(n or 0) for n in shape])


@lru_cache(maxsize=1)
def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())  # type: ignore[no-untyped-call, unused-ignore]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="opcompat_tf.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            if kind.endswith("<"):
                entry = described.nested_type.add(name="".join(w.title() for w in field.split("_")) + "Entry")
                entry.options.map_entry = True
                _add(entry, "key", 1, "string", repeated=False)
                _add(entry, "value", 2, kind[:-1], repeated=False)
                _add(described, field, number, f"{name}.{entry.name}", repeated=True)
            else:
                _add(described, field, number, kind.rstrip("*"), repeated=kind.endswith("*"))
    return file


def _add(into: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, *, repeated: bool) -> None:
    types = descriptor_pb2.FieldDescriptorProto
    scalar = {
        "string": types.TYPE_STRING, "bytes": types.TYPE_BYTES, "int64": types.TYPE_INT64, "int32": types.TYPE_INT32,
        "float": types.TYPE_FLOAT, "double": types.TYPE_DOUBLE, "bool": types.TYPE_BOOL, "uint32": types.TYPE_UINT32,
        "uint64": types.TYPE_UINT64, "fixed32": types.TYPE_FIXED32,
    }  # fmt: skip
    label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
    if kind in scalar:
        into.field.add(name=name, number=number, type=scalar[kind], label=label)
    else:
        into.field.add(name=name, number=number, type=types.TYPE_MESSAGE, type_name=f".{_PACKAGE}.{kind}", label=label)
