"""Runs a bundle with numpy and ONNX Runtime or LiteRT, and never imports JAX.

    import opcompat.runtime

    policy = opcompat.runtime.load("dist").entry_point("policy")
    action = policy.step({"obs": obs, "key": key})["action"]

Nothing heavy is imported before `load` knows which runtime it needs.
"""

from opcompat.runtime.inputs import InputError
from opcompat.runtime.loaded import LoadedBundle, LoadedEntryPoint, load
from opcompat.runtime.replay import ReplayResult

__all__ = ["InputError", "LoadedBundle", "LoadedEntryPoint", "ReplayResult", "load"]
