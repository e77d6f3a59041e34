"""Numbers -> the places of lines and bars in the page's plots. Units are those of a plot's viewBox."""

from __future__ import annotations

import math
from dataclasses import dataclass

from opcompat.report import MARGIN_EDGES, NEAR, Check, OutputCheck

from . import wording

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 12, 34
"""Of a plot, and the room beside its area: a phone shows it without scaling."""

MOST_LINES = 8
"""Outputs with a line of their own; the rest are named below."""

_LOWEST, _HIGHEST = -6, 3
"""Powers of ten: the most that the scale of errors spans, in shares of what is allowed."""


@dataclass(frozen=True)
class Tick:
    """A line of the grid with its label, at `at` along its axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Line:
    """One output's error over the steps, as the points of an SVG polyline. `number` chooses its color."""

    name: str
    number: int
    points: str
    last: str


@dataclass(frozen=True)
class LinePlot:
    """Errors over steps. `limit` is the height of what is allowed. `exact` names the outputs that never differ."""

    title: str
    lines: tuple[Line, ...]
    x: tuple[Tick, ...]
    y: tuple[Tick, ...]
    limit: float
    exact: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram; `near`: decisions that count as near ties."""

    x: float
    y: float
    width: float
    height: float
    near: bool
    text: str


@dataclass(frozen=True)
class Histogram:
    """How many decisions have which margin."""

    title: str
    bars: tuple[Bar, ...]
    x: tuple[Tick, ...]
    y: tuple[Tick, ...]
    near: float
    total: str


def error_plot(check: Check) -> LinePlot | None:
    """The errors over the steps of a closed loop; None if there are none."""
    outputs = [o for o in check.outputs if o.series]
    if not outputs:
        return None
    exact = tuple(o.name for o in outputs if all(e == 0 for e in o.series))
    shown = [o for o in outputs if o.name not in exact]
    shown.sort(key=lambda o: -max(map(_finite_or_high, (_share(e, o) for e in o.series))))
    drawn = shown[:MOST_LINES]
    points = [s for o in drawn for s in (_share(e, o) for e in o.series) if 0 < s < math.inf]
    low = max(_LOWEST, math.floor(math.log10(min(points, default=1e-3))))
    high = min(_HIGHEST, max(1, math.ceil(math.log10(max(points, default=1.0)))))
    low = min(low, -1)

    def height(share: float) -> float:
        value = high if not math.isfinite(share) else math.log10(max(share, 10.0**low))
        return TOP + (high - min(value, high)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def across(index: int, count: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (index / max(count - 1, 1))

    lines = tuple(
        Line(
            o.name,
            number,
            " ".join(f"{across(i, len(o.series)):.1f},{height(_share(e, o)):.1f}" for i, e in enumerate(o.series)),
            wording.number(max(o.series, key=_finite_or_high)),
        )
        for number, o in enumerate(drawn)
    )
    steps = [0, check.steps // 2, max(check.steps - 1, 0)]
    x = tuple(Tick(across(s, check.steps), f"{s:,}") for s in dict.fromkeys(steps))
    powers = range(low, high + 1, 1 if high - low <= 5 else 2)
    y = tuple(Tick(height(10.0**n), _power(n)) for n in powers)
    title = f"{check.format} {check.entry_point}, closed loop: error over {check.steps:,} steps, by what is allowed"
    left_out = tuple(o.name for o in shown[MOST_LINES:])
    return LinePlot(title, lines, x, y, height(1.0), exact, left_out)


def margin_histogram(check: Check) -> Histogram | None:
    """How close JAX's decisions are, over the steps that were measured; None if there are none."""
    counts = check.margins
    if not any(counts):
        return None
    used = [i for i, n in enumerate(counts) if n]
    first = min(used[0], _bin(NEAR))
    bins = range(max(first - 1, 0), min(used[-1] + 2, len(counts)))
    top = max(counts)
    wide = (WIDTH - LEFT - RIGHT) / len(bins)

    def height(count: int) -> float:
        return math.log10(1 + count) / math.log10(1 + top) * (HEIGHT - TOP - BOTTOM)

    def edge(index: int) -> float:
        return LEFT + wide * (index - bins[0] + 1)

    bars = tuple(
        Bar(
            LEFT + wide * (i - bins[0]) + 0.5,
            HEIGHT - BOTTOM - height(counts[i]),
            wide - 1,
            height(counts[i]),
            i <= _bin(NEAR),
            f"{counts[i]:,} with a margin {_range(i)}",
        )
        for i in bins
        if counts[i]
    )
    whole = [i for i, e in enumerate(MARGIN_EDGES) if i in bins and i % 2 == 0 and i % 4 == 0]
    x = tuple(Tick(edge(i), _power(round(math.log10(MARGIN_EDGES[i])))) for i in whole)
    y = tuple(
        Tick(HEIGHT - BOTTOM - height(10**n), f"{10**n:,}")
        for n in range(0, int(math.log10(top)) + 1, 1 if top < 1e5 else 2)
    )
    title = f"{check.format} {check.entry_point}: margin between the two best scores of each decision"
    return Histogram(title, bars, x, y, edge(_bin(NEAR)), f"{sum(counts):,}")


def _bin(value: float) -> int:
    """The last bin whose margins are all below `value` (see `report.MARGIN_EDGES`)."""
    return len([edge for edge in MARGIN_EDGES if edge < value * 1.001]) - 1


def _range(index: int) -> str:
    if index == 0:
        return f"below {MARGIN_EDGES[0]:.0e}"
    if index == len(MARGIN_EDGES):
        return f"above {MARGIN_EDGES[-1]:.0e}"
    return f"from {MARGIN_EDGES[index - 1]:.1e} to {MARGIN_EDGES[index]:.1e}"


def _share(error: float, output: OutputCheck) -> float:
    """Of what is allowed. Where nothing is, any difference is without bounds."""
    if error == 0:
        return 0.0
    return error / output.tolerance if output.tolerance and not math.isnan(error) else math.inf


def _finite_or_high(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _power(n: int) -> str:
    """10^n as people read it."""
    if -3 <= n <= 4:
        return f"{10.0**n:,.{max(-n, 0)}f}"
    return f"1e{n}"
