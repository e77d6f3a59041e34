"""Two entries of baselines: what changed between them, as Issues. `check` compares with what it just measured.

Findings are compared by fingerprint, in `findings`; everything else, in `changes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opcompat.checking.data import Issue, Level
from opcompat.checking.issues import KINDS, fingerprint
from opcompat.checking.settings import BYTES_GROWTH, ERROR_GROWTH

ERROR_FLOOR = 1e-6
"""Errors below it are rounding, whatever they were before."""

Entry = Mapping[str, Any]

ACCEPT = "see whether it is meant; if so, accept it with opcompat baseline update"


class Limits(NamedTuple):
    error_growth: float = ERROR_GROWTH
    bytes_growth: float = BYTES_GROWTH


class Findings(NamedTuple):
    """Fingerprints: those that are new or more often than before (with the counts), and those that are gone.

    `idle` are the rules that act less often than before, by target.
    """

    new: Mapping[str, tuple[int, int]]
    gone: tuple[str, ...]
    idle: Mapping[str, frozenset[str]]

    def replaced(self, fingerprint: str) -> str:
        """The finding that stood in the place of a new one, "" if none.

        It has the same target, primitive and scope; or, since a rule may stand for several primitives, the same target
        and scope, and is of a rule that acts less often than before.
        """
        target, primitive, scope = _place(fingerprint)
        if not target:
            return ""
        same = [old for old in self.gone if _place(old) == (target, primitive, scope)]
        idle = self.idle.get(target, frozenset())
        near = [
            old
            for old in self.gone
            if _place(old)[::2] == (target, scope) and idle & {*rules_of(old)} and not idle & {*rules_of(fingerprint)}
        ]
        return next(iter((*same, *near)), "")


def _place(fingerprint: str) -> tuple[str, str, str]:
    """Target, primitive and scope of a finding; empty for what has none."""
    parts = fingerprint.split(" | ")
    return (parts[0], parts[1], parts[2]) if len(parts) == 5 and parts[1] != "mismatch" else ("", "", "")


def rules_of(fingerprint: str) -> list[str]:
    """The rules of a finding that is rewritten."""
    parts = fingerprint.split(" | ")
    return parts[4].split(", ") if len(parts) == 5 and parts[3] == "rewritten" else []


def findings(old: Entry, new: Entry) -> Findings:
    before, after = old["findings"], new["findings"]
    more = {name: (before.get(name, 0), count) for name, count in after.items() if count > before.get(name, 0)}
    rules = {
        target: frozenset(r for r, count in by.items() if new["rules"].get(target, {}).get(r, 0) < count)
        for target, by in old["rules"].items()
    }
    return Findings(more, tuple(name for name in before if name not in after), rules)


def changes(key: str, old: Entry, new: Entry, limits: Limits) -> Iterator[Issue]:
    """Every change but those of findings."""
    yield from _interfaces(key, old["interface"], new["interface"])
    if old["sampling"] != new["sampling"]:
        yield _change("sampling", key, "", "draws are exported in another way", old["sampling"], new["sampling"])
    for name, value in new["config"].items():
        if name in old["config"] and old["config"][name] != value:
            what = f"JAX's setting {name} is another, and it is part of the policy"
            yield _change("interface", key, "", what, str(old["config"][name]), str(value))
    yield from _artifacts(key, old["artifacts"], new["artifacts"], limits)
    yield from _errors(key, old["errors"], new["errors"], limits)
    yield from _checks(key, old["checks"], new["checks"])


def notes(key: str, old: Entry, new: Entry) -> Iterator[Issue]:
    """What changed and fails nothing: op counts, rules, verdicts. For `opcompat baseline diff`."""
    for part, what in (("targets", "equations"), ("ops", "ops"), ("rules", "uses of rules")):
        for target in sorted({*old[part], *new[part]}):
            before, after = old[part].get(target, {}), new[part].get(target, {})
            names = [n for n in sorted({*before, *after}) if before.get(n, 0) != after.get(n, 0)]
            if names:
                shown = [", ".join(f"{n} {by.get(n, 0)}" for n in names) for by in (before, after)]
                yield _change("verdict", key, target, f"{target}: other {what}", *shown, level="note")


# Interfaces


def _interfaces(key: str, old: Entry, new: Entry) -> Iterator[Issue]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield _change("interface", key, "", f"the entry point {name} is gone", name, "")
        elif name not in old:
            yield _change("interface", key, "", f"the entry point {name} is new", "", name, level="note")
        else:
            yield from _ports(key, name, "input", old[name]["inputs"], new[name]["inputs"])
            yield from _ports(key, name, "output", old[name]["outputs"], new[name]["outputs"])
            yield from _dtypes(key, name, old[name]["dtypes"], new[name]["dtypes"])


def _ports(key: str, entry: str, kind: str, old: Sequence[Entry], new: Sequence[Entry]) -> Iterator[Issue]:
    before, after = {p["name"]: p for p in old}, {p["name"]: p for p in new}
    gone = [n for n in before if n not in after]
    come = [n for n in after if n not in before]
    renamed = _renamed(gone, come, old, new)
    for was, now in renamed.items():
        state = "state " if {"start", "feeds"} & before[was].keys() else ""
        yield _change("interface", key, "", f"{entry}: the {state}{kind} {was} is now called {now}", was, now)
    for name in gone:
        if name in renamed:
            continue
        if before[name].get("key"):
            what = f"{entry}: the key {name} was dropped: nothing that it was drawn for is sampled any more"
            yield _change("key", key, "", what, _shown(before[name]), "")
        else:
            yield _change("interface", key, "", f"{entry}: the {kind} {name} is gone", _shown(before[name]), "")
    for name in come:
        if name not in renamed.values():
            yield _change("interface", key, "", f"{entry}: the {kind} {name} is new", "", _shown(after[name]))
    both = [n for n in before if n in after]
    for name in both:
        yield from _port(key, entry, kind, before[name], after[name])
    order = [n for n in after if n in before]
    if both != order:
        what = f"{entry}: the {kind}s come in another order"
        yield _change("interface", key, "", what, ", ".join(both), ", ".join(order))


def _renamed(gone: Sequence[str], come: Sequence[str], old: Sequence[Entry], new: Sequence[Entry]) -> dict[str, str]:
    """Old name -> new name of ports that stand at the same place and are the same otherwise."""
    found = {}
    for a, b in zip(old, new, strict=False):
        rest = [{k: v for k, v in port.items() if k in ("type", "key")} for port in (a, b)]
        if a["name"] in gone and b["name"] in come and rest[0] == rest[1]:
            found[a["name"]] = b["name"]
    return found


def _port(key: str, entry: str, kind: str, old: Entry, new: Entry) -> Iterator[Issue]:
    name = old["name"]
    dtypes = [port["type"].partition("[")[0] for port in (old, new)]
    if dtypes[0] != dtypes[1]:
        what = f"{entry}: the {kind} {name} has another dtype"
        yield _change("dtype", key, "", what, old["type"], new["type"])
    elif old["type"] != new["type"]:
        what = f"{entry}: the {kind} {name} has another shape"
        yield _change("interface", key, "", what, old["type"], new["type"])
    if old.get("key", "") != new.get("key", ""):
        what = f"{entry}: the {kind} {name} is another kind of key"
        yield _change("key", key, "", what, old.get("key", "no key"), new.get("key", "no key"))
    if new.get("unused") and not old.get("unused"):
        if new.get("key"):
            what = f"{entry}: no output depends on the key {name} any more: the policy does not draw from it"
            yield _change("key", key, "", what, "used", "not used")
        else:
            what = f"{entry}: no output depends on the {kind} {name} any more"
            yield _change("interface", key, "", what, "used", "not used")
    for link, words in (("start", "first value comes from"), ("feeds", "next value becomes")):
        if old.get(link, "") != new.get(link, ""):
            what = f"{entry}: the {kind} {name}: the {words} something else"
            yield _change("interface", key, "", what, old.get(link) or "nothing", new.get(link) or "nothing")


def _shown(port: Entry) -> str:
    return f"{port['name']} {port['type']}" + (f" ({port['key']} key)" if port.get("key") else "")


def _dtypes(key: str, entry: str, old: Sequence[str], new: Sequence[str]) -> Iterator[Issue]:
    come, gone = [t for t in new if t not in old], [t for t in old if t not in new and "float" in t]
    if come or gone:
        parts = ["now compute with " + ", ".join(come)] if come else []
        parts += ["no longer compute with " + ", ".join(gone)] if gone else []
        yield _change("dtype", key, "", f"{entry}: equations {' and '.join(parts)}", ", ".join(old), ", ".join(new))


# Artifacts


def _artifacts(key: str, old: Entry, new: Entry, limits: Limits) -> Iterator[Issue]:
    for form in (f for f in old if f in new):
        before, after = old[form], new[form]
        if after["bytes"] > before["bytes"] * limits.bytes_growth:
            growth = f"{after['bytes'] / max(before['bytes'], 1):.2f} times"
            what = f"{form}: the files are {growth} as large, {limits.bytes_growth:g} times is allowed"
            yield _change("bytes", key, form, what, f"{before['bytes']:,} B", f"{after['bytes']:,} B")
        if before.get("opset") != after.get("opset"):
            what = f"{form}: another opset"
            yield _change("opset", key, form, what, str(before.get("opset")), str(after.get("opset")))


def _errors(key: str, old: Entry, new: Entry, limits: Limits) -> Iterator[Issue]:
    for name in (n for n in old if n in new):
        before, after = float(old[name]), float(new[name])
        if after > ERROR_FLOOR and after > before * limits.error_growth:
            what = f"{name}: a larger error, over {limits.error_growth:g} times what it was"
            yield _change("error", key, name.partition(" ")[0], what, f"{before:g}", f"{after:g}")


def _checks(key: str, old: Entry, new: Entry) -> Iterator[Issue]:
    for name in (n for n in old if n in new):
        was, now = old[name]["verdict"], new[name]["verdict"]
        if was == "passed" and now == "differs":
            what = f"{name}: the loop is chaotic now, and its difference is only reported"
            yield _change("error", key, name.partition(" ")[0], what, was, now, level="warning")
        shares = [check.get("mismatched", 0) / max(check.get("draws", 0), 1) for check in (old[name], new[name])]
        if shares[1] > shares[0]:
            what = f"{name}: more draws differ from JAX's, though not more than is allowed"
            shown = [f"{c.get('mismatched', 0)} of {c.get('draws', 0)}" for c in (old[name], new[name])]
            yield _change("error", key, name.partition(" ")[0], what, *shown, level="warning")


def _change(
    kind: str, key: str, target: str, message: str, before: str, after: str, *, level: Level = "error"
) -> Issue:
    return Issue(
        id=kind,
        level=level,
        model=key,
        target=target,
        title=KINDS[kind].title,
        message=message,
        next_step=ACCEPT if level != "note" else "",
        fingerprint=fingerprint("change", kind, message),
        status="new",
        before=before,
        after=after,
    )
