"""Verification against artifacts that are broken on purpose, and the parts that it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from jax import lax

from opcompat import api, conversion, packs
from opcompat.cli import cli
from opcompat.comparison import Comparison, Tolerance, error
from opcompat.contract import contracts
from opcompat.conversion import trace_all
from opcompat.errors import BundleError, VerificationError
from opcompat.model import EntryPoint, Model
from opcompat.reference import Arrays, Precision
from opcompat.report import Check
from opcompat.runtime.session import open_engine
from opcompat.trace import trace
from opcompat.verification import Recorder, Verifier

STEPS = 20
WEIGHTS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def policy(params: Any, key: Any, obs: Any, state: Any) -> Any:
    first, second = jax.random.split(key)
    h = jnp.tanh(0.5 * state["h"] + obs @ params["w"])
    c = 0.5 * state["c"] + 0.1 * h
    action = h + 0.1 * jax.random.normal(first, h.shape)
    return action, h, jax.random.categorical(second, h), {"h": h, "c": c}


def model_of(function: Callable[..., Any] = policy, weights: Any = WEIGHTS, **options: Any) -> Model:
    zeros = np.zeros(4, np.float32)
    entry = EntryPoint(
        function,
        (jax.random.key(0), jnp.zeros(3), {"h": zeros, "c": zeros}),
        names=("key", "obs", "state"),
        outputs=("action", "mean", "drawn", "state"),
        feedback={"state": "state"},
        init={"state": {"h": zeros, "c": zeros}},
        **options,
    )
    return Model("tiny", {"w": jnp.asarray(weights)}, {"policy": entry})


def recorder_of(model: Model) -> Recorder:
    traces = trace_all(model)
    return Recorder(model, traces, contracts(model, traces))


def by_kind(checks: tuple[Check, ...]) -> dict[str, Check]:
    return {c.kind: c for c in checks}


# Artifacts that are broken on purpose


def swapped_states(params: Any, key: Any, obs: Any, state: Any) -> Any:
    action, mean, drawn, after = policy(params, key, obs, state)
    return action, mean, drawn, {"h": after["c"], "c": after["h"]}


def states_read_crosswise(params: Any, key: Any, obs: Any, state: Any) -> Any:
    return policy(params, key, obs, {"h": state["c"], "c": state["h"]})


def dropped_key(params: Any, key: Any, obs: Any, state: Any) -> Any:
    return policy(params, jax.random.key(0), obs, state)


def same_key_twice(params: Any, key: Any, obs: Any, state: Any) -> Any:
    action, mean, _, after = policy(params, key, obs, state)
    return action, mean, jax.random.categorical(jax.random.split(key)[0], mean), after


def swapped_outputs(params: Any, key: Any, obs: Any, state: Any) -> Any:
    action, mean, drawn, after = policy(params, key, obs, state)
    return mean, action, drawn, after


def one_draw_off(params: Any, key: Any, obs: Any, state: Any) -> Any:
    action, mean, drawn, after = policy(params, key, obs, state)
    return action, mean, (drawn + 1) % 4, after


def forgotten_state(params: Any, key: Any, obs: Any, state: Any) -> Any:
    return policy(params, key, obs, jax.tree.map(jnp.zeros_like, state))


def one_weight_changed() -> np.ndarray:
    weights = WEIGHTS.copy()
    weights[1, 2] += 1e-3
    return weights


BROKEN = {
    "swapped states": (model_of(swapped_states), {"step", "closed-loop", "key"}),
    "states read crosswise": (model_of(states_read_crosswise), {"step", "closed-loop", "key"}),
    "dropped key": (model_of(dropped_key), {"step", "closed-loop", "key"}),
    "same key twice": (model_of(same_key_twice), {"step", "closed-loop", "key"}),
    "swapped outputs": (model_of(swapped_outputs), {"step", "closed-loop", "key"}),
    "one draw off": (model_of(one_draw_off), {"step", "closed-loop", "key"}),
    "forgotten state": (model_of(forgotten_state), {"step", "closed-loop", "key"}),
    "changed weight": (model_of(weights=one_weight_changed()), {"step", "closed-loop", "key"}),
}


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return recorder_of(model_of())


def proven(recorder: Recorder, bundle: Any, form: str) -> dict[str, Check]:
    return by_kind(Verifier(recorder, open_engine(bundle.path, bundle.manifest, form), form, STEPS, 1).run())


@pytest.mark.parametrize("form", ["onnx", "tflite"])
def test_an_artifact_of_the_model_itself_passes(recorder: Recorder, tmp_path: Path, form: str) -> None:
    bundle, _ = api.convert(model_of(), tmp_path / "dist", to=[form], steps=1)
    checks = proven(recorder, bundle, form)
    assert {k: c.passed for k, c in checks.items()} == dict.fromkeys(("step", "closed-loop", "key", "boundary"), True)
    assert all(c.note == "" for c in checks.values())
    assert checks["closed-loop"].binding


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets convert write without looking: what it would refuse is the point of these tests."""
    monkeypatch.setattr(conversion, "record", lambda *_, **__: None)
    monkeypatch.setattr(conversion, "run_checks", lambda *_, **__: ())


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_artifact_is_caught(recorder: Recorder, tmp_path: Path, unproven: None, what: str) -> None:
    broken, caught_by = BROKEN[what]
    bundle, _ = api.convert(broken, tmp_path / "dist", to=["onnx"], steps=1)
    checks = proven(recorder, bundle, "onnx")
    assert {k for k, c in checks.items() if not c.passed} >= caught_by


