"""The HTML page: matrix, heat map, findings with source, plots, rewrites, changes; whole, escaped, not too large."""

from __future__ import annotations

import math
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from test_check_data import FULL, render
from test_reports import EIGH, SCAN, VERIFY, hostile

from opcompat.checking.data import CheckReport, Issue, ModelResult
from opcompat.checking.issues import issues_of
from opcompat.report import Check, OutputCheck, Report, RuleUse

LOOP = Check(
    format="onnx",
    runtime="onnxruntime 1.32.0",
    entry_point="policy",
    kind="closed-loop",
    steps=4,
    seeds=1,
    passed=True,
    outputs=(
        OutputCheck("state.deter", "float32", 2e-6, 1e-5, 1e-7, 3, True, series=(1e-7, 5e-7, 1e-6, 2e-6)),
        OutputCheck("action", "int32", 0.0, 0.0, None, 0, True, series=(0.0, 0.0, 0.0, 0.0)),
    ),
)
STEP = replace(LOOP, kind="step", outputs=(), margins=(0,) * 4 + (3, 2) + (0,) * 8 + (400, 5000) + (0,) * 6)
RULE = RuleUse("OC101", "Random bits", "bit for bit", 12, before="{ a = random_bits b }", after="")


def example() -> CheckReport:
    """A check with everything that the page shows."""
    target = replace(
        SCAN.targets[0],
        rules=(RULE,),
        primitives={"eigh": {"unsupported": 1}, "tanh": {"native": 7}, "random_bits": {"rewritten": 12, "native": 1}},
    )
    other = replace(target, target="litert", primitives={"tanh": {"folded": 2}}, counts={"native": 9}, findings=())
    report = replace(SCAN, command="check", targets=(target, other), checks=(STEP, LOOP))
    new = Issue("unsupported", "error", "m", "onnxruntime", "New", "eigh is new", status="new", cause="jax moved")
    fixed = replace(new, message="sort runs again", status="fixed", cause="", before="unsupported")
    return replace(FULL, models=(ModelResult("m", report, (new, fixed)),))


