"""The runtime on bundles that are written here by hand, with both formats and no converter."""

import itertools
import json
import subprocess
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from opcompat import runtime
from opcompat.bundle import Bundle, reference_path, write_bundle
from opcompat.errors import BundleError, OpcompatError, VerificationError
from opcompat.manifest import EntryPointInfo, Format, Init, Leaf, Manifest
from opcompat.runtime import session as sessions
from opcompat.runtime.reference import Reference, read_arrays, read_reference, write_arrays, write_reference

# A bundle by hand

WEIGHT = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
KEY_MASK = np.array([0xDEADBEEF, 0x80000001], np.uint32)
CONSTANTS = {
    "W": WEIGHT,
    "half": np.full((1, 4), 0.5, np.float32),
    "quarter": np.full((1, 4), 0.25, np.float32),
    "one": np.array([1], np.int32),
    "mask": KEY_MASK,
    "zero": np.zeros((1, 4), np.float32),
    "ones": np.ones(4, np.float32).reshape(1, 4),
    "minus": np.array([-1], np.int32),
}

KEY = Leaf("key", (2,), "uint32", "uint32", "threefry2x32")
SCALE = Leaf("scale", (1, 4), "float32", "float32")
H = Leaf("state.h", (1, 4), "bfloat16", "float32")
S = Leaf("state.s", (1, 4), "bfloat16", "float32")
COUNT = Leaf("state.count", (1,), "int32", "int32")


def _same(leaf: Leaf, name: str) -> Leaf:
    return replace(leaf, name=name)


@dataclass(frozen=True)
class Program:
    """An entry point and its nodes (op, operands, result), in ONNX's words."""

    info: EntryPointInfo
    nodes: tuple[tuple[str, tuple[str, ...], str], ...]


PROGRAMS = {
    "init": Program(
        EntryPointInfo((), (H, S, COUNT)),
        (
            ("Identity", ("zero",), "state.h"),
            ("Identity", ("ones",), "state.s"),
            ("Identity", ("minus",), "state.count"),
        ),
    ),
    "policy": Program(
        EntryPointInfo(
            inputs=(
                KEY,
                Leaf("obs.vector", (1, 3), "float32", "float32"),
                Leaf("obs.is_first", (1,), "bool", "bool"),
                H,
                S,
                COUNT,
            ),
            outputs=(
                Leaf("action", (1,), "int32", "int32"),
                Leaf("later", (1,), "bool", "bool"),
                _same(KEY, "next_key"),
                H,
                S,
                COUNT,
            ),
            feedback={name: name for name in ("state.h", "state.s", "state.count")},
            init={name: Init(output=f"init.{name}") for name in ("state.h", "state.s", "state.count")},
        ),
        (
            ("MatMul", ("obs.vector", "W"), "a"),
            ("Mul", ("state.h", "half"), "b"),
            ("Mul", ("state.s", "quarter"), "c"),
            ("Add", ("a", "b"), "d"),
            ("Sub", ("d", "c"), "e"),
            ("Tanh", ("e",), "state.h out"),
            ("ArgMax", ("state.h out",), "action"),
            ("Mul", ("state.s", "half"), "f"),
            ("Add", ("f", "state.h"), "state.s out"),
            ("Add", ("state.count", "one"), "state.count out"),
            ("Not", ("obs.is_first",), "later"),
            ("BitwiseXor", ("key", "mask"), "next_key"),
        ),
    ),
    "init_scaled": Program(EntryPointInfo((SCALE,), (_same(SCALE, "x"),)), (("Mul", ("scale", "half"), "x"),)),
    "scaled": Program(
        EntryPointInfo(
            (SCALE, _same(SCALE, "x")),
            (_same(SCALE, "y"),),
            feedback={"y": "x"},
            init={"x": Init(output="init_scaled.x")},
        ),
        (("Add", ("x", "scale"), "y"),),
    ),
    "init_keyed": Program(EntryPointInfo((KEY,), (_same(KEY, "k"),)), (("BitwiseXor", ("key", "mask"), "k"),)),
    "keyed": Program(
        EntryPointInfo(
            (KEY, _same(KEY, "k")),
            (_same(KEY, "k"),),
            feedback={"k": "k"},
            init={"k": Init(output="init_keyed.k")},
        ),
        (("BitwiseXor", ("key", "k"), "k out"),),
    ),
    "filed": Program(
        EntryPointInfo(
            (_same(SCALE, "x"),),
            (_same(SCALE, "x"),),
            feedback={"x": "x"},
            init={"x": Init(file="reference/filed.init.npz")},
        ),
        (("Add", ("x", "ones"), "x out"),),
    ),
    "unstarted": Program(
        EntryPointInfo((SCALE,), (_same(SCALE, "y"),), feedback={"y": "scale"}),
        (("Add", ("scale", "ones"), "y"),),
    ),
}


