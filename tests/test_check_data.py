"""The data of a check: as JSON by its schema, read back, and merged."""

import json
import math
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

import pytest
from test_reports import HOSTILE, SCAN, VERIFY, hostile

from opcompat.checking import store
from opcompat.checking.data import BudgetVerdict, CheckReport, Issue, ModelResult, Run
from opcompat.checking.issues import LONGEST, failure_issue, fingerprint, issues_of
from opcompat.errors import ConfigError
from opcompat.report import Report

DIED = "the process died (signal 9)"
FULL = CheckReport(
    models=(
        ModelResult("examples/dreamer", replace(SCAN, command="check"), issues_of(SCAN, "examples/dreamer")),
        ModelResult("b", replace(VERIFY, command="check"), issues_of(VERIFY, "b")),
        ModelResult("c", Report("check", "c", "c", ()), (failure_issue("c", DIED),), failure=DIED),
    ),
    issues=(Issue("versions", "note", "", "", "Versions", "jax moved", before="jax 0.9", after="jax 0.10"),),
    budgets=(
        BudgetVerdict("b", "max_abs_error", "error", 1e-3, "policy.action", math.inf, False),
        BudgetVerdict("b", "latency", "warning", 2.0, "onnx policy", None, True),
    ),
    baseline="opcompat.baseline.json",
    versions={"jax": "0.10.2"},
    next_step="opcompat explain OC101",
    run=Run(started="2026-01-02T03:04:05Z", seconds=1.5, durations={"b": 1.0}, latency={"b": {"onnx policy": 1.5}}),
)


def render(form: str, report: Report | CheckReport, **options: Any) -> str:
    (point,) = entry_points(group="opcompat.reports", name=form)
    text = point.load()(report, **options)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("report", [FULL, hostile(FULL)])
def test_json_keeps_to_its_schema(report: CheckReport) -> None:
    text = render("json", report)
    assert text.isascii()
    value = json.loads(text)
    store.validator("check").check_schema(store.validator("check").schema)
    store.validator("check").validate(value)
    assert list(value)[-1] == "run"
    assert value["models"][0]["report"]["targets"][0]["ok"] is False


def test_the_schema_refuses_what_it_does_not_know_in_the_report_of_a_model() -> None:
    value = json.loads(render("json", FULL))
    value["models"][0]["report"]["targets"][0]["findings"][0]["extra"] = 1
    assert not store.validator("check").is_valid(value)


def test_json_is_read_back_whole() -> None:
    again = store.parse(render("json", FULL).encode(), "check.json")
    assert render("json", again) == render("json", FULL)
    assert again.models[0].report.interfaces == SCAN.interfaces
    assert again.models[0].issues == FULL.models[0].issues
    assert math.isnan(again.models[1].report.checks[1].outputs[0].error)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"schema_version": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_report_is_refused(text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^bad\.json"):
        store.parse(text, "bad.json")


def test_every_finding_failed_check_and_advice_is_an_issue() -> None:
    issues = issues_of(SCAN)
    assert [(i.id, i.level) for i in issues] == [("OC101", "note"), ("unsupported", "error"), ("OC701", "warning")]
    (mismatch,) = issues_of(VERIFY)  # the closed loop that differs is not binding
    assert (mismatch.id, mismatch.target, mismatch.entry_points) == ("mismatch", "tflite", ("policy",))
    assert "action differs by 3, allowed is 0" in mismatch.message


def test_fingerprints_hold_no_line() -> None:
    moved = replace(
        SCAN,
        targets=tuple(
            replace(t, findings=tuple(replace(f, line=f.line + 7, file="moved.py") for f in t.findings))
            for t in SCAN.targets
        ),
        advice=tuple(replace(a, line=1) for a in SCAN.advice),
    )
    assert [i.fingerprint for i in issues_of(moved)] == [i.fingerprint for i in issues_of(SCAN)]


def test_a_reason_that_names_a_line_has_the_same_fingerprint_on_another() -> None:
    one, other = (fingerprint("litert", f"a call at /home/me/x.py:{n}: it is opaque") for n in (1, 22))
    assert one == other == "litert | a call: it is opaque"


def test_a_long_name_is_cut_and_stays_apart_from_others() -> None:
    a, b = fingerprint("x" * 100_000 + "a"), fingerprint("x" * 100_000 + "b")
    assert a != b
    assert max(len(a), len(b)) < LONGEST + 20


def test_what_fails_depends_on_level_and_status() -> None:
    issue = Issue("unsupported", "warning", "m", "litert", "t", "m")
    assert [issue.fails(level) for level in ("error", "warning", "never")] == [False, True, False]
    error = replace(issue, level="error")
    assert [error.fails(level) for level in ("error", "warning", "never")] == [True, True, False]
    for status in ("known", "fixed", "suppressed"):
        assert not replace(error, status=status).fails("error")
    for status in ("new", "stale", ""):
        assert replace(error, status=status).fails("error")
    assert not replace(error, level="note", status="new").fails("warning")


def test_the_terminal_names_what_fails_first() -> None:
    text = render("text", FULL)
    assert text.index("eigh float32[3,3]") < text.index("the key rng reaches no output")
    assert "FAILED: 3 issues in 3 of 3 models." in text
    assert "the process died (signal 9)" in text
    assert "max_abs_error" in text
    assert "random_bits" not in text  # rewritten: nothing to do


def test_hostile_names_in_a_terminal() -> None:
    text = render("text", hostile(FULL), width=120)
    assert "\x1b" not in text
    assert "\u202e" not in text
    long = replace(FULL, models=tuple(replace(m, key="k" * 100_000) for m in FULL.models))
    assert len(render("text", long)) < 60_000


def test_shards_become_one_report() -> None:
    one = replace(FULL, models=FULL.models[:1], budgets=(), shard="1/2", run=Run(started="b", seconds=2.0))
    two = replace(FULL, models=FULL.models[1:], shard="2/2", run=Run(started="a", seconds=1.0))
    both = store.merge([one, two])
    assert [m.key for m in both.models] == ["b", "c", "examples/dreamer"]
    assert len(both.issues) == 1
    assert (both.shard, both.run.started, both.run.seconds) == ("", "a", 2.0)
    with pytest.raises(ConfigError, match="more than one"):
        store.merge([one, one])
    with pytest.raises(ConfigError, match="versions differ"):
        store.merge([one, replace(two, versions={})])


def test_hostile_is_hostile() -> None:
    assert hostile(FULL).models[0].key == HOSTILE
