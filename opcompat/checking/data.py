"""What `check` yields: one value for all models, plain values only, by the schema in `opcompat/schema/check.json`.

Everything but `run` is the same for the same models, versions and options: dates, durations and measured latencies
stand there alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from opcompat.report import Report

SCHEMA_VERSION = 1

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""Worst first."""

FailOn = Literal["error", "warning", "never"]
FAIL_ON: tuple[FailOn, ...] = ("error", "warning", "never")

Status = Literal["", "new", "known", "fixed", "suppressed", "stale"]


@dataclass(frozen=True)
class Issue:
    """One thing that a run found.

    Attributes:
      id: a rule's or a lint's ("OC101"), or a word from `issues.KINDS` ("unsupported", "mismatch", "interface", ...).
      level: "error" and "warning" are for `--fail-on`; a note never fails.
      model: the model's key in the run, "" for what concerns the run itself.
      target: the target or format, "" if it concerns none.
      title, message, next_step: what it is, what happened here, what to do now. One line each.
      file, line, function: the place in the user's source, "" and 0 if there is none.
      entry_points: those that it concerns.
      fingerprint: tells it from others in a baseline; holds no line number.
      count: how many original equations, or 1.
      status: "new" (not in the baseline), "known" (in it), "fixed" (no longer there), "suppressed" (by the
        configuration, with `reason`), "stale" (an entry that matches nothing), "" without a baseline.
      before, after: what the baseline has and what is now, where the issue is a change.
      cause: what most likely brought the change about: the versions that moved.
    """

    id: str
    level: Level
    model: str
    target: str
    title: str
    message: str
    next_step: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    entry_points: tuple[str, ...] = ()
    fingerprint: str = ""
    count: int = 1
    status: Status = ""
    reason: str = ""
    before: str = ""
    after: str = ""
    cause: str = ""

    @property
    def active(self) -> bool:
        """Whether it counts against the run: neither accepted by the baseline, nor suppressed, nor gone."""
        return self.status not in ("known", "fixed", "suppressed")

    def fails(self, fail_on: FailOn) -> bool:
        """Whether it makes a run with `--fail-on` fail."""
        return self.active and self.level in fail_levels(fail_on)


def fail_levels(fail_on: FailOn) -> tuple[Level, ...]:
    """The levels at which a run fails."""
    return {"error": LEVELS[:1], "warning": LEVELS[:2], "never": ()}[fail_on]


@dataclass(frozen=True)
class BudgetVerdict:
    """One limit on one metric of one model. `value` is None where it varies from run to run: it is in `run.latency`.

    `entry` names what the value is of: a target, an output, an entry point.
    """

    model: str
    metric: str
    level: Level
    limit: float
    entry: str
    value: float | None
    passed: bool


@dataclass(frozen=True)
class ModelResult:
    """One model of a run. `report` has what scan, convert and verify found (see `opcompat.report`).

    `key` is the source as the user named it, or the model's name if it was given in Python. `failure` says why there
    is no result: the source cannot be loaded, or its process died.
    """

    key: str
    report: Report
    issues: tuple[Issue, ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class Run:
    """What differs from run to run.

    Attributes:
      started: UTC, ISO 8601.
      seconds: wall time of the whole.
      python, system: the interpreter and the operating system of the process that wrote the report.
      where: "local processes", or a scheduler's address.
      shard: "1/4" or "".
      durations: seconds by model; 0 for a result that was there from an earlier run.
      latency: by model, "onnx policy" -> how many times as long as the reference one step takes in the same process.
    """

    started: str = ""
    seconds: float = 0.0
    python: str = ""
    system: str = ""
    where: str = ""
    shard: str = ""
    durations: Mapping[str, float] = field(default_factory=dict)
    latency: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckReport:
    """All models of a run, in the order in which they were named.

    Attributes:
      models: their results.
      issues: what concerns the run and not one model: stale entries, versions that moved.
      budgets: every limit that was checked.
      baseline: the file, "" without one.
      shard: "1/4" where only a part of the models was checked.
      fail_on: the level from which issues fail the run.
      versions: of everything that can change a result.
      next_step: the one thing to do now.
    """

    models: tuple[ModelResult, ...]
    issues: tuple[Issue, ...] = ()
    budgets: tuple[BudgetVerdict, ...] = ()
    baseline: str = ""
    shard: str = ""
    fail_on: FailOn = "error"
    versions: Mapping[str, str] = field(default_factory=dict)
    next_step: str = ""
    run: Run = field(default_factory=Run)
    command: str = "check"

    def all_issues(self) -> Iterator[Issue]:
        """The run's own, then each model's."""
        yield from self.issues
        for model in self.models:
            yield from model.issues

    @property
    def ok(self) -> bool:
        return not any(issue.fails(self.fail_on) for issue in self.all_issues())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `run` comes last."""
        body = asdict(replace(self, models=()))
        run = body.pop("run")
        body["models"] = [
            {
                "key": model.key,
                "ok": not any(issue.fails(self.fail_on) for issue in model.issues),
                "failure": model.failure,
                "issues": [asdict(issue) for issue in model.issues],
                "report": model.report.to_json(),
            }
            for model in self.models
        ]
        head = {"schema_version": SCHEMA_VERSION, "ok": self.ok, "command": body.pop("command")}
        return {**head, **body, "run": run}
