"""Markdown, JUnit, SARIF and GitHub's annotations: by their schemas, within their limits, and safe from names."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import xmlschema
from test_check_data import FULL, render
from test_reports import EIGH, HOSTILE, SCAN, VERIFY, hostile

from opcompat.checking.data import CheckReport, Issue, ModelResult
from opcompat.checking.issues import issues_of
from opcompat.report import Report

SCHEMAS = Path(__file__).parent / "schemas"
SARIF = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text())
JUNIT = xmlschema.XMLSchema(str(SCHEMAS / "junit-10.xsd"))
REPORTS = [SCAN, VERIFY, FULL]
NAMES = ["scan", "verify", "check"]
FORMATS = ["text", "json", "html", "markdown", "junit", "sarif", "github"]

NASTY = (
    HOSTILE
    + "\n::error file=x::owned ##[error]owned %0A::warning::x ]]> --> <!-- @octocat #1 https://evil.example "
    + "www.evil.example [a](javascript:alert(1)) | **b** `c` \x00\ufffe\uffff "
)


def many(count: int) -> CheckReport:
    """A check with so many findings that fail."""
    findings = tuple(replace(EIGH, line=n + 1, scope=f"layer{n}:step", reason=f"no kernel {n}") for n in range(count))
    report = replace(SCAN, command="check", targets=(replace(SCAN.targets[0], findings=findings),), advice=())
    return CheckReport((ModelResult("m", report, issues_of(report, "m")),))


def nasty(value: Any, name: str = NASTY) -> Any:
    """`hostile`, with names that aim at CI hosts."""
    import test_reports

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_reports, "HOSTILE", name)
        return hostile(value)


# SARIF


def sarif(report: Report | CheckReport) -> dict[str, Any]:
    value = json.loads(render("sarif", report))
    jsonschema.Draft4Validator(SARIF).validate(value)
    (run,) = value["runs"]
    return dict(run)


@pytest.mark.parametrize("change", [lambda r: r, nasty], ids=["plain", "hostile"])
@pytest.mark.parametrize("report", REPORTS, ids=NAMES)
def test_sarif_is_what_the_schema_and_github_ask(report: Any, change: Callable[[Any], Any]) -> None:
    value = json.loads(render("sarif", change(report)))
    assert value["version"] == "2.1.0"
    assert value["$schema"].endswith("sarif-2.1.0.json")
    run = sarif(change(report))
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "opcompat"
    assert run["results"]
    for rule in rules:
        for field in ("shortDescription", "fullDescription", "help"):
            assert 0 < len(rule[field]["text"]) <= 1024
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        (place,) = [location["physicalLocation"] for location in result["locations"]]
        assert set(place["region"]) == {"startLine", "startColumn", "endLine", "endColumn"}
        assert re.fullmatch(r"[A-Za-z0-9%_.~/-]+", place["artifactLocation"]["uri"])
        assert not place["artifactLocation"]["uri"].startswith(("/", ".."))
        assert re.fullmatch(r"[0-9a-f]{16}:\d+", result["partialFingerprints"]["primaryLocationLineHash"])


def test_sarif_points_at_the_line_of_the_source() -> None:
    result = next(r for r in sarif(SCAN)["results"] if r["ruleId"] == "unsupported")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "examples/dreamer/dreamer.py"
    assert place["region"] == {
        "startLine": 12,
        "startColumn": 1,
        "endLine": 12,
        "endColumn": len("    return eigh(x)") + 1,
    }


def test_sarif_without_a_line_points_at_the_configuration() -> None:
    outside = replace(EIGH, file="/usr/lib/python3/site-packages/lib.py")
    report = replace(SCAN, targets=(replace(SCAN.targets[0], findings=(outside,)),))
    place = sarif(report)["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "examples/dreamer/opcompat.toml"


def test_sarif_tells_two_of_one_kind_apart_and_keeps_the_hash_where_lines_move() -> None:
    twice = tuple(replace(EIGH, line=line) for line in (1, 2))
    hashes = [
        [r["partialFingerprints"]["primaryLocationLineHash"] for r in sarif(report)["results"]]
        for report in (
            replace(SCAN, targets=(replace(SCAN.targets[0], findings=twice),), advice=()),
            replace(
                SCAN, targets=(replace(SCAN.targets[0], findings=tuple(replace(f, line=9) for f in twice)),), advice=()
            ),
        )
    ]
    assert len(set(hashes[0])) == 2
    assert hashes[0] == hashes[1]


def test_sarif_says_what_is_suppressed_and_what_was_known() -> None:
    issue = Issue("unsupported", "error", "m", "litert", "t", "m", fingerprint="f")
    issues = (
        replace(issue, status="suppressed", reason="servers only"),
        replace(issue, status="known"),
        replace(issue, status="new"),
        replace(issue, status="fixed", level="note"),
    )
    run = sarif(CheckReport((ModelResult("m", SCAN, issues),)))
    assert [r.get("baselineState") for r in run["results"]] == ["new", None, "unchanged"]
    assert [r["suppressions"][0]["justification"] for r in run["results"] if "suppressions" in r] == ["servers only"]


# JUnit


def junit(report: Report | CheckReport) -> ElementTree.Element:
    text = render("junit", report)
    JUNIT.validate(text)
    return ElementTree.fromstring(text)


@pytest.mark.parametrize("change", [lambda r: r, nasty], ids=["plain", "hostile"])
@pytest.mark.parametrize("report", REPORTS, ids=NAMES)
def test_junit_is_what_the_schema_asks(report: Any, change: Callable[[Any], Any]) -> None:
    root = junit(change(report))
    for suite in root.iter("testsuite"):
        cases = list(suite.iter("testcase"))
        assert int(suite.attrib["tests"]) == len(cases) > 0
        assert int(suite.attrib["failures"]) == sum(case.find("failure") is not None for case in cases)
    assert int(root.attrib["tests"]) == len(list(root.iter("testcase")))


def test_junit_has_a_case_for_each_target_and_check() -> None:
    names = {case.attrib["name"]: case for case in junit(FULL).iter("testcase")}
    assert names["scan onnxruntime"].find("failure") is not None
    assert names["verify onnx policy, step"].find("failure") is None
    failed = names["verify tflite policy, step"].find("failure")
    assert failed is not None
    assert "action differs by 3" in str(failed.text)
    assert names["verify onnx policy, closed-loop"].find("skipped") is not None


def test_junit_fails_where_the_run_fails_and_not_where_it_does_not() -> None:
    issue = Issue("interface", "error", "m", "", "t", "state.h is gone", fingerprint="change | x", status="new")
    for status, failures in (("new", 1), ("suppressed", 0), ("known", 0)):
        report = CheckReport((ModelResult("m", Report("check", "m", "m", ()), (replace(issue, status=status),)),))
        assert int(junit(report).attrib["failures"]) == failures


# GitHub


def test_annotations_are_ten_of_a_kind_at_most_and_say_what_is_left() -> None:
    lines = render("github", many(5000)).splitlines()
    errors = [line for line in lines if line.startswith("::error ")]
    assert len(errors) == 10
    assert "and 4,991 more" in errors[-1]
    assert "file=examples/dreamer/dreamer.py,line=1," in errors[0]
    exact = render("github", many(10)).splitlines()
    assert sum(line.startswith("::error ") for line in exact) == 10
    assert not any("more of this kind" in line for line in exact)


@pytest.mark.parametrize("report", REPORTS, ids=NAMES)
def test_annotations_escape_what_they_carry(report: Any) -> None:
    text = render("github", nasty(report))
    for line in text.splitlines():
        command = re.fullmatch(r"::(error|warning|notice) ([^:]*)::(.*)", line)
        if command is None:
            assert "::" not in line
            continue
        for value in re.split(",", command[2]):
            assert re.fullmatch(r"(file|line|title)=[^:,\r\n]*", value)
        assert "::" not in command[3]
        # "%" of a name is data: it must not become a line break on the host's side
        assert "%0A:" not in command[3].replace("%250A", "")


# Markdown


def test_markdown_fits_a_comment_with_5000_findings() -> None:
    text = render("markdown", many(5000))
    assert len(text.encode()) < 65_536
    left = re.search(r"and ([\d,]+) more", text)
    assert left is not None
    shown = text.count("- **error**")
    assert shown > 50
    assert int(left[1].replace(",", "")) + shown == 5000


def test_markdown_with_endless_names_stays_within_its_limit() -> None:
    assert len(render("markdown", nasty(FULL, "n" * 100_000)).encode()) < 65_536
    assert len(render("markdown", nasty(many(3000), "<" * 100_000)).encode()) < 65_536


def test_markdown_begins_with_the_verdict_and_has_models_and_targets() -> None:
    lines = render("markdown", FULL).splitlines()
    assert lines[0] == "## opcompat check: FAILED"
    assert "| model | onnxruntime | checks passed | result |" in lines
    assert any("cannot run 1" in line and "**FAILED**" in line for line in lines)
    passed = replace(FULL, models=(), issues=(), budgets=())
    assert render("markdown", passed).splitlines()[0] == "## opcompat check: passed"


@pytest.mark.parametrize("report", REPORTS, ids=NAMES)
def test_markdown_takes_names_as_text(report: Any) -> None:
    text = render("markdown", nasty(report))
    own = re.sub(r"<!-- -->|</?(details|summary)>", "", text)
    assert "<" not in own
    # As the host sees it: entities are characters again, and comments part what they stand between.
    seen = html.unescape(text.replace("<!-- -->", "\0"))
    for link in ("@octocat", "#1", "www.evil"):
        assert link not in seen
    for markup in ("](", "http://", "https://", "**b**", "`"):
        assert markup not in text


# All of them


@pytest.mark.parametrize("form", [f for f in FORMATS if f != "html"])
@pytest.mark.parametrize("report", REPORTS, ids=NAMES)
def test_no_format_lets_a_name_command_a_terminal_or_a_host(form: str, report: Any) -> None:
    text = render(form, nasty(report))
    for control in ("\x1b", "\x9b", "\x07", "\x00", "\u202e"):
        assert control not in text
    assert "##[" not in text
    commands = [line for line in text.splitlines() if line.strip().startswith("::")]
    assert commands == [line for line in commands if form == "github" and re.match(r"::(error|warning|notice) ", line)]
    text.encode()


@pytest.mark.parametrize("form", [f for f in FORMATS if f not in ("json", "html")])
def test_endless_names_stay_bounded(form: str) -> None:
    assert len(render(form, nasty(FULL, "n" * 100_000))) < 400_000


@pytest.mark.parametrize("form", [f for f in FORMATS if f != "html"])
def test_5000_findings(form: str) -> None:
    assert len(render(form, many(5000))) < 30_000_000