def test_a_bundle_of_another_model_is_refused(tmp_path: Path, unproven: None) -> None:
    for number, (broken, message) in enumerate(
        [
            (model_of(weights=one_weight_changed()), r"other weights: params\.w differ"),
            (model_of(dropped_key), "functions"),
        ]
    ):
        bundle, _ = api.convert(broken, tmp_path / str(number), to=["onnx"], steps=1)
        with pytest.raises(BundleError, match=message) as caught:
            api.verify(bundle, model_of())
        assert caught.value.exit_code == 2


def wrong_rules() -> tuple[Any, ...]:
    def slightly_off(site: Any) -> Any:
        return site.replace(lambda x: lax.log(lax.add(x, lax.full_like(x, 1.0001))))

    return tuple(replace(r, apply=slightly_off) if r.id == "OC502" else r for r in packs.rules())


def log1p_model() -> Model:
    return Model(
        "logs", (), {"f": EntryPoint(lambda params, x: {"y": jnp.log1p(jnp.abs(x))}, (jnp.zeros(5),), names=("x",))}
    )


def test_a_wrong_rule_is_caught_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = wrong_rules()
    monkeypatch.setattr(packs, "rules", lambda: rules)
    with pytest.raises(VerificationError, match=r"onnx f, step: y differs by [0-9.e-]+ \(allowed 1e-05\)") as caught:
        api.convert(log1p_model(), tmp_path / "dist", steps=5)
    assert caught.value.exit_code == 1
    assert "next: nothing was written" in str(caught.value)
    report = caught.value.report
    assert report is not None
    assert not report.ok
    assert {c.format for c in report.checks if not c.passed} == {"onnx", "tflite"}
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_rule_ends_the_command_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = wrong_rules()
    monkeypatch.setattr(packs, "rules", lambda: rules)
    monkeypatch.chdir(Path(__file__).parent)
    done = CliRunner().invoke(
        cli, ["convert", f"{__name__}:log1p_model", "--to", "onnx", "--steps", "2", "--out", str(tmp_path / "dist")]
    )
    assert done.exit_code == 1
    assert "does not act like JAX" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_tolerance_of_the_user_s_own_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = wrong_rules()
    monkeypatch.setattr(packs, "rules", lambda: rules)
    entry = replace(log1p_model().entry_points["f"], tolerance={"y": 1e-3})
    _, report = api.convert(replace(log1p_model(), entry_points={"f": entry}), tmp_path / "dist", steps=5)
    assert report.ok
    assert {o.tolerance for c in report.checks for o in c.outputs if c.kind == "step"} == {1e-3}


def swapping(swap: list[bool]) -> Model:
    """Returns its states crosswise once `swap` says so: the same equations and weights, wired otherwise."""
    return model_of(lambda *args: (swapped_states if swap[0] else policy)(*args))


def test_verify_knows_that_the_function_has_changed(tmp_path: Path) -> None:
    swap = [False]
    model = swapping(swap)
    bundle, _ = api.convert(model, tmp_path / "dist", to=["onnx"], steps=3)
    assert api.verify(bundle, model, steps=3).ok
    swap[0] = True
    with pytest.raises(BundleError, match="functions have changed"):
        api.verify(bundle, model, steps=3)


# The parts, with JAX functions in the place of artifacts


class Stand:
    """An engine whose sessions are given functions of arrays by name."""

    runtime, version = "stand-in", "0"

    def __init__(self, sessions: Mapping[str, Callable[[Arrays], Any]]) -> None:
        self.sessions = sessions

    def session(self, entry_point: str) -> Any:
        return self.sessions[entry_point]


