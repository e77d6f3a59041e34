"""SARIF 2.1.0, as GitHub's code scanning and others read it. Places are the user's source, relative to the repository.

What is only rewritten is no result, and neither is what is gone since the baseline.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any
from urllib.parse import quote

from opcompat.checking.data import CheckReport, Issue
from opcompat.report import Report

from . import gathered, wording

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST = 5000
"""Results: GitHub keeps no more, by severity."""

_STATES = {"new": "new", "known": "unchanged", "stale": "new"}


def render(report: Report | CheckReport, *, color: bool = False, width: int | None = None) -> str:
    """The report as SARIF. `color` and `width` have no effect."""
    found = [i for i in gathered.all_issues(report) if i.status != "fixed" and (i.level != "note" or i.status == "new")]
    issues = [i for i in found if i.id != "versions"][:MOST]
    ids = list(dict.fromkeys(issue.id for issue in issues))
    sources = {m.key: m.report.source or m.key for m in gathered.models(report)}
    places = {place: excerpt for m in gathered.models(report) for place, excerpt in m.report.excerpts.items()}
    version = report.versions.get("opcompat", "")
    driver: dict[str, Any] = {
        "name": "opcompat",
        "rules": [_rule(next(i for i in issues if i.id == ident)) for ident in ids],
    }
    if version:
        driver["version"] = wording.shortened(version, 100)
    seen: Counter[str] = Counter()
    results = []
    for issue in issues:
        key = f"{issue.model}\0{issue.fingerprint}"
        seen[key] += 1
        results.append(_result(issue, ids.index(issue.id), (key, seen[key]), sources, places))
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    text = json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)
    return text.replace("##[", "#\\u0023[") + "\n"


def _rule(issue: Issue) -> dict[str, Any]:
    helped = gathered.help_of(issue)
    title = wording.shortened(issue.title, 300)
    return {
        "id": wording.shortened(issue.id, 200),
        "name": wording.shortened(issue.id, 200),
        "shortDescription": {"text": title},
        "fullDescription": {"text": f"{title}. {helped}"},
        "help": {"text": helped},
        "defaultConfiguration": {"level": issue.level},
    }


def _result(
    issue: Issue, index: int, key: tuple[str, int], sources: dict[str, str], places: dict[str, Any]
) -> dict[str, Any]:
    """`key` tells the issue from others in the run: its model and fingerprint, and which of them it is."""
    text = "\n".join(gathered.texts(issue)).replace("](", "] (")  # no link of SARIF's own kind
    digest = hashlib.sha256(key[0].encode("utf-8", "surrogatepass")).hexdigest()
    result: dict[str, Any] = {
        "ruleId": wording.shortened(issue.id, 200),
        "ruleIndex": index,
        "level": issue.level,
        "message": {"text": text},
        "locations": [{"physicalLocation": _location(issue, sources, places)}],
        "partialFingerprints": {"primaryLocationLineHash": f"{digest[:16]}:{key[1]}", "opcompat/v1": digest},
    }
    if issue.status == "suppressed":
        result["suppressions"] = [{"kind": "external", "justification": wording.shortened(issue.reason)}]
    if issue.status in _STATES:
        result["baselineState"] = _STATES[issue.status]
    return result


def _location(issue: Issue, sources: dict[str, str], places: dict[str, Any]) -> dict[str, Any]:
    """The line, whole. Where there is none in the repository, the model's configuration stands for it."""
    line, end = 1, 2
    file = gathered.configuration(sources.get(issue.model, ""))
    if gathered.is_place(issue.file) and issue.line > 0 and len(issue.file) < 1000:
        file, line = issue.file, issue.line
        excerpt = places.get(f"{issue.file}:{issue.line}")
        if excerpt is not None and 0 <= line - excerpt.first < len(excerpt.lines):
            end = max(len(excerpt.lines[line - excerpt.first]) + 1, 2)
    uri = quote(file.replace("\\", "/").encode("utf-8", "surrogatepass"))
    return {
        "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": line, "startColumn": 1, "endLine": line, "endColumn": end},
    }
