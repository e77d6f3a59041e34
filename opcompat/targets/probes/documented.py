"""Tables of runtimes that cannot be asked here, made from what their documents say.

`python -m opcompat.targets.probes.documented [DATE]` reads `data/sources/NAME.json`, a compact form of each document,
and writes `data/NAME.json`. A restriction that a node can show becomes a condition; any other stays text, and then
the answer is "conditional".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opcompat.targets import onnx_types, table

DATA = Path(__file__).parents[1] / "data"
NEWEST = 24
"""The opset whose type parameters name what a document calls the types of an op."""

Row = dict[str, Any]
Condition = dict[str, Any]


def constant(*operands: int) -> list[Condition]:
    return [{"constant": i} for i in operands]


def ranks(text: str) -> list[Condition]:
    return [{"operand": 0, "ranks": text}]


CONDITIONS: Mapping[str, list[Condition]] = {
    "Only 2D Pool is supported currently. 3D and 5D support can be added if needed.": ranks("4"),
    "Only 2D Pool is supported.": ranks("4"),
    "Only 2D Resize is supported.": ranks("4"),
    "Only 1D/2D Conv is supported.": ranks("3-4"),
    "Only 2D Conv is supported.": ranks("4"),
    "4D input.": ranks("4"),
    "Input must be 4D input.": ranks("4"),
    "Bias if provided must be constant.": constant(2),
    "Weights and bias should be constant.": constant(1, 2),
    "Weight and bias must be constant.": constant(1, 2),
    "Input B must be constant.": constant(1),
    "starts/ends/axes/steps must be constant initializers.": constant(1, 2, 3, 4),
    "If provided, `splits` must be constant.": constant(1),
    "Input axes should be constant.": constant(1),
    "batch_dims must be 0.": [{"attr": "batch_dims", "in": [0]}],
    "Only DCR mode DepthToSpace is supported.": [{"attr": "mode", "in": ["DCR"]}],
    "`dilations` must be empty or all ones": [{"attr": "dilations", "in": [[1], [1, 1], [1, 1, 1]]}],
    "2D or 3D Pooling only.": ranks("4-5"),
    "2D or 3D pooling only.": ranks("4-5"),
    "`axis` must be an initializer": constant(1),
    "`depth` must be a build-time constant": constant(1),
    "`axes` must be a constant tensor": constant(1),
    "`reduction` is not supported": [{"attr": "reduction", "in": ["none"]}],
    # A policy's shapes are static here, and its branches have other names.
    "`input` must have static dimensions": [],
    "`axis` dimension of input must be a build-time constant": [],
    "Output tensors of the two conditional branches must have the same rank and must have different names": [],
    "Scan output length cannot be dynamic. The shape of Loop carried dependencies must be the same across all loop "
    "iterations.": [],
    # The project writes one output.
    "Only the first output `Y` is supported.": [],
    "Only constant mode Pad is supported.": [{"attr": "mode", "in": ["constant"]}],
    "Input pads and constant_value should be constant.": constant(1, 2),
    # About com.microsoft or float inputs only, which the rows say by their dtypes.
    "Only supports cases when both inputs are fp32.": [],
    "Only support for transA == 0, alpha == 1.0 and beta == 1.0 is currently implemented.": [
        {"attr": "transA", "in": [0]},
        {"attr": "alpha", "in": [1.0]},
        {"attr": "beta", "in": [1.0]},
    ],
    "`sorted` must be 1. `K` input must be less than 3840.": [
        {"attr": "sorted", "in": [1]},
        {"text": "k must be less than 3840"},
    ],
}
"""What a document says -> what has to hold."""

_AXES_OPERAND = {"Slice": 3, "Pad": 3}


def conditions(op: str, note: str) -> list[Condition]:
    """The conditions in a note, sentence by sentence."""
    found: list[Condition] = []
    for part in filter(None, note.split("<br/>")):
        if part == "`axes` must be an initializer":
            found += constant(_AXES_OPERAND.get(op, 1))
        elif part in CONDITIONS:
            found += CONDITIONS[part]
        elif ". " in part and part.split(". ")[0] + "." in CONDITIONS:
            first, _, rest = part.partition(". ")
            found += [*CONDITIONS[first + "."], *conditions(op, rest)]
        else:
            found.append({"text": part})
    return found


def row(op: str, note: str, **given: Any) -> Row:
    found = conditions(op, note)
    return {"is": "conditional", **given, "when": found} if found else {"is": "yes", **given}


def parameter(op: str) -> str:
    """The type parameter of an op's first operand ("T" where ONNX does not know the op)."""
    schema = onnx_types.schema(op, NEWEST)
    return str(schema.inputs[0].type_str) if schema is not None and schema.inputs else "T"


