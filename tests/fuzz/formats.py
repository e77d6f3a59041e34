"""The formats: their seeds, how they are mutated, and what the tool does with a file of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.fuzz import mutate, structure
from tests.fuzz.mutate import BYTES, TEXT, Mutation

FIXTURES = Path(__file__).parents[1] / "fixtures"


@dataclass(frozen=True)
class Format:
    """`file` is where a mutated file goes, beside copies of what is in the folder `beside`.

    `attempt` names a function of `tests.fuzz.attempt` that reads the folder or file as the tool does in its child
    process. `may_die`: the parser is not ours, and known to crash
    or hang; the tool then ends with exit code 3.
    """

    name: str
    file: str
    seeds: Callable[[], Sequence[bytes]]
    mutations: tuple[Mutation, ...]
    attempt: str
    may_die: bool = False
    beside: Callable[[], Path] | None = None


@cache
def _onnx() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(FIXTURES.glob("*.onnx")))


@cache
def _tflite() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(FIXTURES.glob("*.tflite")))


@cache
def _exported() -> tuple[bytes, ...]:
    from tests.fuzz.seeds import exported

    return exported()


@cache
def _bytecode() -> tuple[bytes, ...]:
    from tests.fuzz.seeds import bytecode

    return bytecode()


@cache
def _text() -> tuple[bytes, ...]:
    from tests.fuzz.seeds import text

    return text()


@cache
def _bundle() -> Path:
    from tests.fuzz.seeds import bundle

    return bundle()


@cache
def _manifest() -> tuple[bytes, ...]:
    return ((_bundle() / "manifest.json").read_bytes(),)


def _saved_model_folder() -> Path:
    return FIXTURES / "jax2tf" / "jax_0_10" / "fixed"


@cache
def _saved_model() -> tuple[bytes, ...]:
    return ((_saved_model_folder() / "saved_model.pb").read_bytes(),)


def _toml() -> tuple[bytes, ...]:
    from tests.fuzz.seeds import TOML

    return (TOML,)


FORMATS: tuple[Format, ...] = (
    Format("onnx", "m.onnx", _onnx, (*BYTES, *(structure.protobuf,) * 10), "onnx"),
    Format("tflite", "m.tflite", _tflite, (*BYTES, *(structure.tflite,) * 10), "tflite"),
    Format("mlir", "m.mlir", _text, TEXT, "stablehlo", may_die=True),
    Format("mlirbc", "m.mlirbc", _bytecode, BYTES, "stablehlo", may_die=True),
    Format("export", "m.bin", _exported, BYTES, "exported", may_die=True),
    Format(
        "saved_model",
        "saved_model.pb",
        _saved_model,
        (*BYTES, *(structure.protobuf,) * 10),
        "saved_model",
        may_die=True,
        beside=_saved_model_folder,
    ),
    Format("bundle", "manifest.json", _manifest, (*TEXT, *(structure.json_values,) * 10), "bundle", beside=_bundle),
    Format("config", "opcompat.toml", _toml, TEXT, "config"),
)


def case(form: Format, seed: int, number: int) -> bytes:
    """The file of this number: the same for the same arguments, on any machine."""
    from random import Random

    return mutate.mutated(Random(f"{form.name} {seed} {number}"), form.seeds(), form.mutations)
