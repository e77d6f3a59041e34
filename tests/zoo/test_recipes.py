"""docs/recipes/: the program of each page runs as it stands there, and serves the command line as the index says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
INDEX = RECIPES / "README.md"
PAGES = sorted(page for page in RECIPES.glob("*.md") if page != INDEX)


def program(page: Path) -> str:
    (found,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.zoo
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_recipe_runs_as_written(page: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.py").write_text(program(page), encoding="utf-8")
    run(tmp_path, "policy.py")
    assert (tmp_path / "dist" / "manifest.json").exists()
    run(tmp_path, "-c", "from opcompat.cli import main; main()", "scan", "policy:make")


def test_the_index_lists_every_page() -> None:
    links = re.findall(r"\]\(([\w-]+\.md)\)", INDEX.read_text(encoding="utf-8"))
    assert sorted(links) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_recipe_goes_from_params_to_a_bundle_that_is_compared_with_jax(page: Path) -> None:
    text = program(page)
    assert [
        word for word in ("def make(", "opcompat.scan", "opcompat.convert", "runtime.load") if word not in text
    ] == []
    assert re.search(r"assert_allclose|assert_array_equal|assert got\[", text)
    assert max(map(len, text.splitlines())) <= 120