def acting_as(model: Model) -> Stand:
    return Stand({n: r.step for n, r in recorder_of(model).references.items()})


def checks_of(model: Model, engine: Any, steps: int = STEPS) -> dict[str, Check]:
    return by_kind(Verifier(recorder_of(model), engine, "onnx", steps, 1).run())


def test_an_artifact_that_draws_anew_each_time_is_caught(recorder: Recorder) -> None:
    reference, count = recorder.references["policy"], [0]

    def moody(given: Arrays) -> Any:
        count[0] += 1
        result = dict(reference.step(given))
        return {**result, "mean": result["mean"] + np.float32(1e-7) * (count[0] % 2)}

    key = by_kind(Verifier(recorder, Stand({"policy": moody}), "onnx", STEPS, 1).run())["key"]
    assert not key.passed
    assert "the same inputs give another result" in key.note


def test_an_artifact_that_ignores_the_key_is_caught_by_the_key_check(recorder: Recorder) -> None:
    key = by_kind(Verifier(recorder, acting_as(model_of(dropped_key)), "onnx", STEPS, 1).run())["key"]
    assert not key.passed
    assert "another key changes nothing, but in JAX it does" in key.note


def test_a_key_that_the_policy_does_not_use_is_noted() -> None:
    model = model_of(dropped_key)
    key = checks_of(model, acting_as(model))["key"]
    assert key.passed
    assert key.note == "the key does not reach an output, in JAX either"


def logistic(params: Any, x: Any) -> Any:
    return {"x": params["r"] * x * (1 - x)}


def looping(function: Callable[..., Any], params: Any) -> Model:
    start = np.array([0.4], np.float32)
    return Model("loop", params, {"f": EntryPoint(function, (start,), feedback={"x": "x"}, init={"x": start})})


def nearly(model: Model) -> Stand:
    """An artifact that is right to within an ulp or so."""
    reference = recorder_of(model).references["f"]
    return Stand({"f": lambda given: {n: np.nextafter(v, np.float32(9)) for n, v in reference.step(given).items()}})


def test_a_chaotic_loop_is_reported_but_not_binding() -> None:
    model = looping(logistic, {"r": jnp.float32(3.9)})
    checks = checks_of(model, nearly(model), steps=100)
    loop = checks["closed-loop"]
    assert (loop.binding, loop.passed, checks["step"].passed) == (False, False, True)
    assert loop.sensitivity is not None
    assert loop.sensitivity > 0.1
    assert "chaotic: JAX's own loop moves by" in loop.note
    assert "; parted at step " in loop.note


def test_a_stable_loop_is_binding() -> None:
    model = looping(lambda params, x: {"x": x * params["rate"]}, {"rate": jnp.float32(0.9)})
    loop = checks_of(model, nearly(model), steps=100)["closed-loop"]
    assert (loop.binding, loop.passed, loop.note) == (True, True, "")
    assert loop.sensitivity is not None
    assert 0 < loop.sensitivity < 1e-6


def test_a_drift_that_no_single_step_shows_is_caught_in_the_loop() -> None:
    model = looping(lambda params, x: {"x": x + params["rate"]}, {"rate": jnp.float32(1e-3)})
    drifting = looping(lambda params, x: {"x": x + params["rate"]}, {"rate": jnp.float32(1e-3 + 1e-6)})
    checks = checks_of(model, acting_as(drifting), steps=100)
    assert checks["step"].passed
    assert checks["closed-loop"].binding
    assert not checks["closed-loop"].passed


def test_the_loop_goes_on_from_jax_after_a_mismatched_draw() -> None:
    """One draw at a tie falls otherwise: it is counted, allowed, and does not spoil what follows."""

    def draw(params: Any, step: Any) -> Any:
        scores = jnp.where(step == 5, jnp.array([1.0 + 1e-6, 1.0]), jnp.array([2.0, 1.0]))
        drawn = jnp.argmax(scores)
        return {"drawn": drawn, "step": jnp.where(drawn > 1, 0, step + 1)}

    start = np.int32(0)
    entry = EntryPoint(draw, (start,), feedback={"step": "step"}, init={"step": start})
    model = Model("ties", (), {"f": entry})
    reference = recorder_of(model).references["f"]

    def other(given: Arrays) -> Any:
        tie = given["step"] == 5
        right = reference.step(given)
        return {"drawn": np.int32(1), "step": np.int32(99)} if tie else right

    checks = checks_of(model, Stand({"f": other}))
    for kind in ("step", "closed-loop"):
        assert (checks[kind].passed, checks[kind].mismatched, checks[kind].draws) == (True, 1, STEPS)


