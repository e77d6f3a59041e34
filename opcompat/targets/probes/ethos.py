"""Arm Ethos-U by its compiler, Vela: which quantized ops it puts on the accelerator.

Nothing runs here: what is known is where an op is placed. Operators that stay on the CPU are an answer "no", with
Vela's reason. Models are the TFLite questions, every int8, int16 and uint8 tensor with a scale and a zero point.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from opcompat.targets.probes.case import Case

DTYPES = ("int8", "int16", "int32", "float32")
RANKS = range(5)
SCALE = 0.5

_PER_PRODUCT = frozenset({"FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"})


class OnTheCpu(Exception):
    """Vela leaves the op to the CPU."""

    stage = "place"


def u55(data: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
    """Places the op of a file on an Ethos-U55. Raises OnTheCpu with Vela's reason."""
    return _place(data, "ethos-u55-128")


def u85(data: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
    """Places the op of a file on an Ethos-U85. Raises OnTheCpu with Vela's reason."""
    return _place(data, "ethos-u85-256")


def _place(data: bytes, accelerator: str) -> list[np.ndarray]:
    from ethosu.vela import vela

    with tempfile.TemporaryDirectory() as folder, _captured() as said:
        source = Path(folder) / "model.tflite"
        source.write_bytes(quantized(data))
        arguments = [str(source), "--accelerator-config", accelerator, "--output-dir", folder]
        try:
            failed = bool(vela.main(arguments))
        except SystemExit as error:
            failed = bool(error.code)
        except Exception as error:  # the compiler raises what it likes: none of it is placed
            said.seek(0)
            raise OnTheCpu(_reason(said.read(), str(error))) from error
        made = sorted(Path(folder).glob("*_vela.tflite"))
        left = [op for op in (operators(made[0].read_bytes()) if made else ["nothing"]) if op != "ethos-u"]
        said.seek(0)
        text = said.read()
    if failed or left:
        raise OnTheCpu(_reason(text, f"{', '.join(left)} stays on the CPU"))
    return []


@contextlib.contextmanager
def _captured() -> Iterator[TextIO]:
    """What the process says meanwhile, from C++ too, on both streams."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        sys.stdout.flush()
        sys.stderr.flush()
        before = os.dup(1), os.dup(2)
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            for number, saved in zip((1, 2), before, strict=True):
                os.dup2(saved, number)
                os.close(saved)


def _reason(said: str, otherwise: str) -> str:
    """The compiler's first reason."""
    reasons = [line.partition("Reason:")[2].strip() for line in said.splitlines() if "Reason:" in line]
    return next(filter(None, reasons), otherwise)


def quantized(data: bytes) -> bytes:
    """The file with a scale and a zero point on every int8, int16 and uint8 tensor, and on int32 biases."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data))
    for graph in model.subgraphs:
        biases = {int(op.inputs[2]) for op in graph.operators or () if op.inputs is not None and len(op.inputs) > 2}
        for i, tensor in enumerate(graph.tensors):
            whole = tensor.type in (schema.TensorType.INT8, schema.TensorType.INT16, schema.TensorType.UINT8)
            if whole or (tensor.type == schema.TensorType.INT32 and i in biases and tensor.buffer):
                tensor.quantization = schema.QuantizationParametersT()
                tensor.quantization.scale = [SCALE if whole else SCALE * SCALE]
                tensor.quantization.zeroPoint = [0]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def operators(data: bytes) -> list[str]:
    """The operators of a file: "ethos-u" for what the accelerator runs, the op's name for what it does not."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data))
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    found = []
    for graph in model.subgraphs:
        for op in graph.operators or ():
            code = model.operatorCodes[op.opcodeIndex]
            custom = code.customCode
            name = custom.decode() if isinstance(custom, bytes) else custom
            found.append(name or names.get(code.builtinCode, str(code.builtinCode)))
    return found


def cases(*, special: bool = False) -> Iterator[Case]:
    """The TFLite questions in the dtypes that matter, with int32 biases. Results are not compared."""
    from opcompat.targets.probes.tflite_cases import cases as tflite_cases

    for case in tflite_cases(DTYPES, RANKS, special=special):
        if case.special != special or (case.op in _PER_PRODUCT and not case.inputs[1][1]):
            continue
        yield _with_bias(case)


def _with_bias(case: Case) -> Case:
    dtype = case.inputs[0][0].dtype.name
    if case.op not in _PER_PRODUCT or dtype not in ("int8", "int16") or len(case.inputs) < 3:
        return case
    bias = case.inputs[2][0].astype(np.int32)
    return replace(case, inputs=(*case.inputs[:2], (bias, True)))


def finished(content: dict[str, Any]) -> dict[str, Any]:
    """The table, finished: products were asked with constant weights alone, and floats want another reason.

    A float row says what quantizing would do.
    """
    for op, rows in content["ops"].items():
        ranks = " ".join(row["ranks"] for row in rows if row["is"] == "yes" and _of_int8(row["dtypes"]))
        if ranks:
            helps = f"floats stay on the CPU; quantized to int8 it runs on the accelerator at rank {ranks}"
        else:
            helps = "floats stay on the CPU, and so does its int8 form"
        for row in rows:
            if "float32" in row["dtypes"]:
                row["why"] = helps
            elif row["is"] == "yes" and op in _PER_PRODUCT:
                row |= {"is": "conditional", "when": [{"constant": 1}]}
    return content


def _of_int8(dtypes: str) -> bool:
    """Whether the data, and not an index, is int8."""
    return "int8" in dtypes.partition("->")[0].split()
