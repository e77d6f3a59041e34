"""`opcompat bisect` against artifacts with one error planted in the lowering of one equation of the example."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT
from jax import numpy as jnp

from opcompat import api, conversion, jaxcompat, packs
from opcompat.bisecting.alignment import align
from opcompat.bisecting.artifact import Op, Program, Value
from opcompat.checking import store
from opcompat.cli import cli
from opcompat.lowering.graph import Graph, Node, Tensor
from opcompat.lowering.onnx.table import TABLE as ONNX
from opcompat.lowering.tflite.table import TABLE as TFLITE
from opcompat.model import EntryPoint, Model
from opcompat.report import Divergence, Report
from opcompat.rule import Replacement, Rule

TABLES: dict[str, Any] = {"onnx": ONNX, "tflite": TFLITE}
TIMES = {"onnx": "Mul", "tflite": "MUL"}
STEPS = 8
HERE = Path(__file__)
EXAMPLE = ROOT / "examples" / "dreamer" / "dreamer.py"


def line_of(file: Path, text: str) -> int:
    """The line of a file that begins with `text`, indentation apart."""
    (found,) = [i for i, line in enumerate(file.read_text().splitlines(), 1) if line.strip().startswith(text)]
    return found


@contextmanager
def planted(form: str, primitive: str, line: int, factor: float) -> Iterator[None]:
    """Lowers `primitive` at `line` to something that gives `factor` times the right value."""
    table, right = TABLES[form], TABLES[form][primitive]

    def wrong(b: Any, eqn: Any, *operands: Any) -> Any:
        out = right(b, eqn, *operands)
        if jaxcompat.place_of(eqn.source_info).line != line:
            return out
        return b.op1(TIMES[form], (out, b.const(factor, out.dtype)), out.shape, out.dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(table, primitive, wrong)
        yield


def convert_unproven(model: Model, out: Path, form: str) -> None:
    """Writes what convert would refuse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion, "record", lambda *_, **__: None)
        patch.setattr(conversion, "run_checks", lambda *_, **__: ())
        api.convert(model, out, to=[form], steps=1)


@pytest.fixture(scope="module")
def dreamer(at_root: Path) -> Model:
    model: Model = importlib.import_module("dreamer").model(size="small")
    return model


def only(report: Any) -> Divergence:
    (found,) = report.divergences
    assert isinstance(found, Divergence)
    return found


def bisected(
    model: Model, folder: Path, form: str, primitive: str, line: int, still_there: bool, **options: Any
) -> Report:
    """Plants an error, converts, and bisects: with the defect in place still, or with a version that has it no more."""
    with planted(form, primitive, line, 1.01):
        convert_unproven(model, folder / "dist", form)
        if still_there:
            return api.bisect(folder / "dist", model, steps=STEPS, **options)
    return api.bisect(folder / "dist", model, steps=STEPS, **options)


def assert_found(found: Divergence, primitive: str, line: int, file: str) -> None:
    culprit = found.culprit
    assert culprit is not None
    assert (culprit.cause, culprit.primitive, culprit.line) == ("artifact", primitive, line)
    assert culprit.file.endswith(file)
    assert culprit.sufficient
    assert float(culprit.got) == pytest.approx(1.01 * float(culprit.want), rel=1e-4)
    assert culprit.growth[-1].what.startswith("output ")
    assert culprit.amplification is not None


def render(form: str, report: Report) -> str:
    text = packs.renderers()[form](report)
    assert isinstance(text, str)
    return text


def validate(report: Report) -> None:
    store.validator("report").validate(json.loads(render("json", report)))


@pytest.mark.slow
@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("still_there", [True, False])
def test_a_planted_error_in_the_example_is_found(dreamer: Model, tmp_path: Path, form: str, still_there: bool) -> None:
    """In the file of a version that has the defect still, and of one that has it no longer."""
    line = line_of(EXAMPLE, "candidate = jnp.tanh(")
    report = bisected(dreamer, tmp_path, form, "tanh", line, still_there, entry_points=["policy"])
    found = only(report)
    assert_found(found, "tanh", line, "dreamer.py")
    assert (found.step, found.loop_step) == (0, 0)
    assert found.same_file is still_there
    assert not report.ok


# A policy that is small enough to look into again and again


def policy(params: Any, key: Any, obs: Any, state: Any) -> Any:
    hidden = jnp.tanh(obs @ params["w"] + 0.5 * state)
    gate = jax.nn.sigmoid(hidden[:, ::-1])
    scores = jnp.exp(hidden * gate)
    after = jnp.sin(scores) * 0.5
    return jax.random.categorical(key, scores), scores, after


