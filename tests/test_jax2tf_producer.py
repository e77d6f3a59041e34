"""The example policy, saved by the jax2tf and TensorFlow of this environment, then without its Python source: artifacts
that act in a closed loop like the policy itself, with the same draws.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from opcompat import conversion
from opcompat.sampler import sample
from opcompat.sources import Options, load_model

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).parents[1]
STATE = ("action", "deter", "stoch")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the SavedModel and, in opcompat.toml, what a SavedModel cannot say."""
    folder = tmp_path_factory.mktemp("saved")
    save(folder / "saved")
    feedback = ", ".join(f'state_{part} = "state_{part}"' for part in STATE)
    init = ", ".join(f'state_{part} = "init_policy.state_{part}"' for part in STATE)
    table = f'source = "saved"\n[entry_points.policy]\nfeedback = {{ {feedback} }}\ninit = {{ {init} }}\n'
    (folder / "opcompat.toml").write_text(table)
    return folder


def example() -> Any:
    sys.path.insert(0, str(ROOT / "examples" / "dreamer"))
    import dreamer

    return dreamer.model(size="small")


def flat_names(prefix: str, tree: Any) -> list[str]:
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    return ["_".join([prefix, *(str(step.key) for step in path)]) for path in paths]


def save(folder: Path) -> None:
    """As a user of jax2tf does it: parameters as variables, one signature per function, keys as their words."""
    import tensorflow as tf
    from jax.experimental import jax2tf

    model = example()
    module = tf.Module()
    module.params = tf.nest.map_structure(tf.Variable, jax.tree.map(np.asarray, model.params))

    def signature(name: str) -> Any:
        entry = model.entry_points[name]
        arguments = dict(zip(entry.argument_names(), entry.args, strict=True))
        trees = {n: jax.ShapeDtypeStruct((2,), np.uint32) if n == "key" else a for n, a in arguments.items()}
        leaves, structure = jax.tree.flatten(tuple(trees.values()))
        names = [leaf for n, tree in trees.items() for leaf in flat_names(n, tree)]

        def flat(params: Any, *xs: Any) -> Any:
            args = dict(zip(trees, jax.tree.unflatten(structure, xs), strict=True))
            args = {n: jax.random.wrap_key_data(a) if n == "key" else a for n, a in args.items()}
            result = entry.function(params, *args.values())
            parts = result if isinstance(result, dict) else dict(zip(entry.outputs, result, strict=True))
            named = [zip(flat_names(n, r), jax.tree.leaves(r), strict=True) for n, r in parts.items()]
            return dict(pair for pairs in named for pair in pairs)

        convert = jax2tf.convert(flat, with_gradient=False)
        specs = [tf.TensorSpec(x.shape, x.dtype, name=n) for n, x in zip(names, leaves, strict=True)]
        return tf.function(lambda *xs: convert(module.params, *xs), autograph=False, input_signature=specs)

    signatures = {name: signature(name) for name in model.entry_points}
    for name, function in signatures.items():
        setattr(module, name, function)
    tf.saved_model.save(module, str(folder), signatures=signatures)


def opcompat(*args: str) -> str:
    """What a command prints, in a process without TensorFlow."""
    program = "import sys; sys.modules['tensorflow'] = None; from opcompat.cli import main; main()"
    command = [sys.executable, "-c", program, *args, "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_scan_convert_and_verify_in_a_closed_loop(project: Path) -> None:
    dist = str(project / "dist")
    assert "0 unsupported" in opcompat("scan", str(project))
    opcompat("convert", str(project), "--to", "onnx,tflite", "--out", dist)
    report = json.loads(opcompat("verify", dist, str(project), "--steps", "200", "--format", "json"))
    loops = [c for c in report["checks"] if c["kind"] == "closed-loop"]
    assert {c["format"] for c in loops} == {"onnx", "tflite"}
    assert all(c["passed"] and c["draws"] == 2000 and not c["mismatched"] for c in loops)


def test_it_is_the_example_bit_for_bit(project: Path) -> None:
    """The saved policy and the example in the same process: equal draws, and states apart by rounding alone."""
    saved = load_model(str(project), Options(trusted=True)).model
    entry = saved.entry_points["policy"]
    trace = conversion.trace_all(saved)["policy"]
    original = example()
    policy = jax.jit(original.entry_points["policy"].function)
    loaded = jax.jit(entry.function)
    for step in range(20):
        flat = sample(entry, trace, 0, step)
        key = jax.random.wrap_key_data(flat["key"])
        got = loaded(saved.params, *(key if n == "key" else flat[n] for n in entry.argument_names()))
        obs = {n.removeprefix("obs_"): v for n, v in flat.items() if n.startswith("obs_")}
        state = {part: flat[f"state_{part}"] for part in STATE}
        action, _, latent, new = policy(original.params, key, obs, state)
        np.testing.assert_array_equal(got["action"], action)
        np.testing.assert_array_equal(got["latent"], latent)
        np.testing.assert_allclose(got["state_deter"], new["deter"], atol=1e-6)