def _result(program: Program, leaf: Leaf) -> str:
    """The node result that is an output: an input of the same name makes it "NAME out"."""
    names = {out for _, _, out in program.nodes}
    return f"{leaf.name} out" if f"{leaf.name} out" in names else leaf.name


def _run(program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The program in numpy: the reference."""
    ops: dict[str, Callable[..., Any]] = {
        "Identity": lambda x: x, "MatMul": np.matmul, "Mul": np.multiply, "Add": np.add, "Sub": np.subtract,
        "Tanh": np.tanh, "Not": np.logical_not, "BitwiseXor": np.bitwise_xor,
        "ArgMax": lambda x: x.argmax(-1).astype(np.int32),
    }  # fmt: skip
    values = {**CONSTANTS, **inputs}
    for op, operands, out in program.nodes:
        values[out] = ops[op](*(values[name] for name in operands))
    return {leaf.name: values[_result(program, leaf)] for leaf in program.info.outputs}


def _in_file(program: Program) -> dict[str, str]:
    """Output -> its name in an ONNX file, for those that share theirs with an input."""
    inputs = {leaf.name for leaf in program.info.inputs}
    return {leaf.name: f"{leaf.name} next" for leaf in program.info.outputs if leaf.name in inputs}


def _exchange(name: str, swap: tuple[str, ...]) -> str:
    """`name`, or the other one of the two in `swap`."""
    return swap[1 - swap.index(name)] if name in swap else name


def write_onnx(folder: Path, programs: Mapping[str, Program], swap: tuple[str, ...]) -> Format:
    """One .onnx per entry point beside weights.bin."""
    (folder / "onnx").mkdir()
    (folder / "onnx/weights.bin").write_bytes(WEIGHT.tobytes())
    for name, program in programs.items():
        model = _onnx_model(name, program, swap if name == "policy" else ())
        (folder / f"onnx/{name}.onnx").write_bytes(model.SerializeToString())
    return Format(
        {name: f"onnx/{name}.onnx" for name in programs},
        weights="onnx/weights.bin",
        opset=21,
        outputs={name: _in_file(program) for name, program in programs.items()},
    )


def _onnx_model(name: str, program: Program, swap: tuple[str, ...]) -> Any:
    from onnx import TensorProto, helper

    renamed = _in_file(program)
    outputs = {_result(program, x): renamed.get(x.name, x.name) for x in program.info.outputs}
    nodes = []
    for op, operands, out in program.nodes:
        ins, result = [outputs.get(x, _exchange(x, swap)) for x in operands], outputs.get(out, out)
        if op == "ArgMax":
            nodes.append(helper.make_node(op, ins, [f"{out} wide"], axis=-1, keepdims=0))
            op, ins = "Cast", [f"{out} wide"]
        attributes = {"to": TensorProto.INT32} if op == "Cast" else {}
        nodes.append(helper.make_node(op, ins, [result], **attributes))
    used = {x for _, operands, _ in program.nodes for x in operands}
    graph = helper.make_graph(
        nodes,
        name,
        [_onnx_value(x, x.name) for x in program.info.inputs],
        [_onnx_value(x, renamed.get(x.name, x.name)) for x in program.info.outputs],
        [_onnx_constant(n) for n in CONSTANTS if n in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _onnx_value(leaf: Leaf, name: str) -> Any:
    from onnx import TensorProto, helper

    kinds = {"float32": "FLOAT", "int32": "INT32", "uint32": "UINT32", "bool": "BOOL"}
    return helper.make_tensor_value_info(name, getattr(TensorProto, kinds[leaf.file_dtype]), leaf.shape)


def _onnx_constant(name: str) -> Any:
    from onnx import TensorProto, numpy_helper

    tensor = numpy_helper.from_array(CONSTANTS[name], name)
    if name == "W":
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "weights.bin", "offset": "0", "length": str(WEIGHT.nbytes)}.items():
            tensor.external_data.add(key=key, value=value)
    return tensor


def write_tflite(folder: Path, programs: Mapping[str, Program], swap: tuple[str, ...]) -> Format:
    """One .tflite with a signature per entry point; it has int32 in the place of uint32."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT()
    model.version, model.buffers, model.signatureDefs = 3, [schema.BufferT()], []
    model.operatorCodes, model.subgraphs = [], []
    for name, program in programs.items():
        _add_signature(schema, model, name, program, swap if name == "policy" else ())
    builder = flatbuffers.Builder(1 << 12)
    builder.Finish(model.Pack(builder), b"TFL3")
    (folder / "tflite").mkdir()
    (folder / "tflite/model.tflite").write_bytes(bytes(builder.Output()))
    return Format(file="tflite/model.tflite", reinterpret={"uint32": "int32"})


TFLITE_OPS = {
    "MatMul": ("BATCH_MATMUL", "BatchMatMul"), "Mul": ("MUL", "Mul"), "Add": ("ADD", "Add"),
    "Sub": ("SUB", "Sub"), "Tanh": ("TANH", None), "Not": ("LOGICAL_NOT", "LogicalNot"),
    "BitwiseXor": ("BITWISE_XOR", "BitwiseXor"), "ArgMax": ("ARG_MAX", "ArgMax"),
}  # fmt: skip


def _add_signature(schema: Any, model: Any, name: str, program: Program, swap: tuple[str, ...]) -> None:
    graph = schema.SubGraphT()
    graph.name, graph.tensors, graph.operators = name, [], []
    index: dict[str, int] = {}

    def tensor(label: str, shape: Sequence[int], dtype: str, data: np.ndarray | None = None) -> int:
        x = schema.TensorT()
        x.name, x.shape, x.hasRank, x.buffer = label, list(shape), True, 0
        x.type = getattr(schema.TensorType, {"uint32": "INT32"}.get(dtype, dtype.upper()))
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            model.buffers.append(buffer)
            x.buffer = len(model.buffers) - 1
        graph.tensors.append(x)
        index[label] = len(graph.tensors) - 1
        return index[label]

    def operand(label: str) -> int:
        if label not in index:
            data = CONSTANTS[label]
            tensor(label, data.shape, data.dtype.name, data)
        return index[label]

    for leaf in program.info.inputs:
        tensor(leaf.name, leaf.shape, leaf.file_dtype)
    graph.inputs = list(range(len(program.info.inputs)))
    results = {_result(program, leaf): leaf for leaf in program.info.outputs}
    for op, operands, out in program.nodes:
        ins = [operand(_exchange(x, swap)) for x in operands]
        if op == "Identity":
            index[out] = ins[0]
            continue
        if op == "ArgMax":
            ins.append(tensor(f"{out} axis", (), "int32", np.int32(-1)))
        leaf = results.get(out)
        tensor(out, leaf.shape if leaf else (1, 4), leaf.file_dtype if leaf else "float32")
        graph.operators.append(_tflite_operator(schema, model, op, ins, index[out]))
    graph.outputs = [index[_result(program, leaf)] for leaf in program.info.outputs]
    model.subgraphs.append(graph)
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = name, len(model.subgraphs) - 1
    signature.inputs = [_tensor_map(schema, x.name, index[x.name]) for x in program.info.inputs]
    signature.outputs = [
        _tensor_map(schema, x.name, i) for x, i in zip(program.info.outputs, graph.outputs, strict=True)
    ]
    model.signatureDefs.append(signature)


def _tflite_operator(schema: Any, model: Any, op: str, inputs: list[int], output: int) -> Any:
    builtin, options = TFLITE_OPS[op]
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, builtin)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
    model.operatorCodes.append(code)
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = len(model.operatorCodes) - 1, inputs, [output]
    if options and hasattr(schema, f"{options}OptionsT"):
        operator.builtinOptions = getattr(schema, f"{options}OptionsT")()
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{options}Options", None)
        if op == "ArgMax":
            operator.builtinOptions.outputType = schema.TensorType.INT32
        if operator.builtinOptionsType is None:
            operator.builtinOptions, operator.builtinOptionsType = None, 0
    return operator