# Tolerances


def test_a_tolerance_is_the_user_s_or_eight_times_jax_s_own_error() -> None:
    def f(params: Any, x: Any) -> Any:
        large = lax.optimization_barrier(np.float32(1e4))
        return {"bad": (x + large) - large, "good": x * 2, "count": jnp.int32(1)}

    x = np.array([0.1], np.float32)
    entry = EntryPoint(f, (x,), inputs=lambda rng: (x,), tolerance={"good": 1e-7})
    recorder = recorder_of(Model("m", (), {"f": entry}))
    found = recorder.tolerances("f", recorder.rollouts("f", 2, 1))
    own = found["bad"].reference_error
    assert own is not None
    assert 1e-5 < own < 1e-3
    assert found["bad"].allowed == 8 * own
    assert found["good"].allowed == 1e-7
    assert found["count"] == Tolerance(0.0, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, 1e-5), (0.5, 0.5), ({"state": 0.2}, 0.2), ({"state.h": 0.3, "state": 0.2}, 0.3), ({"action": 0.4}, 1e-5)],
)
def test_the_user_s_tolerance_by_output(given: Any, expected: float) -> None:
    model = model_of(tolerance=given)
    (leaf,) = (x for x in trace(model, "policy").outputs if x.name == "state.h")
    assert recorder_of(model).user_tolerance("policy", leaf) == expected


# Comparing


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("got", "want", "expected"),
    [
        (floats(1, 2), floats(1, 2.5), 0.5),
        (floats(np.nan, np.inf, -np.inf), floats(np.nan, np.inf, -np.inf), 0),
        (floats(np.nan), floats(1), math.inf),
        (floats(1), floats(np.nan), math.inf),
        (floats(np.inf), floats(-np.inf), math.inf),
        (floats(np.inf), floats(3e38), math.inf),
        (floats(0.0), floats(-0.0), 0),
        (floats(), floats(), 0),
        (floats(1, 2), floats(1), math.inf),
        (np.array([1, 2, 3]), np.array([1, 0, 0]), 2),
        (np.array([True, False]), np.array([True, True]), 1),
        (np.array([2**63 + 1], np.uint64), np.array([2**63], np.uint64), 1),
        (jnp.ones(2, jnp.bfloat16), jnp.zeros(2, jnp.bfloat16), 1),
    ],
)
def test_error(got: Any, want: Any, expected: float) -> None:
    assert error(np.asarray(got), np.asarray(want)) == expected


def comparison() -> Comparison:
    def f(params: Any) -> Any:
        return {"n": jnp.zeros(2, jnp.int32), "x": jnp.zeros(2)}

    one = trace(Model("m", (), {"f": EntryPoint(f)}), "f")
    return Comparison(one, {"n": Tolerance(0, None), "x": Tolerance(0.1, 0.01)})


def untied() -> Precision:
    return Precision({"x": 0.01}, 1, 0, frozenset())


def tied() -> Precision:
    return Precision({"x": 0.01}, 1, 1, frozenset({"n", "x"}))


def pair(n: int, x: float) -> dict[str, np.ndarray]:
    return {"n": np.array([n, 0], np.int32), "x": floats(x, 0)}


def test_a_comparison_keeps_the_worst_step_of_each_output() -> None:
    found = comparison()
    assert found.add(pair(1, 0.0), pair(1, 0.05), untied)
    assert not found.add(pair(2, 0.0), pair(1, 0.01), untied)
    assert not found.add(pair(1, 0.5), pair(1, 0.0), untied)
    n, x = found.outputs()
    assert (n.error, n.worst_step, n.passed, n.reference_error) == (1, 1, False, None)
    assert (x.error, x.worst_step, x.passed, x.reference_error) == (0.5, 2, False, 0.01)
    assert (found.steps, found.passed(10)) == (3, False)


