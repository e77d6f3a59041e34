"""LiteRT (TFLite) on the CPU with its default delegate: what it runs, as probed; see litert_probe.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata, resources
from typing import Any

from opcompat.lowering.graph import Node, Tensor
from opcompat.targets.base import Support, Target

RUNTIME = "ai-edge-litert"

_PLACEHOLDER = "?"
_CARRYING: Mapping[str, str] = {"WHILE": "int32 {0} -> int32 {0}", "IF": "bool {0} -> {0}"}
"""Ops that carry any number of values: each is judged alone, by the signature it was probed with."""


def target() -> Target:
    """LiteRT at the installed version. Importing this module loads no runtime and no JAX."""
    from opcompat.lowering.tflite.table import backend

    return Target(
        name="litert",
        runtime=RUNTIME,
        version=_installed(),
        backend=backend(),
        check=check,
        summary="LiteRT (TFLite) on the CPU, default delegate",
        has_64_bit=False,
    )


def describe() -> list[tuple[str, str]]:
    """(op, the signatures that run, with their ranks) for every op that runs with some dtypes."""
    rows = []
    for op, signatures in _table()["ops"].items():
        ranks = {s: kinds.get("same", {}).get("yes", "") for s, kinds in signatures.items()}
        listed = "; ".join(f"{s} (rank {r})" for s, r in ranks.items() if r)
        if listed:
            rows.append((op, listed))
    return rows


def check(node: Node) -> Support:
    """Judges one node by op, dtypes and rank; bodies are judged node by node by the caller."""
    if node.op == _PLACEHOLDER:
        return Support("no", "documented", node.problem)
    signatures = _table()["ops"].get(node.op)
    if signatures is None:
        return _unknown(f"{node.op} was not probed")
    for signature, rank, kind in _questions(node):
        verdict = _judge(node.op, signatures, signature, rank, kind)
        if verdict.status != "yes":
            return verdict
    return Support("yes", "probed", _aside())


def _questions(node: Node) -> Iterator[tuple[str, int, str]]:
    """(signature, rank, kind of shapes) of what has to run."""
    from opcompat.targets.litert_probe import signature

    if node.op in _CARRYING:
        for value in (*_operands(node)[1:], *node.outputs):
            yield _CARRYING[node.op].format(value.dtype), value.rank, "same"
        return
    shapes = {x.shape for x in _operands(node)}
    rank = _rank(node)
    kinds = _table()["ops"][node.op].get(signature(node), {})
    differs = len(shapes) > 1 and "broadcast" in kinds
    yield signature(node), rank, "broadcast" if differs else "same"


def _operands(node: Node) -> list[Tensor]:
    return [x for x in node.inputs if x is not None]


_DATA_OPERAND: Mapping[str, int] = {"SPLIT": 1, "GATHER": 0, "PACK": 0}


def _rank(node: Node) -> int:
    """The rank that the probe counts: the data operand's, or the largest of several."""
    operands = _operands(node)
    if node.op in ("RESHAPE", "EXPAND_DIMS"):
        return max(operands[0].rank, node.outputs[0].rank - (node.op == "EXPAND_DIMS"))
    if node.op == "BROADCAST_TO":
        return node.outputs[0].rank
    if node.op in _DATA_OPERAND:
        return operands[_DATA_OPERAND[node.op]].rank
    return max((x.rank for x in operands), default=0)


def _judge(op: str, signatures: Mapping[str, Any], signature: str, rank: int, kind: str) -> Support:
    entry = signatures.get(signature, {}).get(kind)
    if entry is None:
        return _unknown(f"{op} was not probed with {signature}")
    if rank in _ranks(entry.get("yes", "")):
        return Support("yes", "probed")
    for ranks, reason in entry.get("no", {}).items():
        if rank in _ranks(ranks):
            return Support("no", "probed", _with_aside(f"{op} {signature} at rank {rank}: {reason}"))
    return _unknown(f"{op} {signature} was not probed at rank {rank}")


def _unknown(reason: str) -> Support:
    return Support("unknown", "probed", _with_aside(reason))


def _with_aside(reason: str) -> str:
    return f"{reason}; {_aside()}" if _aside() else reason


@cache
def _aside() -> str:
    """Says so where the evidence is another version's."""
    probed, installed = _table()["version"], _installed()
    return "" if probed == installed else f"probed on {RUNTIME} {probed}, {installed} is installed"


@cache
def _table() -> dict[str, Any]:
    text = resources.files("opcompat.targets").joinpath("data/litert.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@cache
def _ranks(text: str) -> frozenset[int]:
    from opcompat.targets.litert_probe import read_ranks

    return frozenset(read_ranks(text))


@cache
def _installed() -> str:
    try:
        return metadata.version(RUNTIME)
    except metadata.PackageNotFoundError:
        return "not installed"
