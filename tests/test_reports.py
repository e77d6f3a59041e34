"""Renderers, reached as any other package reaches them: through their entry points."""

import json
import math
from dataclasses import is_dataclass, replace
from html.parser import HTMLParser
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from opcompat.report import (
    Advice,
    Artifact,
    ArtifactFile,
    Check,
    Excerpt,
    Finding,
    Interface,
    OutputCheck,
    Port,
    Report,
    RuleUse,
    TargetReport,
)

HOSTILE = "\x1b[31mred\x1b]0;title\x07[bold]<script>alert(1)</script>\n\u202eevil\ud800\x9b {{7*7}}"

EIGH = Finding(
    verdict="unsupported",
    primitive="eigh",
    operands="float32[3,3]",
    file="examples/dreamer/dreamer.py",
    line=12,
    function="step",
    count=1,
    entry_points=("policy",),
    reason="ONNX Runtime has no kernel for it",
    evidence="registry",
    declined=("OC901: the matrix is not constant",),
)
BITS = Finding(
    verdict="rewritten",
    primitive="random_bits",
    operands="uint32[2]",
    file="examples/dreamer/dreamer_nets.py",
    line=101,
    function="sample",
    count=1200,
    entry_points=("policy", "imagine"),
    rules=("OC101",),
)
KEY = Advice(
    id="OC701",
    title="A key that reaches no output",
    message="the key rng reaches no output: the policy does not sample",
    file="examples/dreamer/dreamer.py",
    line=99,
    function="policy",
    entry_points=("policy", "imagine"),
    next_step="use what is drawn from it, or take it out of the arguments",
)
TARGET = TargetReport(
    target="onnxruntime",
    runtime="ONNX Runtime",
    version="1.32.0",
    counts={"native": 1000, "folded": 20, "rewritten": 1200, "unsupported": 1, "unknown": 0},
    findings=(BITS, EIGH),
    rules=(RuleUse("OC101", "Threefry bits on uint32 words", "bit for bit", 1200, "b = random_bits a", "b = xor a"),),
    nodes={"policy": 3},
    ops={"Add": 2, "Mul": 1},
    primitives={"add": {"native": 2}, "eigh": {"unsupported": 1}},
)
SCAN = Report(
    command="scan",
    model="dreamer",
    source="examples/dreamer",
    entry_points=("init_policy", "policy"),
    targets=(TARGET,),
    advice=(KEY,),
    parameters=10_123_456,
    parameter_bytes=40_493_824,
    versions={"jax": "0.10.2"},
    config={"jax_enable_x64": False, "targets": ["onnxruntime"]},
    next_step="replace eigh at examples/dreamer/dreamer.py:12",
    sampling="exact",
    interfaces={
        "policy": Interface(
            inputs=(
                Port("key", "uint32", (2,), key="threefry2x32"),
                Port("state.deter", "float32", (1, 8), start="init_policy.state.deter"),
            ),
            outputs=(Port("action", "int32", (1,)), Port("state.deter", "float32", (1, 8), feeds="state.deter")),
            dtypes=("float32", "uint32"),
        )
    },
    excerpts={"examples/dreamer/dreamer.py:12": Excerpt(11, ("def step(x):", "    return eigh(x)"))},
)
DETER = OutputCheck("state.deter", "float32", 3.1e-6, 1.2e-5, 1.5e-6, 17, True)
STEP = Check("onnx", "onnxruntime 1.32.0", "policy", "step", 1000, 20, True, outputs=(DETER,), draws=640_000)
VERIFY = Report(
    command="verify",
    model="dreamer",
    source="",
    entry_points=("policy",),
    checks=(
        replace(STEP, mismatched=2, margins=(0,) * 21 + (640_000,)),
        replace(
            STEP,
            kind="closed-loop",
            passed=False,
            binding=False,
            outputs=(replace(DETER, error=math.nan, passed=False, series=(1e-7, math.nan)),),
            sensitivity=math.inf,
            note="parted from JAX at step 17",
        ),
        replace(
            STEP,
            format="tflite",
            runtime="ai-edge-litert 2.3.1",
            passed=False,
            outputs=(DETER, OutputCheck("action", "int32", 3.0, 0.0, None, 4, False)),
        ),
    ),
    files=(ArtifactFile("manifest.json", 812), ArtifactFile("onnx/weights.bin", 40_493_824)),
    bundle="dist",
    artifacts=(Artifact("onnx", "onnxruntime", 40_493_824, 155, 21),),
    next_step="opcompat explain OC101",
)


