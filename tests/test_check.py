"""`opcompat.check` on a tiny recurrent policy: each change turns it red with its explanation, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import opcompat
from opcompat import packs
from opcompat.checking import baseline, explain, judge
from opcompat.checking.data import CheckReport, Issue, ModelResult
from opcompat.checking.settings import Settings, parse

RNG = np.random.default_rng(0)
W, U, OUT = (RNG.normal(size=shape).astype(np.float32) * 0.5 for shape in ((3, 6), (6, 6), (6, 4)))


def start(params: Any) -> Any:
    return {"h": jnp.zeros((1, 6)), "t": jnp.zeros((1,))}


def act(params: Any, key: Any, obs: Any, state: Any) -> Any:
    h = jnp.tanh(obs @ params["w"] + state["h"] @ params["u"])
    return jax.random.categorical(key, h @ params["o"]), {"h": h, "t": state["t"] + 1}


def model(
    function: Callable[..., Any] = act,
    first: Callable[..., Any] = start,
    args: Sequence[Any] | None = None,
    params: Any = None,
) -> opcompat.Model:
    state = first(None)
    return opcompat.Model(
        name="policy",
        params=params or {"w": W, "u": U, "o": OUT},
        entry_points={
            "start": opcompat.EntryPoint(first, outputs=("state",)),
            "act": opcompat.EntryPoint(
                function,
                tuple(args) if args is not None else (jax.random.key(0), jnp.zeros((1, 3)), state),
                outputs=("action", "state"),
                feedback={"state": "state"},
                init={"state": "start.state"},
            ),
        },
    )


@pytest.fixture(scope="module")
def measured() -> CheckReport:
    """The policy as it is."""
    return run(model())


@pytest.fixture(scope="module")
def accepted(measured: CheckReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its baseline."""
    assert measured.ok
    path = tmp_path_factory.mktemp("baseline") / baseline.FILE
    path.write_text(baseline.text_of(measured.models, measured.versions))
    return path


def run(one: opcompat.Model, file: Path | None = None, **options: Any) -> CheckReport:
    return opcompat.check(one, baseline=file, steps=4, compare=file is not None, **{"to": ("onnx",), **options})


def failing(report: CheckReport) -> list[Issue]:
    return [issue for issue in report.all_issues() if issue.fails("error")]


def words(issues: Sequence[Issue]) -> str:
    return " ".join(f"{i.id}: {i.message} {i.cause} {i.before} {i.after}" for i in issues)


def test_without_a_change_it_is_green_and_the_same_to_the_byte(accepted: Path) -> None:
    texts = []
    for _ in range(2):
        report = run(model(), accepted)
        assert report.ok
        assert report.next_step == ""
        value = json.loads(packs.renderers()["json"](report))
        assert value.pop("run")["durations"]["policy"] > 0
        texts.append(json.dumps(value))
    assert texts[0] == texts[1]


MOVED = """


def act(params, key, obs, state):
    # the same policy on other lines, in another file, with other names of its own
    hidden = jnp.tanh(obs @ params["w"] + state["h"] @ params["u"])
    logits = hidden @ params["o"]

    action = jax.random.categorical(key, logits)
    return action, {"h": hidden, "t": state["t"] + 1}
"""


def test_what_does_not_matter_changes_nothing(accepted: Path, tmp_path: Path) -> None:
    names: dict[str, Any] = {"jax": jax, "jnp": jnp}
    exec(compile(MOVED, str(tmp_path / "moved.py"), "exec"), names)
    report = run(model(names["act"], params={"w": W * 0.9, "u": U * 0.9, "o": OUT * 1.1}), accepted)
    assert failing(report) == []
    assert {f.file for t in report.models[0].report.targets for f in t.findings} == {str(tmp_path / "moved.py")}


def lacking(params: Any, key: Any, obs: Any, state: Any) -> Any:
    action, state = act(params, key, obs, state)
    return action, {**state, "t": state["t"] + jnp.linalg.eigh(params["u"])[0][0]}


def drifting(params: Any, key: Any, obs: Any, state: Any) -> Any:
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    action, state = act(half, key, obs.astype(jnp.bfloat16), state)
    return action, jax.tree.map(lambda x: x.astype(jnp.float32), state)


def renamed(params: Any, key: Any, obs: Any, state: Any) -> Any:
    action, new = act(params, key, obs, {"h": state["hidden"], "t": state["t"]})
    return action, {"hidden": new["h"], "t": new["t"]}


def start_renamed(params: Any) -> Any:
    return {"hidden": jnp.zeros((1, 6)), "t": jnp.zeros((1,))}


