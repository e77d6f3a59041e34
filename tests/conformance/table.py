"""docs/coverage.md from the outcomes of the whole suite."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.conformance.cases import DECOMPOSITIONS

PREFERRED = frozenset({"float32", "int32", "bool", "uint32"})
BACKENDS = {"onnx": "ONNX Runtime", "tflite": "LiteRT"}

HEAD = """# Coverage

Written by `make conformance`; do not edit. JAX's own primitive suite (`test_harnesses`), every case on both runtimes:
traced, judged, rewritten, converted, run on the case's arguments and on boundary values of their dtypes, and compared
with JAX. float32 within rtol 1e-4 and atol 1e-5, integers exactly, half precision within its resolution.

A case has *passed* if its artifact computes the right result from its inputs. *Constant*: the right result, but it does
not depend on the inputs. *Refused*: by the analyzer, before conversion, with a reason. *Wrong*: accepted by the
analyzer, and then not right. *Pessimistic*: refused, but it would have run.

"""

Outcomes = Sequence[Mapping[str, Any]]


def coverage(results: Outcomes) -> str:
    """The page. `results`: what `tests.conformance.run` collected."""
    known = [r for r in results if r["status"] != "not in JAX"]
    main = [r for r in known if r["group"] not in DECOMPOSITIONS]
    apart = [r for r in known if r["group"] in DECOMPOSITIONS]
    parts = [HEAD, *_totals(main), "\n## By group\n\n", *_groups(main)]
    parts += ["\n## Matrix decompositions\n\nLAPACK's work, counted apart.\n\n", *_groups(apart)]
    parts += ["\n## Why cases are refused\n\n", *_reasons(main)]
    return "".join(parts)


def _totals(results: Outcomes) -> Iterable[str]:
    yield "| | cases | passed | constant | refused | wrong | pessimistic | share passed |\n"
    yield "|---|---|---|---|---|---|---|---|\n"
    for backend, title in BACKENDS.items():
        for name, dtypes in (("float32, int32, uint32, bool", PREFERRED), ("all dtypes", None)):
            chosen = [r for r in results if r["backend"] == backend and (dtypes is None or r["dtype"] in dtypes)]
            c, n = Counter(r["status"] for r in chosen), max(len(chosen), 1)
            share = f"{100 * (c['passed'] + c['folded']) / n:.2f} % ({100 * c['passed'] / n:.2f} % without constants)"
            cells = [c["passed"], c["folded"], c["refused"], c["wrong"] + c["unclear"], c["pessimistic"]]
            yield f"| {title}, {name} | {n:,} | {' | '.join(f'{x:,}' for x in cells)} | {share} |\n"


def _groups(results: Outcomes) -> Iterable[str]:
    yield "Passed of all cases, and what is not passed by dtype (r: refused, c: constant, w: wrong).\n\n"
    yield "| group | ONNX Runtime | | LiteRT | |\n|---|---|---|---|---|\n"
    groups: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for r in results:
        groups[r["group"]][r["backend"]].append(r)
    for group, by_backend in sorted(groups.items()):
        cells = [f"| `{group}` "]
        for backend in BACKENDS:
            found = by_backend[backend]
            passed = sum(r["status"] == "passed" for r in found)
            cells.append(f"| {passed} / {len(found)} | {_rest(found)} ")
        yield "".join(cells) + "|\n"


def _rest(results: Outcomes) -> str:
    letters = {"refused": "r", "folded": "c"}
    counts = Counter((r["dtype"], letters.get(r["status"], "w")) for r in results if r["status"] != "passed")
    return ", ".join(f"{dtype} {n}{letter}" for (dtype, letter), n in sorted(counts.items()))


def _reasons(results: Outcomes) -> Iterable[str]:
    yield "| cases | group | runtime | reason |\n|---|---|---|---|\n"
    counts = Counter((r["group"], r["backend"], _reason(r["detail"])) for r in results if r["status"] == "refused")
    for (group, backend, reason), n in sorted(counts.items(), key=lambda x: (-x[1], x[0])):
        yield f"| {n} | `{group}` | {BACKENDS[backend]} | {reason} |\n"


def _reason(detail: str) -> str:
    """A refusal without what differs from case to case, in a form that a table holds."""
    first = detail.split("; next:")[0].split(" at /")[0]
    return first.replace("|", "\\|").replace("\n", " ")[:160]
