"""The errors that a user can meet. Each message names what, where and the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opcompat.report import Report


class OpcompatError(Exception):
    """Base class of every error that opcompat raises on purpose.

    `exit_code` is what the command line returns for it: 1 for a finding or a mismatch, 2 for wrong usage,
    configuration or input, 3 for a crash of the tool or of a foreign converter or runtime.
    """

    exit_code = 2


class ConfigError(OpcompatError):
    """A configuration file, an option or the model description is wrong."""


class SourceError(OpcompatError):
    """A source cannot be found, read or turned into a model."""


class TraceError(OpcompatError):
    """An entry point cannot be traced with its example arguments."""


class OutputError(OpcompatError):
    """An output cannot be written where it was asked for."""


class BundleError(OpcompatError):
    """A bundle is missing, damaged, or not from the model that it is compared with."""


class FindingError(OpcompatError):
    """The tool worked, and what it found is bad. `report` has all of it, where there is one."""

    exit_code = 1

    def __init__(self, message: str, report: Report | None = None) -> None:
        super().__init__(message)
        self.report = report


class UnsupportedError(FindingError):
    """The model holds operations that a target cannot run, also after rewriting."""


class VerificationError(FindingError):
    """An artifact does not act like the reference."""


class RuleError(OpcompatError):
    """A rewrite rule broke its contract: wrong output type, a cycle, a duplicate id."""

    exit_code = 3


class CrashError(OpcompatError):
    """A foreign runtime or converter died or hung in its child process."""

    exit_code = 3


class LimitError(CrashError):
    """What ran in a child process needed more time, memory or room than it was given."""
