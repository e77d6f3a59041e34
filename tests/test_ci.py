"""Where checks plug into CI: the pytest plugin, the GitHub action's steps, the snippets of docs/ci."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from opcompat.cli import cli

ROOT = Path(__file__).parents[1]
pytest_plugins = ["pytester"]

POLICY = """
import jax.numpy as jnp
import numpy as np
import opcompat

def act(params, obs):
    return {body}

def model():
    entry = opcompat.EntryPoint(act, (jnp.zeros((1, 3)),), outputs=("action",))
    return opcompat.Model("tiny", {{"w": np.ones((3, 2), np.float32)}}, {{"act": entry}})
"""
GOOD = POLICY.format(body='jnp.tanh(obs @ params["w"])')
BAD = POLICY.format(body="jnp.linalg.eigh(obs.T @ obs)[0]")


def test_the_fixture_passes_and_fails_with_the_report(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        good=GOOD,
        bad=BAD,
        test_policies="""
            import bad, good

            def test_good(opcompat):
                assert opcompat.check(good.model(), steps=2, to=["onnx"]).ok

            def test_bad(opcompat):
                opcompat.check(bad.model(), steps=2, to=["onnx"])
        """,
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*eigh*", "*FAILED*test_bad*"])


def test_pytest_starts_without_jax(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\n\ndef test_it(opcompat):\n    assert 'jax' not in sys.modules\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


# The snippets


def commands(page: str) -> list[list[str]]:
    """The calls of opcompat in a page's blocks of shell and YAML."""
    text = (ROOT / "docs" / "ci" / page).read_text()
    blocks = "\n".join(re.findall(r"```(?:sh|yaml)\n(.*?)```", text, re.DOTALL))
    return [shlex.split(m) for m in re.findall(r"^\s*(?:- )?(opcompat (?:check|baseline) .*)$", blocks, re.MULTILINE)]


@pytest.mark.parametrize(("page", "count"), [("gitlab.md", 1), ("shell.md", 2)])
def test_the_snippets_have_flags_that_exist(page: str, count: int) -> None:
    found = commands(page)
    assert len(found) == count
    for words in found:
        command: Any = cli
        rest = words[1:]
        while isinstance(command, click.Group):
            command = command.commands[rest.pop(0)]
        context = command.make_context(command.name, rest, resilient_parsing=True)
        known = {o for p in command.params for o in p.opts}
        assert context is not None
        assert {w.partition("=")[0] for w in rest if w.startswith("--")} <= known


def test_the_workflow_passes_inputs_that_the_action_has() -> None:
    text = (ROOT / "docs" / "ci" / "github.md").read_text()
    passed = re.search(r"with:\n((?: {10,}.*\n)+)", text[text.index("OWNER/opcompat") :])
    assert passed is not None
    names = set(re.findall(r"^ {10}([a-z-]+):", passed[1], re.MULTILINE))
    action = (ROOT / "action.yml").read_text()
    inputs = set(re.findall(r"^  ([a-z-]+):$", action[: action.index("runs:")], re.MULTILINE))
    assert names == {"sources", "baseline", "arguments"}
    assert names <= inputs


# The action


def step(name: str) -> str:
    """The script of one step of the action."""
    action = (ROOT / "action.yml").read_text()
    found = re.search(rf"- name: {name}\n.*?run: \|\n((?: {{8}}[^\n]*\n|\n)+)", action, re.DOTALL)
    assert found is not None
    assert "${{" not in found[1], "what users pass must come through the environment"
    return re.sub(r"^ {8}", "", found[1], flags=re.MULTILINE)


def run_step(name: str, folder: Path, python: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a step as the host does: bash that stops at errors, inputs in the environment."""
    own = {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(folder / "temp"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name)]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **own, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (BAD, 1)])
def test_the_check_step_reports_and_passes_the_result_on(tmp_path: Path, text: str, code: int) -> None:
    (tmp_path / "tiny.py").write_text(text)
    done = run_step(
        "Check", tmp_path, Path(sys.executable), SOURCES="tiny:model\n", BASELINE="", ARGUMENTS="--steps=2\n--to=onnx\n"
    )
    assert done.returncode == code, done.stderr
    assert ("::error" in done.stdout) is (code == 1)
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert json.loads(Path(outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert Path(outputs["html"]).read_text().startswith("<!doctype html>")
    assert "## opcompat check" in (tmp_path / "summary").read_text()


@pytest.mark.slow
def test_the_action_in_a_fresh_environment(tmp_path: Path) -> None:
    """Builds the wheel, and runs both steps with it where nothing else is installed."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(ROOT)], check=True
    )
    (wheel,) = tmp_path.glob("opcompat-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    installed = run_step("Install", tmp_path, python, WANTED=f"{wheel}\n", ACTION=str(ROOT))
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "tiny.py").write_text(GOOD)
    done = run_step("Check", tmp_path, python, SOURCES="tiny:model\n", BASELINE="", ARGUMENTS="--steps=2\n")
    assert done.returncode == 0, done.stderr
    assert "passed" in (tmp_path / "summary").read_text()
