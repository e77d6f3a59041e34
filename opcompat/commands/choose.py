"""Names that the user chose, checked against what exists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opcompat.config import did_you_mean
from opcompat.errors import ConfigError

FORMATS = ("onnx", "tflite")


def known_targets(names: Sequence[str] | None) -> tuple[str, ...]:
    """`names`, by default the targets that convert writes for. Raises ConfigError for one that does not exist."""
    from opcompat.targets.catalog import FORMATS, TARGETS

    return tuple(FORMATS.values()) if names is None or not names else _known("target", names, TARGETS)


def known_formats(names: Sequence[str]) -> tuple[str, ...]:
    """`names`, formats that convert writes. Raises ConfigError for one that does not exist."""
    return _known("format", names, FORMATS)


def _known(kind: str, names: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    choices = list(known)
    for name in names:
        if name not in choices:
            hint = did_you_mean(name, choices)
            raise ConfigError(f"no {kind} {name!r}{hint} ({kind}s: {', '.join(choices)})")
    return tuple(names)
