"""Targets as data: a JSON table of what a runtime runs, with its provenance, and the Target made of it.

The format is published in `opcompat/schema/target.json`. A table lists rows by op; the first row that fits a node
decides. A conditional row is yes or no as soon as its conditions can be read off the node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from opcompat.errors import ConfigError
from opcompat.lowering.builder import Backend
from opcompat.lowering.graph import Node, Tensor
from opcompat.targets import onnx_types
from opcompat.targets.base import Evidence, Limits, Status, Support, Target
from opcompat.targets.questions import Question, operands, questions, read_ranks

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One statement about one op: what a node has to be for it to hold. What is not given fits everything."""

    status: Status
    evidence: Evidence
    dtypes: str = ""
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    since: int = 0
    until: int = 0
    ranks: frozenset[int] | None = None
    shapes: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    when: tuple[Mapping[str, Any], ...] = ()
    why: str = ""

    def serves(self, version: int) -> bool:
        """Whether it is about this version of the operator. Without an end it is about its own version alone."""
        return not self.since or self.since == version or self.since < version <= self.until


@dataclass(frozen=True, eq=False)
class Table:
    """A table as read. `content` is the file's JSON."""

    content: Mapping[str, Any]
    _rows: dict[str, tuple[Row, ...]] = field(default_factory=dict)

    @property
    def ops(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.content["ops"]
        return found

    @property
    def label(self) -> str:
        return f"{self.content['runtime']} {self.content['version']}"

    @property
    def complete(self) -> bool:
        return bool(self.content.get("complete"))

    def rows(self, op: str) -> tuple[Row, ...]:
        if op not in self._rows:
            self._rows[op] = tuple(_row(raw, self.content["evidence"]) for raw in self.ops.get(op, ()))
        return self._rows[op]


def _row(raw: Mapping[str, Any], evidence: Evidence) -> Row:
    return Row(
        status=raw["is"],
        evidence=raw.get("evidence", evidence),
        dtypes=raw.get("dtypes", ""),
        types={name: frozenset(dtypes.split()) for name, dtypes in raw.get("types", {}).items()},
        since=raw.get("since", 0),
        until=raw.get("until", 0),
        ranks=frozenset(read_ranks(raw["ranks"])) if "ranks" in raw else None,
        shapes=raw.get("shapes", ""),
        attrs=raw.get("attrs", {}),
        when=tuple(raw.get("when", ())),
        why=raw.get("why", ""),
    )


@cache
def load(name: str) -> Table:
    """The project's own table `data/NAME.json`."""
    text = resources.files("opcompat.targets").joinpath(f"data/{name}.json").read_text(encoding="utf-8")
    return Table(json.loads(text))


def read(path: Path) -> Table:
    """A table from a file. Raises ConfigError if it is none."""
    import jsonschema

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        jsonschema.validate(content, schema())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no JSON: {error}") from error
    except jsonschema.ValidationError as error:
        where = "/".join(map(str, error.absolute_path))
        raise ConfigError(f"{path}: no table of a target, at {where or 'the top'}: {error.message[:200]}") from error
    return Table(content)


@cache
def schema() -> Mapping[str, Any]:
    """The published schema of tables."""
    text = resources.files("opcompat.schema").joinpath("target.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


# -- judging


def check(table: Table, node: Node, opset: int = 0, aside: str = "") -> Support:
    """Judges one node; nodes in its bodies are judged by the caller. `opset`: of ONNX files, 0 for other formats.

    `aside` is added to every reason: what makes the evidence weaker than it looks.
    """
    if node.problem:
        return Support("no", "documented", node.problem)
    version, types = 0, {}
    if opset:
        known = onnx_types.schema(node.op, opset)
        if known is None:
            return Support("no", "documented", f"ONNX opset {opset} has no operator {node.op}")
        version, types = known.since_version, dict(onnx_types.bound(known, node))
        wrong = onnx_types.violation(known, node, types)
        if wrong:
            return Support("no", "documented", wrong)
    name = f"{node.op}({version})" if version else node.op
    rows = [row for row in table.rows(node.op) if row.serves(version)]
    if not rows:
        return _noted(_missing(table, name, node), aside)
    answers = [_decide(table, rows, node, question, types, name) for question in questions(node)]
    if not answers:
        # A loop that carries nothing: its body is judged by itself.
        return _noted(Support("yes", rows[0].evidence), aside)
    bad = next((a for a in answers if a.status != "yes"), None)
    return _noted(bad or Support("yes", answers[-1].evidence), aside)


def _noted(support: Support, aside: str) -> Support:
    reason = "; ".join(filter(None, (support.reason, aside)))
    return Support(support.status, support.evidence, reason)


def _missing(table: Table, name: str, node: Node, detail: str = "") -> Support:
    """What it means that no row fits. A registry is ONNX Runtime's list of its kernels."""
    evidence: Evidence = table.content["evidence"]
    if evidence == "registry":
        given = onnx_types.plain({x.dtype for x in operands(node)} or {x.dtype for x in node.outputs})
        return Support(
            "no", evidence, f"no CPU kernel of {name} for {given} in ONNX Runtime {table.content['version']}"
        )
    subject = f"{name} {detail}".strip()
    if table.complete:
        return Support("no", evidence, f"{subject} is not among what {table.label} runs")
    return Support("unknown", evidence, f"{subject} was not {evidence} for {table.label}")


def _decide(
    table: Table,
    rows: list[Row],
    node: Node,
    question: Question,
    types: Mapping[str, frozenset[str]],
    name: str,
) -> Support:
    """The first row that fits decides."""
    for row in rows:
        if _fits(row, node, question, types):
            return _resolve(row, node, f"{name} {question}")
    return _missing(table, name, node, str(question))


def _fits(row: Row, node: Node, question: Question, types: Mapping[str, frozenset[str]]) -> bool:
    return (
        (not row.dtypes or row.dtypes == question.dtypes)
        and (row.ranks is None or question.rank in row.ranks)
        and (not row.shapes or row.shapes == question.shapes)
        and all(node.attrs.get(k) == v for k, v in row.attrs.items())
        and all(types.get(parameter, frozenset()) <= allowed for parameter, allowed in row.types.items())
    )


def _resolve(row: Row, node: Node, name: str) -> Support:
    """A row's statement, its conditions read off the node where that is possible."""
    why = f"{name}: {row.why}" if row.why else name
    if row.status != "conditional":
        return Support(row.status, row.evidence, "" if row.status == "yes" else why)
    open_ = [condition["text"] for condition in row.when if "text" in condition]
    for condition in row.when:
        broken = _broken(condition, node)
        if broken:
            return Support("no", row.evidence, f"{name}: {broken}")
    if open_:
        return Support("conditional", row.evidence, f"{name}: {'; '.join(open_)}")
    return Support("yes", row.evidence)


def _broken(condition: Mapping[str, Any], node: Node) -> str:
    """How a node breaks a condition, or "". Text can only be read."""
    if "constant" in condition:
        x = _operand(node, condition["constant"])
        return "" if x is None or x.is_constant else f"operand {condition['constant']} must be constant"
    if "ranks" in condition:
        x = _operand(node, condition["operand"])
        fits = x is None or x.rank in read_ranks(condition["ranks"])
        return "" if fits else f"operand {condition['operand']} must have rank {condition['ranks']}"
    if "attr" in condition:
        value = node.attrs.get(condition["attr"])
        fits = value is None or value in condition["in"]
        return "" if fits else f"{condition['attr']} must be one of {condition['in']}, not {value!r}"
    return ""


def _operand(node: Node, i: int) -> Tensor | None:
    return node.inputs[i] if i < len(node.inputs) else None


# -- a Target from a table


def limits(table: Table) -> Limits:
    raw: dict[str, Any] = table.content.get("limits", {})
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
    return Limits(**values)


def target(table: Table, opset: int | None = None, *, version: str = "") -> Target:
    """The Target of a table, for an ONNX opset (by default the newest that the project writes and it loads).

    `version`: of the runtime that is in use, where that is known and may be another than the table's.
    Raises ConfigError for an opset that the runtime does not load.
    """
    content, bounds = table.content, limits(table)
    backend, number = _backend(content["format"], opset, bounds.opset, content["target"])
    other = bool(version) and version != content["version"]
    aside = f"{content['evidence']} on {table.label}, {version} is installed" if other else ""
    return Target(
        name=content["target"],
        runtime=content["runtime"],
        version=version or content["version"],
        backend=backend,
        check=lambda node: check(table, node, number, aside),
        summary=content["summary"] + (f", opset {number}" if number else ""),
        has_64_bit=content.get("has_64_bit", True),
        limits=bounds,
        evidence=content["evidence"],
        date=content["date"],
        origin=content.get("source") or content["generator"],
    )


def _backend(form: str, opset: int | None, newest: int, name: str) -> tuple[Backend, int]:
    """The backend that writes a format, and the opset that it writes (0 for TFLite)."""
    if form == "tflite":
        from opcompat.lowering.tflite.table import backend as tflite

        return tflite(), 0
    from opcompat.lowering.onnx.table import OPSET
    from opcompat.lowering.onnx.table import backend as onnx

    if opset is not None and newest and opset > newest:
        raise ConfigError(f"{name} loads ONNX opsets up to {newest}, not {opset}")
    return onnx(opset or OPSET), opset or OPSET


def describe(table: Table) -> list[tuple[str, str]]:
    """(op, what is known of it) for every op of a table, rows that say the same together."""
    return [(op, "; ".join(_words(row) for row in rows) or "no") for op, rows in _listed(table)]


def _listed(table: Table) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for op, rows in table.ops.items():
        shown = [row for row in rows if row["is"] in ("yes", "conditional") and row.get("shapes") != "broadcast"]
        yield op, shown


def _words(row: Mapping[str, Any]) -> str:
    """'float32 -> float32 (rank 0-6)' or '13-14: T float32 int32'."""
    since, until = row.get("since"), row.get("until")
    versions = f"{since}-{until}: " if since and until and until != since else f"{since}: " if since else ""
    types = ", ".join(f"{name} {dtypes}" for name, dtypes in row.get("types", {}).items())
    text = versions + (row.get("dtypes") or types or "yes")
    if row.get("attrs"):
        text += " with " + ", ".join(f"{k}={v}" for k, v in row["attrs"].items())
    if row.get("ranks"):
        text += f" (rank {row['ranks']})"
    if row["is"] == "conditional":
        text += f" if {'; '.join(map(condition_words, row['when']))}"
    return text


def condition_words(condition: Mapping[str, Any]) -> str:
    """A condition as a reader says it."""
    if "constant" in condition:
        return f"operand {condition['constant']} is constant"
    if "ranks" in condition:
        return f"operand {condition['operand']} has rank {condition['ranks']}"
    if "attr" in condition:
        return f"{condition['attr']} is one of {condition['in']}"
    return str(condition["text"])


# -- writing


def dump(content: Mapping[str, Any]) -> str:
    """JSON with one row per line, so that a diff between versions reads well."""
    head = [f"{json.dumps(k)}: {json.dumps(v)}," for k, v in content.items() if k != "ops"]
    ops = []
    for op, rows in sorted(content["ops"].items()):
        lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
        ops.append(f"  {json.dumps(op)}: [\n{lines}\n  ]" if rows else f"  {json.dumps(op)}: []")
    return "\n".join(["{", *head, '"ops": {', ",\n".join(ops), "}", "}", ""])
