"""`opcompat.check`: many models, compared with a baseline, as one report."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcompat import config
from opcompat.checking import explain, judge, rules, runner
from opcompat.checking.baseline import Entry
from opcompat.checking.baseline import read as read_baseline
from opcompat.checking.data import BudgetVerdict, CheckReport, FailOn, Issue, ModelResult, Run
from opcompat.checking.issues import KINDS
from opcompat.checking.options import STEPS, Options, Task
from opcompat.checking.results import Folder
from opcompat.checking.settings import Settings, Suppression, check_ids
from opcompat.errors import ConfigError, OpcompatError, SourceError
from opcompat.report import Report
from opcompat.sources.base import Options as Loading

if TYPE_CHECKING:
    from opcompat.model import Model

Say = Callable[[str], None]


def _silent(_: str) -> None:
    return


@dataclass(frozen=True)
class Wishes:
    """What the caller chose for all models; None is what the configuration of each source says."""

    targets: tuple[str, ...] | None = None
    to: tuple[str, ...] | None = None
    sampling: str | None = None
    opset: int | None = None
    batch: tuple[int, ...] | None = None
    allow_narrowing: bool = False
    prune_inputs: bool = False
    steps: int | None = None
    seeds: int | None = None
    loading: Loading = field(default_factory=Loading)
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Subject:
    """One model of the run: a source, or a Model that was given in Python."""

    key: str
    model: Model | None
    settings: Settings
    options: Options


def check(
    models: Any,
    *,
    baseline: str | Path | None = None,
    targets: Sequence[str] | None = None,
    to: Sequence[str] | None = None,
    sampling: str | None = None,
    opset: int | None = None,
    batch: Sequence[int] | None = None,
    allow_narrowing: bool = False,
    prune_inputs: bool = False,
    steps: int | None = None,
    seeds: int | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    fail_on: FailOn | None = None,
    allow_stale: bool = False,
    loading: Loading | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    timeout: float | None = None,
    scheduler: str | None = None,
    shard: tuple[int, int] | None = None,
    compare: bool = True,
    progress: Say | None = None,
) -> CheckReport:
    """Scans, converts and verifies models, and compares what comes out with a baseline.

    `models` is a source as on the command line ("examples/dreamer", "module:function"), a Model, several of either, or
    a mapping of names to Models. Sources are checked in processes of their own, `jobs` at a time, each for at most
    `timeout` seconds, or on the Dask cluster that `scheduler` is the address of; Models in this process.

    What is not given here comes from the configuration of each source, or of the working directory for a Model:
    `opcompat.toml`, and in it the table `[check]`. `baseline` is a file that `opcompat baseline update` wrote.
    `select` and `ignore` name rules, lints (by their id or its beginning) or kinds of issues. `shard` (i, n) checks
    every n-th model only, from the i-th. `out` is a folder for results and bundles; a run that did not end resumes
    there. Without `compare`, a configured baseline is not looked at.

    The report's `ok` says whether anything fails by `fail_on`. Findings, mismatches and sources that cannot be loaded
    are in the report. Raises ConfigError for wrong options, a wrong configuration or baseline, OutputError for `out`.
    """
    wishes = Wishes(
        targets=_names(targets),
        to=_names(to),
        sampling=sampling,
        opset=opset,
        batch=tuple(batch) if batch else None,
        allow_narrowing=allow_narrowing,
        prune_inputs=prune_inputs,
        steps=steps,
        seeds=seeds,
        loading=loading or Loading(),
        select=check_ids(tuple(select)),
        ignore=check_ids(tuple(ignore)),
    )
    say, began, started = progress or _silent, time.perf_counter(), datetime.now(UTC)
    subjects = _subjects(models, wishes)
    general = _general(subjects)
    file = None if not compare else Path(baseline) if baseline is not None else general.baseline
    accepted = read_baseline(file) if file is not None else None
    chosen = subjects if shard is None else _share(subjects, shard)
    folder = Folder.begin(Path(out)) if out is not None else None
    tasks = [_task(s, wishes, folder) for s in chosen if s.model is None]
    outcomes = dict(_outcomes(tasks, folder, jobs, timeout, scheduler, say))
    for subject in chosen:
        if subject.model is not None:
            outcomes[subject.key] = _here(subject, folder, say)
    run = Run(
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        python=platform.python_version(),
        system=platform.platform(),
        where=scheduler or "local processes",
        shard=f"{shard[0]}/{shard[1]}" if shard else "",
    )
    report = _assemble(
        chosen,
        [subject.key for subject in subjects],
        outcomes,
        accepted,
        CheckReport(
            models=(),
            baseline=_shown(file),
            shard=run.shard,
            fail_on=fail_on or general.fail_on or "error",
            run=replace(run, seconds=round(time.perf_counter() - began, 3)),
        ),
        allow_stale or general.allow_stale,
    )
    if folder is not None:
        from opcompat import packs

        folder.end(packs.renderers()["json"](report))
    return report


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(names, str):
        raise ConfigError(f"give a list of names, not {names!r}")
    return tuple(names) if names else None


def _shown(file: Path | None) -> str:
    """The baseline as others see it: relative where it lies below the working directory."""
    if file is None:
        return ""
    path, here = file.resolve(), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(file)


# What is checked, and how


def _subjects(models: Any, wishes: Wishes) -> list[_Subject]:
    named = list(_named(models))
    if not named:
        raise ConfigError("there is nothing to check; next: name at least one source")
    keys = [key for key, _ in named]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ConfigError(f"{', '.join(twice)} is there more than once: each model needs a name of its own")
    return [_subject(key, model, wishes) for key, model in named]


def _named(models: Any) -> Iterator[tuple[str, Model | None]]:
    if isinstance(models, Mapping):
        yield from models.items()
        return
    several = models if isinstance(models, list | tuple) else [models]
    for one in several:
        if isinstance(one, str | Path):
            if not Path(one).exists() and ":" not in str(one):
                raise SourceError(f"no such folder or file: {one}")
            yield Path(one).as_posix() if Path(one).exists() else str(one), None
        else:
            yield one.name, one


def _subject(key: str, model: Model | None, wishes: Wishes) -> _Subject:
    from opcompat.sources import folder_of

    conf = config.find(folder_of(key) if model is None else Path.cwd())
    settings: Settings = conf.check or Settings()
    settings = replace(settings, select=wishes.select or settings.select, ignore=(*settings.ignore, *wishes.ignore))
    options = Options(
        targets=wishes.targets or conf.targets or (),
        to=wishes.to or conf.to or Options().to,
        sampling=config.check_sampling(wishes.sampling or conf.sampling or "exact"),  # type: ignore[arg-type]
        opset=wishes.opset or conf.opset,
        batch=wishes.batch or conf.batch or (),
        allow_narrowing=wishes.allow_narrowing,
        prune_inputs=wishes.prune_inputs,
        steps=wishes.steps or conf.steps or STEPS,
        seeds=wishes.seeds or conf.seeds or 1,
        latency=any(budget.metric == "latency" for budget in settings.budgets),
    )
    return _Subject(key, model, settings, options)


def _general(subjects: Sequence[_Subject]) -> Settings:
    """The settings of the run itself: those of the working directory, or else of the first source."""
    own = config.find(Path.cwd()).check
    return own if own is not None else subjects[0].settings


def _share(subjects: Sequence[_Subject], shard: tuple[int, int]) -> list[_Subject]:
    index, count = shard
    if not 1 <= index <= count:
        raise ConfigError(f"shard {index}/{count} does not exist: give i/n with i from 1 to n")
    return list(subjects[index - 1 :: count])


def _task(subject: _Subject, wishes: Wishes, folder: Folder | None) -> Task:
    bundle = folder.bundle(subject.key) if folder is not None else ""
    return Task(subject.key, subject.key, subject.options, wishes.loading, bundle, str(Path.cwd()))


# Running


def _outcomes(
    tasks: Sequence[Task],
    folder: Folder | None,
    jobs: int | None,
    timeout: float | None,
    scheduler: str | None,
    say: Say,
) -> Iterator[tuple[str, runner.Plain]]:
    """By key, the outcome of each task, kept in the folder as soon as it is there."""
    left = []
    for task in tasks:
        stored = folder.load(task) if folder is not None else None
        if stored is None:
            left.append(task)
        else:
            yield task.key, {**stored, "seconds": 0.0}
    if not left:
        return
    if len(left) < len(tasks):
        say(f"{len(tasks) - len(left)} of {len(tasks)} are there from the run before")
    say(f"checking {len(left)} models")
    found = runner.cluster(left, scheduler, timeout) if scheduler else runner.local(left, jobs, timeout)
    for done, (task, outcome) in enumerate(found, 1):
        # A crash may have been this machine's: it is tried again.
        if folder is not None and outcome["report"] is not None:
            folder.save(task, outcome)
        say(f"{done} of {len(left)}: {task.key}" + (f": {outcome['failure']}" if outcome["failure"] else ""))
        yield task.key, outcome


def _here(subject: _Subject, folder: Folder | None, say: Say) -> runner.Plain:
    """The outcome of a model that was given in Python."""
    from opcompat.checking.one import check_model

    assert subject.model is not None
    bundle = Path(folder.bundle(subject.key)) if folder is not None else None
    try:
        outcome = check_model(subject.model, subject.options, bundle=bundle, progress=say)
    except OpcompatError as error:
        return runner.failed(str(error))
    return {"report": outcome.report, "failure": "", "seconds": outcome.seconds, "latency": outcome.latency}


# Putting together


def _assemble(
    chosen: Sequence[_Subject],
    keys: Sequence[str],
    outcomes: Mapping[str, runner.Plain],
    baseline: Entry | None,
    head: CheckReport,
    allow_stale: bool,
) -> CheckReport:
    """One report of all outcomes, in the order in which the models were named."""
    results: list[ModelResult] = []
    limited: list[BudgetVerdict] = []
    used: set[Suppression] = set()
    for subject in chosen:
        outcome = outcomes[subject.key]
        result = ModelResult(subject.key, _report(outcome, subject.key), failure=outcome["failure"])
        result, verdicts, matched = judge.judge(result, subject.settings, outcome["latency"], baseline)
        results.append(result)
        limited += verdicts
        used |= matched
    versions, issues = _versions(results)
    if baseline is not None:
        issues += explain.versions_issue(explain.moved(baseline["versions"], versions) if versions else {})
        issues += judge.stale_models(baseline, keys)
    if len(chosen) == len(keys):
        for settings in dict.fromkeys(id(s.settings) for s in chosen):
            one = next(s.settings for s in chosen if id(s.settings) == settings)
            issues += rules.unused(one, used)
    issues = list(dict.fromkeys(issues))
    if allow_stale:
        issues = [_allowed(issue) for issue in issues]
        results = [replace(r, issues=tuple(map(_allowed, r.issues))) for r in results]
    report = replace(
        head,
        models=tuple(results),
        issues=tuple(issues),
        budgets=tuple(limited),
        versions=versions,
        run=replace(
            head.run,
            durations={key: outcome["seconds"] for key, outcome in outcomes.items()},
            latency={key: dict(outcome["latency"]) for key, outcome in outcomes.items() if outcome["latency"]},
        ),
    )
    return replace(report, next_step=_next_step(report))


def _report(outcome: runner.Plain, key: str) -> Report:
    report = outcome["report"]
    if report is None:
        return Report("check", key, key, ())
    if isinstance(report, Report):
        return report
    import cattrs

    return cattrs.Converter().structure(report, Report)


def _allowed(issue: Issue) -> Issue:
    return replace(issue, level="note") if issue.status == "stale" else issue


def _versions(results: Sequence[ModelResult]) -> tuple[dict[str, str], list[Issue]]:
    """The versions that all models were checked with, and an issue if they were not the same."""
    found = [dict(r.report.versions) for r in results if r.report.versions]
    if not found:
        return {}, []
    other = sorted({name for one in found for name in one if one[name] != found[0].get(name)})
    if not other:
        return found[0], []
    message = f"models were checked with different versions of {', '.join(other)}: workers are not installed alike"
    kind = KINDS["versions"]
    return found[0], [Issue("versions", "warning", "", "", kind.title, message, next_step="install them alike")]


def _next_step(report: CheckReport) -> str:
    bad = [issue for issue in report.all_issues() if issue.fails(report.fail_on)]
    if bad:
        return next((issue.next_step for issue in bad if issue.next_step), "see the issues")
    if any(issue.status == "fixed" for issue in report.all_issues()):
        return "take what is fixed out of the baseline with opcompat baseline update"
    if not report.baseline:
        return "write a baseline with opcompat baseline update, and commit it"
    return ""