def _lists(source: Mapping[str, Any], floats: str, bools: Sequence[str] = ()) -> dict[str, list[Row]]:
    """Of documents that name ops alone: floats are meant; of other dtypes they say nothing."""
    ops: dict[str, list[Row]] = {}
    for op, note in source["ops"].items():
        if op in bools:
            ops[op] = [{"is": "yes", "types": {"T": "bool"}}]
            continue
        rest = {"is": "unknown", "why": "the document lists the op and names no dtypes; floats are meant"}
        ops[op] = [row(op, note, types={_data_parameter(op): floats}), rest]
    return ops


def _data_parameter(op: str) -> str:
    return {"Where": "T"}.get(op, parameter(op))


def coreml(source: Mapping[str, Any]) -> dict[str, Any]:
    ops = _lists(source, "float32 float16", ["And"])
    ops["Pow"] = [{"is": "yes", "types": {"T": "float32", "T1": "float32"}}]
    ops["Where"] = [{"is": "yes", "types": {"T": "float32 float16"}}]
    limits = {
        "precision": "float16",
        "fallback": "ONNX Runtime on the CPU",
        "notes": ["The Neural Engine computes in float16; ask for CPU only (MLComputeUnits=CPUOnly) to keep float32."],
    }
    return {"runtime": "onnxruntime-coreml", "summary": "CoreML through ONNX Runtime", "limits": limits, "ops": ops}


def nnapi(source: Mapping[str, Any]) -> dict[str, Any]:
    ops = _lists(source, "float32")
    ops["Gather"] = [
        {"is": "yes", "types": {"T": "float32", "Tind": "int32"}},
        {"is": "conditional", "types": {"T": "float32"}, "when": constant(1)},
        {"is": "unknown", "why": "the document lists the op and names no dtypes; floats are meant"},
    ]
    limits = {
        "fallback": "ONNX Runtime on the CPU",
        "notes": [
            "Android deprecated NNAPI in version 15.",
            "With NNAPI_FLAG_USE_FP16, floats are rounded to float16 while the model runs.",
        ],
    }
    return {"runtime": "onnxruntime-nnapi", "summary": "NNAPI through ONNX Runtime", "limits": limits, "ops": ops}


_TENSORRT = {
    "FP32": "float32",
    "FP16": "float16",
    "BF16": "bfloat16",
    "INT32": "int32",
    "INT64": "int64",
    "INF64": "int64",  # the document's own slip
    "BOOL": "bool",
    "INT8": "int8",
    "UINT8": "uint8",
    "FP8": "float8_e4m3fn",
    "INT4": "int4",
}


def tensorrt(source: Mapping[str, Any]) -> dict[str, Any]:
    ops: dict[str, list[Row]] = {}
    for op, entry in source["ops"].items():
        if entry is None:
            ops[op] = [{"is": "no", "why": "listed as not supported"}]
            continue
        dtypes = " ".join(_TENSORRT[name] for name in entry["types"].split())
        types = {"T1": dtypes, "T2": dtypes} if op == "Cast" else {_tensorrt_parameter(op): dtypes}
        ops[op] = [row(op, entry["note"], types=types)]
    limits = {"fallback": "ONNX Runtime on the GPU or CPU", "notes": ["Rounds to float16 only if fp16 is switched on."]}
    summary = "TensorRT, through ONNX Runtime or trtexec"
    return {"runtime": "tensorrt", "summary": summary, "limits": limits, "ops": ops}


def _tensorrt_parameter(op: str) -> str:
    return {"Where": "T", "If": "V", "Loop": "V", "Scan": "V"}.get(op, parameter(op))


_TFLITE = {
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F64": "float64",
    "I8": "int8",
    "UI8": "uint8",
    "I16": "int16",
    "UI16": "uint16",
    "I32": "int32",
    "UI32": "uint32",
    "I64": "int64",
    "UI64": "uint64",
    "I1": "bool",
}
_COMPARES = frozenset({"EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"})


