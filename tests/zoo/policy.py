"""What one file of the zoo says: a policy, what it is built from, and whether it works."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from opcompat.model import Model
from tests.zoo import policies


@dataclass(frozen=True)
class Policy:
    """A policy of the zoo.

    Attributes:
      build: makes the model, with random weights and no network. Called in a process of its own.
      packages: the distributions that it is built from, as pip names them; their versions stand in the table.
      draws: whether another key must change the outputs. Checked.
      limit: why it cannot work yet; "" if it works. A policy with a limit must fail with an error of opcompat.
    """

    build: Callable[[], Model]
    packages: tuple[str, ...]
    draws: bool = False
    limit: str = ""

    @property
    def versions(self) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in self.packages}


def names() -> tuple[str, ...]:
    """All policies, by file name. Imports none of them."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(policies.__path__)))


def load(name: str) -> Policy:
    """Imports one policy's file, and with it the packages it is built from."""
    found = importlib.import_module(f"{policies.__name__}.{name}").POLICY
    assert isinstance(found, Policy)
    return found