def reordered(params: Any, obs: Any, key: Any, state: Any) -> Any:
    return act(params, key, obs, state)


def greedy(params: Any, key: Any, obs: Any, state: Any) -> Any:
    action, state = act(params, jax.random.key(0), obs, state)
    return action, state


def keyless(params: Any, obs: Any, state: Any) -> Any:
    return act(params, jax.random.key(0), obs, state)


KEY, OBS = jax.random.key(0), jnp.zeros((1, 3))
STATE = start(None)


@pytest.mark.parametrize(
    ("changed", "kinds", "explanation"),
    [
        (model(lacking), {"unsupported"}, "eigh"),
        (model(drifting), {"dtype"}, "now compute with bfloat16"),
        (model(renamed, start_renamed), {"interface"}, "the state input state.h is now called state.hidden"),
        (model(reordered, args=(OBS, KEY, STATE)), {"interface"}, "the inputs come in another order"),
        (model(keyless, args=(OBS, STATE)), {"key"}, "the key key was dropped"),
        (model(greedy), {"key"}, "no output depends on the key key any more"),
    ],
    ids=["lacking", "dtype", "renamed", "reordered", "key gone", "key idle"],
)
def test_a_change_fails_with_its_explanation(
    accepted: Path, changed: opcompat.Model, kinds: set[str], explanation: str
) -> None:
    report = run(changed, accepted)
    bad = failing(report)
    assert not report.ok
    assert kinds <= {issue.id for issue in bad}
    assert explanation in words(bad)
    assert all(issue.cause == "the model or its code: no version moved that could do it" for issue in bad)
    assert all(issue.status == "new" for issue in bad)


def test_another_opset_fails(accepted: Path) -> None:
    (bad,) = failing(run(model(), accepted, opset=22))
    assert (bad.id, bad.before, bad.after) == ("opset", "21", "22")