def tiny() -> Model:
    weights = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    entry = EntryPoint(
        policy,
        (jax.random.key(0), jnp.zeros((1, 3)), jnp.zeros((1, 4))),
        names=("key", "obs", "state"),
        outputs=("drawn", "scores", "after"),
        feedback={"after": "state"},
        init={"state": jnp.zeros((1, 4))},
    )
    return Model("tiny", {"w": jnp.asarray(weights)}, {"policy": entry})


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize(
    ("still_there", "primitive", "text"), [(True, "sin", "after = jnp.sin("), (False, "exp", "scores = jnp.exp(")]
)
def test_a_planted_error_is_found(tmp_path: Path, form: str, still_there: bool, primitive: str, text: str) -> None:
    line = line_of(HERE, text)
    report = bisected(tiny(), tmp_path, form, primitive, line, still_there)
    found = only(report)
    assert_found(found, primitive, line, "test_bisect.py")
    assert found.same_file is still_there
    assert found.observed > 20
    shown = render("text", report)
    assert f"first wrong value: {primitive} float32[1,4] at tests/test_bisect.py:{line}, in policy" in shown
    assert "first step that differs, from JAX's state: 0; in the closed loop: 0; of 8" in shown
    validate(report)


@pytest.mark.parametrize("form", TABLES)
def test_a_right_artifact_has_no_culprit(tmp_path: Path, form: str) -> None:
    api.convert(tiny(), tmp_path / "dist", to=[form], steps=1)
    report = api.bisect(tmp_path / "dist", tiny(), steps=STEPS)
    found = only(report)
    assert report.ok
    assert (found.step, found.loop_step, found.culprit) == (None, None, None)
    assert "Nothing differs from JAX" in render("text", report)
    validate(report)


def wrong_rule(rule: Rule) -> Rule:
    """The same rule, its results off by a hundredth."""

    def apply(site: Any) -> Any:
        found = rule.apply(site)
        if not isinstance(found, Replacement):
            return found
        return replace(found, function=lambda *xs: found.function(*xs) * np.float32(1.01))

    return replace(rule, apply=apply)


def rooted(params: Any, obs: Any) -> Any:
    scaled = 3 * obs
    roots = jnp.cbrt(scaled)
    return roots * 2


def test_a_wrong_rule_is_told_from_a_wrong_lowering(tmp_path: Path) -> None:
    model = Model("rooted", {}, {"policy": EntryPoint(rooted, (jnp.zeros(4),), outputs=("out",))})
    wrong = tuple(wrong_rule(r) if r.id == "OC530" else r for r in packs.rules())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "rules", lambda: wrong)
        convert_unproven(model, tmp_path / "dist", "tflite")
        report = api.bisect(tmp_path / "dist", model, steps=STEPS)
    culprit = only(report).culprit
    assert culprit is not None
    assert (culprit.cause, culprit.primitive, culprit.rules) == ("rule", "cbrt", ("OC530",))
    assert culprit.line == line_of(HERE, "roots = jnp.cbrt(")
    assert "OC530" in report.next_step


# The parts


def node(op: str, *inputs: Tensor) -> Node:
    return Node(op, inputs, (Tensor((2,), "float32"),))


def test_values_between_changed_ops_are_known_by_what_reads_them() -> None:
    """The file has A B' B'' C where the graph has A B C: what C reads stands for B's result."""
    x = Tensor((2,), "float32", "x")
    a = node("A", x)
    b = node("B", a.outputs[0])
    c = node("C", b.outputs[0])
    graph = Graph("g", [x], [c.outputs[0]], [a, b, c])
    values = [Value(name, (2,), "float32") for name in "xabrc"]
    ops = [Op(o, (i,), (r,)) for o, i, r in zip("ABRC", values, values[1:], strict=False)]
    found = align(graph, Program(tuple(ops), {"c": "out"}), ["out"])
    assert [found.values[n.outputs[0]].key for n in graph.nodes] == ["a", "r", "c"]
    assert found.changed == ()
    found = align(graph, Program((ops[0], Op("Z", ops[1].inputs, ops[2].outputs), ops[3]), {"c": "out"}), ["out"])
    assert [found.values[n.outputs[0]].key for n in graph.nodes] == ["a", "r", "c"]
    assert found.changed == (b,)


def test_the_command_names_the_line_and_exits_with_1(tmp_path: Path) -> None:
    line = line_of(HERE, "scores = jnp.exp(")
    with planted("onnx", "exp", line, 1.01):
        convert_unproven(tiny(), tmp_path / "dist", "onnx")
    command = ["bisect", str(tmp_path / "dist"), "test_bisect:tiny", "--steps", "2", "--format", "json", "-q"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE.parent))
        result = CliRunner().invoke(cli, command)
        other = CliRunner().invoke(cli, [*command, "--format-under-test", "tflite"])
    assert result.exit_code == 1, result.output
    (found,) = json.loads(result.stdout)["divergences"]
    assert (found["culprit"]["line"], found["same_file"]) == (line, False)
    assert other.exit_code == 2
    assert "has no format 'tflite'" in other.stderr
