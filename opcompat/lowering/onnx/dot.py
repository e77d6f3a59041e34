"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opcompat.lowering.builder import Unsupported
from opcompat.lowering.graph import Tensor
from opcompat.lowering.onnx.builder import OnnxBuilder
from opcompat.lowering.onnx.dtypes import FLOATS, INTS
from opcompat.lowering.onnx.structure import padded


def dot_general(b: OnnxBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    """Contracts the given axes: result [batch..., x's free axes..., y's free axes...].

    A weight that already is [K, N] or [batch, K, N] enters untouched; one that is [N, K] goes through Gemm's
    transB. Integer products wrap, exactly.
    """
    (xc, yc), (xb, yb) = eqn.params["dimension_numbers"]
    out = eqn.outvars[0].aval
    shape, dtype = tuple(out.shape), out.dtype.name
    x, y = _operand(b, x, dtype), _operand(b, y, dtype)
    if not x.size or not y.size:
        return b.full(shape, 0, dtype)
    x_free = [i for i in range(x.rank) if i not in (*xc, *xb)]
    y_free = [i for i in range(y.rank) if i not in (*yc, *yb)]
    batch = [x.shape[i] for i in xb]
    k = int(np.prod([x.shape[i] for i in xc], dtype=np.int64))
    if not batch and len(xc) == 1 and len(y_free) <= 1:
        return _matrix_product(b, b.transpose(x, [*x_free, *xc]), y, yc[0], shape)
    # Not one of the usual forms: [batch, M, K] x [batch, K, N].
    m, n = (_size(t, free) for t, free in ((x, x_free), (y, y_free)))
    left = b.reshape(b.transpose(x, [*xb, *x_free, *xc]), [*batch, m, k])
    right = b.reshape(b.transpose(y, [*yb, *yc, *y_free]), [*batch, k, n])
    return b.reshape(b.op1("MatMul", [left, right], [*batch, m, n], dtype), shape)


def _matrix_product(b: OnnxBuilder, x: Tensor, y: Tensor, contracted: int, shape: tuple[int, ...]) -> Tensor:
    """x: [free..., K]; y: [K], [K, N] or, with contracted == 1, [N, K]. MatMul takes all but the last so."""
    if y.rank == 2 and contracted == 1 and y.weight is not None and x.dtype in ("float32", "float64"):
        rows = b.reshape(x, [x.size // x.shape[-1], x.shape[-1]])
        product = b.op1("Gemm", [rows, y], [rows.shape[0], y.shape[0]], x.dtype, transB=1)
        return b.reshape(product, shape)
    if y.rank == 2 and contracted == 1:
        y = b.transpose(y, [1, 0])
    return b.op1("MatMul", [x, y], shape, x.dtype)


def _size(x: Tensor, axes: Sequence[int]) -> int:
    return int(np.prod([x.shape[i] for i in axes], dtype=np.int64))


def _operand(b: OnnxBuilder, x: Tensor, dtype: str) -> Tensor:
    """Converts an operand to the result's dtype where that loses nothing that the product needs."""
    if x.dtype == dtype:
        return x
    # Narrowing integers is exact modulo 2**bits; floats have to widen.
    widens = x.dtype in FLOATS | INTS and np.promote_types(_named(x.dtype), _named(dtype)) == _named(dtype)
    if not widens and not (x.dtype in INTS and dtype in INTS):
        raise Unsupported(f"dot_general of {x.dtype} into {dtype}")
    return b.cast(x, dtype)


def _named(dtype: str) -> str:
    # numpy cannot promote bfloat16; for widening, float16 stands for it.
    return "float16" if dtype == "bfloat16" else dtype


def conv_general_dilated(b: OnnxBuilder, eqn: Any, x: Tensor, w: Tensor) -> Tensor:
    """Convolution over 1, 2 or 3 axes, in any layout, with groups, strides and both dilations.

    ONNX wants [N, C, spatial...] and [O, I, spatial...]: a transpose of a weight is folded into its stored
    form. Dilating the input (as transposed convolutions do) inserts zeros, so that the sums stay JAX's.
    """
    p = eqn.params
    d, out = p["dimension_numbers"], eqn.outvars[0].aval
    shape, dtype = tuple(out.shape), out.dtype.name
    if int(p["batch_group_count"]) != 1:
        raise Unsupported("convolution with batch groups")
    if x.dtype != dtype or w.dtype != dtype:
        raise Unsupported(f"convolution of {x.dtype} and {w.dtype} into {dtype}")
    if not 3 <= x.rank <= 5:
        raise Unsupported(f"convolution over {x.rank - 2} axes")
    if not x.size or not w.size or 0 in shape:
        return b.full(shape, 0, dtype)
    x, w = b.transpose(x, d.lhs_spec), b.transpose(w, d.rhs_spec)
    pads = [(int(low), int(high)) for low, high in p["padding"]]
    dilation = [int(n) for n in p["lhs_dilation"]]
    if any(n > 1 for n in dilation) or any(n < 0 for pair in pads for n in pair):
        # An interior in front of the edges; Conv itself takes no negative padding.
        config = [(low, high, n - 1) for (low, high), n in zip(pads, dilation, strict=True)]
        x = padded(b, x, b.scalar(0, dtype), [(0, 0, 0), (0, 0, 0), *config])
        pads = [(0, 0)] * len(pads)
    result = b.op1(
        "Conv",
        [x, w],
        [shape[i] for i in d.out_spec],
        dtype,
        dilations=tuple(int(n) for n in p["rhs_dilation"]),
        group=int(p["feature_group_count"]),
        pads=tuple(low for low, _ in pads) + tuple(high for _, high in pads),
        strides=tuple(int(n) for n in p["window_strides"]),
    )
    return b.transpose(result, np.argsort(d.out_spec).tolist())


DOT: dict[str, Callable[..., Any]] = {
    "conv_general_dilated": conv_general_dilated,
    "dot_general": dot_general,
}
