"""Report: the data behind every rendering, plain values only. `to_json` is what `--format json` prints.

The JSON schema is published in `opcompat/schema/report.json` and checked by the tests. Changing the meaning
or type of a field raises SCHEMA_VERSION; adding a field does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

SCHEMA_VERSION = 1

Verdict = Literal["native", "folded", "rewritten", "unsupported", "unknown"]
VERDICTS: tuple[Verdict, ...] = ("native", "folded", "rewritten", "unsupported", "unknown")

SERIES = 256
"""The most points that a series of errors over steps has."""

MARGIN_EDGES = tuple(10.0 ** (n / 2) for n in range(-16, 5))
"""The edges between bins of margins: from 1e-8 to 100, two in each power of ten."""

NEAR = 1e-5
"""The margin below which a decision is a near tie, whatever the error of its scores."""


def relative(file: str) -> str:
    """The path as seen from the working directory where the file lies below it."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if file and path.is_relative_to(here) else file


@dataclass(frozen=True)
class Finding:
    """What a target cannot run as it stands, at one place in the user's code.

    `verdict` is "rewritten" (then `rules` name what helped), "unsupported" or "unknown" (then `reason` says
    why, in the runtime's terms, and `evidence` how that is known: registry, probed or documented).
    `operands` shows dtype and shape of each operand, as in "float32[1,32]". `file` is relative to the
    working directory where it lies below it, "" if unknown. `count` is the number of original equations.
    `scope` is the path of the user's named scopes and the function, which stays where lines move: "actor/dense:act".
    """

    verdict: Verdict
    primitive: str
    operands: str
    file: str
    line: int
    function: str
    count: int
    entry_points: tuple[str, ...]
    rules: tuple[str, ...] = ()
    reason: str = ""
    evidence: str = ""
    declined: tuple[str, ...] = ()
    scope: str = ""


@dataclass(frozen=True)
class Advice:
    """What a lint says of the model: it runs, but not as its author meant. `file`, `line`, `function` as in Finding."""

    id: str
    title: str
    message: str
    file: str
    line: int
    function: str
    entry_points: tuple[str, ...]
    next_step: str


@dataclass(frozen=True)
class RuleUse:
    """A rule that fired: its page's title, and on how many original equations.

    `before` and `after` are the equations of one place where it acted, as JAX prints them (at most 4,000 characters).
    """

    id: str
    title: str
    exactness: str
    count: int
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class TargetReport:
    """One target's verdict on the model. `counts` has a number of original equations for each verdict.

    `nodes` has the number of the target's ops by entry point, `ops` by op, `primitives` the verdicts by primitive.
    """

    target: str
    runtime: str
    version: str
    counts: Mapping[str, int]
    findings: tuple[Finding, ...]
    rules: tuple[RuleUse, ...]
    nodes: Mapping[str, int] = field(default_factory=dict)
    ops: Mapping[str, int] = field(default_factory=dict)
    primitives: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.counts.get("unsupported") and not self.counts.get("unknown")


@dataclass(frozen=True)
class OutputCheck:
    """Largest absolute error of one output over all steps, what was allowed, and where it was largest.

    `reference_error` is the reference's own float32-against-float64 error (None for integers and bools, which
    are compared exactly: `error` then counts differing elements; and where each step has its own, in checks of
    boundary values). `series` has the error over the steps of a closed loop, the largest of each stretch of steps if
    there are more than SERIES.
    """

    name: str
    dtype: str
    error: float
    tolerance: float
    reference_error: float | None
    worst_step: int
    passed: bool
    series: tuple[float, ...] = ()


@dataclass(frozen=True)
class Check:
    """One check of one artifact's entry point.

    `kind`: "step" (each step from JAX's state), "closed-loop" (the artifact feeds itself), "key" (another key
    changes the draws, the same repeats them), "boundary", "replay" (the recorded reference),
    "sampling" (a noise form, fed with what JAX draws from 200 keys, against the policy).
    `draws` counts the discrete decisions that were compared, `mismatched` those that differ within the
    allowed margin. `binding` is False where a difference is only reported (a chaotic loop). `sensitivity` is
    the largest change of an output of JAX's own loop after a 1-ulp change of its state (closed-loop only).
    `margins` counts JAX's decisions by how far apart the two best scores are: the bins are between MARGIN_EDGES, the
    first below them all, the last above (in "step", over the steps at which the reference's own error is measured).
    """

    format: str
    runtime: str
    entry_point: str
    kind: str
    steps: int
    seeds: int
    passed: bool
    binding: bool = True
    outputs: tuple[OutputCheck, ...] = ()
    draws: int = 0
    mismatched: int = 0
    sensitivity: float | None = None
    note: str = ""
    margins: tuple[int, ...] = ()


