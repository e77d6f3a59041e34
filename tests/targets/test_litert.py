"""The LiteRT target: what its table says, how it is read, and that it still matches the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from opcompat.lowering.graph import Node, Tensor
from opcompat.targets import catalog, litert
from opcompat.targets.probes.answers import key, probe
from opcompat.targets.probes.catalog import PROBES
from opcompat.targets.probes.sandbox import CRASH, Sandbox
from opcompat.targets.probes.tflite_cases import cases
from opcompat.targets.questions import read_ranks, write_ranks

TARGET = litert.target()


def node(op: str, inputs: Sequence[tuple[tuple[int, ...], str]], *outputs: tuple[tuple[int, ...], str]) -> Node:
    return Node(op, tuple(Tensor(*i) for i in inputs), tuple(Tensor(*o) for o in outputs))


def pair(op: str, dtype: str, rank: int, result: str = "") -> Node:
    shape = (2,) * rank
    return node(op, [(shape, dtype)] * 2, (shape, result or dtype))


VERDICTS = [
    (pair("ADD", "float32", 2), "yes"),
    (pair("ADD", "float32", 8), "conditional"),  # runs, but turns inf into 3.4e38
    (pair("NOT_EQUAL", "int16", 3, "bool"), "no"),  # runs, and leaves its result unwritten
    (pair("ADD", "uint32", 2), "no"),
    (pair("LESS", "int32", 3, "bool"), "yes"),
    (pair("LESS", "uint32", 3, "bool"), "no"),
    (pair("BITWISE_XOR", "int32", 4), "yes"),
    (pair("ADD", "int32", 30), "unknown"),
    (pair("ADD", "float4", 2), "unknown"),
    (pair("NONSENSE", "float32", 2), "unknown"),
    (node("EXP", [((1,) * 6 + (5,), "float32")], ((1,) * 6 + (5,), "float32")), "yes"),
    (node("ADD", [((3, 4), "float32"), ((), "float32")], ((3, 4), "float32")), "yes"),
    (node("CONCATENATION", [((2,), "bool")] * 5, ((10,), "bool")), "yes"),
    (node("CAST", [((2,), "bool")], ((2,), "float32")), "yes"),
    (node("WHILE", [((), "int32"), ((4,), "float32")], ((), "int32"), ((4,), "float32")), "yes"),
    (node("IF", [((), "bool"), ((4,), "uint32")], ((4,), "uint32")), "yes"),
    (node("IF", [((), "bool"), ((4,), "string")], ((4,), "string")), "unknown"),
    (Node("?", (), (), problem="no lowering"), "no"),
]


@pytest.mark.parametrize(("subject", "status"), VERDICTS, ids=lambda v: v.op if isinstance(v, Node) else v)
def test_verdict(subject: Node, status: str) -> None:
    support = TARGET.check(subject)
    assert support.status == status
    assert bool(support.reason) == (status != "yes")


def test_target_describes_itself() -> None:
    assert (TARGET.name, TARGET.runtime) == ("litert", "ai-edge-litert")
    assert TARGET.version[0].isdigit()
    assert TARGET.backend.name == "tflite"


def test_description_lists_what_runs() -> None:
    rows = dict(catalog.describe("litert"))
    assert "float32 float32 -> float32 (rank 0-6)" in rows["ADD"]
    assert "uint32 uint32 -> uint32" not in rows["ADD"]


def test_says_which_version_was_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litert, "_installed", lambda: "99.0")
    other = litert.target()
    for subject in (pair("ADD", "uint32", 2), pair("ADD", "float32", 2)):
        assert "99.0 is installed" in other.check(subject).reason


@pytest.mark.parametrize("ranks", [[], [0], [0, 1, 2], [0, 2, 3, 7]])
def test_ranks_survive_writing(ranks: list[int]) -> None:
    assert read_ranks(write_ranks(ranks)) == ranks


def test_table_still_matches_the_runtime(sandbox: Sandbox) -> None:
    ops = {"ADD", "SELECT_V2", "GATHER", "WHILE", "BATCH_MATMUL", "EXP"}
    asked = [c for c in cases(["float32", "uint32"], [2, 7]) if c.op in ops]
    found, tried = probe(asked, sandbox)
    assert tried > len(asked) / 2
    for case in asked:
        reasons = found[key(case)][case.rank]
        assert (TARGET.check(case.node[0]).status == "yes") == (reasons == ("", "")), (case.op, case.rank, reasons)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    opened = Sandbox(PROBES["litert"].runtime)
    yield opened
    opened.close()


def test_a_crash_is_an_answer(sandbox: Sandbox) -> None:
    crashing, fine = (
        next(c for c in cases(["int32"], [rank]) if (c.op, c.kind) == ("ADD", "broadcast")) for rank in (9, 2)
    )
    assert sandbox.ask(crashing) == CRASH
    assert sandbox.ask(fine) == ""


def test_a_wrong_result_is_an_answer(sandbox: Sandbox) -> None:
    (case,) = [c for c in cases(["int32"], [1]) if (c.op, c.kind) == ("ADD", "same")]
    wrong = type(case)(case.op, case.kind, case.rank, case.inputs, (np.zeros(2, np.int32),))
    answers, _ = probe([wrong], sandbox)
    assert answers[key(case)][1][0].startswith("wrong: ")
