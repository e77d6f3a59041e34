"""Tables of targets: the published format, how rows are read, and what the project's own tables say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from opcompat.errors import ConfigError
from opcompat.lowering.graph import Node, Tensor
from opcompat.targets import catalog, table
from opcompat.targets.compare import Difference, differences
from opcompat.targets.probes import documented
from opcompat.targets.probes.catalog import derive

FILES = sorted(Path(table.__file__).parent.glob("data/*.json"))
HEAD: Mapping[str, Any] = {
    "schema_version": 1,
    "target": "t",
    "runtime": "r",
    "version": "1",
    "date": "2026-12-01",
    "format": "tflite",
    "evidence": "probed",
    "generator": "g",
    "summary": "s",
}


def tensor(shape: tuple[int, ...], dtype: str, constant: bool = False) -> Tensor:
    return Tensor(shape, dtype, data=np.zeros(shape, dtype) if constant else None)


def node(op: str, operands: Sequence[Tensor], *results: Tensor, **attrs: Any) -> Node:
    return Node(op, tuple(operands), results, attrs)


def made(rows: Sequence[Mapping[str, Any]], **head: Any) -> table.Table:
    content = {**HEAD, **head, "ops": {"ADD": list(rows), "Add": list(rows)}}
    jsonschema.validate(content, table.schema())
    return table.Table(content)


def pair(op: str = "ADD", rank: int = 2, constant: bool = False, dtype: str = "float32", **attrs: Any) -> Node:
    shape = (2,) * rank
    return node(op, [tensor(shape, dtype), tensor(shape, dtype, constant)], tensor(shape, dtype), **attrs)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_tables_are_in_the_published_format(file: Path) -> None:
    found = table.read(file)
    assert table.dump(found.content) == file.read_text(encoding="utf-8")
    assert found.ops


def test_every_table_belongs_to_a_target() -> None:
    known = {*catalog.FILES.values(), "litert"}
    assert known == {file.stem for file in FILES}
    for name, file in catalog.FILES.items():
        assert table.load(file).content["target"] == name


@pytest.mark.parametrize("name", catalog.TARGETS)
def test_every_target_describes_itself(name: str) -> None:
    target = catalog.target(name)
    assert target.name == name
    assert target.summary
    assert target.origin
    assert dict(catalog.provenance(name))["evidence"].startswith(target.evidence)
    assert catalog.describe(name)


@pytest.mark.parametrize("name", documented.MAKERS)
def test_documented_tables_are_what_their_generator_makes(name: str) -> None:
    assert documented.make(name) == table.load(name).content


ROWS = [
    ([{"is": "yes"}], pair(), "yes"),
    ([{"is": "yes", "dtypes": "float32 float32 -> float32"}], pair(), "yes"),
    ([{"is": "yes", "dtypes": "int32 int32 -> int32"}], pair(), "unknown"),
    ([{"is": "yes", "ranks": "0-1 3"}], pair(), "unknown"),
    ([{"is": "no", "why": "bad", "ranks": "2"}, {"is": "yes"}], pair(), "no"),
    ([{"is": "no", "why": "bad", "ranks": "3"}, {"is": "yes"}], pair(), "yes"),
    ([{"is": "yes", "attrs": {"mode": 1}}], pair(mode=1), "yes"),
    ([{"is": "yes", "attrs": {"mode": 1}}], pair(mode=2), "unknown"),
    ([{"is": "conditional", "when": [{"constant": 1}]}], pair(constant=True), "yes"),
    ([{"is": "conditional", "when": [{"constant": 1}]}], pair(), "no"),
    ([{"is": "conditional", "when": [{"operand": 0, "ranks": "4"}]}], pair(rank=4), "yes"),
    ([{"is": "conditional", "when": [{"operand": 0, "ranks": "4"}]}], pair(), "no"),
    ([{"is": "conditional", "when": [{"attr": "mode", "in": [1]}]}], pair(mode=2), "no"),
    ([{"is": "conditional", "when": [{"attr": "mode", "in": [1]}]}], pair(), "yes"),
    ([{"is": "conditional", "when": [{"text": "finite"}]}], pair(), "conditional"),
    ([{"is": "conditional", "when": [{"text": "finite"}, {"constant": 1}]}], pair(), "no"),
    ([{"is": "unknown", "why": "not said"}], pair(), "unknown"),
    ([], pair(), "unknown"),
]


@pytest.mark.parametrize(("rows", "subject", "status"), ROWS)
def test_the_first_row_that_fits_decides(rows: list[Any], subject: Node, status: str) -> None:
    support = table.check(made(rows), subject)
    assert support.status == status
    assert bool(support.reason) == (status != "yes")


def test_what_a_complete_table_does_not_list_does_not_run() -> None:
    assert table.check(made([{"is": "yes", "ranks": "1"}], complete=True), pair()).status == "no"
    assert table.check(made([], complete=True), node("OTHER", [], tensor((), "bool"))).status == "no"


def test_types_bind_by_the_schema() -> None:
    rows = [{"is": "yes", "since": 14, "types": {"T": "float32"}}]
    found = made(rows, format="onnx", complete=True)
    assert table.check(found, pair("Add"), 21).status == "yes"
    assert table.check(found, pair("Add", dtype="int32"), 21).status == "no"
    assert table.check(found, pair("Add"), 13).status == "no"  # Add(13), and the row is about Add(14)
    mixed = node("Add", [tensor((2,), "float32"), tensor((2,), "int32")], tensor((2,), "float32"))
    assert table.check(found, mixed, 21).reason == "Add mixes float32 and int32"


BROKEN = [
    {**HEAD, "ops": {"ADD": [{"is": "maybe"}]}},
    {**HEAD, "ops": {"ADD": [{"is": "conditional"}]}},
    {**HEAD, "ops": {"ADD": [{"is": "yes", "when": [{"constant": 0}]}]}},
    {**HEAD, "ops": {"ADD": [{"is": "yes", "ranks": "a"}]}},
    {**HEAD, "ops": {}, "limits": {"colour": 1}},
    HEAD,
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_wrong_table_is_refused(content: Mapping[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="no table of a target"):
        table.read(file)


def test_stored_registries_are_what_their_generator_makes() -> None:
    installed = ".".join(metadata.version("onnxruntime").split(".")[:2])
    name = f"onnxruntime@{installed}"
    if name in catalog.FILES:
        made = derive(name, "2026-12-01")
        assert {**made, "date": ""} == {**catalog.stored(name).content, "date": ""}
    other = next(n for n in catalog.FILES if "@" in n and n != name)
    with pytest.raises(ConfigError, match="in an environment of its own"):
        derive(other, "2026-12-01")


def test_an_opset_that_is_too_new_is_refused() -> None:
    with pytest.raises(ConfigError, match="up to 21, not 23"):
        catalog.target("onnxruntime@1.18", 23)


def test_versions_differ_where_they_do() -> None:
    where = node(
        "Where", [tensor((2,), "bool"), tensor((2,), "uint32"), tensor((2,), "uint32")], tensor((2,), "uint32")
    )
    verdicts = {name: catalog.target(name).check(where).status for name in catalog.TARGETS if "@" in name}
    assert verdicts == {f"onnxruntime@1.{n}": "yes" if n == 32 else "no" for n in (18, 22, 26, 30, 32)}


def test_differences() -> None:
    before = made([{"is": "yes", "dtypes": "a -> a", "ranks": "0-4"}])
    after = made([{"is": "yes", "dtypes": "a -> a", "ranks": "0-2"}, {"is": "no", "dtypes": "a -> a", "ranks": "3"}])
    found = [d for d in differences(before, after) if d.op == "ADD"]
    assert found == [
        Difference("ADD", "a -> a at rank 3", "yes", "no"),
        Difference("ADD", "a -> a at rank 4", "yes", ""),
    ]
    assert not list(differences(before, before))
