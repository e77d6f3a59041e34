"""JUnit XML, as Jenkins and GitLab read it: a suite for each model, a case for each target, check and change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from xml.etree import ElementTree

from opcompat.checking.data import CheckReport, FailOn, Issue
from opcompat.report import Report

from . import gathered, wording

_LONGEST = 300
_MOST_LINES = 500
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Case(NamedTuple):
    """A test: what failed in it, and what was left out on purpose."""

    name: str
    failures: tuple[Issue, ...]
    skipped: str = ""


def render(report: Report | CheckReport, *, color: bool = False, width: int | None = None) -> str:
    """The report as XML. `color` and `width` have no effect."""
    level = gathered.fail_on(report)
    suites = [(m.key, list(_cases(m, level))) for m in gathered.models(report)]
    own = [_Case(_name(i), (i,)) for i in gathered.run_issues(report) if i.fails(level)]
    if own:
        suites.append(("opcompat", own))
    durations = report.run.durations if isinstance(report, CheckReport) else {}
    counts = _counts(c for _, cases in suites for c in cases)
    root = ElementTree.Element("testsuites", {"name": "opcompat", **counts})
    for key, cases in suites:
        _suite(root, key, cases, durations.get(key, 0.0))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _cases(model: gathered.Model, level: FailOn) -> Iterator[_Case]:
    left = list(model.issues)

    def take(mine: list[Issue]) -> tuple[Issue, ...]:
        taken = set(map(id, mine))
        left[:] = [issue for issue in left if id(issue) not in taken]
        return tuple(issue for issue in mine if issue.fails(level))

    for target in model.report.targets:
        mine = [i for i in left if i.target == target.target and i.id not in ("budget", "stale")]
        yield _Case(f"scan {target.target}", take(mine))
    for check in model.report.checks:
        failures = take([i for i in left if gathered.is_of(i, check)])
        loose = "" if check.passed or check.binding else check.note or "a difference is only reported"
        accepted = "accepted" if not check.passed and check.binding and not failures else ""
        yield _Case(f"verify {check.format} {check.entry_point}, {check.kind}", failures, loose or accepted)
    for issue in left:
        if issue.fails(level):
            yield _Case(_name(issue), (issue,))


def _name(issue: Issue) -> str:
    return f"{issue.id} {issue.message}"


def _suite(root: ElementTree.Element, key: str, cases: list[_Case], seconds: float) -> None:
    counts = {**_counts(cases), "skipped": str(sum(bool(c.skipped) and not c.failures for c in cases))}
    suite = ElementTree.SubElement(root, "testsuite", {"name": _short(key), "time": f"{seconds:.3f}", **counts})
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", name=_short(case.name), classname=_short(key), time="0")
        if case.failures:
            lines = [line for issue in case.failures for line in _lines(issue)]
            more = [f"and {len(lines) - _MOST_LINES:,} more lines"] if len(lines) > _MOST_LINES else []
            first = case.failures[0]
            failure = ElementTree.SubElement(element, "failure", type=_short(first.id), message=_short(first.message))
            failure.text = "\n".join([*lines[:_MOST_LINES], *more])
        elif case.skipped:
            ElementTree.SubElement(element, "skipped", message=_short(case.skipped))


def _lines(issue: Issue) -> list[str]:
    place = [f"  at {_short(wording.place(issue))}"] if issue.file else []
    first, *rest = (_clean(text) for text in gathered.texts(issue))
    return [f"{_short(issue.id)}: {first}", *place, *(f"  {text}" for text in rest)]


def _counts(cases: Iterable[_Case]) -> dict[str, str]:
    found = list(cases)
    return {"tests": str(len(found)), "failures": str(sum(bool(c.failures) for c in found)), "errors": "0"}


def _clean(text: str) -> str:
    """Text that XML can hold."""
    return _NOT_XML.sub(lambda found: ascii(found[0])[1:-1], wording.printable(text))


def _short(text: str) -> str:
    return _clean(wording.shortened(text, _LONGEST))