def _tensor_map(schema: Any, name: str, index: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, index
    return entry


def record(programs: Mapping[str, Program], steps: int = 12) -> dict[str, Reference]:
    """Random inputs and what numpy makes of them; the policy's rollout feeds its state back."""
    rng = np.random.default_rng(1)
    references = {}
    for name, program in programs.items():
        rows, state = [], {}
        for _ in range(steps):
            inputs = {leaf.name: _random(rng, leaf) for leaf in program.info.inputs} | state
            outputs = _run(program, inputs)
            state = {target: outputs[source] for source, target in program.info.feedback.items()}
            rows.append((inputs, outputs))
        references[name] = Reference(
            {x.name: np.stack([i[x.name] for i, _ in rows]) for x in program.info.inputs},
            {x.name: np.stack([o[x.name] for _, o in rows]) for x in program.info.outputs},
            {x.name: 1e-5 for x in program.info.outputs if x.file_dtype == "float32"},
            {},
        )
    return references


def _random(rng: np.random.Generator, leaf: Leaf) -> np.ndarray:
    if leaf.file_dtype == "float32":
        return rng.standard_normal(leaf.shape).astype(np.float32)
    return rng.integers(0, 2 if leaf.file_dtype == "bool" else 2**31, leaf.shape).astype(leaf.file_dtype)


FORMATS = ("onnx", "tflite")


def write_handmade(
    out: Path, *, formats: Sequence[str] = FORMATS, swap: tuple[str, ...] = (), force: bool = False
) -> Bundle:
    """A bundle of PROGRAMS. `swap` exchanges two inputs inside the policy, in every format."""

    def fill(folder: Path) -> Manifest:
        writers = {"onnx": write_onnx, "tflite": write_tflite}
        written = {name: writers[name](folder, PROGRAMS, swap) for name in formats}
        for name, reference in record(PROGRAMS).items():
            write_reference(folder / reference_path(name), reference)
        write_arrays(folder / "reference/filed.init.npz", {"x": np.full((1, 4), 3, np.float32)})
        return Manifest(
            name="handmade",
            opcompat="0",
            sampling="exact",
            versions={},
            config={},
            formats=written,
            entry_points={name: program.info for name, program in PROGRAMS.items()},
        )

    return write_bundle(out, fill, force=force)


# Tests


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_handmade(tmp_path_factory.mktemp("handmade") / "dist").path


@pytest.fixture(scope="module", params=FORMATS)
def loaded(bundle: Path, request: pytest.FixtureRequest) -> runtime.LoadedBundle:
    return runtime.load(bundle, request.param)


def inputs_of(name: str, step: int = 0) -> dict[str, np.ndarray]:
    reference = record({name: PROGRAMS[name]})[name]
    return {key: array[step] for key, array in reference.inputs.items()}


def test_calls_are_stateless_and_agree_with_numpy(loaded: runtime.LoadedBundle) -> None:
    policy, inputs = loaded.entry_point("policy"), inputs_of("policy")
    expected = _run(PROGRAMS["policy"], inputs)
    for _ in range(2):
        outputs = policy(inputs)
        assert list(outputs) == [leaf.name for leaf in policy.outputs]
        for leaf in policy.outputs:
            assert outputs[leaf.name].dtype == leaf.file_dtype
            np.testing.assert_allclose(outputs[leaf.name], expected[leaf.name], atol=1e-6)
    assert policy.state is None


def test_results_are_the_callers_own(loaded: runtime.LoadedBundle) -> None:
    policy = loaded.entry_point("policy")
    first = policy(inputs_of("policy", 0))
    kept = {name: array.copy() for name, array in first.items()}
    policy(inputs_of("policy", 1))
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])
        array[...] = 0


