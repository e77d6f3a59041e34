"""Hostile StableHLO is read in a child process first: whatever it does there, the tool goes on and says so."""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import export

from opcompat.errors import OpcompatError
from opcompat.sources import load_model

EMPTY = "func.func public @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"


def nested(depth: int) -> str:
    start = "func.func public @main(%c: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {\n"
    opened = "".join(f'%r{i} = "stablehlo.if"(%c) ({{\n' for i in range(depth))
    leave = (
        "stablehlo.return %x : tensor<f32>\n}, {\nstablehlo.return %x : tensor<f32>\n}) : (tensor<i1>) -> tensor<f32>\n"
    )
    return start + opened + leave * depth + "return %r0 : tensor<f32> }"


def bomb(levels: int) -> str:
    """Each function calls the next one twice."""
    text = "func.func private @f0(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n"
    kind = "(tensor<f32>) -> tensor<f32>"
    for i in range(1, levels):
        calls = f"%a = func.call @f{i - 1}(%x) : {kind}\n%b = func.call @f{i - 1}(%a) : {kind}"
        text += f"func.func private @f{i}(%x: tensor<f32>) -> tensor<f32> {{\n{calls}\nreturn %b : tensor<f32> }}\n"
    call = f"%r = func.call @f{levels - 1}(%x) : (tensor<f32>) -> tensor<f32>"
    return text + f"func.func public @main(%x: tensor<f32>) -> tensor<f32> {{ {call} return %r : tensor<f32> }}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (nested(30_000), ""),
        (bomb(60), "unfolds into more than"),
        (EMPTY.replace("tensor<f32>", f"tensor<{'1x' * 50_000}f32>"), ""),
        (EMPTY.replace("tensor<f32>", f"tensor<{2**40}x{2**40}xf32>"), "more than the 2 GiB"),
        pytest.param(EMPTY.replace("tensor<f32>", "tensor<99999999999999999999xf32>"), "", marks=pytest.mark.slow),
        pytest.param("\x00" * 10_000, "", marks=pytest.mark.slow),
        pytest.param("(" * 200_000, "", marks=pytest.mark.slow),
    ],
)
def test_hostile_text(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.mlir").write_text(text)
    began = time.monotonic()
    with pytest.raises(OpcompatError) as caught:
        load_model(str(tmp_path / "bad.mlir"))
    assert message in str(caught.value)
    assert caught.value.exit_code in (2, 3)
    assert time.monotonic() - began < 60  # the limit is 10 s of reading, and the child has to start


@pytest.mark.parametrize("name", ["f.bin", pytest.param("f.mlirbc", marks=pytest.mark.slow)])
def test_a_good_file_is_read(tmp_path: Path, name: str) -> None:
    made = export.export(jax.jit(jnp.tanh))(jax.ShapeDtypeStruct((2,), jnp.float32))
    (tmp_path / name).write_bytes(made.serialize() if name == "f.bin" else made.mlir_module_serialized)
    assert load_model(str(tmp_path / name)).model.entry_points
