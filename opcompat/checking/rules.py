"""What counts: select, ignore, and suppressions with their reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from opcompat.checking.data import Issue
from opcompat.checking.issues import KINDS, fingerprint
from opcompat.checking.settings import Settings, Suppression

ALWAYS = frozenset({"failure", "stale"})
"""What no selection hides: a model without a result, and entries that match nothing."""


def sift(issues: Iterable[Issue], settings: Settings) -> tuple[list[Issue], frozenset[Suppression]]:
    """The issues, those that do not count marked with the reason, and the suppressions that matched any."""
    used: set[Suppression] = set()
    found = []
    for issue in issues:
        reason = _dropped(issue, settings)
        for suppression in settings.suppress:
            if _suppresses(suppression, issue, settings):
                used.add(suppression)
                reason = reason or suppression.reason
        # What is gone stays gone: only what would count is suppressed.
        found.append(replace(issue, status="suppressed", reason=reason) if reason and issue.active else issue)
    return found, frozenset(used)


def _dropped(issue: Issue, settings: Settings) -> str:
    if issue.id in ALWAYS:
        return ""
    if settings.select and not _matches(issue, settings.select):
        return "not selected"
    if _matches(issue, settings.ignore):
        return "ignored"
    for glob, ids in settings.per_path_ignores.items():
        if issue.file and _path_matches(issue.file, glob, settings) and _matches(issue, ids):
            return f"ignored in {glob}"
    return ""


def _matches(issue: Issue, ids: Sequence[str]) -> bool:
    """Whether an issue is one of `ids`: kinds by their word, rules by the beginning of their id."""
    kind = issue.id if issue.id in KINDS else "rewritten" if issue.target else ""
    return any(item == kind if item in KINDS else issue.id.startswith(item) for item in ids)


def _suppresses(one: Suppression, issue: Issue, settings: Settings) -> bool:
    return (
        issue.id not in ALWAYS
        and (not one.id or _matches(issue, [one.id]))
        and (not one.target or one.target == issue.target)
        and (not one.model or one.model == issue.model)
        and (not one.contains or one.contains in issue.message)
        and (not one.path or (bool(issue.file) and _path_matches(issue.file, one.path, settings)))
    )


def _path_matches(file: str, glob: str, settings: Settings) -> bool:
    """Globs are relative to the folder of the configuration; `*` matches `/` too. Names without `/` match anywhere."""
    path = Path(file).resolve()
    base = settings.folder or Path.cwd()
    shown = path.relative_to(base) if path.is_relative_to(base) else path
    posix = PurePosixPath(shown.as_posix())
    return fnmatchcase(str(posix), glob) or ("/" not in glob and fnmatchcase(posix.name, glob))


def unused(settings: Settings, used: Iterable[Suppression]) -> list[Issue]:
    """An issue for each suppression that matched nothing."""
    gone = [one for one in settings.suppress if one not in set(used)]
    return [
        Issue(
            id="stale",
            level="error",
            model="",
            target="",
            title=KINDS["stale"].title,
            message=f"a suppression matches nothing: {one} ({one.reason})",
            next_step="take it out of opcompat.toml, or allow it with --allow-stale",
            fingerprint=fingerprint("stale", str(one)),
            status="stale",
        )
        for one in gone
    ]
