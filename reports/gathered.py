"""What every format lists, of a report of one model and of a check of many alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from opcompat.checking.data import LEVELS, CheckReport, FailOn, Issue
from opcompat.checking.issues import KINDS, issues_of
from opcompat.report import Check, Report

from . import wording


class Model(NamedTuple):
    """One model: its name in the run, its report, its issues."""

    key: str
    report: Report
    issues: tuple[Issue, ...]


def models(report: Report | CheckReport) -> list[Model]:
    if isinstance(report, CheckReport):
        return [Model(m.key, m.report, m.issues) for m in report.models]
    return [Model(report.model, report, issues_of(report))]


def run_issues(report: Report | CheckReport) -> tuple[Issue, ...]:
    """The issues of the run itself."""
    return report.issues if isinstance(report, CheckReport) else ()


def fail_on(report: Report | CheckReport) -> FailOn:
    return report.fail_on if isinstance(report, CheckReport) else "error"


def verdict(report: Report | CheckReport) -> str:
    """The one sentence that the run comes to."""
    return wording.check_verdict(report) if isinstance(report, CheckReport) else wording.verdict(report)


def worst_first(issues: Iterable[Issue]) -> list[Issue]:
    """Those that count before those that do not, errors before warnings before notes."""
    return sorted(issues, key=lambda i: (not i.active, LEVELS.index(i.level)))


def all_issues(report: Report | CheckReport) -> list[Issue]:
    return worst_first([*run_issues(report), *(issue for m in models(report) for issue in m.issues)])


def is_place(file: str) -> bool:
    """Whether a file can be linked to: hosts take paths relative to the repository only."""
    path = PurePosixPath(file.replace("\\", "/"))
    return bool(file) and not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0]


def configuration(source: str) -> str:
    """The file that stands for a model where no line of its source does: its configuration."""
    plain = wording.printable(source)
    inside = bool(source) and ":" not in source and is_place(source) and len(source) < 200 and plain == source
    return f"{source.rstrip('/')}/opcompat.toml" if inside and source != "." else "opcompat.toml"


def help_of(issue: Issue) -> str:
    """What is said of all issues of one id."""
    if issue.id in KINDS:
        return KINDS[issue.id].help
    return f"See opcompat explain {wording.printable(issue.id)}."


def is_of(issue: Issue, check: Check) -> bool:
    """Whether an issue is the failure of a check."""
    parts = issue.fingerprint.split(" | ")
    return (
        issue.target == check.format
        and parts[1:2] == ["mismatch"]
        and parts[3:4] == [check.kind]
        and (issue.entry_points == (check.entry_point,))
    )


def texts(issue: Issue) -> Sequence[str]:
    """The message and what belongs to it, one printable line each."""
    return [wording.shortened(issue.message), *wording.issue_lines(issue)]