def render(form: str, report: Report, **options: Any) -> str:
    (point,) = entry_points(group="opcompat.reports", name=form)
    text = point.load()(report, **options)
    assert isinstance(text, str)
    return text


def hostile(value: Any) -> Any:
    """The same data with every free text replaced by something nasty."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = {"verdict", "command", "level", "status", "fail_on"}
        changed = {k: hostile(v) for k, v in vars(value).items() if k not in kept}
        return replace(value, **changed)
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, tuple):
        return tuple(hostile(item) for item in value)
    if isinstance(value, dict) and not set(value) & {"native", "targets"}:
        return {f"{HOSTILE}{i}": hostile(item) for i, item in enumerate(value.values())}
    return value


def test_a_small_scan_exactly() -> None:
    assert render("text", SCAN, width=80) == (
        "opcompat scan: dreamer\n"
        "  source        examples/dreamer\n"
        "  entry points  init_policy, policy\n"
        "  parameters    10,123,456 (40.5 MB)\n"
        "\n"
        "onnxruntime 1.32.0\n"
        "  2,221 equations: 1,000 native, 20 folded, 1,200 rewritten, 1 unsupported\n"
        "\n"
        "  Finding      Equation                                                   Count\n"
        "  ─────────────────────────────────────────────────────────────────────────────\n"
        "  unsupported  eigh  float32[3,3]                                             1\n"
        "               examples/dreamer/dreamer.py:12\n"
        "               ONNX Runtime has no kernel for it [registry]\n"
        "               declined: OC901: the matrix is not constant\n"
        "  OC101        random_bits  uint32[2]                                     1,200\n"
        "               examples/dreamer/dreamer_nets.py:101\n"
        "\n"
        "  Rule   What it does                                        Exactness    Count\n"
        "  ─────────────────────────────────────────────────────────────────────────────\n"
        "  OC101  Threefry bits on uint32 words                       bit for bit  1,200\n"
        "\n"
        "  Lint   Advice\n"
        "  ─────────────────────────────────────────────────────────────────────────────\n"
        "  OC701  policy, imagine: the key rng reaches no output: the policy does not\n"
        "         sample\n"
        "         examples/dreamer/dreamer.py:99\n"
        "         use what is drawn from it, or take it out of the arguments\n"
        "\n"
        "Not supported after rewriting: onnxruntime (1 equation).\n"
        "Next: replace eigh at examples/dreamer/dreamer.py:12\n"
    )


def test_a_small_verification_exactly() -> None:
    assert render("text", VERIFY, width=80) == (
        "opcompat verify: dreamer\n"
        "  entry points  policy\n"
        "  bundle        dist\n"
        "\n"
        "onnx, run by onnxruntime 1.32.0\n"
        "\n"
        "  Entry point  Check             Steps  Largest error            Draws  Result\n"
        "  ─────────────────────────────────────────────────────────────────────────────\n"
        "  policy       step         1,000 × 20  state.deter            640,000  passed\n"
        "                                        3.1e-06 of 1.2e-05    2 differ\n"
        "  policy       closed-loop  1,000 × 20  state.deter            640,000  differs\n"
        "                                        nan of 1.2e-05\n"
        "\n"
        "  policy closed-loop: state.deter (float32) nan of 1.2e-05, worst at step 17\n"
        "  policy closed-loop: parted from JAX at step 17\n"
        "  policy closed-loop: 1 ulp of state changes JAX's own outputs by inf\n"
        "\n"
        "tflite, run by ai-edge-litert 2.3.1\n"
        "\n"
        "  Entry point  Check             Steps  Largest error            Draws  Result\n"
        "  ─────────────────────────────────────────────────────────────────────────────\n"
        "  policy       step         1,000 × 20  action                 640,000  FAILED\n"
        "                                        3 differ\n"
        "\n"
        "  policy step: action (int32) 3 differ, worst at step 4\n"
        "\n"
        "2 files, 40.5 MB\n"
        "  manifest.json       812 B\n"
        "  onnx/weights.bin  40.5 MB\n"
        "\n"
        "1 of 3 checks FAILED: the artifacts do not act like the reference.\n"
        "Next: opcompat explain OC101\n"
    )


def test_verdicts() -> None:
    clean = replace(TARGET, counts={"native": 3, "rewritten": 1}, findings=(BITS,))
    assert "Runs on onnxruntime after rewriting: nothing stays" in render("text", replace(SCAN, targets=(clean,)))
    unknown = replace(TARGET, counts={"native": 3, "unknown": 2})
    text = render("text", replace(SCAN, targets=(unknown,)))
    assert "2 unknown" in text
    assert "onnxruntime (2 equations)" in text
    assert "All 2 checks passed" in render("text", replace(VERIFY, checks=(STEP, STEP)))
    loose = replace(STEP, passed=False, binding=False)
    assert "1 of 2 checks passed; 1 differ" in render("text", replace(VERIFY, checks=(STEP, loose)))
    assert "Nothing was checked" in render("text", replace(VERIFY, checks=()))


def test_only_what_stands_in_the_way_where_converting() -> None:
    text = render("text", replace(SCAN, command="convert"))
    assert "eigh" in text
    assert "random_bits" not in text


@pytest.mark.parametrize("width", [72, 80, 120])
@pytest.mark.parametrize("report", [SCAN, VERIFY])
def test_lines_fit(report: Report, width: int) -> None:
    assert max(map(len, render("text", report, width=width).splitlines())) <= width


def test_advice_does_not_make_a_report_worse() -> None:
    clean = replace(SCAN, targets=(replace(TARGET, counts={"native": 1}, findings=()),))
    assert clean.ok
    assert json.loads(render("json", clean))["advice"][0]["id"] == "OC701"


def test_colors_only_where_asked() -> None:
    assert "\x1b" not in render("text", SCAN)
    assert "\x1b[1;31munsupported" in render("text", SCAN, color=True)


@pytest.mark.parametrize("report", [SCAN, VERIFY])
def test_hostile_names_in_a_terminal(report: Report) -> None:
    text = render("text", hostile(report), width=120)
    assert all(c == "\n" or c.isprintable() for c in text)
    assert "\\x1b[31mred" in text
    assert "[bold]" in text
    text.encode()


@pytest.mark.parametrize("report", [SCAN, VERIFY])
def test_hostile_names_in_a_page(report: Report) -> None:
    page = render("html", hostile(report))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "{{7*7}}" in page
    page.encode()


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [str(v) for k, v in attrs if k in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("report", [SCAN, VERIFY, hostile(SCAN)])
def test_the_page_is_whole_and_loads_nothing(report: Report) -> None:
    tags = _Tags(render("html", report))
    assert tags.open == []
    assert all(source.startswith("#m") for source in tags.sources)


def test_the_page_holds_everything() -> None:
    page = render("html", SCAN)
    for text in (
        "eigh",
        "random_bits",
        "dreamer_nets.py:101",
        "in sample",
        "OC701",
        "dreamer.py:99",
        "in policy",
        "2,221 equations",
        "0.10.2",
    ):
        assert text in page
    page = render("html", VERIFY)
    for text in ("640,000, 2 differ", "parted from JAX", "onnx/weights.bin", "1 of 3 checks FAILED"):
        assert text in page


def schema() -> Any:
    return json.loads(files("opcompat").joinpath("schema/report.json").read_text())


@pytest.mark.parametrize("report", [SCAN, VERIFY, hostile(SCAN), hostile(VERIFY)])
def test_json_keeps_to_its_schema(report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    text = render("json", report)
    assert text.isascii()
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    jsonschema.Draft202012Validator(schema()).validate(data)
    assert list(data)[:3] == ["schema_version", "ok", "command"]
    assert data["model"] == report.model


def test_json_has_words_for_what_is_no_number() -> None:
    checks = json.loads(render("json", VERIFY))["checks"]
    assert checks[1]["outputs"][0]["error"] == "NaN"
    assert checks[1]["sensitivity"] == "Infinity"


def test_the_schema_refuses_what_it_does_not_know() -> None:
    data = json.loads(render("json", SCAN))
    data["targets"][0]["findings"][0]["extra"] = 1
    assert not jsonschema.Draft202012Validator(schema()).is_valid(data)


def test_the_schema_requires_every_field() -> None:
    def objects(node: Any) -> list[Any]:
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return [node] * (isinstance(node, dict) and "required" in node) + [o for c in children for o in objects(c)]

    for node in objects(schema()):
        assert set(node["required"]) == set(node["properties"])
        assert node["additionalProperties"] is False
