"""Runs a file in a runtime, as probes do: one function each, (bytes, inputs, output names) -> outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np


def litert(data: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
    """LiteRT on the CPU with its default delegate."""
    import ml_dtypes  # noqa: F401  # the interpreter hands out bfloat16 only where numpy knows it
    from ai_edge_litert.interpreter import Interpreter

    interpreter = _at("load", lambda: Interpreter(model_content=data, num_threads=1))
    run = _at("allocate", lambda: interpreter.get_signature_runner("main"))
    results = run(**inputs)
    return [np.asarray(results[name]) for name in outputs]


def tflite_micro(data: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
    """TensorFlow Lite for Microcontrollers, its interpreter for Python. It has no names: inputs come in order."""
    from tflite_micro.python.tflite_micro import runtime

    interpreter = _at("load", lambda: runtime.Interpreter.from_bytes(data, arena_size=1 << 20))
    for i, x in enumerate(inputs.values()):
        interpreter.set_input(np.ascontiguousarray(x).reshape(x.shape), i)
    interpreter.invoke()
    return [np.asarray(interpreter.get_output(i)) for i in range(len(outputs))]


def openvino(data: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
    """OpenVINO on the CPU, in float32 where the model says so (its default may compute in bfloat16)."""
    import openvino as ov

    core = _core()
    model = _at("load", lambda: core.read_model(data, b""))
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = _at("compile", lambda: core.compile_model(model, "CPU", options))
    tensors = {name: ov.Tensor(np.ascontiguousarray(x).reshape(x.shape)) for name, x in inputs.items()}
    results = compiled(tensors)
    return [np.array(results[compiled.output(name)]) for name in outputs]


def onnxruntime(data: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
    """ONNX Runtime on the CPU. bfloat16 has no form in numpy there: it travels as OrtValues of its bits."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = _at("load", lambda: ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]))
    return [np.asarray(x) for x in session.run(list(outputs), dict(inputs))]


@cache
def _core() -> Any:
    import openvino as ov

    return ov.Core()


def _at(stage: str, step: Any) -> Any:
    """The step's result; what it raises says at which stage."""
    try:
        return step()
    except Exception as error:
        vars(error)["stage"] = stage
        raise