def test_a_rule_that_is_switched_off_fails(accepted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tuple(rule for rule in packs.rules() if rule.id != "OC103")
    monkeypatch.setattr(packs, "rules", lambda: left)
    report = run(model(), accepted)
    bad = failing(report)
    assert {issue.id for issue in bad} == {"rule", "bytes"}  # more ops take its place
    assert "OC103 no longer acts here" in words([issue for issue in bad if issue.id == "rule"])


def test_a_larger_file_fails(accepted: Path) -> None:
    wide = {"w": np.zeros((3, 60), np.float32), "u": np.zeros((60, 60), np.float32), "o": np.zeros((60, 4), np.float32)}

    def wider(params: Any) -> Any:
        return {"h": jnp.zeros((1, 60)), "t": jnp.zeros((1,))}

    bad = failing(run(model(act, wider, params=wide), accepted))
    assert {issue.id for issue in bad} == {"bytes", "interface"}  # the state has another shape, too
    assert "times as large" in words([issue for issue in bad if issue.id == "bytes"])


def changed_entry(report: CheckReport, accepted: Path, change: Callable[[dict[str, Any]], None]) -> list[Issue]:
    """What the unchanged policy gives against a baseline that is changed by hand."""
    entry = json.loads(accepted.read_text())
    change(entry["models"]["policy"])
    plain = replace(report.models[0], issues=())
    result, _, _ = judge.judge(plain, Settings(), {}, entry)
    return [issue for issue in result.issues if issue.status not in ("known", "")]


def test_a_larger_error_fails(measured: CheckReport, accepted: Path) -> None:
    whole = measured.models[0].report
    checks = tuple(
        replace(
            check,
            outputs=tuple(replace(o, error=5e-6) if o.name == "state.h" else o for o in check.outputs)
            if (check.entry_point, check.kind) == ("act", "closed-loop")
            else check.outputs,
        )
        for check in whole.checks
    )
    entry = json.loads(accepted.read_text())
    entry["models"]["policy"]["errors"]["onnx act state.h"] = 1e-6
    worse = ModelResult("policy", replace(whole, checks=checks))
    (bad,) = [issue for issue in judge.judge(worse, Settings(), {}, entry)[0].issues if issue.level == "error"]
    assert (bad.id, bad.before, bad.after) == ("error", "1e-06", "5e-06")
    assert "onnx act state.h: a larger error" in bad.message
    entry["models"]["policy"]["errors"]["onnx act state.h"] = 2e-6
    assert not any(issue.level == "error" for issue in judge.judge(worse, Settings(), {}, entry)[0].issues)


def test_what_is_fixed_passes_with_a_note(measured: CheckReport, accepted: Path) -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["findings"]["onnxruntime | eigh | act | unsupported | no kernel"] = 1

    notes = [issue for issue in changed_entry(measured, accepted, change) if issue.status == "fixed"]
    assert [(i.level, i.active) for i in notes] == [("note", False)]
    assert "eigh" in notes[0].message


def test_more_of_a_known_finding_fails(measured: CheckReport, accepted: Path) -> None:
    def change(entry: dict[str, Any]) -> None:
        for name in entry["findings"]:
            entry["findings"][name] -= 1

    bad = [
        issue for issue in changed_entry(measured, accepted, change) if issue.status == "new" and issue.level == "error"
    ]
    assert bad
    assert "1 times, before 0 times" in bad[0].message or bad[0].message.startswith("new: ")


def test_stale_entries_fail_unless_they_are_allowed(accepted: Path, tmp_path: Path) -> None:
    entry = json.loads(accepted.read_text())
    entry["models"]["gone"] = entry["models"]["policy"]
    stale = tmp_path / "stale.json"
    stale.write_text(json.dumps(entry))
    (bad,) = failing(run(model(), stale))
    assert (bad.id, bad.status) == ("stale", "stale")
    assert "the model gone" in bad.message
    assert run(model(), stale, allow_stale=True).ok


def test_a_moved_version_is_named_as_the_cause(measured: CheckReport, accepted: Path) -> None:
    entry = json.loads(accepted.read_text())
    entry["versions"]["onnxruntime"] = "1.0"
    entry["models"]["policy"]["artifacts"]["onnx"]["opset"] = 20
    result, _, _ = judge.judge(replace(measured.models[0], issues=()), Settings(), {}, entry)
    (bad,) = [issue for issue in result.issues if issue.id == "opset"]
    assert bad.cause.startswith("onnxruntime 1.0 -> ")


def test_the_difference_of_baselines_begins_with_the_versions(accepted: Path) -> None:
    old = json.loads(accepted.read_text())
    new = json.loads(accepted.read_text())
    assert explain.difference(old, new) == ()
    new["versions"]["jax"] = "99"
    new["models"]["policy"]["findings"]["onnxruntime | eigh | act | unsupported | no kernel"] = 1
    new["models"]["policy"]["artifacts"]["onnx"]["bytes"] *= 3
    found = explain.difference(old, new)
    assert found[0].id == "versions"
    assert "jax" in found[0].message
    assert {issue.id for issue in found} == {"versions", "unsupported", "bytes"}
    assert all("jax" in issue.cause for issue in found[1:])


def test_budgets(measured: CheckReport) -> None:
    table = {
        "max_abs_error": ["error", 1.0],
        "draw_disagreement": ["error", 0],
        "artifact_bytes": ["warning", 10],
        "op_count": ["error", 100000],
        "rewritten_ops": ["note", 0],
        "latency": ["error", 1e-9],
    }
    settings = parse({"budgets": table}, Path())
    report = measured.models[0].report
    result, verdicts, _ = judge.judge(ModelResult("policy", report), settings, {"onnx act": 0.5}, None)
    over = {verdict.metric for verdict in verdicts if not verdict.passed}
    assert {v.metric for v in verdicts} == set(table)
    assert {"artifact_bytes", "latency"} <= over
    assert not over & {"draw_disagreement", "op_count", "max_abs_error"}
    levels = {issue.message.partition(" ")[0]: issue.level for issue in result.issues if issue.id == "budget"}
    assert (levels["latency"], levels["artifact_bytes"]) == ("error", "warning")
    latency = next(v for v in verdicts if v.metric == "latency")
    assert latency.value is None  # it differs from run to run: in run.latency


def test_select_ignore_and_suppressions() -> None:
    lack = run(model(lacking))
    assert failing(lack)
    assert run(model(lacking), ignore=("unsupported",)).ok
    assert run(model(lacking), select=("OC7",)).ok
    raw = ModelResult("policy", lack.models[0].report)

    def judged(table: dict[str, Any]) -> list[Issue]:
        result, _, _ = judge.judge(raw, parse(table, Path(__file__).parent), {}, None)
        return [issue for issue in result.issues if issue.fails("error")]

    assert judged({}) != []
    assert judged({"suppress": [{"id": "unsupported", "contains": "eigh", "reason": "servers only"}]}) == []
    assert judged({"suppress": [{"id": "unsupported", "target": "litert", "reason": "servers only"}]}) != []
    assert judged({"per_path_ignores": {"test_check.py": ["unsupported"]}}) == []
    assert judged({"per_path_ignores": {"elsewhere/*.py": ["unsupported"]}}) != []
