"""Check reports and results as files: written as JSON, read with their schema, merged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from opcompat.checking.data import BudgetVerdict, CheckReport, Issue, ModelResult, Run
from opcompat.errors import BundleError, ConfigError
from opcompat.manifest import parse_json
from opcompat.report import Report


@cache
def validator(name: str) -> Any:
    """A validator of one of the published schemas, "report" or "check". References between them are known."""
    import jsonschema
    from referencing import Registry, Resource

    schemas = {
        n: json.loads(files("opcompat").joinpath(f"schema/{n}.json").read_text("utf-8")) for n in ("report", "check")
    }
    registry: Any = Registry().with_resources(
        [(f"{n}.json", Resource.from_contents(schema)) for n, schema in schemas.items()]
    )
    return jsonschema.Draft202012Validator(schemas[name], registry=registry)


def parse(text: bytes, file: str) -> CheckReport:
    """A check report from its JSON, which may be of unknown origin. Raises ConfigError, naming `file` and the field."""
    try:
        value = parse_json(text, file)
    except BundleError as error:
        raise ConfigError(str(error)) from error
    problem = next(iter(validator("check").iter_errors(value)), None)
    if problem is not None:
        raise ConfigError(f"{file}: not a report of opcompat check: {problem.json_path}: {problem.message[:200]}")
    return _report(value)


def read(path: Path) -> CheckReport:
    """The check report in a file. Raises ConfigError."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _report(value: dict[str, Any]) -> CheckReport:
    import cattrs

    read = cattrs.Converter().structure
    fields = {name: value[name] for name in ("baseline", "shard", "fail_on", "versions", "next_step")}
    return CheckReport(
        models=tuple(
            ModelResult(
                key=model["key"],
                report=read(model["report"], Report),
                issues=read(model["issues"], tuple[Issue, ...]),
                failure=model["failure"],
            )
            for model in value["models"]
        ),
        issues=read(value["issues"], tuple[Issue, ...]),
        budgets=read(value["budgets"], tuple[BudgetVerdict, ...]),
        run=read(value["run"], Run),
        **fields,
    )


def merge(reports: Sequence[CheckReport]) -> CheckReport:
    """One report of several, as the shards of a CI matrix write them. Raises ConfigError if a model is in two."""
    keys = [model.key for report in reports for model in report.models]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ConfigError(f"checked in more than one report: {', '.join(twice[:5])}")
    first = reports[0]
    other = [name for name in ("baseline", "fail_on", "versions") if any(_differ(r, first, name) for r in reports)]
    if other:
        raise ConfigError(
            f"the reports are not of one run: {', '.join(other)} differ; next: check all shards with the same "
            "versions, baseline and options"
        )
    runs = [report.run for report in reports]
    return replace(
        first,
        models=tuple(sorted((m for r in reports for m in r.models), key=lambda m: m.key)),
        issues=tuple(dict.fromkeys(issue for r in reports for issue in r.issues)),
        budgets=tuple(budget for r in reports for budget in r.budgets),
        shard="",
        next_step=next((r.next_step for r in reports if not r.ok), first.next_step),
        run=replace(
            runs[0],
            started=min(run.started for run in runs),
            seconds=max(run.seconds for run in runs),
            shard="",
            durations={k: v for run in runs for k, v in run.durations.items()},
            latency={k: v for run in runs for k, v in run.latency.items()},
        ),
    )


def _differ(a: CheckReport, b: CheckReport, name: str) -> bool:
    return bool(getattr(a, name) != getattr(b, name))
