"""The larger set runs only when it is asked for: `pytest -m slow tests/matrix`."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" in (config.getoption("markexpr") or ""):
        return
    asked = pytest.mark.skip(reason="the larger set: pytest -m slow tests/matrix")
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("slow"):
            item.add_marker(asked)