def test_a_step_may_differ_by_its_own_error_and_that_of_its_size() -> None:
    """Heavy tails: the largest values are seldom where the tolerance was measured."""
    found = comparison()
    own = Precision({"x": 0.05}, 0, 0, frozenset())
    assert found.add(pair(1, 0.375), pair(1, 0.0), lambda: own)
    assert found.outputs()[1].tolerance == pytest.approx(0.4)
    assert found.outputs()[1].passed
    assert not found.add(pair(1, 0.41), pair(1, 0.0), lambda: own)
    assert not found.outputs()[1].passed
    large = comparison()
    large.tolerances = {"n": Tolerance(0, None), "x": Tolerance(0.1, 0.01, relative_error=0.01)}
    lucky = Precision({"x": 0.0}, 0, 0, frozenset())
    assert large.add(pair(1, 107.9), pair(1, 100.0), lambda: lucky)
    assert not large.add(pair(1, 108.2), pair(1, 100.0), lambda: lucky)
    assert not large.add(pair(1, 0.2), pair(1, 0.01), lambda: lucky), "small values are held to the tolerance"


def test_a_step_near_a_tie_is_set_apart_and_counted() -> None:
    found = comparison()
    assert found.add(pair(2, 9.0), pair(1, 0.0), tied)
    assert all(o.error == 0 for o in found.outputs())
    assert found.passed(1)
    assert not found.passed(0), "without draws there is nothing to be near a tie"
    found.add(pair(2, 9.0), pair(1, 0.0), tied)
    assert not found.passed(100_000)
    assert found.passed(100_001)


def test_only_outputs_that_depend_on_the_tie_are_excused() -> None:
    found = comparison()
    assert not found.add(pair(2, 9.0), pair(1, 0.0), lambda: tied()._replace(tied=frozenset({"n"})))
    assert {o.name: o.passed for o in found.outputs()} == {"n": True, "x": False}
    assert found.mismatched == 1


def test_every_differing_draw_counts() -> None:
    found = comparison()
    want = pair(1, 0.0)
    found.add({**want, "n": want["n"] + 1}, want, tied)
    assert found.mismatched == 2
    assert not found.passed(100_000)


def test_agreement_near_a_tie_is_no_mismatch() -> None:
    found = comparison()
    assert found.add(pair(1, 0.0), pair(1, 0.0), tied)
    assert found.mismatched == 0


def test_comparisons_are_joined() -> None:
    found, other = comparison(), comparison()
    found.add(pair(1, 0.05), pair(1, 0.0), untied)
    other.add(pair(1, 0.08), pair(1, 0.0), untied)
    found.include(other)
    _, x = found.outputs()
    assert (found.steps, x.worst_step) == (2, 1)
    assert x.error == pytest.approx(0.08)


def test_the_hash_of_a_model_knows_its_wiring() -> None:
    def swapped(params: Any, a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(b), jnp.tanh(a)

    def straight(params: Any, a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(a), jnp.tanh(b)

    def hashed(function: Any) -> str:
        entry = EntryPoint(function, args=(np.zeros(3, np.float32),) * 2, outputs=("x", "y"))
        return conversion.model_hash({}, conversion.trace_all(Model("m", {}, {"step": entry})))

    assert hashed(straight) == hashed(straight)
    assert hashed(straight) != hashed(swapped)


def test_a_tie_excuses_nothing_that_does_not_depend_on_it() -> None:
    """Logits that are almost equal tie at every step, but an output beside them stays binding."""

    def step(params: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.argmax(x * jnp.array([0, 1e-6, 0])), x * 2

    one = trace(
        Model("m", {}, {"step": EntryPoint(step, args=(np.zeros(3, np.float32),), outputs=("act", "v"))}), "step"
    )
    recorder = Recorder(Model("m", {}, {"step": EntryPoint(step, args=(np.zeros(3, np.float32),))}), {"step": one}, {})
    precision = recorder.references["step"].precision({"x": np.ones(3, np.float32)})
    assert precision.near_ties == 1
    assert precision.tied == {"act"}


def test_boundary_values_around_which_jax_s_own_loop_does_not_end_are_left_out(tmp_path: Path) -> None:
    def rejection(params: Any, key: jax.Array, mean: jax.Array) -> jax.Array:
        def again(carry: Any) -> Any:
            return jnp.abs(carry[1]) > 2

        def draw(carry: Any) -> Any:
            key, own = jax.random.split(carry[0])
            return key, mean + jax.random.normal(own)

        return jax.lax.while_loop(again, draw, draw((key, mean)))[1]

    entry = EntryPoint(rejection, (jax.random.key(0), jnp.float32(0)), ("action",))
    _, report = api.convert(Model("rejection", (), {"act": entry}), tmp_path / "dist", to=["onnx"], steps=20)
    (boundary,) = [c for c in report.checks if c.kind == "boundary"]
    assert boundary.passed
    assert boundary.note == "left out, for JAX's own loop does not end: 10000, inf, -inf"
    assert boundary.steps == 6
