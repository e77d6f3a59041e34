"""Classic SavedModels, by their real producers, from the file to proven artifacts. Needs the extra `tensorflow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opcompat
import opcompat.runtime
from opcompat.errors import SourceError, UnsupportedError, VerificationError
from opcompat.sources import Options, load_model
from opcompat.sources.classic import ops

pytestmark = pytest.mark.tensorflow

FORMATS = ("onnx", "tflite")
ONE = Options(dims={"batch": 1})


@pytest.fixture(scope="session")
def tf() -> Any:
    from opcompat.sources.classic.install import tensorflow

    return tensorflow()


@pytest.fixture(scope="module")
def realnvp(tmp_path_factory: pytest.TempPathFactory, tf: Any) -> tuple[Path, Path]:
    """(SavedModel, bundle)."""
    from tests.classic import producers

    root = tmp_path_factory.mktemp("realnvp")
    source = producers.realnvp(root / "flow")
    model = load_model(str(source), ONE).model
    opcompat.convert(model, root / "dist", to=FORMATS, steps=10)
    return source, root / "dist"


def test_a_keras_tfp_realnvp_has_its_three_entry_points(realnvp: tuple[Path, Path]) -> None:
    manifest = opcompat.runtime.load(realnvp[1]).manifest
    ports = {n: ([x.name for x in e.inputs], [x.name for x in e.outputs]) for n, e in manifest.entry_points.items()}
    assert ports == {
        "forward": (["condition", "latents"], ["action", "log_det"]),
        "log_prob": (["action", "condition"], ["log_prob"]),
        "sample": (["condition", "noise"], ["action", "log_prob"]),
    }


def test_its_weights_are_stored_once_under_the_variables_names(realnvp: tuple[Path, Path]) -> None:
    manifest = opcompat.runtime.load(realnvp[1]).manifest
    bytes_of = {w.name: int(np.prod(w.shape)) * 4 for w in manifest.weights}
    assert sum(bytes_of.values()) == 4 * 4 * (5 * 64 + 64 + 64 * 4 + 4)
    assert any("coupling_0_hidden.kernel" in name for name in bytes_of)
    stored = (realnvp[1] / "onnx" / "weights.bin").stat().st_size
    assert sum(bytes_of.values()) <= stored < 1.1 * sum(bytes_of.values()) + 16 * 64
    params = load_model(str(realnvp[0]), ONE).model.params
    tflite = (realnvp[1] / "tflite" / "model.tflite").read_bytes()
    kernels = [w for name, w in params.items() if name.endswith("kernel")]
    assert [tflite.count(w.tobytes()) + tflite.count(w.T.tobytes()) for w in kernels] == [1] * 8


@pytest.mark.parametrize("form", FORMATS)
def test_its_artifacts_equal_tensorflow_within_1e_4(realnvp: tuple[Path, Path], tf: Any, form: str) -> None:
    root = tf.saved_model.load(str(realnvp[0]))
    bundle = opcompat.runtime.load(realnvp[1], form)
    for name in bundle.manifest.entry_points:
        for seed in range(50):
            rng = np.random.default_rng([seed, 7])
            ports = bundle.manifest.entry_points[name].inputs
            given = {x.name: rng.standard_normal(x.shape).astype(np.float32) for x in ports}
            want = root.signatures[name](**{k: tf.constant(v) for k, v in given.items()})
            got = bundle.entry_point(name).step(given)
            assert set(got) == set(want)
            for output, value in want.items():
                np.testing.assert_allclose(got[output], value.numpy(), atol=1e-4, rtol=1e-4, err_msg=f"{name} {output}")


def test_the_bundle_verifies_against_its_source(realnvp: tuple[Path, Path]) -> None:
    assert opcompat.verify(realnvp[1], load_model(str(realnvp[0]), ONE).model, steps=5).ok
    assert opcompat.verify(realnvp[1]).ok


def test_keras_export(tmp_path: Path, tf: Any) -> None:
    from tests.classic import producers

    model = load_model(str(producers.keras_policy(tmp_path / "keras")), Options(dims={"batch": 2})).model
    assert set(model.entry_points) == {"serve", "serving_default"}
    assert len(model.params) == 10
    report = opcompat.scan(model)
    assert report.ok, report.next_step


def test_an_open_size_is_named(tmp_path: Path, tf: Any) -> None:
    from tests.classic import producers

    source = producers.save(tmp_path / "m", act=(lambda _, x: {"y": x * 2.0}, [tf.TensorSpec((None, 3), name="x")]))
    with pytest.raises(SourceError, match=r"'batch' is open.*--dim batch=1"):
        load_model(str(source))
    assert load_model(str(source), Options(dims={"x[0]": 4})).model.entry_points["act"].args[0].shape == (4, 3)


def test_signatures_share_variables_and_same_names_stay_apart(tmp_path: Path, tf: Any) -> None:
    from tests.classic import producers

    variables = {n: tf.Variable(np.full((2, 2), v, np.float32), name="w") for n, v in (("a", 1), ("b", 2), ("c", 3))}
    spec = [tf.TensorSpec((1, 2), name="x")]
    source = producers.save(
        tmp_path / "m",
        variables,
        first=(lambda m, x: {"y": x @ m.a @ m.b}, spec),
        second=(lambda m, x: {"y": x @ m.c @ m.b}, spec),
    )
    model = load_model(str(source)).model
    assert sorted(float(w[0, 0]) for w in model.params.values()) == [1, 2, 3]
    x = np.ones((1, 2), np.float32)
    assert model.entry_points["first"].function(model.params, x)["y"].tolist() == [[8, 8]]
    assert model.entry_points["second"].function(model.params, x)["y"].tolist() == [[24, 24]]


def test_loops_and_branches(tmp_path: Path, tf: Any) -> None:
    from tests.classic import producers

    def act(m: Any, x: Any, n: Any) -> Any:
        _, y = tf.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, tf.tanh(y @ m.w)), [tf.constant(0), x])
        return {"y": tf.cond(tf.reduce_sum(x) > 0, lambda: y, lambda: -y)}

    w = tf.Variable(np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32))
    specs = [tf.TensorSpec((1, 3), name="x"), tf.TensorSpec((), tf.int32, name="n")]
    # Boundary values of n are lengths of the loop, so the policy bounds them.
    source = producers.save(tmp_path / "m", {"w": w}, act=(lambda m, x, n: act(m, x, tf.clip_by_value(n, 0, 5)), specs))
    assert opcompat.scan(load_model(str(source)).model).ok


def test_64_bit_interfaces_stay_so(tmp_path: Path, tf: Any) -> None:
    import jax

    from tests.classic import producers

    source = producers.save(
        tmp_path / "m", act=(lambda _, x: {"action": tf.argmax(x, -1)}, [tf.TensorSpec((1, 3), name="x")])
    )
    try:
        model = load_model(str(source)).model
        found = model.entry_points["act"].function({}, np.ones((1, 3), np.float32))["action"]
    finally:
        jax.config.update("jax_enable_x64", False)
    assert found.dtype == np.int64


REFUSED = {
    "RandomStandardNormal": (lambda tf, m, x: x + tf.random.normal((1, 2)), "a state inside TensorFlow"),
    "StatelessRandomNormalV2": (lambda tf, m, x: x + tf.random.stateless_normal((1, 2), [1, 2]), "Philox"),
    "StatelessMultinomial": (
        lambda tf, m, x: tf.cast(tf.random.stateless_categorical(x, 2, [1, 2]), tf.float32),
        "Philox",
    ),
    "ReadFile": (lambda tf, m, x: x + tf.strings.to_number(tf.io.read_file("/etc/hostname")), "reads or writes files"),
    "EagerPyFunc": (lambda tf, m, x: tf.ensure_shape(tf.py_function(lambda y: y, [x], tf.float32), (1, 2)), "Python"),
    "AssignAddVariableOp": (lambda tf, m, x: x + m.v.assign_add(1.0), "changes a variable"),
    "Zeta": (lambda tf, m, x: tf.math.zeta(x, x), "--via tf2onnx"),
}


@pytest.mark.parametrize("op", REFUSED)
def test_what_is_refused_is_named(op: str, tmp_path: Path, tf: Any) -> None:
    from tests.classic import producers

    function, why = REFUSED[op]
    source = producers.save(
        tmp_path / "m",
        {"v": tf.Variable(1.0)},
        fine=(lambda m, x: {"y": x}, [tf.TensorSpec((1, 2), name="x")]),
        draws=(lambda m, x: {"y": function(tf, m, x)}, [tf.TensorSpec((1, 2), name="x")]),
    )
    with pytest.raises(UnsupportedError, match=f"(?s)  {op} .*{why}.*signature draws, node "):
        load_model(str(source))


def test_all_lacking_ops_are_named_at_once(tmp_path: Path, tf: Any) -> None:
    from tests.classic import producers

    spec = [tf.TensorSpec((1, 2), name="x")]
    source = producers.save(
        tmp_path / "m",
        one=(lambda m, x: {"y": tf.math.zeta(x, x) + tf.math.betainc(x, x, x)}, spec),
        two=(lambda m, x: {"y": tf.math.polygamma(x, x)}, spec),
    )
    with pytest.raises(UnsupportedError) as error:
        load_model(str(source))
    assert [op for op in ("Zeta", "Betainc", "Polygamma") if f"  {op} " in str(error.value)] == [
        "Zeta",
        "Betainc",
        "Polygamma",
    ]


def test_old_graphs_of_jax2tf(tmp_path: Path, tf: Any) -> None:
    from tests.classic import producers

    w = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))

    def dot(m: Any, x: Any) -> Any:
        from tensorflow.compiler.tf2xla.ops import gen_xla_ops
        from tensorflow.compiler.xla import xla_data_pb2

        dims = xla_data_pb2.DotDimensionNumbers(lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0])
        return gen_xla_ops.xla_dot(lhs=x, rhs=m.w, dimension_numbers=dims.SerializeToString(), precision_config=b"")

    source = producers.save(
        tmp_path / "m", {"w": w}, act=(lambda m, x: {"y": dot(m, x)}, [tf.TensorSpec((1, 3), name="x")])
    )
    model = load_model(str(source)).model
    assert model.entry_points["act"].function(model.params, np.ones((1, 3), np.float32))["y"].tolist() == [[6, 9]]


def test_lookup_tables_are_refused(tmp_path: Path, tf: Any) -> None:
    from tests.classic import producers

    initializer = tf.lookup.KeyValueTensorInitializer([1, 2], [3.0, 4.0], tf.int32, tf.float32)
    table = tf.lookup.StaticHashTable(initializer, 0.0)
    source = producers.save(
        tmp_path / "m",
        {"table": table},
        act=(lambda m, x: {"y": m.table.lookup(x)}, [tf.TensorSpec((1,), tf.int32, name="x")]),
    )
    with pytest.raises(SourceError, match="lookup tables"):
        load_model(str(source))


def test_a_wrong_conversion_is_found(tmp_path: Path, tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import tf2jax

    from tests.classic import producers

    source = producers.save(tmp_path / "m", act=(lambda _, x: {"y": tf.exp(x)}, [tf.TensorSpec((1, 3), name="x")]))
    right = tf2jax.convert_functional
    monkeypatch.setattr(
        tf2jax,
        "convert_functional",
        lambda *args: lambda *given: [y * 1.001 for y in right(*args)(*given)],
    )
    with pytest.raises(VerificationError, match=r"act, random input 0: differs in y by"):
        load_model(str(source))


def test_the_allow_list_is_what_tf2jax_converts(tf: Any) -> None:
    from tf2jax._src import ops as theirs

    assert set(theirs._jax_ops) >= ops.ALLOWED
    left_out = set(theirs._jax_ops) - ops.ALLOWED
    assert all(ops.reason(op) != ops.reason("NoSuchOp") or op in ("Empty", "XlaCallModule") for op in left_out), (
        left_out
    )