class Page(HTMLParser):
    """The page as a tree of paths: (tags and classes from the top) with the text in each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[tuple[str, dict[str, str]]] = []
        self.seen: list[tuple[str, dict[str, str], str]] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {k: v or "" for k, v in attrs}
        self.seen.append((tag, found, ""))
        if tag not in ("meta", "br"):
            self.stack.append((tag, found))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.stack and data.strip():
            self.seen.append((*self.stack[-1], data.strip()))

    def texts(self, tag: str, kind: str = "") -> list[str]:
        return [
            t for name, attrs, t in self.seen if name == tag and t and kind in [*attrs.get("class", "").split(), ""]
        ]

    def count(self, tag: str, kind: str = "") -> int:
        return sum(n == tag and not t and kind in [*a.get("class", "").split(), ""] for n, a, t in self.seen)


def test_the_verdict_comes_first() -> None:
    page = Page(render("html", example()))
    body = [text for tag, _, text in page.seen if text and tag not in ("style", "title")]
    assert body[0] == "opcompat check: m"
    assert body[1].startswith("FAILED: 1 issue")


def test_the_matrix_has_each_model_and_target() -> None:
    page = Page(render("html", example()))
    assert [t for t in page.texts("th") if t in ("onnxruntime", "litert", "checks", "result")][:4] == [
        "onnxruntime", "litert", "checks", "result",
    ]  # fmt: skip
    assert "✗ 1" in page.texts("td", "bad")
    assert "✓" in page.texts("td", "good")
    assert "2/2" in page.texts("td", "good")


def test_the_heat_map_has_the_worst_first_and_the_verdict_in_words() -> None:
    page = Page(render("html", example()))
    operations = [t for t in page.texts("code") if t in ("eigh", "random_bits", "tanh")]
    assert operations[:3] == ["eigh", "random_bits", "tanh"]
    assert "↻ 13" in page.texts("td", "rewritten")
    titles = [a["title"] for tag, a, _ in page.seen if tag == "td" and "title" in a]
    assert "1 native, 12 rewritten" in titles


def test_findings_show_their_source_with_the_line() -> None:
    page = Page(render("html", example()))
    assert page.count("pre", "excerpt") == 1
    assert page.count("i", "here") == 1
    assert "    return eigh(x)".strip() in page.texts("i", "here")


def test_the_rewritten_graph_stands_beside_the_first() -> None:
    page = Page(render("html", example()))
    assert page.count("div", "sides") == 2
    assert "{ a = random_bits b }" in page.texts("pre")
    assert "nothing is left: it was evaluated at conversion" in page.texts("pre")


def test_changes_since_the_baseline_with_the_cause_first() -> None:
    text = render("html", example())
    part = text[text.index("Since the baseline") :]
    assert part.index("eigh is new") < part.index("sort runs again")
    assert "likely cause: jax moved" in part


def test_errors_over_the_steps_are_a_line_for_each_output_that_differs() -> None:
    page = Page(render("html", example()))
    (points,) = [a["points"] for tag, a, _ in page.seen if tag == "polyline"]
    places = [tuple(map(float, p.split(","))) for p in points.split()]
    assert len(places) == 4
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)
    (limit,) = [a for tag, a, _ in page.seen if tag == "line" and a.get("class") == "limit" and a["y1"] == a["y2"]]
    assert all(y > float(limit["y1"]) for _, y in places)
    assert any("exact at every step: action" in t for _, _, t in page.seen)


@pytest.mark.parametrize("series", [(math.nan,) * 4, (math.inf, 0.0, 1e-30, 1e30), (0.0, 1e-5, 1e-5, 1e-5), (1e-6,)])
def test_no_error_leaves_the_plot(series: tuple[float, ...]) -> None:
    output = replace(LOOP.outputs[0], series=series)
    loop = replace(LOOP, outputs=(output,), steps=len(series))
    page = Page(render("html", replace(VERIFY, checks=(loop,))))
    (points,) = [a["points"] for tag, a, _ in page.seen if tag == "polyline"]
    for place in points.split():
        x, y = map(float, place.split(","))
        assert 0 <= x <= 360
        assert 0 <= y <= 200


def test_margins_are_a_histogram_with_the_near_ties_apart() -> None:
    page = Page(render("html", example()))
    bars = [a for tag, a, _ in page.seen if tag == "rect"]
    assert len(bars) == 4
    assert [a["class"] for a in bars] == ["bar near", "bar near", "bar", "bar"]
    assert float(bars[0]["height"]) < float(bars[2]["height"]) < float(bars[3]["height"])
    assert "5,000 with a margin from 1.0e-01 to 3.2e-01" in page.texts("title")
    assert any("5,405 decisions" in t for _, _, t in page.seen)


@pytest.mark.parametrize("report", [example(), hostile(example()), hostile(FULL), FULL])
def test_a_check_loads_nothing_and_runs_nothing(report: CheckReport) -> None:
    text = render("html", report)
    page = Page(text)
    assert page.count("script") == page.count("img") == page.count("iframe") == 0
    assert not [a for _, a, _ in page.seen if any(k.startswith("on") or k == "src" for k in a)]
    assert [a["href"] for _, a, text in page.seen if "href" in a and not text] == [
        f"#m{n}" for n in range(len(report.models))
    ]
    assert "default-src 'none'" in text


def many(count: int) -> CheckReport:
    """A check with so many findings that fail."""
    findings = tuple(replace(EIGH, line=n + 1, scope=f"layer{n}:step", reason=f"no kernel {n}") for n in range(count))
    report: Report = replace(SCAN, command="check", targets=(replace(SCAN.targets[0], findings=findings),), advice=())
    return CheckReport((ModelResult("m", report, issues_of(report, "m")),))


def test_5000_findings_are_all_there_and_unfold() -> None:
    text = render("html", many(5000))
    assert len(text) < 5_000_000
    assert text.count('class="finding issue"') == text.count('class="finding"') == 5000
    assert "no kernel 4999" in text
    assert "4,900 more" in text


def test_endless_names_stay_short() -> None:
    text = render("html", replace(SCAN, model="x" * 1_000_000, source="y" * 1_000_000))
    assert len(text) < 60_000
