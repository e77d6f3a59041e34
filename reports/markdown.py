"""Markdown for a comment on a pull request and for a step's summary: the verdict, the models, what fails and why.

GitHub takes 65,536 characters in a comment, so the text ends before, and says what it left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from opcompat.checking.data import CheckReport, FailOn, Issue
from opcompat.report import Report

from . import gathered, wording

LIMIT = 60_000
"""Bytes of the whole text."""

_MOST_MODELS = 100
_LONGEST = 600
_PLAIN = re.compile(r"[^A-Za-z0-9 ,()/+.=-]")
_LINKS = re.compile(r"\bwww\.", re.IGNORECASE)


def render(report: Report | CheckReport, *, color: bool = False, width: int | None = None) -> str:
    """The report as Markdown of at most 60,000 bytes. `color` and `width` have no effect."""
    command = escaped(report.command)
    state = "passed" if report.ok else "FAILED"
    head = [f"## opcompat {command}: {state}", "", escaped(gathered.verdict(report)), ""]
    if report.next_step:
        head += [f"Next: {escaped(report.next_step)}", ""]
    issues = wording.shown_issues(gathered.all_issues(report))
    counting = [issue for issue in issues if issue.active]
    gone = [issue for issue in issues if not issue.active]
    many = isinstance(report, CheckReport) and len(report.models) > 1
    tail = _versions(report)
    body = [*_models(gathered.models(report), gathered.fail_on(report))]
    room = LIMIT - _bytes([*head, *body, *tail]) - 500
    body += _section("Issues", counting, room, many)
    room = LIMIT - _bytes([*head, *body, *tail]) - 500
    body += _section("Fixed since the baseline", gone, room, many)
    return "\n".join([*head, *body, *tail]).rstrip("\n") + "\n"


def escaped(text: object, longest: int = _LONGEST) -> str:
    """Text that Markdown and GitHub take as it is: no markup, no HTML, no link, no mention, no reference."""
    plain = wording.shortened(str(text), longest)
    shown = _PLAIN.sub(lambda found: _entity(found[0]), plain)
    return _LINKS.sub(lambda found: f"{found[0][:-1]}<!-- -->.", shown)


def _entity(char: str) -> str:
    if not char.isascii():
        return char
    # The host looks for mentions and references in the rendered text, where an entity is its character again.
    return f"&#{ord(char)};" + ("<!-- -->" if char in "@#" else "")


def _bytes(lines: Iterable[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def _models(models: Sequence[gathered.Model], fail_on: FailOn) -> Iterator[str]:
    targets = list(dict.fromkeys(t.target for m in models for t in m.report.targets))[:12]
    yield "| model | " + "".join(f"{escaped(t, 40)} | " for t in targets) + "checks passed | result |"
    yield "| --- | " + "--- | " * len(targets) + "---: | --- |"
    for model in models[:_MOST_MODELS]:
        cells = [escaped(model.key, 100)]
        by_name = {t.target: t for t in model.report.targets}
        for name in targets:
            target = by_name.get(name)
            if target is None:
                cells.append("")
                continue
            stuck = target.counts.get("unsupported", 0) + target.counts.get("unknown", 0)
            cells.append(
                f"cannot run {stuck:,}" if stuck else f"runs ({target.counts.get('rewritten', 0):,} rewritten)"
            )
        checks = model.report.checks
        cells.append(f"{sum(c.passed or not c.binding for c in checks):,} of {len(checks):,}" if checks else "none")
        bad = any(issue.fails(fail_on) for issue in model.issues)
        yield "| " + " | ".join([*cells, "**FAILED**" if bad else "passed"]) + " |"
    if len(models) > _MOST_MODELS:
        yield ""
        yield f"and {len(models) - _MOST_MODELS:,} more models"
    yield ""


def _item(issue: Issue, many: bool) -> list[str]:
    model = f"{escaped(issue.model, 100)}: " if many and issue.model else ""
    place = f" ({escaped(wording.place(issue), 200)})" if issue.file else ""
    label = wording.issue_label(issue)
    lines = [f"- **{label}** {escaped(issue.id, 40)}: {model}{escaped(issue.message)}{place}"]
    return [*lines, *(f"  - {escaped(line)}" for line in wording.issue_lines(issue))]


def _section(title: str, issues: Sequence[Issue], room: int, many: bool) -> list[str]:
    """As many issues as there is room for, and how many are left out."""
    if not issues:
        return []
    lines = [f"### {title}", ""]
    for index, issue in enumerate(issues):
        item = _item(issue, many)
        room -= _bytes(item)
        if room < 0:
            lines.append(f"- and {len(issues) - index:,} more, which the JSON report has")
            break
        lines += item
    return [*lines, ""]


def _versions(report: Report | CheckReport) -> list[str]:
    if not report.versions:
        return []
    shown = [f"{escaped(name, 60)} {escaped(version, 60)}" for name, version in list(report.versions.items())[:40]]
    return ["<details><summary>Versions</summary>", "", ", ".join(shown), "", "</details>", ""]