def test_inputs_may_be_nested_and_python_numbers(loaded: runtime.LoadedBundle) -> None:
    class State(NamedTuple):
        h: Any
        s: Any
        count: Any

    flat = inputs_of("policy")
    nested = {
        "key": [int(n) for n in flat["key"]],
        "obs": {"vector": flat["obs.vector"].tolist(), "is_first": [True], "extra": None},
        "state": State(flat["state.h"], flat["state.s"], [7]),
    }
    flat |= {"obs.is_first": np.array([True]), "state.count": np.array([7], np.int32)}
    got, expected = (loaded.entry_point("policy")(x) for x in (nested, flat))
    for name in expected:
        np.testing.assert_array_equal(got[name], expected[name])


def test_step_feeds_the_state_back(loaded: runtime.LoadedBundle) -> None:
    policy, state = loaded.entry_point("policy"), _run(PROGRAMS["init"], {})
    for step in range(5):
        given = {k: v for k, v in inputs_of("policy", step).items() if not k.startswith("state")}
        outputs = policy.step(given)
        expected = _run(PROGRAMS["policy"], given | state)
        for name, array in expected.items():
            np.testing.assert_allclose(outputs[name], array, atol=1e-5)
        state = {name: expected[name] for name in state}
        assert policy.state is not None
        np.testing.assert_array_equal(policy.state["state.count"], [step])
    policy.reset()
    np.testing.assert_array_equal(policy.state["state.count"], [-1])
    assert loaded.entry_point("policy").state is None


