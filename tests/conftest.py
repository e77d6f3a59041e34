"""What is slow to make and many tests look at: the small example, converted once for each kind of action."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SEEDS, STEPS = 3, 200
"""How the example is verified: from so many seeds, so many steps each."""

QUICK = 10
"""Steps of the conversions that are only looked at."""


@dataclass(frozen=True)
class Converted:
    """A model, the bundle that was made of it, and convert's report."""

    model: Any
    bundle: Any
    report: Any

    @property
    def path(self) -> Path:
        return Path(self.bundle.path)


@pytest.fixture(scope="session")
def at_root() -> Iterator[Path]:
    """Works at the root of the checkout, from which the example can be imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.syspath_prepend(str(ROOT / "examples" / "dreamer"))
        yield ROOT


def _convert(action: str, out: Path, steps: int, seeds: int) -> Converted:
    from opcompat import api

    model = importlib.import_module("dreamer").model(size="small", action=action)
    bundle, report = api.convert(model, out, steps=steps, seeds=seeds, source="examples/dreamer")
    return Converted(model, bundle, report)


@pytest.fixture(scope="session")
def discrete(at_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    return _convert("discrete", tmp_path_factory.mktemp("discrete") / "dist", QUICK, 1)


@pytest.fixture(scope="session")
def continuous(at_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    return _convert("continuous", tmp_path_factory.mktemp("continuous") / "dist", STEPS, SEEDS)