@dataclass(frozen=True)
class Growth:
    """How large an error has become at a later value: the largest difference from JAX's, and JAX's largest value."""

    what: str
    file: str
    line: int
    error: float
    size: float


@dataclass(frozen=True)
class Culprit:
    """The first inner value that differs from JAX's by more than its own rounding error explains.

    `primitive`, `operands`, `file`, `line`, `function`: as in Finding; `rules` are those that led to it. `value` is
    its type. `error` and `allowed` are of this one computation, its operands being the artifact's own; `index`, `got`
    and `want` show the element that differs most. `together` has the places ("file.py:12 mul") of what the artifact
    computes in one piece with it. `sufficient`: whether JAX's outputs differ as well, once JAX uses this one value
    of the artifact's. `amplification`: how many times as large the largest error of an output is; None where
    that says nothing. `growth` has the values on the way at which the error grew, the outputs at the end.
    """

    cause: Literal["artifact", "rule"]
    primitive: str
    operands: str
    file: str
    line: int
    function: str
    rules: tuple[str, ...]
    value: str
    error: float
    allowed: float
    index: tuple[int, ...]
    got: str
    want: str
    together: tuple[str, ...] = ()
    sufficient: bool = False
    amplification: float | None = None
    growth: tuple[Growth, ...] = ()


@dataclass(frozen=True)
class Divergence:
    """Where one entry point of one artifact first differs from JAX (bisect).

    `steps` were compared. `step` is the first whose outputs differ when it starts from JAX's state; `loop_step` the
    first in the closed loop. None where none differs; `binding` is False where only a chaotic loop parts.
    `outputs` names those that differ. `observed` of `values` inner values could be seen. `same_file`: whether
    this version writes the very same bytes as the bundle has.
    """

    format: str
    runtime: str
    entry_point: str
    steps: int
    step: int | None = None
    loop_step: int | None = None
    binding: bool = True
    outputs: tuple[str, ...] = ()
    culprit: Culprit | None = None
    observed: int = 0
    values: int = 0
    same_file: bool = True
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.binding or (self.step is None and self.loop_step is None)


@dataclass(frozen=True)
class ArtifactFile:
    """A file of the bundle, relative to it."""

    path: str
    bytes: int


@dataclass(frozen=True)
class Port:
    """One array of an entry point's interface.

    `dtype` and `shape` are the policy's own. `key` names the PRNG implementation if it is a key. `start` and `feeds`
    are the state's wiring: for an input, where its first value comes from ("init_policy.state", or "array"); for an
    output, the input that it becomes. `used`: whether any output depends on this input.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    key: str = ""
    start: str = ""
    feeds: str = ""
    used: bool = True


@dataclass(frozen=True)
class Interface:
    """What an entry point takes and gives, in order, and the dtypes that its equations compute with."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Artifact:
    """One format of the bundle: the bytes of its files, weights included, its ops, and ONNX's opset."""

    format: str
    target: str
    bytes: int
    ops: int
    opset: int | None = None


@dataclass(frozen=True)
class Excerpt:
    """Some lines of the user's source around a place, the first of them numbered `first`."""

    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """Everything one run found. `next_step` is the one thing to do now. `advice` makes a report no worse.

    `excerpts` has the source around findings by place ("file.py:12"), of files below the source's folder or the
    working directory. `facts` is what a model file says of itself, as text by label: its format, versions, ops, dtypes.
    """

    command: str
    model: str
    source: str
    entry_points: tuple[str, ...]
    targets: tuple[TargetReport, ...] = ()
    advice: tuple[Advice, ...] = ()
    checks: tuple[Check, ...] = ()
    files: tuple[ArtifactFile, ...] = ()
    bundle: str = ""
    parameters: int = 0
    parameter_bytes: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    next_step: str = ""
    sampling: str = ""
    interfaces: Mapping[str, Interface] = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    excerpts: Mapping[str, Excerpt] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    divergences: tuple[Divergence, ...] = ()

    @property
    def ok(self) -> bool:
        checked = all(c.passed or not c.binding for c in self.checks)
        return checked and all(t.ok for t in self.targets) and all(d.ok for d in self.divergences)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, keys in declaration order, with the schema version first."""
        body = asdict(self)
        for target, plain in zip(self.targets, body["targets"], strict=True):
            plain["ok"] = target.ok
        return {"schema_version": SCHEMA_VERSION, "ok": self.ok, **body}
