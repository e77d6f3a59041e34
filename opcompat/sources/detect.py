"""How each kind of source is recognized: by what it is named and by its first bytes, never by reading all of it."""

from __future__ import annotations

import re
from pathlib import Path

from opcompat import config

_PYTHON = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


def factory_folder(source: str) -> bool:
    """A folder whose own configuration names a factory."""
    path = Path(source)
    settings = config.read_folder(path) if path.is_dir() else None
    return settings is not None and settings.factory is not None


def python_function(source: str) -> bool:
    return not Path(source).exists() and _PYTHON.match(source) is not None
