"""The table `[check]` of a configuration: what counts, what is accepted and why, the limits.

[check]
baseline = "opcompat.baseline.json"
fail_on = "error"                         # error, warning, never
select = ["unsupported", "OC7"]           # only these count; by default all
ignore = ["OC305"]                        # these never count
allow_stale = false
error_growth = 4.0                        # how many times an error may be the baseline's
bytes_growth = 1.1                        # the same for the size of artifacts

[check.per_path_ignores]
"legacy/*.py" = ["OC701"]

[[check.suppress]]                        # all that is given has to match
id = "unsupported"
target = "litert"
path = "policies/old.py"
model = "policies"
contains = "eigh"
reason = "runs on servers only"           # must be there

[check.budgets]                           # metric = [level, max]
max_abs_error = ["error", 1e-4]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from opcompat.checking.data import FAIL_ON, LEVELS, FailOn, Level
from opcompat.checking.issues import KINDS
from opcompat.config import did_you_mean
from opcompat.errors import ConfigError

METRICS: Mapping[str, str] = {
    "max_abs_error": "the largest absolute error of any float output, over single steps and closed loops",
    "draw_disagreement": "the share of draws that differ from JAX's",
    "artifact_bytes": "the bytes of one format's files, weights included",
    "op_count": "the ops of one format, over all entry points",
    "rewritten_ops": "the equations that leave the fast path: those that run only as a rule rewrites them",
    "latency": "how many times as long as JAX one step takes, measured in one process",
}
"""What a budget can limit."""

ERROR_GROWTH = 4.0
BYTES_GROWTH = 1.1

_RULE = re.compile(r"OC\d{1,3}\Z")
_SUPPRESS = ("id", "target", "path", "model", "contains", "reason")


@dataclass(frozen=True)
class Suppression:
    """Accepts the issues that match all that is not empty. `path` is a glob on the file, relative to the folder."""

    reason: str
    id: str = ""
    target: str = ""
    path: str = ""
    model: str = ""
    contains: str = ""

    def __str__(self) -> str:
        given = [f"{f.name} {getattr(self, f.name)!r}" for f in fields(self) if f.name != "reason"]
        return ", ".join(text for text in given if not text.endswith("''"))


@dataclass(frozen=True)
class Budget:
    metric: str
    level: Level
    limit: float


@dataclass(frozen=True)
class Settings:
    """See the module. `folder` is that of the file, which paths are relative to."""

    baseline: Path | None = None
    fail_on: FailOn | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    allow_stale: bool = False
    error_growth: float = ERROR_GROWTH
    bytes_growth: float = BYTES_GROWTH
    per_path_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    suppress: tuple[Suppression, ...] = ()
    budgets: tuple[Budget, ...] = ()
    folder: Path | None = None


def check_ids(value: Any) -> tuple[str, ...]:
    """Ids of rules or lints, the beginnings of some (OC7), or words for kinds of issues. Raises ConfigError."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"must be a list of ids, not {value!r}")
    for item in value:
        if item not in KINDS and not _RULE.match(item):
            raise ConfigError(
                f"{item!r} is neither a rule's id (OC305, or OC3 for all that begin so) nor one of "
                f"{', '.join(KINDS)}{did_you_mean(item, KINDS)}"
            )
    return tuple(dict.fromkeys(value))


def parse(table: Any, folder: Path) -> Settings:
    """The settings in a `[check]` table. Raises ConfigError."""
    _need(isinstance(table, dict), "must be a table", table)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _READERS:
            raise ConfigError(f"unknown key {key!r}{did_you_mean(key, _READERS)} (known keys: {', '.join(_READERS)})")
        try:
            values[key] = _READERS[key](value)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from error
    if "baseline" in values:
        values["baseline"] = folder / values["baseline"]
    return Settings(folder=folder.resolve(), **values)


def _need(fine: bool, what: str, value: Any) -> None:
    if not fine:
        raise ConfigError(f"{what}, not {value!r}")


def _text(value: Any) -> str:
    _need(isinstance(value, str) and bool(value.strip()), "must be a string that says something", value)
    return str(value)


def _fail_on(value: Any) -> str:
    _need(value in FAIL_ON, f"must be one of {', '.join(FAIL_ON)}", value)
    return str(value)


def _flag(value: Any) -> bool:
    _need(isinstance(value, bool), "must be true or false", value)
    return bool(value)


def _growth(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value < float("inf")
    _need(good, "must be a number from 1", value)
    return float(value)


def _per_path(value: Any) -> dict[str, tuple[str, ...]]:
    _need(isinstance(value, dict), "must be a table of globs, each with a list of ids", value)
    return {glob: check_ids(ids) for glob, ids in value.items()}


def _suppressions(value: Any) -> tuple[Suppression, ...]:
    _need(isinstance(value, list), "must be a list of tables: [[check.suppress]]", value)
    return tuple(_suppression(item) for item in value)


def _suppression(value: Any) -> Suppression:
    _need(isinstance(value, dict), "must be a table", value)
    for key in value:
        if key not in _SUPPRESS:
            raise ConfigError(f"unknown key {key!r}{did_you_mean(key, _SUPPRESS)} (known keys: {', '.join(_SUPPRESS)})")
    if "reason" not in value:
        raise ConfigError('a suppression needs a reason: reason = "runs on servers only"')
    if len(value) < 2:
        raise ConfigError("a suppression needs something to match, such as id or path")
    texts = {key: _text(item) for key, item in value.items()}
    if "id" in texts:
        check_ids([texts["id"]])
    return Suppression(**texts)


def _budgets(value: Any) -> tuple[Budget, ...]:
    _need(isinstance(value, dict), "must be a table of metrics", value)
    return tuple(_budget(metric, limit) for metric, limit in value.items())


def _budget(metric: str, value: Any) -> Budget:
    if metric not in METRICS:
        raise ConfigError(f"unknown metric {metric!r}{did_you_mean(metric, METRICS)} (metrics: {', '.join(METRICS)})")
    good = isinstance(value, list) and len(value) == 2 and value[0] in LEVELS
    good = good and isinstance(value[1], int | float) and not isinstance(value[1], bool) and value[1] >= 0
    _need(good, f'{metric} must be [level, max], as in ["error", 0.001], level one of {", ".join(LEVELS)}', value)
    return Budget(metric, value[0], float(value[1]))


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "baseline": _text,
    "fail_on": _fail_on,
    "select": check_ids,
    "ignore": check_ids,
    "allow_stale": _flag,
    "error_growth": _growth,
    "bytes_growth": _growth,
    "per_path_ignores": _per_path,
    "suppress": _suppressions,
    "budgets": _budgets,
}
