"""examples/web: the bundle of the example in onnxruntime-web, in node and Chromium, draws what JAX draws."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from opcompat.bundle import Bundle, reference_path
from opcompat.manifest import EntryPointInfo
from opcompat.runtime.reference import Reference, read_reference
from opcompat.runtime.replay import replay_entry_point
from opcompat.targets.probes.web.process import NodeProcess, decode, encode

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = next((p for p in (HERE, ROOT / "examples" / "web") if (p / "node_modules").exists()), HERE)
"""Where `npm install` was run: all of the packages, or those of the example."""
pytestmark = pytest.mark.browser


class JavaScript:
    """An entry point of a bundle, called through examples/web/policy.mjs."""

    def __init__(self, where: str, bundle: Path, entry_point: str) -> None:
        self.process = NodeProcess(HERE / "replay.mjs", where, str(bundle), entry_point, packages=PACKAGES)

    def call(self, inputs: Mapping[str, np.ndarray], *, loop: bool) -> dict[str, np.ndarray]:
        answer = self.process.ask({"inputs": {k: encode(v) for k, v in inputs.items()}, "loop": loop})
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return {name: decode(value) for name, value in answer["outputs"].items()}

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.call(inputs, loop=False)


@pytest.fixture(scope="module")
def bundle(discrete) -> Bundle:  # type: ignore[no-untyped-def]
    found: Bundle = Bundle.open(discrete.path)
    return found


@pytest.fixture(scope="module", params=["node", "browser"])
def policy(request: pytest.FixtureRequest, bundle: Bundle) -> Iterator[JavaScript]:
    made = JavaScript(request.param, bundle.path, "policy")
    with made.process:
        yield made


@pytest.fixture(scope="module")
def recorded(bundle: Bundle) -> tuple[EntryPointInfo, Reference]:
    info = bundle.manifest.entry_points["policy"]
    return info, read_reference(bundle.file(reference_path("policy")), info)


def test_every_recorded_step(policy: JavaScript, recorded: tuple[EntryPointInfo, Reference]) -> None:
    info, reference = recorded
    check = replay_entry_point("policy", info, policy, reference, "onnx", policy.process.ready["ready"])
    assert check.passed, check
    assert check.draws >= 32
    assert check.mismatched == 0


def test_the_closed_loop(policy: JavaScript, recorded: tuple[EntryPointInfo, Reference]) -> None:
    """The state comes from the artifact itself; the first one and the draws are still the recorded ones."""
    info, reference = recorded
    fed_back = set(info.feedback.values())
    given = {name: x for name, x in reference.inputs.items() if name not in fed_back}
    assert given["key"].dtype == np.uint32
    for step in range(reference.steps):
        got = policy.call({name: x[step] for name, x in given.items()}, loop=True)
        for name, expected in reference.outputs.items():
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(got[name], expected[step], atol=1e-4, err_msg=f"{name}, step {step}")
            else:
                np.testing.assert_array_equal(got[name], expected[step], err_msg=f"{name}, step {step}")


def test_another_key_draws_otherwise(policy: JavaScript, recorded: tuple[EntryPointInfo, Reference]) -> None:
    _, reference = recorded
    inputs = {name: x[0] for name, x in reference.inputs.items()}
    latents = [policy({**inputs, "key": np.asarray([0, k], np.uint32)})["latent"] for k in range(4)]
    assert len({x.tobytes() for x in latents}) > 1


def test_a_missing_input_is_named(policy: JavaScript) -> None:
    with pytest.raises(RuntimeError, match=r"policy takes key, uint32\[2\]"):
        policy({})


def test_the_page_runs(policy: JavaScript) -> None:
    ready = policy.process.ready
    if ready["ready"] == "browser":
        assert ready["shown"].startswith("ok: ")
        assert "5 steps" in ready["shown"]
        assert "\n4: " in ready["shown"]


def test_the_recipe_in_node(tmp_path: Path) -> None:
    """The program of docs/recipes/web.md draws the actions that its Python half has compared with JAX."""
    text = (ROOT / "docs" / "recipes" / "web.md").read_text(encoding="utf-8")
    (python,), (script,) = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "js"))
    (tmp_path / "policy.py").write_text(python + "        print(step, got['action'])\n", encoding="utf-8")
    expected = subprocess.run([sys.executable, "policy.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    for there, here in (
        ("./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs", "onnxruntime-web"),
        ("await (await fetch(`dist/${path}`)).arrayBuffer()", "fs.readFileSync(`dist/${path}`)"),
    ):
        assert there in script
        script = script.replace(there, here)
    (tmp_path / "loop.mjs").write_text(f'import fs from "node:fs";\n{script}', encoding="utf-8")
    shutil.copy(ROOT / "examples" / "web" / "policy.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(PACKAGES / "node_modules")
    done = subprocess.run(["node", "loop.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = [re.findall(r"\d+", line) for line in expected.stdout.splitlines()[-20:]]
    assert [re.findall(r"^\d+|\d+(?= \])", line) for line in done.stdout.splitlines()] == shown
