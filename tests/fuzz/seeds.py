"""Sound files that the mutations begin with, made by the real producers where that is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TOML = b"""factory = "policy:make"
targets = ["onnxruntime", "litert"]
to = ["onnx", "tflite"]
steps = 100
seeds = 2
batch = [1, 16]
sampling = "exact"

[factory_args]
size = "small"
"""


def _functions() -> list[tuple[Any, tuple[Any, ...]]]:
    import jax
    import jax.numpy as jnp

    def policy(key: Any, obs: Any, state: dict[str, Any]) -> dict[str, Any]:
        deter = jnp.tanh(obs @ jnp.ones((3, 3)) + state["deter"])
        return {"action": jax.random.categorical(key, deter), "deter": deter}

    def loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, y: jnp.where(i > 1, jnp.sin(y), y * 2), x)

    x = jax.ShapeDtypeStruct((2, 3), "float32")
    key = jax.ShapeDtypeStruct((2,), "uint32")
    return [(policy, (key, x, {"deter": x})), (loop, (x,))]


def exported() -> tuple[bytes, ...]:
    """jax.export files."""
    import jax
    from jax import export

    return tuple(bytes(export.export(jax.jit(f))(*args).serialize()) for f, args in _functions())


def bytecode() -> tuple[bytes, ...]:
    """StableHLO bytecode."""
    import jax
    from jax import export

    return tuple(bytes(export.export(jax.jit(f))(*args).mlir_module_serialized) for f, args in _functions())


def text() -> tuple[bytes, ...]:
    """StableHLO text, with places."""
    import jax

    return tuple(jax.jit(f).lower(*args).as_text(debug_info=True).encode() for f, args in _functions())


def bundle() -> Path:
    """A small bundle, in a folder that lasts as long as this process."""
    import atexit
    import shutil
    import tempfile

    import jax.numpy as jnp

    import opcompat

    def double(params: Any, x: Any, state: Any) -> Any:
        return {"y": x * params["w"], "state": state + 1}

    entry = opcompat.EntryPoint(
        double, (jnp.zeros(3), jnp.zeros(3)), feedback={"state": "state"}, init={"state": jnp.zeros(3)}
    )
    model = opcompat.Model("tiny", {"w": jnp.ones(3)}, {"policy": entry})
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    opcompat.convert(model, folder / "dist", ["onnx"], steps=2)
    return folder / "dist"
