"""Convolutions by a product of matrices for each place in the window.

Before: `conv_general_dilated` in a form that the target lacks: transposed (with a dilated input), over no or three
spatial axes, on integers, with groups of the batch.

After: a transposed convolution of floats over one or two axes has its zeros put between the elements by `pad` and is
an ordinary one. Otherwise, for each place in the window, a strided slice of the padded input times that place's
weights, and the sum of the products.

Why: LiteRT convolves float32 over one and two axes.

Exactness: bit for bit on integers; float sums are taken in another order. Windows of more than 512 elements are
declined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from opcompat.rule import Declined, Exactness, Example, Replacement, Rule, Site

LIMIT = 512


def _undilated(site: Site) -> Callable[[Array, Array], Array]:
    """The convolution of an input that has its zeros already."""
    params = dict(site.params)
    spatial = params["dimension_numbers"].lhs_spec[2:]
    dilation = dict(zip(spatial, params["lhs_dilation"], strict=True))
    params["lhs_dilation"] = (1,) * len(spatial)

    def run(x: Array, weights: Array) -> Array:
        config = [(0, 0, dilation.get(axis, 1) - 1) for axis in range(x.ndim)]
        padded = lax.pad(x, lax.full((), 0, x.dtype), config)
        found: Array = site.eqn.primitive.bind(padded, weights, **params)
        return found

    return run


def _by_places(site: Site) -> Callable[[Array, Array], Array]:
    p, dtype = site.params, site.result.dtype
    spec = p["dimension_numbers"]
    features, batches = int(p["feature_group_count"]), int(p["batch_group_count"])
    out_sizes = [site.result.shape[axis] for axis in spec.out_spec[2:]]

    def run(x: Array, weights: Array) -> Array:
        x = lax.transpose(x, (spec.lhs_spec[0], *spec.lhs_spec[2:], spec.lhs_spec[1]))
        weights = lax.transpose(weights, (*spec.rhs_spec[2:], spec.rhs_spec[1], spec.rhs_spec[0]))
        edges = zip(p["padding"], p["lhs_dilation"], strict=True)
        config = [(0, 0, 0), *((low, high, d - 1) for (low, high), d in edges), (0, 0, 0)]
        x = _in_groups(lax.pad(x, lax.full((), 0, x.dtype), config), features, batches)
        *window, inner, outer = weights.shape
        groups = features * batches
        weights = lax.reshape(weights, (*window, inner, groups, outer // groups))
        total = None
        for place in product(*[range(n) for n in window]):
            low = [k * d for k, d in zip(place, p["rhs_dilation"], strict=True)]
            high = [a + (n - 1) * s + 1 for a, n, s in zip(low, out_sizes, p["window_strides"], strict=True)]
            part = lax.slice(x, (0, 0, *low, 0), (*x.shape[:2], *high, inner), (1, 1, *p["window_strides"], 1))
            behind = tuple(k + 1 for k in place)
            one = lax.slice(weights, (*place, 0, 0, 0), (*behind, *weights.shape[-3:]))
            one = lax.reshape(one, weights.shape[-3:])
            numbers = (((part.ndim - 1,), (0,)), ((0,), (1,)))
            term = lax.dot_general(part, one, numbers, precision=p["precision"], preferred_element_type=dtype)
            total = term if total is None else lax.add(total, term)
        assert total is not None
        return _to_layout(total, spec.out_spec, site.result.shape)

    return run


def _in_groups(x: Array, features: int, batches: int) -> Array:
    """[batch, spatial..., channels] as [groups, batch, spatial..., channels]."""
    shape, last = x.shape, x.ndim
    if batches > 1:
        return lax.reshape(x, (batches, shape[0] // batches, *shape[1:]))
    split = lax.reshape(x, (*shape[:-1], features, shape[-1] // features))
    return lax.transpose(split, (last - 1, *range(last - 1), last))


def _to_layout(x: Array, out_spec: Any, shape: tuple[int, ...]) -> Array:
    """[groups, batch, spatial..., channels] in the layout that is asked for."""
    batch_first = lax.transpose(x, (*range(1, x.ndim - 1), 0, x.ndim - 1))
    ours = (out_spec[0], *out_spec[2:], out_spec[1])
    merged = lax.reshape(batch_first, tuple(shape[axis] for axis in ours))
    return lax.transpose(merged, tuple(ours.index(axis) for axis in range(len(ours))))


def apply(site: Site) -> Replacement | Declined | None:
    spec, p = site.params["dimension_numbers"], site.params
    window = [site.aval(1).shape[axis] for axis in spec.rhs_spec[2:]]
    if 0 in site.result.shape or 0 in site.aval(0).shape or 0 in site.aval(1).shape:
        return site.replace(lambda *_: lax.full(site.result.shape, 0, site.result.dtype))
    plain = site.aval(0).dtype == np.float32 and len(window) in (1, 2) and p["batch_group_count"] == 1
    if plain and any(d != 1 for d in p["lhs_dilation"]):
        return site.replace(_undilated(site))
    if math.prod(window) > LIMIT:
        return Declined(f"a window of more than {LIMIT} elements")
    if jnp.issubdtype(site.aval(0).dtype, jnp.complexfloating):
        return Declined("complex numbers")
    return site.replace(_by_places(site))


_RNG = np.random.default_rng(0)
_X = _RNG.integers(-8, 8, (4, 6, 7, 4)).astype(np.float32)
_W = _RNG.integers(-8, 8, (3, 2, 4, 6)).astype(np.float32)
_D = ("NHWC", "HWIO", "NHWC")


def _example(
    strides: tuple[int, ...] = (1, 1), padding: Any = "SAME", **options: Any
) -> Callable[[Array, Array], Array]:
    options = {"dimension_numbers": _D, **options}
    return lambda x, w: lax.conv_general_dilated(x, w, strides, padding, **options)


RULE = Rule(
    id="OC353",
    stage="legalize",
    primitives=frozenset({"conv_general_dilated"}),
    apply=apply,
    exactness=Exactness("ulp", 16),
    page=__doc__,
    module=__name__,
    examples=(
        Example("int32", _example((2, 1)), (_X.astype(np.int32), _W.astype(np.int32))),
        Example(
            "dilated integers",
            _example(padding=((1, 2), (0, 3)), lhs_dilation=(2, 3), rhs_dilation=(1, 2)),
            (_X.astype(np.int32), _W.astype(np.int32)),
        ),
        Example("groups", _example(feature_group_count=2), (_X, _W[:, :, :2])),
        Example("groups of the batch", _example(batch_group_count=2), (_X, _W)),
        Example(
            "three axes",
            lambda x, w: lax.conv_general_dilated(x, w, (1, 2, 1), "SAME"),
            (_X[None], _RNG.integers(-3, 3, (5, 4, 3, 3, 2)).astype(np.float32)),
        ),
        Example("no axes", lambda x, w: lax.conv_general_dilated(x, w, (), ()), (_X[0, 0], _W[0, 0].T)),
        Example("nothing", _example(), (_X[:0], _W)),
    ),
)
