"""The README and docs/ say what is true: snippets run, commands parse, files exist, the CI runs what they promise."""

import os
import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from opcompat.cli import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
JAX = "0.10.2"
ELSEWHERE = {"manifest.json", "reference/", "policy.py", "opcompat.toml", "opcompat.baseline.json"}
"""Files of a bundle, and of the reader's own project."""


def command(name: str) -> str:
    """One of the README's two commands."""
    (found,) = re.findall(rf"<!-- command: {name} -->\n```sh\n(.*?)```", README, re.DOTALL)
    return found


def words(text: str) -> str:
    """The text in one line, continuation lines joined."""
    return " ".join(text.replace("\\\n", " ").split())


@pytest.mark.parametrize("name", ["demo", "test"])
@pytest.mark.parametrize("file", [".ci/run", "Makefile"])
def test_the_readme_commands_are_what_ci_and_make_run(name: str, file: str) -> None:
    assert words(command(name)) in words((ROOT / file).read_text())


def test_the_python_snippets_run(tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(snippets) == 3
    assert 4 <= len([line for line in snippets[0].splitlines() if line]) <= 6
    program = "\n".join([*snippets, "assert report.ok and action.shape == (1, 4)"])
    paths = [str(ROOT / "examples" / "dreamer"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(metadata.version("jax") != JAX, reason=f"the README shows what jax {JAX} gives")
def test_the_shown_scan_is_what_scan_prints() -> None:
    (shown,) = re.findall(r"\$ opcompat scan examples/dreamer\n(.*?)```", README, re.DOTALL)
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    program = "from opcompat.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "scan", "examples/dreamer"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    printed = done.stdout.splitlines()
    assert [line for line in shown.splitlines() if line != "[...]" and line not in printed] == []


def commands() -> list[list[str]]:
    """Every `opcompat ...` in a code block or in backticks, as a shell would split it."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    blocks = "\n".join(re.findall(r"```\w*\n(.*?)```", pages, re.DOTALL))
    lines = re.findall(r"^(?:\$ |Next: |\.venv/bin/)?(opcompat [a-z].*?)(?:&&)?$", blocks, re.MULTILINE)
    inline = re.findall(r"`(opcompat [a-z][^`]*)`", re.sub(r"```.*?```", "", pages, flags=re.DOTALL))
    return [shlex.split(line, comments=True) for line in dict.fromkeys([*lines, *inline])]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_every_command_parses(arguments: list[str]) -> None:
    _, name, *rest = arguments
    subcommand = cli.commands[name.rstrip(",")]
    if rest:
        subcommand.make_context(name, list(rest), resilient_parsing=False)


def test_the_commands_are_found() -> None:
    assert {found[1] for found in commands()} >= {*cli.commands}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_pages_name_exist(page: Path) -> None:
    """Links are seen from the page, `folder/file` from the root; a bare `file.py` may lie anywhere in opcompat/."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    links = {page.parent / target for target in re.findall(r"\]\(([^)#:]+)\)", text)}
    quoted = set(re.findall(r"`([\w./-]+(?:/|\.(?:py|toml|json|txt|md)))`", prose)) - ELSEWHERE
    missing = [str(link) for link in links if not link.exists()]
    for name in quoted:
        if "NAME" not in name and not (ROOT / name).exists():
            missing += [] if "/" not in name and any((ROOT / "opcompat").rglob(name)) else [name]
    assert missing == []


def test_constraints_are_exact_versions() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    exact = r'[\w.-]+==[\w.]+( ; python_version < "3\.12")?'
    assert lines
    assert [line for line in lines if not re.fullmatch(exact, line)] == []