def test_a_given_state_takes_the_place_of_the_kept_one(loaded: runtime.LoadedBundle) -> None:
    policy, inputs = loaded.entry_point("policy"), inputs_of("policy")
    policy.step({**inputs, "state.count": [40]})
    assert policy.step(inputs | {"state.count": [50]})["state.count"] == [51]
    policy.state = {"state": {"h": inputs["state.h"], "s": inputs["state.s"], "count": [60]}}
    assert policy.state is not None
    assert policy.state["state.count"] == [60]
    with pytest.raises(runtime.InputError, match=r"policy.state: missing input state.s float32\[1,4\]"):
        policy.state = {"state.h": inputs["state.h"], "state.count": [0]}
    policy.state = None
    assert policy.state is None


def test_first_states_from_inputs_keys_and_files(loaded: runtime.LoadedBundle) -> None:
    scale = np.ones((1, 4), np.float32)
    scaled = loaded.entry_point("scaled")
    np.testing.assert_array_equal(scaled.step({"scale": scale})["y"], 1.5 * scale)
    scaled.reset(scale=4 * scale)
    np.testing.assert_array_equal(scaled.step({"scale": scale})["y"], 3 * scale)

    keyed, key = loaded.entry_point("keyed"), np.array([1, 2**32 - 1], np.uint32)
    with pytest.raises(runtime.InputError, match=r"call reset\(key=uint32\[2\]\) first: init_keyed takes it"):
        keyed.step({"key": key})
    keyed.reset(key=key)
    np.testing.assert_array_equal(keyed.step({"key": key})["k"], KEY_MASK)

    filed = loaded.entry_point("filed")
    assert [float(filed.step()["x"][0, 0]) for _ in range(3)] == [4, 5, 6]

    with pytest.raises(BundleError, match="unstarted: the bundle does not say how scale begins"):
        loaded.entry_point("unstarted").step()
    with pytest.raises(BundleError, match="init: feeds nothing back"):
        loaded.entry_point("init").reset()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state.h": None}, r"policy: missing input state\.h float32\[1,4\]$"),
        ({"obs.vectr": 1.0}, r"policy: unknown input 'obs\.vectr'; it takes key, obs\.vector, obs\.is_first"),
        (
            {"obs.vector": np.zeros((3,), np.float32)},
            r"'obs\.vector' must be float32\[1,3\], not float32\[3\]",
        ),
        ({"obs.vector": np.zeros((1, 3))}, r"must be float32\[1,3\], not float64\[1,3\]"),
        ({"obs.is_first": [1]}, r"'obs\.is_first' must be bool\[1\], not int64\[1\]"),
        ({"state.count": [True]}, r"'state\.count' must be int32\[1\], not bool\[1\]"),
        ({"state.count": [2**31]}, r"'state\.count' must be int32\[1\]"),
        ({"state.count": [1.0]}, r"'state\.count' must be int32\[1\], not float64\[1\]"),
        ({"key": [-1, 0]}, r"'key' must be uint32\[2\]"),
        ({"key": np.zeros(2, np.int32)}, r"'key' must be uint32\[2\], not int32\[2\]"),
        ({"state.h": [[1, 2], [3]]}, r"'state\.h' is no array"),
        ({"state.h": "abcd"}, r"'state\.h' must be float32\[1,4\]"),
        ({"state": {"count": [1]}}, r"'state\.count' is given twice"),
    ],
)
def test_wrong_inputs_are_named(loaded: runtime.LoadedBundle, change: dict[str, Any], message: str) -> None:
    inputs = {name: x for name, x in {**inputs_of("policy"), **change}.items() if x is not None}
    with pytest.raises(runtime.InputError, match=message) as caught:
        loaded.entry_point("policy")(inputs)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, OpcompatError)
    with pytest.raises(runtime.InputError, match="must be a mapping"):
        loaded.entry_point("policy")([1])


