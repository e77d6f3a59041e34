"""Why something changed: the versions that moved, those first that are nearest to what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opcompat.checking import compare
from opcompat.checking.data import Issue
from opcompat.checking.issues import KINDS, fingerprint

_RUNTIME = {
    "onnx": ("onnxruntime", "onnx", "onnx-ir"),
    "onnxruntime": ("onnxruntime", "onnx", "onnx-ir"),
    "tflite": ("ai-edge-litert", "flatbuffers"),
    "litert": ("ai-edge-litert", "flatbuffers"),
}
_TRACING = ("jax", "jaxlib")
_RUNTIME_FIRST = frozenset({"mismatch", "error", "bytes", "opset", "rule"})
"""What a runtime is likelier to bring about than a new JAX."""

_BY_HAND = frozenset({"sampling", "stale", "budget"})
"""What no version brings about."""


def moved(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """By package, "0.10.1 -> 0.10.2"."""
    return {
        name: f"{old.get(name, 'none')} -> {new.get(name, 'none')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    }


def with_cause(issue: Issue, versions: Mapping[str, str]) -> Issue:
    """The issue with the likely cause of a change; `versions` are those that moved."""
    if issue.status != "new" or issue.level == "note" or issue.id in _BY_HAND:
        return issue
    runtime = _RUNTIME.get(issue.target, ())
    near = (*runtime, "opcompat", *_TRACING) if _runtime_first(issue) else ("opcompat", *_TRACING, *runtime)
    if issue.id in ("interface", "key", "dtype"):
        near = _TRACING  # no converter and no runtime changes what a policy takes and gives
    order = [name for name in near if name in versions]
    if not order:
        return replace(issue, cause="the model or its code: no version moved that could do it")
    also = " (or the model itself)" if issue.id in ("interface", "key", "dtype") else ""
    return replace(issue, cause=", ".join(f"{name} {versions[name]}" for name in order) + also)


def _runtime_first(issue: Issue) -> bool:
    return issue.id in _RUNTIME_FIRST or issue.id in ("unsupported", "unknown")


def versions_issue(versions: Mapping[str, str]) -> list[Issue]:
    """A note of the versions that moved, if any did."""
    if not versions:
        return []
    shown = ", ".join(f"{name} {change}" for name, change in versions.items())
    return [
        Issue(
            id="versions",
            level="note",
            model="",
            target="",
            title=KINDS["versions"].title,
            message=f"versions moved since the baseline: {shown}",
            fingerprint=fingerprint("change", "versions", shown),
            status="new",
        )
    ]


def difference(old: compare.Entry, new: compare.Entry) -> tuple[Issue, ...]:
    """What changed between two baselines (see `baseline.parse`), the likely cause first."""
    versions = moved(old["versions"], new["versions"])
    found: list[Issue] = versions_issue(versions)
    models_before, models_after = old["models"], new["models"]
    for key in sorted({*models_before, *models_after}):
        if key not in models_after:
            found.append(_model(key, "is no longer checked"))
        elif key not in models_before:
            found.append(_model(key, "is new"))
        else:
            found += _of_model(key, models_before[key], models_after[key])
    return tuple(with_cause(issue, versions) for issue in found)


def _model(key: str, what: str) -> Issue:
    return Issue("verdict", "note", key, "", KINDS["verdict"].title, f"the model {what}", status="new")


def _of_model(key: str, old: compare.Entry, new: compare.Entry) -> Sequence[Issue]:
    delta = compare.findings(old, new)
    found = [finding_issue(key, name, counts, delta) for name, counts in delta.new.items()]
    replaced = {delta.replaced(name) for name in delta.new}
    found += [gone_issue(key, name) for name in delta.gone if name not in replaced]
    found += compare.changes(key, old, new, compare.Limits())
    found += compare.notes(key, old, new)
    return found


def finding_issue(key: str, name: str, counts: tuple[int, int], delta: compare.Findings) -> Issue:
    """A new finding that only its fingerprint is known of."""
    target, *_ = name.split(" | ")
    was = delta.replaced(name)
    more = f"; {counts[1]} times, before {counts[0]} times" if counts[0] else ""
    kind = next((word for word in name.split(" | ") if word in KINDS), "verdict")
    return Issue(
        id=kind,
        level="error",
        model=key,
        target=target,
        title=KINDS[kind].title,
        message=f"new: {name}{more}",
        fingerprint=name,
        status="new",
        before=was,
        after=name if was else "",
    )


def gone_issue(key: str, name: str) -> Issue:
    """A finding of the baseline that is no longer there."""
    return Issue(
        id="verdict",
        level="note",
        model=key,
        target=name.partition(" | ")[0],
        title="A finding that is gone",
        message=f"fixed: {name}",
        next_step="take it out of the baseline with opcompat baseline update, or it will pass when it comes back",
        fingerprint=name,
        status="fixed",
    )
