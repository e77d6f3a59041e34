"""`opcompat check`, `baseline` and `report` on the command line, with outcomes instead of models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_reports import EIGH, SCAN

from opcompat import packs
from opcompat.checking import runner
from opcompat.checking.settings import check_ids, parse
from opcompat.cli import cli
from opcompat.errors import ConfigError
from opcompat.report import Check

GOOD = replace(
    SCAN,
    command="check",
    targets=(replace(SCAN.targets[0], findings=(), counts={"native": 3}),),
    advice=(),
    versions={"jax": "1", "opcompat": "1"},
)
BAD = replace(GOOD, targets=(replace(SCAN.targets[0], findings=(EIGH,)),))


class Models:
    """What checking each source gives, and how it was asked for."""

    def __init__(self) -> None:
        self.reports: dict[str, Any] = {"a": GOOD, "b": GOOD, "c": GOOD}
        self.tasks: list[Any] = []

    def local(self, tasks: Any, jobs: Any, timeout: Any) -> Iterator[Any]:
        for task in reversed(tasks):  # in any order
            self.tasks.append(task)
            report = json.loads(packs.renderers()["json"](self.reports[task.key]))
            yield task, {"report": report, "failure": "", "seconds": 1.0, "latency": {}}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Models:
    made = Models()
    monkeypatch.setattr(runner, "local", made.local)
    monkeypatch.chdir(tmp_path)
    for name in made.reports:
        (tmp_path / name).mkdir()
    return made


def run(*args: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


def test_check_is_green_and_red(models: Models) -> None:
    assert "nothing fails" in run("check", "a", "b").stdout
    models.reports["b"] = BAD
    text = run("check", "a", "b", code=1).stdout
    assert "FAILED: 1 issue in 1 of 2 models." in text
    assert run("check", "a", "b", "--exit-zero").stdout == text
    run("check", "a", "b", "--fail-on", "never")
    run("check", "a", "b", "--ignore", "unsupported")
    run("check", "a", "b", "--select", "OC7")
    assert "did you mean 'unsupported'" in run("check", "a", "--ignore", "unsuported", code=2).stderr


def test_every_option_reaches_the_models(models: Models) -> None:
    run("check", "a", "--to", "onnx", "--steps", 7, "--seeds", 2, "--opset", 22, "--sampling", "greedy", "--batch", "4")
    options = models.tasks[0].options
    assert (options.to, options.steps, options.seeds) == (("onnx",), 7, 2)
    assert (options.opset, options.sampling, options.batch) == (22, "greedy", (4,))


def test_a_source_that_is_not_there_is_an_error_of_usage(models: Models) -> None:
    assert "no such folder or file: nowhere" in run("check", "nowhere", code=2).stderr
    assert "more than once" in run("check", "a", "a", code=2).stderr
    run("check", code=2)
    run("check", "a", "--shard", "3/2", code=2)


def test_only_update_writes_the_baseline(models: Models, tmp_path: Path) -> None:
    assert "there is no baseline" in run("check", "a", "--baseline", "b.json", code=2).stderr
    run("baseline", "update", "a", "b", "--baseline", "b.json")
    first = (tmp_path / "b.json").read_bytes()
    run("check", "a", "b", "--baseline", "b.json")
    models.reports["b"] = BAD
    text = run("check", "a", "b", "--baseline", "b.json", code=1).stdout
    assert "new: onnxruntime: eigh" in text
    assert "the model or its code: no version moved" in " ".join(text.split())
    assert (tmp_path / "b.json").read_bytes() == first
    run("baseline", "update", "a", "b", "--baseline", "b.json")
    run("check", "a", "b", "--baseline", "b.json")
    models.reports["b"] = GOOD
    assert "fixed" in run("check", "a", "b", "--baseline", "b.json").stdout
    assert list(json.loads(first)["models"]) == ["a", "b"]
    value = json.loads(first)
    assert json.dumps(value, sort_keys=True) == json.dumps(value)  # sorted throughout
    assert '     {"key": "threefry2x32", "name": "key", "type": "uint32[2]"}' in first.decode()  # a port a line


def test_update_keeps_the_models_that_are_not_named(models: Models, tmp_path: Path) -> None:
    run("baseline", "update", "a", "b", "--baseline", "b.json")
    run("baseline", "update", "c", "--baseline", "b.json")
    assert list(json.loads((tmp_path / "b.json").read_text())["models"]) == ["a", "b", "c"]
    models.reports["c"] = replace(GOOD, versions={"jax": "2"})
    assert "versions have moved" in run("baseline", "update", "c", "--baseline", "b.json", code=2).stderr
    run("baseline", "update", "c", "--baseline", "b.json", "--prune")
    assert list(json.loads((tmp_path / "b.json").read_text())["models"]) == ["c"]


def test_the_difference_of_two_baselines(models: Models) -> None:
    run("baseline", "update", "a", "--baseline", "1.json")
    models.reports["a"] = replace(BAD, versions={"jax": "2", "opcompat": "1"})
    run("baseline", "update", "a", "--baseline", "2.json")
    lines = run("baseline", "diff", "1.json", "2.json", code=1).stdout.splitlines()
    assert lines[0] == "note: versions moved since the baseline: jax 1 -> 2"
    assert any("likely cause: jax 1 -> 2" in line for line in lines)
    assert run("baseline", "diff", "1.json", "1.json").stdout == "no change\n"


def test_more_draws_that_differ_are_a_warning(models: Models) -> None:
    step = Check("onnx", "onnxruntime", "policy", "step", 9, 1, True, draws=900)
    models.reports["a"] = replace(GOOD, checks=(step,))
    run("baseline", "update", "a", "--baseline", "b.json")
    models.reports["a"] = replace(GOOD, checks=(replace(step, mismatched=1),))
    run("check", "a", "--baseline", "b.json")
    text = run("check", "a", "--baseline", "b.json", "--fail-on", "warning", code=1).stdout
    assert "more draws differ" in text
    assert "before: 0 of 900; now: 1 of 900" in text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1, "versions": {}, "models": {"a": {}}}'])
def test_what_is_no_baseline_at_all_is_refused(models: Models, tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)
    assert "b.json" in run("check", "a", "--baseline", "b.json", code=2).stderr


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("errors", {"x": "y"}),
        ("artifacts", {"onnx": {}}),
        ("checks", {"x": {}}),
        ("findings", {"x": None}),
        ("interface", {"act": {"inputs": [], "outputs": [{}], "dtypes": []}}),
        ("interface", {"act": {"inputs": 3, "outputs": [], "dtypes": []}}),
        ("targets", {"x": 3}),
    ],
)
def test_a_baseline_with_a_wrong_part_is_refused(models: Models, tmp_path: Path, part: str, value: Any) -> None:
    run("baseline", "update", "a", "--baseline", "b.json")
    whole = json.loads((tmp_path / "b.json").read_text())
    whole["models"]["a"][part] = value
    (tmp_path / "b.json").write_text(json.dumps(whole))
    assert "not a baseline" in run("check", "a", "--baseline", "b.json", code=2).stderr


def test_shards_are_merged_into_the_report_of_the_whole(models: Models, tmp_path: Path) -> None:
    models.reports["b"] = BAD
    run("check", "a", "b", "c", "--output", "json=whole.json", code=1)
    run("check", "a", "b", "c", "--shard", "1/2", "--output", "json=1.json")
    run("check", "a", "b", "c", "--shard", "2/2", "--output", "json=2.json", code=1)
    run("report", "merge", "2.json", "1.json", "--output", "json=merged.json", code=1)
    whole, merged = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "merged"))
    for one in (whole, merged):
        del one["run"], one["next_step"]
    assert merged == whole
    assert "more than one report" in run("report", "merge", "1.json", "1.json", code=2).stderr
    shown = run("report", "show", "2.json", "--format", "markdown").stdout
    assert shown.startswith("## opcompat check: FAILED\n")


def test_a_folder_of_results_is_resumed_until_the_run_ends(models: Models, tmp_path: Path) -> None:
    whole = models.local

    def dies(tasks: Any, jobs: Any, timeout: Any) -> Iterator[Any]:
        yield next(iter(whole(tasks, jobs, timeout)))
        raise KeyboardInterrupt

    runner.local = dies  # type: ignore[assignment]  # put back by the fixture
    run("check", "a", "b", "c", "--out", "out", code=130)
    runner.local = whole  # type: ignore[assignment]
    first = [task.key for task in models.tasks]
    run("check", "a", "b", "c", "--out", "out")
    again = [task.key for task in models.tasks[len(first) :]]
    assert sorted(first + again) == ["a", "b", "c"]
    assert len(first) == 1
    run("check", "a", "b", "c", "--out", "out")
    assert len(models.tasks) == 6


def test_the_configuration_of_the_working_directory(models: Models, tmp_path: Path) -> None:
    models.reports["a"] = BAD
    config = tmp_path / "opcompat.toml"
    config.write_text('[check]\nfail_on = "never"\n')
    run("check", "a")
    config.write_text('[[check.suppress]]\nid = "unsupported"\nreason = "servers only"\n')
    assert run("check", "a", "--format", "json").stdout.count('"reason": "servers only"') == 1
    models.reports["a"] = GOOD
    assert "a suppression matches nothing" in " ".join(run("check", "a", code=1).stdout.split())
    run("check", "a", "--allow-stale")
    config.write_text("[check.budgets]\nrewritten_ops = ['error', 0]\n")
    run("check", "a")
    models.reports["a"] = replace(GOOD, targets=(replace(GOOD.targets[0], counts={"rewritten": 1}),))
    assert "rewritten_ops" in run("check", "a", code=1).stdout


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"suppress": [{"id": "unsupported"}]}, "needs a reason"),
        ({"suppress": [{"reason": "x"}]}, "needs something to match"),
        ({"suppress": [{"id": "unsupported", "reason": " "}]}, "says something"),
        ({"suppress": [{"line": 3, "reason": "x"}]}, "unknown key 'line'"),
        ({"budgets": {"max_abs_eror": ["error", 1]}}, "did you mean 'max_abs_error'"),
        ({"budgets": {"latency": ["error", -1]}}, "must be"),
        ({"budgets": {"latency": 3}}, "must be"),
        ({"fail_on": "note"}, "must be one of"),
        ({"select": ["OC9999"]}, "neither a rule's id"),
        ({"error_growth": 0.5}, "from 1"),
        ({"per_path_ignores": {"*.py": "OC1"}}, "list of ids"),
        ({"fail": "error"}, "did you mean 'fail_on'"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(table, Path())


def test_ids() -> None:
    assert check_ids(["OC7", "OC701", "mismatch", "OC7"]) == ("OC7", "OC701", "mismatch")
