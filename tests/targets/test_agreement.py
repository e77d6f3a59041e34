"""Verdicts against runtimes: a sample on the installed ones, the stored counts, and that disagreement is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from opcompat.targets import catalog, table
from opcompat.targets.base import Support
from opcompat.targets.probes import answers, onnx_cases
from opcompat.targets.probes.catalog import PROBES
from opcompat.targets.probes.sandbox import Sandbox
from tests.targets.agreement import PAGE, RESULTS, cases, count, page, runtime_of

SAMPLE = [
    one
    for one in cases()
    if one.name
    in {
        "add int32 rank1",
        "logistic float32 rank1",
        "ne int16 rank1",
        "select_n uint32 rank1",
        "reduce_sum int32 rank1",
        "argmax float32 rank3",
        "gather bool rank3",
        "while float32",
        "cond int32",
    }
]
STORED = json.loads(RESULTS.read_text())


@pytest.mark.parametrize("name", ["onnxruntime", "litert"])
def test_a_sample_agrees(name: str) -> None:
    counts = count(catalog.target(name), runtime_of(name), SAMPLE)
    assert (counts.tried, counts.false_supported, counts.false_unsupported) == (len(SAMPLE), {}, {})
    assert counts.supported == len(SAMPLE)


def test_a_false_verdict_is_seen() -> None:
    target, runtime = catalog.target("onnxruntime"), runtime_of("onnxruntime")
    one = [c for c in SAMPLE if c.name == "gather bool rank3"]
    never = replace(target, check=lambda node: Support("no", "probed", "never"))
    assert list(count(never, runtime, one).false_unsupported) == ["gather bool rank3"]
    # Rewriting asks the target, so one that has everything gets selects of uint8 in ONNX's own words.
    always = replace(target, check=lambda node: Support("yes", "probed"))
    many = [c for c in cases() if c.name.startswith(("cumsum", "reduce_max")) and "rank1" in c.name]
    assert count(always, runtime, many).false_supported


@pytest.mark.parametrize("name", STORED)
def test_stored_counts_are_good(name: str) -> None:
    found = STORED[name]
    assert found["tried"] >= 300
    assert found["false_supported"] == []
    assert len(found["false_unsupported"]) <= 0.01 * found["tried"]


def test_the_page_shows_the_stored_counts() -> None:
    shown, written = page(STORED), PAGE.read_text(encoding="utf-8")
    live = metadata.version("onnxruntime"), metadata.version("ai-edge-litert")
    if f"onnxruntime {live[0]}" in written and f"ai-edge-litert {live[1]}" in written:
        assert shown == written


def test_onnx_questions_have_the_answers_that_the_registry_gives() -> None:
    asked = [
        c for c in onnx_cases.cases(["float32", "uint32"], [2]) if c.op in ("Where", "Add", "TopK", "Loop", "Cast")
    ]
    sandbox = Sandbox(runtime_of("onnxruntime"))
    found, _ = answers.probe(asked, sandbox)
    sandbox.close()
    target = catalog.target("onnxruntime")
    for case in asked:
        reasons = found[answers.key(case)][case.rank]
        assert (target.check(case.node[0]).status == "yes") == (reasons == ("", "")), (case.op, reasons)


def test_what_is_right_by_chance_is_not_believed() -> None:
    key = ("NOT_EQUAL", "int16 int16 -> bool", "{}", "same")
    assert {r["is"] for r in answers.rows({key: {1: ("wrong: x", ""), 3: ("", "")}})["NOT_EQUAL"]} == {"no"}
    shape = answers.rows({key: {0: ("wrong: shape (1,), not ()", ""), 3: ("", "")}})["NOT_EQUAL"]
    assert {r["is"] for r in shape} == {"yes", "no"}


def test_values_that_are_wrong_are_doubted_where_they_were_not_asked() -> None:
    same, broadcast = (("Less", "int32 int32 -> bool", "{}", kind) for kind in ("same", "broadcast"))
    wrong = "wrong: False, not True, for 2147483646, 2147483647"
    rows = answers.rows({same: {0: ("", ""), 1: ("", wrong)}, broadcast: {1: ("", "")}})["Less"]
    assert [row["is"] for row in rows] == ["conditional"] * 3
    good = answers.rows({same: {0: ("", ""), 1: ("", "")}, broadcast: {1: ("", "")}})["Less"]
    assert {row["is"] for row in good} == {"yes"}


@pytest.mark.parametrize("name", [n for n in PROBES if n not in ("litert",)])
@pytest.mark.targets
def test_stored_tables_match_the_runtimes(name: str) -> None:
    pytest.importorskip(PROBES[name].runtime.module)
    runtime, target = PROBES[name].runtime, catalog.target(name)
    sandbox = Sandbox(runtime)
    asked = [c for i, c in enumerate(PROBES[name].cases()) if i % 97 == 0]
    assert len(asked) > 10
    for case in asked:
        reason = sandbox.ask(case)
        if target.check(case.node[0]).status == "yes":
            assert reason == "", (case.op, case.rank)
    sandbox.close()


def test_a_runtime_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    code = (
        "from opcompat.targets.probes.sandbox import Runtime, Sandbox\n"
        "Sandbox(Runtime('opcompat.targets.probes.runtimes:openvino', 'no-such', 'no_such_module', 'onnx'))\n"
    )
    file = tmp_path / "ask.py"
    file.write_text(f"if __name__ == '__main__':\n    {code.replace(chr(10), chr(10) + '    ')}\n")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert "pip install no-such" in done.stderr


def test_probed_tables_say_how_many_models_were_tried() -> None:
    for name in (*catalog.FILES.values(), "litert"):
        content = table.load(name).content
        if content["evidence"] == "probed":
            assert content.get("tried", 300) >= 300
