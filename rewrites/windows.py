"""Reductions over windows by shifted copies.

Before: `reduce_window` with any function, of one operand or several, and its forms for sums, maxima and minima, on
dtypes and with options that the target does not reduce.

After: the padded operand sliced once for each place in the window, and the slices combined in order; maxima, minima
and sums axis by axis. Places outside of the operand and between its elements are passed over, as JAX does.

Why: runtimes pool floats, without dilation of their input, and know sums, maxima and minima only.

Exactness: bit for bit for functions that are associative in the dtype; others, float sums among them, may be taken in
another order than JAX's, which varies. More than 512 slices are declined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.jaxcompat import combiner
from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

from .custom_reductions import elementwise, names_of

LIMIT = 512


class Windows(NamedTuple):
    """Where windows lie on an operand that is padded already."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]

    def slices(self, shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
        """For each place in the window, in order: those elements, one of each window."""
        spans = [(n - 1) * d + 1 for n, d in zip(self.size, self.dilation, strict=True)]
        counts = [(n - s) // t + 1 for n, s, t in zip(shape, spans, self.strides, strict=True)]
        for corner in product(*map(range, self.size)):
            lows = [c * d for c, d in zip(corner, self.dilation, strict=True)]
            yield tuple(
                slice(low, low + (n - 1) * t + 1, t) for low, n, t in zip(lows, counts, self.strides, strict=True)
            )


def taken(x: Array, part: Sequence[slice]) -> Array:
    """One element of each window."""
    return lax.slice(x, [s.start for s in part], [s.stop for s in part], [s.step for s in part])


def least_or_greatest(dtype: np.dtype, *, least: bool) -> np.ndarray:
    """The value of a dtype that is below, or above, all others."""
    if dtype == np.bool_:
        return np.asarray(not least)
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.asarray(-np.inf if least else np.inf).astype(dtype)
    return np.asarray(np.iinfo(dtype).min if least else np.iinfo(dtype).max, dtype)


def _by_name(site: Site) -> tuple[Callable[[Array, Array], Array], np.ndarray]:
    """What combines two elements, and the value that changes none."""
    dtype, largest = site.aval(0).dtype, site.name == "reduce_window_max"
    if site.name == "reduce_window_sum":
        return lax.add, np.zeros((), dtype)
    on_bools, on_numbers = (lax.bitwise_or, lax.max) if largest else (lax.bitwise_and, lax.min)
    return on_bools if dtype == np.bool_ else on_numbers, least_or_greatest(dtype, least=largest)


def _padded(x: Array, value: Array, p: Any) -> Array:
    pairs = zip(p["padding"], p["base_dilation"], strict=True)
    return lax.pad(x, value, [(low, high, d - 1) for (low, high), d in pairs])


def _axis_by_axis(site: Site) -> Callable[[Array], Array]:
    p, (combine, neutral) = site.params, _by_name(site)

    def run(x: Array) -> Array:
        x = _padded(x, jnp.asarray(neutral), p)
        ones = (1,) * x.ndim
        for axis in range(x.ndim):
            own = [
                tuple(int(p[name][a]) if a == axis else 1 for a in range(x.ndim))
                for name in ("window_dimensions", "window_strides", "window_dilation")
            ]
            if own[:2] != [ones, ones]:
                x = reduce(combine, [taken(x, part) for part in Windows(*own).slices(x.shape)])
        return x

    return run


def _is_element(shape: Sequence[int], p: Any) -> list[np.ndarray]:
    """For each axis, which places of the padded operand hold elements."""
    found = []
    for n, (low, high), d in zip(shape, p["padding"], p["base_dilation"], strict=True):
        places = np.arange(-low, (n - 1) * d + 1 + high)
        found.append((places >= 0) & (places <= (n - 1) * d) & (places % d == 0))
    return found


def _in_order(site: Site) -> Callable[..., tuple[Array, ...]]:
    """Each window's elements combined one after the other, from the initial value on."""
    p, combine = site.params, elementwise(combiner(site.params))
    windows = Windows(p["window_dimensions"], p["window_strides"], p["window_dilation"])
    changes_nothing = _starts_neutral(site)

    def run(*given: Array) -> tuple[Array, ...]:
        count = len(given) // 2
        held = _is_element(given[0].shape, p)
        padded = [_padded(x, start, p) for x, start in zip(given[:count], given[count:], strict=True)]
        results = [lax.broadcast(start, site.result.shape) for start in given[count:]]
        for part in windows.slices(padded[0].shape):
            real = reduce(np.logical_and.outer, [h[s] for h, s in zip(held, part, strict=True)], np.ones((), np.bool_))
            if not real.any():
                continue
            new = combine(*results, *(taken(x, part) for x in padded))
            if not (real.all() or changes_nothing):
                mask = jnp.asarray(real)
                new = [lax.select(mask, after, before) for after, before in zip(new, results, strict=True)]
            results = new
        return tuple(results)

    return run


def _starts_neutral(site: Site) -> bool:
    """Whether the padding changes no result, as zeros do in a sum and ones in a product."""
    names, start = names_of(combiner(site.params)), site.splat(site.operands[-1])
    neutral = {"add": 0, "mul": 1, "or": 0}
    return names is not None and len(names) == 1 and start is not None and neutral.get(names[0]) == start


def apply(site: Site) -> Replacement | Declined | None:
    window = site.params["window_dimensions"]
    named = site.name != "reduce_window"
    if (sum(window) if named else int(np.prod(window))) > LIMIT:
        return Declined(f"more than {LIMIT} slices")
    if 0 in site.result.shape:
        return site.replace(lambda *_: _nothing(site))
    return site.replace(_axis_by_axis(site) if named else _in_order(site))


def _nothing(site: Site) -> Any:
    results = tuple(lax.full(v.aval.shape, 0, v.aval.dtype) for v in site.eqn.outvars)
    return results if site.eqn.primitive.multiple_results else results[0]


_X = np.random.default_rng(0).integers(0, 2**32, (2, 6, 7), dtype=np.uint32)
_F = np.linspace(0.5, 2, 84, dtype=np.float32).reshape(2, 6, 7)
_ODD = np.resize(np.array([1, np.nan, 3, np.inf, -np.inf, 0, -0.0, 2, np.nan, np.nan, 1], np.float32), (2, 6, 7))


def _example(function: Any, *starts: Any, **options: Any) -> Callable[..., Any]:
    def run(*xs: Array) -> Any:
        arguments = {"window_dimensions": (1, 2, 3), "window_strides": (1, 2, 1), "padding": "SAME", **options}
        first = tuple(np.asarray(s).astype(x.dtype)[()] for s, x in zip(starts, xs, strict=True))
        if len(xs) == 1:
            return lax.reduce_window(xs[0], first[0], function, **arguments)
        return lax.reduce_window(xs, first, function, **arguments)

    return run


def _least(a: Any, b: Any) -> Any:
    """The pair with the smaller first value; of what cannot be compared, the second."""
    first = lax.le(a[0], b[0])
    return tuple(lax.select(first, x, y) for x, y in zip(a, b, strict=True))


RULE = Rule(
    id="OC351",
    stage="legalize",
    primitives=frozenset({"reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum"}),
    apply=apply,
    exactness=Exactness("ulp", 4),
    page=__doc__,
    module=__name__,
    examples=(
        Example("max", _example(lax.max, np.uint32(0)), (_X,)),
        Example("min of bools", _example(lax.min, True), (_X > 2**31,)),
        Example("sum", _example(lax.add, np.uint32(0), window_dilation=(1, 2, 2)), (_X,)),
        Example("sum from 3", _example(lax.add, 3, base_dilation=(1, 2, 2)), (_X,)),
        Example("dilated", _example(lax.max, -np.inf, base_dilation=(1, 2, 3)), (_F,)),
        Example("product", _example(lax.mul, np.float32(1)), (_F,)),
        Example("any function", _example(lambda a, b: a * b + a + b, np.float32(0)), (_F,)),
        Example("pairs", _example(_least, np.inf, 0), (_ODD, _X)),
        Example("pairs, dilated", _example(_least, np.inf, 0, base_dilation=(1, 2, 3)), (_ODD, _X)),
        Example("nothing", _example(lax.max, -np.inf), (_F[:0],)),
        Example("pairs of nothing", _example(_least, np.inf, 0), (_ODD[:0], _X[:0])),
    ),
    declines=(Example("large", _example(lax.max, -np.inf, window_dimensions=(1, 600, 1)), (_F,)),),
)