def test_arrays_of_the_logical_dtype_are_widened(loaded: runtime.LoadedBundle) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    inputs = inputs_of("policy")
    half = inputs["state.h"].astype(ml_dtypes.bfloat16)
    got = loaded.entry_point("policy")(inputs | {"state.h": half})
    expected = loaded.entry_point("policy")(inputs | {"state.h": half.astype(np.float32)})
    np.testing.assert_array_equal(got["state.h"], expected["state.h"])
    with pytest.raises(runtime.InputError, match=r"not float16\[1,4\]"):
        loaded.entry_point("policy")(inputs | {"state.h": half.astype(np.float16)})


def test_replay_reproduces_every_entry_point(loaded: runtime.LoadedBundle) -> None:
    result = loaded.replay()
    result.raise_if_failed()
    assert result.passed
    assert [check.entry_point for check in result.checks] == list(loaded.entry_points)
    (policy,) = loaded.replay("policy").checks
    assert (policy.kind, policy.steps, policy.draws, policy.mismatched) == ("replay", 12, 36, 0)
    assert "policy" in str(result)
    assert loaded.runtime in str(result)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("optimize", [True, False])
def test_options(bundle: Path, format: str, optimize: bool) -> None:
    assert runtime.load(bundle, format, threads=2, optimize=optimize).replay().passed


@pytest.mark.parametrize("format", FORMATS)
def test_two_swapped_states_are_caught(tmp_path: Path, format: str) -> None:
    write_handmade(tmp_path / "dist", swap=("state.h", "state.s"))
    result = runtime.load(tmp_path / "dist", format).replay("policy")
    assert not result.passed
    with pytest.raises(VerificationError, match=r"policy \(.*FAILED: .*state\.h bfloat16: error"):
        result.raise_if_failed()


@pytest.mark.parametrize("format", FORMATS)
def test_a_changed_weight_is_caught(tmp_path: Path, format: str) -> None:
    path = write_handmade(tmp_path / "dist").path
    file = path / {"onnx": "onnx/weights.bin", "tflite": "tflite/model.tflite"}[format]
    data = bytearray(file.read_bytes())
    at = data.index(WEIGHT.tobytes()) + 3
    data[at] ^= 0x80  # the sign of one weight
    file.write_bytes(data)
    assert not runtime.load(path, format).replay("policy").passed
    with pytest.raises(BundleError, match=f"changed since it was written: .*{file.name}"):
        Bundle.open(path).check_files()


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_does_not_fit_the_manifest_is_refused(tmp_path: Path, format: str) -> None:
    path = write_handmade(tmp_path / "dist").path
    text = (path / "manifest.json").read_text()
    value = json.loads(text)
    for name in ("policy", "init"):
        for leaf in value["entry_points"][name]["inputs"] + value["entry_points"][name]["outputs"]:
            if leaf["name"] == "state.h":
                leaf["shape"] = [4, 1]
    (path / "manifest.json").write_text(json.dumps(value))
    with pytest.raises(BundleError, match=r"does not fit the manifest \(state\.h: \('float32', \[4, 1\]\)"):
        runtime.load(path, format).entry_point("policy")(inputs_of("policy") | {"state.h": [[0.0]] * 4})


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("size", [0, 1, 200])
def test_a_truncated_artifact_is_refused(tmp_path: Path, format: str, size: int) -> None:
    path = write_handmade(tmp_path / "dist").path
    file = path / {"onnx": "onnx/policy.onnx", "tflite": "tflite/model.tflite"}[format]
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(BundleError, match=f"{file.name}: {size} bytes, but the manifest says"):
        runtime.load(path, format)


@pytest.mark.parametrize("format", FORMATS)
def test_an_artifact_of_noise_is_refused(tmp_path: Path, format: str) -> None:
    path = write_handmade(tmp_path / "dist").path
    file = path / {"onnx": "onnx/policy.onnx", "tflite": "tflite/model.tflite"}[format]
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(BundleError, match="cannot load it"):
        runtime.load(path, format).replay("policy")