def litert_gpu(source: Mapping[str, Any]) -> dict[str, Any]:
    """The analyzer looks at shapes and not at dtypes: it takes float64 for ABS. Its yes counts for floats alone."""
    ops: dict[str, list[Row]] = {}
    for op, entry in source["ops"].items():
        good = [d for d in entry["yes"].split() if d in ("F32", "F16")]
        refused = [
            {**_refusal(why), **({"dtypes": s} if s else {})}
            for why, kinds in entry["no"].items()
            for s in _all_or_floats(op, kinds)
        ]
        ops[op] = [*({"is": "yes", "dtypes": s} for d in good for s in _signatures(op, _TFLITE[d])), *refused]
        ops[op].append({"is": "unknown", "why": "the analyzer does not look at these dtypes"})
    limits = {
        "precision": "float16",
        "fallback": "LiteRT on the CPU",
        "notes": ["Floats are float16 by default; setPrecisionLossAllowed(false) keeps float32."],
    }
    summary = "LiteRT's GPU delegate, by TensorFlow Lite's analyzer"
    return {"runtime": "tflite-gpu", "summary": summary, "limits": limits, "has_64_bit": False, "ops": ops}


def _refusal(why: str) -> Row:
    """What the analyzer said of one model: about the op, or about the operands that the model had."""
    if why.startswith("Not supported op"):
        return {"is": "no", "why": why}
    return {"is": "conditional", "when": [{"text": why}]}


def _all_or_floats(op: str, kinds: str) -> Iterator[str]:
    """The signatures that a refusal is about: "" where it is about every dtype."""
    names = kinds.split()
    if len(names) > 12:
        yield ""
        return
    for name in names:
        if name in ("F32", "F16"):
            yield from _signatures(op, _TFLITE[name])


def _signatures(op: str, d: str) -> list[str]:
    """The dtypes of the ops that the project writes, with data of dtype `d`."""
    if op in _COMPARES:
        return [f"{d} {d} -> bool"]
    if op in ("SELECT", "SELECT_V2"):
        return [f"bool {d} {d} -> {d}"]
    if op in ("CONCATENATION", "PACK"):
        return [f"{d} -> {d}"]
    if op == "SPLIT":
        return [f"int32 {d} -> {d}"]
    if op in ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "CUMSUM", "GATHER", "TRANSPOSE", "TILE"):
        return [f"{d} int32 -> {d}"]
    if op == "RESHAPE":
        return [f"{d} int32 -> {d}", f"{d} -> {d}"]
    if op in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"):
        return [f"{d} {d} -> {d}", f"{d} {d} {d} -> {d}"]
    if op in _TWO:
        return [f"{d} {d} -> {d}"]
    return [f"{d} -> {d}"]


_TWO = frozenset(
    {"ADD", "SUB", "MUL", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "POW", "SQUARED_DIFFERENCE",
     "LOGICAL_AND", "BATCH_MATMUL", "PRELU"}
)  # fmt: skip


def mobile(source: Mapping[str, Any]) -> dict[str, Any]:
    ops: dict[str, list[Row]] = {}
    for op in source["ops"]:
        dtypes = "bool" if op in ("And", "Or", "Not") else "float32 int8 uint8 int32 int64"
        since = {onnx_types.schema(op, opset).since_version for opset in (12, 13)}
        ops[op] = [{"is": "yes", "since": s, "types": {_tensorrt_parameter(op): dtypes}} for s in sorted(since)]
    limits = {
        "opset": 13,
        "notes": [
            "The reduced package ended with ONNX Runtime 1.18: phones use the full packages since, whose kernels are "
            "those of onnxruntime@VERSION."
        ],
    }
    summary = "ONNX Runtime's reduced package for phones"
    return {"runtime": "onnxruntime-mobile", "summary": summary, "limits": limits, "ops": ops}


MAKERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "coreml": coreml,
    "nnapi": nnapi,
    "tensorrt": tensorrt,
    "litert-gpu": litert_gpu,
    "onnxruntime-mobile": mobile,
}


def make(name: str, date: str = "") -> dict[str, Any]:
    """The table of one target. `date`: of the table, by default when its document was read."""
    source = json.loads((DATA / "sources" / f"{name}.json").read_text(encoding="utf-8"))
    made = MAKERS[name](source)
    ops = made.pop("ops")
    return {
        "schema_version": table.SCHEMA_VERSION,
        "target": name,
        "runtime": made.pop("runtime"),
        "version": source["version"],
        "date": date or source["read"],
        "format": "tflite" if name == "litert-gpu" else "onnx",
        "evidence": "documented",
        "generator": "python -m opcompat.targets.probes.documented",
        "source": f"{source['document']}, {source['version']}",
        "summary": made.pop("summary"),
        "complete": True,
        **made,
        "ops": ops,
    }


def main(arguments: Sequence[str]) -> None:
    for name in MAKERS:
        (DATA / f"{name}.json").write_text(table.dump(make(name, *arguments[:1])), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
