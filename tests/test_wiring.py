"""What the configuration and the command line say of models that cannot say it themselves."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opcompat.config import Wiring
from opcompat.contract import contracts
from opcompat.errors import ConfigError
from opcompat.model import EntryPoint, Model
from opcompat.sampler import sample
from opcompat.sources import Options, load
from opcompat.sources.wiring import connect
from opcompat.trace import trace


def policy(params: Any, words: jax.Array, x: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draws from a key that it takes apart itself, as a model without JAX's key types does."""
    return x + jax.random.uniform(jax.random.wrap_key_data(words[::1])), state + x


def first(params: Any) -> dict[str, jax.Array]:
    return {"state": jnp.ones(3)}


def model() -> Model:
    args = (jax.ShapeDtypeStruct((2,), "uint32"), jnp.zeros(3), jnp.zeros(3))
    return Model("m", {}, {"first": EntryPoint(first), "policy": EntryPoint(policy, args, ("y", "state"))})


def test_feedback_and_first_values() -> None:
    table = Wiring(feedback={"state": "state"}, init={"state": "first.state"}, tolerance=0.5)
    wired = connect(model(), {"policy": table}, Wiring())
    traces = {name: trace(wired, name) for name in wired.entry_points}
    contract = contracts(wired, traces)["policy"]
    assert contract.feedback == {"state": "state"}
    assert contract.starts["state"].output == "state"
    assert wired.entry_points["policy"].tolerance == 0.5


def test_flags_win_and_a_number_fills_the_first_value() -> None:
    table = Wiring(feedback={"state": "state"}, init={"state": "first.state"})
    wired = connect(model(), {"policy": table}, Wiring(init={"state": 2}))
    traces = {name: trace(wired, name) for name in wired.entry_points}
    start = contracts(wired, traces)["policy"].starts["state"]
    assert start.array is not None
    np.testing.assert_array_equal(start.array, np.full(3, 2, np.float32))


@pytest.mark.parametrize("keys", [None, {"words": ""}, {"words": "threefry2x32"}])
def test_keys_are_sampled_as_keys(keys: dict[str, str] | None) -> None:
    wired = connect(model(), {}, Wiring(keys=keys), guess_keys=True)
    entry, found = wired.entry_points["policy"], trace(wired, "policy")
    assert found.inputs[0].key == "threefry2x32"
    words = sample(entry, found, seed=0, step=5)["words"]
    np.testing.assert_array_equal(words, jax.random.key_data(jax.random.fold_in(jax.random.key(0), 5)))
    x, state = jnp.zeros(3), jnp.zeros(3)
    y, _ = entry.function({}, jax.random.wrap_key_data(jnp.asarray(words)), x, state)
    np.testing.assert_array_equal(y, policy({}, jnp.asarray(words), x, state)[0])


def test_no_key_is_guessed_where_keys_are_named() -> None:
    def sums(params: Any, words: jax.Array) -> dict[str, jax.Array]:
        return {"sum": words.sum()}

    plain = Model("m", {}, {"f": EntryPoint(sums, (jax.ShapeDtypeStruct((2,), "uint32"),))})
    guessed = connect(plain, {}, Wiring(), guess_keys=True)
    assert trace(guessed, "f").inputs[0].key == "threefry2x32"
    named = connect(plain, {"f": Wiring(keys={})}, Wiring(), guess_keys=True)
    assert trace(named, "f").inputs[0].key == ""


@pytest.mark.parametrize(
    ("tables", "flags", "message"),
    [
        ({"polcy": Wiring()}, Wiring(), "no entry point 'polcy'; did you mean 'policy'?"),
        ({}, Wiring(feedback={"state": "stat"}), "--feedback: no entry point has an input 'stat'; did you mean"),
        ({}, Wiring(keys={"k": ""}), "--key: no entry point has an input 'k'"),
        ({"policy": Wiring(keys={"k": ""})}, Wiring(), "policy: no input 'k' (there are words, x, state)"),
        ({"policy": Wiring(keys={"x": ""})}, Wiring(), "the input 'x' cannot be a PRNG key"),
        ({"policy": Wiring(keys={"words": "rbg"})}, Wiring(), "the input 'words' cannot be a PRNG key"),
        ({"policy": Wiring(keys={"words": "fry"})}, Wiring(), "there is no implementation 'fry'"),
        ({"policy": Wiring(init={"s": 0})}, Wiring(), "init names the input 's', but there are only words, x, state"),
        ({"policy": Wiring(init={"state": [[1], [1, 2]]})}, Wiring(), "init 'state' is no array of numbers"),
    ],
)
def test_mistakes(tables: dict[str, Wiring], flags: Wiring, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connect(model(), tables, flags)
    assert message in str(caught.value)


def test_a_configuration_beside_the_source(tmp_path: Path) -> None:
    (tmp_path / "policy.py").write_text(
        "from opcompat.model import EntryPoint, Model\n"
        "def f(params, x):\n    return x\n"
        "def make():\n    return Model('m', {}, {'f': EntryPoint(f, (1.0,), ('y',))})\n"
    )
    (tmp_path / "opcompat.toml").write_text(
        'factory = "policy:make"\n[entry_points.f]\nfeedback = {y = "x"}\ninit = {x = 0}\n'
    )
    loaded = load(str(tmp_path), Options(wiring=Wiring(init={"x": 3})))
    entry = loaded.model.entry_points["f"]  # type: ignore[union-attr]
    assert entry.feedback == {"y": "x"}
    np.testing.assert_array_equal(entry.init["x"], 3)


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "opcompat.toml").write_text('source = "saved"\n')
    with pytest.raises(Exception, match="source names 'saved', and there is no such file or folder"):
        load(str(tmp_path))
