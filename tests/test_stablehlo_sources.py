"""Files of jax.export and StableHLO as sources: names, shapes, keys, places, refusals, and the way to artifacts."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from jax import export

from opcompat.cli import cli
from opcompat.errors import ConfigError, SourceError
from opcompat.model import EntryPoint
from opcompat.sources import Options, load_model
from opcompat.sources.names import size
from opcompat.trace import trace

WEIGHTS = np.random.default_rng(0).standard_normal((5, 64), dtype=np.float32)
BATCH = export.symbolic_shape("b")[0]
TRUSTED = Options(trusted=True)


def policy(key: jax.Array, obs: dict[str, jax.Array], state: jax.Array) -> dict[str, jax.Array]:
    logits = jnp.tanh(obs["vector"] @ WEIGHTS + state) @ jnp.asarray(WEIGHTS.T)
    return {"action": jax.random.categorical(key, logits), "state": jnp.tanh(state + logits.sum())}


def arguments(batch: Any = 1, key: Any = None) -> tuple[Any, ...]:
    obs = {"is_last": jax.ShapeDtypeStruct((batch,), bool), "vector": jax.ShapeDtypeStruct((batch, 5), jnp.float32)}
    key = jax.ShapeDtypeStruct((2,), jnp.uint32) if key is None else key
    return key, obs, jax.ShapeDtypeStruct((batch, 64), jnp.float32)


def exported(function: Any = policy, args: Any = None, platforms: tuple[str, ...] = ("cpu",)) -> export.Exported:
    return export.export(jax.jit(function), platforms=platforms)(*(arguments() if args is None else args))


def write(folder: Path, made: export.Exported, name: str) -> str:
    content = {
        ".bin": made.serialize,
        ".mlirbc": lambda: made.mlir_module_serialized,
        ".mlir": lambda: made.mlir_module().encode(),
    }[Path(name).suffix]()
    (folder / name).write_bytes(bytes(content))
    return str(folder / name)


def only(source: str, **dims: int) -> EntryPoint:
    (entry,) = load_model(source, Options(dims=dims, trusted=True)).model.entry_points.values()
    return entry


def real_arguments(entry: EntryPoint, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        jax.random.key(seed) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
        else jnp.asarray(rng.standard_normal(a.shape), a.dtype)
        for a in entry.args
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["policy.bin", "policy.mlirbc", "policy.mlir"])
def test_each_kind_of_file_is_the_function(tmp_path: Path, name: str) -> None:
    source = write(tmp_path, exported(), name)
    loaded = load_model(source, TRUSTED)
    assert (loaded.model.name, list(loaded.model.entry_points), loaded.root) == ("policy", ["policy"], tmp_path)
    found = trace(loaded.model, "policy")
    # An Exported knows the argument that the function does not use; its module does not.
    unused = ["obs.is_last"] if name == "policy.bin" else []
    assert [leaf.name for leaf in found.inputs] == ["key", *unused, "obs.vector", "state"]
    assert [leaf.name for leaf in found.outputs] == ["action", "state"]
    assert found.inputs[0].key == "threefry2x32"
    assert sorted(leaf.shape for leaf in found.params) == [(5, 64), (64, 5)]
    entry = loaded.model.entry_points["policy"]
    key, *others = real_arguments(entry)
    got = jax.jit(entry.function)({}, key, *others)
    obs = {"vector": others[-2], "is_last": np.zeros(1, bool)}
    wanted = jax.jit(policy)(key, obs, others[-1])
    np.testing.assert_array_equal(got[0], wanted["action"])
    np.testing.assert_array_equal(got[1], wanted["state"])


def test_equations_stand_at_the_lines_of_the_model(tmp_path: Path) -> None:
    found = trace(load_model(write(tmp_path, exported(), "policy.mlirbc"), TRUSTED).model, "policy")
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "jnp.tanh(obs" in text)
    places = {o.primitive: str(o.place) for o in found.originals.values()}
    assert places["dot_general"] == f"{__file__}:{line}"
    assert all(str(o.place).startswith(__file__) for o in found.originals.values() if o.place.file)


def test_symbolic_sizes_are_bound(tmp_path: Path) -> None:
    made = exported(args=arguments(BATCH))
    for name in ("policy.bin", "policy.mlirbc", "policy.mlir"):
        source = write(tmp_path, made, name)
        with pytest.raises(SourceError, match=r"the size 'b' is open.*--dim b=1"):
            only(source)
        entry = only(source, b=3)
        assert entry.args[-1].shape == (3, 64)
        key, *others = real_arguments(entry)
        got = jax.jit(entry.function)({}, key, *others)
        wanted = jax.jit(policy)(key, {"vector": others[-2]}, others[-1])
        np.testing.assert_array_equal(got[0], wanted["action"])


def test_sizes_without_names_are_named_by_place(tmp_path: Path) -> None:
    same = "(%arg0: tensor<?x2xf32>) -> tensor<?x2xf32> { return %arg0 : tensor<?x2xf32> }"
    (tmp_path / "open.mlir").write_text(f"module {{ func.func public @main{same} }}")
    source = str(tmp_path / "open.mlir")
    with pytest.raises(SourceError, match=re.escape("the size 'arg0[0]' is open")):
        only(source)
    assert only(source, **{"arg0[0]": 4}).args[0].shape == (4, 2)


@pytest.mark.parametrize(
    ("expression", "value"), [("b", 3), ("2*b + 1", 7), ("b^2 - 1", 8), ("floordiv(b, 2)", 1), ("mod(-b, 2)", 1)]
)
def test_sizes_are_expressions(expression: str, value: int) -> None:
    assert size(expression, {"b": 3}, "x") == value


@pytest.mark.parametrize("expression", ["__import__('os')", "b.real", "9^9^9", "(" * 400, "b if b else b", "1/0"])
def test_sizes_are_only_expressions(expression: str) -> None:
    with pytest.raises(SourceError, match="cannot be computed"):
        size(expression, {"b": 3}, "x")


def test_a_size_that_the_model_refuses(tmp_path: Path) -> None:
    double = export.symbolic_shape("2*b")[0]
    source = write(tmp_path, exported(jnp.tanh, (jax.ShapeDtypeStruct((double,), jnp.float32),)), "even.mlirbc")
    assert only(source, b=2).args[0].shape == (4,)


def test_several_platforms(tmp_path: Path) -> None:
    def function(x: jax.Array) -> jax.Array:
        return jax.lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x + 2)

    args = (jax.ShapeDtypeStruct((2,), jnp.float32),)
    made = exported(function, args, ("cuda", "cpu"))
    entry = only(write(tmp_path, made, "f.bin"))
    np.testing.assert_array_equal(entry.function({}, jnp.zeros(2))[0], [1, 1])
    assert "cond" not in str(jax.make_jaxpr(entry.function)({}, jnp.zeros(2)))
    with pytest.raises(SourceError, match="made for several platforms"):
        only(write(tmp_path, made, "f.mlirbc"))


def test_typed_keys(tmp_path: Path) -> None:
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))

    def function(keys: jax.Array, x: jax.Array) -> dict[str, jax.Array]:
        return {"next": jax.vmap(lambda k: jax.random.split(k, 1)[0])(keys), "y": jax.vmap(jax.random.normal)(keys) + x}

    args = (keys, jax.ShapeDtypeStruct((3,), jnp.float32))
    loaded = load_model(write(tmp_path, exported(function, args), "f.bin"), TRUSTED)
    found = trace(loaded.model, "function")
    assert (found.inputs[0].key, found.inputs[0].shape) == ("threefry2x32", (3, 2))
    assert [leaf.key for leaf in found.outputs] == ["threefry2x32", ""]
    given = jax.random.split(jax.random.key(7), 3)
    got = loaded.model.entry_points["function"].function({}, given, jnp.ones(3))
    np.testing.assert_array_equal(got[1], function(given, jnp.ones(3))["y"])


@pytest.fixture
def _wide() -> Iterator[None]:
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.usefixtures("_wide")
def test_wide_values_switch_x64_on(tmp_path: Path) -> None:
    with jax.enable_x64(True):
        source = write(tmp_path, exported(jnp.exp, (jax.ShapeDtypeStruct((2,), jnp.float64),)), "wide.mlirbc")
    entry = only(source)
    assert entry.function({}, np.ones(2))[0].dtype == np.float64


def test_effects_and_devices_are_refused(tmp_path: Path) -> None:
    def prints(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x, ordered=True)
        return x

    (tmp_path / "f.mlir").write_text(jax.jit(prints).lower(1.0).as_text())
    with pytest.raises(SourceError, match="token"):
        only(str(tmp_path / "f.mlir"))


def test_two_public_functions_are_two_entry_points(tmp_path: Path) -> None:
    body = "(%x: tensor<2xf32>) -> tensor<2xf32> { %y = stablehlo.OP %x : tensor<2xf32> return %y : tensor<2xf32> }"
    functions = [f"func.func public @{name}{body.replace('OP', op)}" for name, op in (("a", "tanh"), ("b", "sine"))]
    (tmp_path / "two.mlir").write_text("module {" + "\n".join(functions) + "}")
    entries = load_model(str(tmp_path / "two.mlir"), TRUSTED).model.entry_points
    assert list(entries) == ["a", "b"]
    np.testing.assert_array_equal(entries["b"].function({}, np.ones(2, np.float32))[0], jnp.sin(jnp.ones(2)))


def test_newer_versions_are_told_with_both_versions(tmp_path: Path) -> None:
    made = bytes(exported().mlir_module_serialized)
    producer = re.search(rb"StableHLO_v\d+\.\d+\.\d+", made)
    assert producer is not None
    newer = made.replace(producer[0], b"StableHLO_v9" + producer[0][12:], 1)
    (tmp_path / "newer.mlirbc").write_bytes(newer[:200])
    with pytest.raises(SourceError, match=r"is StableHLO 9\.\d+\.\d+, and the installed jaxlib .* reads up to 1\."):
        only(str(tmp_path / "newer.mlirbc"))


@pytest.mark.parametrize("name", ["policy.bin", "policy.mlirbc", "policy.mlir"])
@pytest.mark.parametrize("part", [0.02, 0.5, 0.99])
def test_truncated_files(tmp_path: Path, name: str, part: float) -> None:
    source = Path(write(tmp_path, exported(), name))
    data = source.read_bytes()
    source.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(SourceError) as caught:
        load_model(str(source), TRUSTED)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["policy.bin", pytest.param("policy.mlirbc", marks=pytest.mark.slow)])
def test_from_file_to_proven_artifacts(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, exported(), name)
    wiring = ["--feedback", "state=state", "--init", "state=0"]
    for command in (
        ["scan", name],
        ["convert", name, "--to", "onnx,tflite", "--out", "dist", "--steps", "20"],
        ["verify", "dist", name, "--steps", "20", "--format", "json"],
    ):
        result = CliRunner().invoke(cli, [*command, *wiring, "-q"])
        assert result.exit_code == 0, result.output
    loops = [c for c in json.loads(result.stdout)["checks"] if c["kind"] == "closed-loop"]
    assert {c["format"] for c in loops} == {"onnx", "tflite"}
    assert all(c["passed"] and c["draws"] and not c["mismatched"] for c in loops)


@pytest.mark.parametrize("options", [Options(factory_args={"a": 1}), Options(via="tf2onnx")])
def test_options_of_other_kinds_are_refused(tmp_path: Path, options: Options) -> None:
    for name in ("f.bin", "f.mlir"):
        with pytest.raises(ConfigError, match="this kind of source takes no --"):
            load_model(write(tmp_path, exported(), name), replace(options, trusted=True))
