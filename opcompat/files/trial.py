"""Asks a runtime whether it takes a whole file: for ops that no table has words for. Runs in a child process."""

from __future__ import annotations

from typing import Any


def onnxruntime(path: str) -> str:
    """ "" if a session opens, which finds a kernel for every op; else what ONNX Runtime says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  # its errors share no base class below Exception
        return _line(error)
    return ""


def litert(path: str) -> str:
    """ "" if every signature runs once, on zeros; else what LiteRT says."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    def zeros(details: dict[str, Any]) -> Any:
        return np.zeros([max(int(n), 1) for n in details["shape"]], details["dtype"])

    try:
        interpreter = Interpreter(model_path=path, num_threads=1)
        names = list(interpreter.get_signature_list())
        for name in names:
            runner = interpreter.get_signature_runner(name)
            runner(**{key: zeros(details) for key, details in runner.get_input_details().items()})
        if not names:
            interpreter.allocate_tensors()
            for details in interpreter.get_input_details():
                interpreter.set_tensor(details["index"], zeros(details))
            interpreter.invoke()
    except (ValueError, RuntimeError, TypeError) as error:
        return _line(error)
    return ""


def versions(opset: int, ir_version: int) -> str:
    """ "" if the installed ONNX Runtime loads a model of these versions; else what it says."""
    import onnxruntime
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "versions", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  # its errors share no base class below Exception
        return _line(error)
    return ""


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