def test_formats_and_runtimes(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.load(bundle).format == "onnx"
    only = write_handmade(tmp_path / "dist", formats=["tflite"]).path
    assert runtime.load(only).format == "tflite"
    with pytest.raises(BundleError, match="holds no onnx, only tflite"):
        runtime.load(only, "onnx")
    with pytest.raises(BundleError, match="no runtime for format 'tfjs'"):
        runtime.load(only, "tfjs")
    with pytest.raises(BundleError, match="threads must be 1 or more"):
        runtime.load(only, threads=0)
    with pytest.raises(BundleError, match="no entry point 'polcy'; there are filed, init,"):
        runtime.load(only).entry_point("polcy")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BundleError, match="pip install onnxruntime or ai-edge-litert"):
        runtime.load(bundle)
    with pytest.raises(BundleError, match="tflite needs ai-edge-litert"):
        runtime.load(bundle, "tflite")


def test_a_session_is_the_plain_function(bundle: Path) -> None:
    manifest = Bundle.open(bundle).manifest
    results = [sessions.open_session(bundle, manifest, format, "policy")(inputs_of("policy")) for format in FORMATS]
    for name in results[0]:
        np.testing.assert_allclose(results[0][name], results[1][name], atol=1e-6)
    with pytest.raises(BundleError, match="no entry point 'x'"):
        sessions.open_session(bundle, manifest, "onnx", "x")


def test_nothing_heavy_is_imported(bundle: Path) -> None:
    code = (
        "import sys, opcompat; bare = set(sys.modules); assert 'numpy' not in bare, 'numpy'\n"
        f"import opcompat.runtime; loaded = opcompat.runtime.load({str(bundle)!r}, sys.argv[1])\n"
        "loaded.entry_point('init')(); names = {m.split('.')[0] for m in sys.modules}\n"
        "bad = names & {'jax', 'jaxlib', 'click', 'rich', 'onnx', 'onnx_ir', 'tensorflow', sys.argv[2]}\n"
        "assert not bad, bad"
    )
    for args in (["onnx", "ai_edge_litert"], ["tflite", "onnxruntime"]):
        subprocess.run([sys.executable, "-c", code, *args], check=True)


# The reference's own format


def near_tie_case(mark: bool) -> tuple[Any, Any]:
    """The policy's recording with another action at step 3, marked as a near tie or not."""
    reference = record({"policy": PROGRAMS["policy"]})["policy"]
    outputs = {name: array.copy() for name, array in reference.outputs.items()}
    outputs["action"][3] += 1
    outputs["state.h"][3] += 1
    ties = np.zeros(reference.steps, bool)
    ties[3] = mark
    near_tie = {"action": ties, "state.h": ties}
    return replace(reference, outputs=outputs, near_tie=near_tie), PROGRAMS["policy"].info


@pytest.mark.parametrize("mark", [True, False])
def test_a_mismatched_draw_is_allowed_at_a_near_tie_only(bundle: Path, mark: bool) -> None:
    from opcompat.runtime.replay import replay_entry_point

    reference, info = near_tie_case(mark)
    session = sessions.open_session(bundle, Bundle.open(bundle).manifest, "onnx", "policy")
    check = replay_entry_point("policy", info, session, reference, "onnx", "onnxruntime")
    assert check.passed is mark
    assert check.mismatched == (1 if mark else 0)
    wrong = {output.name: (output.error, output.worst_step) for output in check.outputs if not output.passed}
    if not mark:
        assert wrong["action"] == (1, 3)
        assert wrong["state.h"] == (pytest.approx(1, abs=1e-5), 3)


def test_an_output_that_depends_on_no_tie_is_not_excused(bundle: Path) -> None:
    from opcompat.runtime.replay import replay_entry_point

    reference, info = near_tie_case(mark=True)
    reference = replace(reference, near_tie={"action": reference.near_tie["action"]})
    session = sessions.open_session(bundle, Bundle.open(bundle).manifest, "onnx", "policy")
    check = replay_entry_point("policy", info, session, reference, "onnx", "onnxruntime")
    assert [output.name for output in check.outputs if not output.passed] == ["state.h"]


def test_near_ties_do_not_excuse_many_draws(bundle: Path) -> None:
    from opcompat.runtime.replay import replay_entry_point

    reference, info = near_tie_case(mark=True)
    outputs = dict(reference.outputs) | {"action": reference.outputs["action"] + 1}
    always = {name: np.ones(reference.steps, bool) for name in outputs}
    reference = replace(reference, outputs=outputs, near_tie=always)
    session = sessions.open_session(bundle, Bundle.open(bundle).manifest, "onnx", "policy")
    check = replay_entry_point("policy", info, session, reference, "onnx", "onnxruntime")
    assert all(output.passed for output in check.outputs)
    assert check.mismatched > 1
    assert not check.passed


@pytest.mark.parametrize(
    ("got", "want", "error"),
    [(np.nan, np.nan, 0), (np.inf, np.inf, 0), (np.inf, -np.inf, np.inf), (np.nan, 1, np.inf), (1.5, 1, 0.5)],
)
def test_errors_of_floats(got: float, want: float, error: float) -> None:
    from opcompat.runtime.replay import errors

    assert errors(np.array([[got]], np.float32), np.array([[want]], np.float32)) == [error]


def test_reference_round_trip_is_deterministic(tmp_path: Path) -> None:
    info = PROGRAMS["policy"].info
    reference = record({"policy": PROGRAMS["policy"]})["policy"]
    write_reference(tmp_path / "a.npz", reference)
    backwards = replace(reference, outputs=dict(reversed(list(reference.outputs.items()))))
    write_reference(tmp_path / "b.npz", backwards)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = read_reference(tmp_path / "a.npz", info)
    for kept, read in ((reference.inputs, again.inputs), (reference.outputs, again.outputs)):
        assert kept.keys() == read.keys()
        for name in kept:
            np.testing.assert_array_equal(kept[name], read[name])
    assert again.tolerance == reference.tolerance


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs/key": None}, "lacks inputs/key"),
        (
            {"outputs/action": np.zeros((12, 1))},
            r"outputs/action is float64\[12, 1\], not \[steps\] of int32\[1\]",
        ),
        ({"outputs/action": np.zeros((3, 1), np.int32)}, "same number of steps"),
        ({"near_tie/action": np.zeros(12)}, r"near_tie/action must be bool\[12\]"),
        ({"near_tie/action": np.zeros(3, bool)}, r"near_tie/action must be bool\[12\]"),
        ({"draws_per_mismatch": np.int64(0)}, "draws_per_mismatch must be one whole number"),
        ({"tolerance/state.h": None}, r"tolerance/state\.h must be one finite number"),
        ({"tolerance/state.h": np.float64(np.inf)}, r"tolerance/state\.h must be one finite number"),
        ({"tolerance/state.h": np.float64(-1)}, r"tolerance/state\.h must be one finite number"),
    ],
)
def test_a_wrong_reference_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write_reference(tmp_path / "a.npz", record({"policy": PROGRAMS["policy"]})["policy"])
    arrays = {n: a for n, a in {**read_arrays(tmp_path / "a.npz"), **change}.items() if a is not None}
    write_arrays(tmp_path / "b.npz", arrays)
    with pytest.raises(BundleError, match=message):
        read_reference(tmp_path / "b.npz", PROGRAMS["policy"].info)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([types.SimpleNamespace()], dtype=object))
    with pytest.raises(BundleError, match="not a readable"):
        read_arrays(tmp_path / "a.npz")


def test_a_damaged_reference_gives_nothing_but_a_bundle_error(tmp_path: Path) -> None:
    write_reference(tmp_path / "a.npz", record({"policy": PROGRAMS["policy"]}, steps=2)["policy"])
    data, rng = (tmp_path / "a.npz").read_bytes(), np.random.default_rng(0)
    damaged = [data[:size] for size in range(0, len(data), 37)]
    for _, flips in itertools.product(range(400), (1, 8)):
        changed = bytearray(data)
        for at in rng.integers(0, len(data), flips):
            changed[at] = rng.integers(256)
        damaged.append(bytes(changed))
    for text in damaged:
        (tmp_path / "b.npz").write_bytes(text)
        try:
            read_reference(tmp_path / "b.npz", PROGRAMS["policy"].info)
        except BundleError:
            continue


def test_an_array_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    import zipfile

    header = np.lib.format.magic(1, 0)
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"
    body = header + len(text).to_bytes(2, "little") + text
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", body)
    with pytest.raises(BundleError, match=r"x\.npy claims more than it holds"):
        read_arrays(tmp_path / "a.npz")
