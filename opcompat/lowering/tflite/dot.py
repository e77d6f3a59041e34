"""Products: dot_general by BATCH_MATMUL, convolutions by CONV_2D and DEPTHWISE_CONV_2D.

Float sums are taken in the kernel's order: results differ from JAX's in the last bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opcompat.lowering.graph import Tensor
from opcompat.lowering.tflite.builder import TfliteBuilder
from opcompat.lowering.tflite.common import dtype, out_dtype, out_shape, refuse
from opcompat.lowering.tflite.structure import padded


def _size(sizes: Sequence[int]) -> int:
    return int(np.prod(sizes, dtype=np.int64))


def _as_matrices(b: TfliteBuilder, x: Tensor, batch: Sequence[int], contracted: Sequence[int]) -> tuple[Tensor, bool]:
    """`x` as [batch, free, contracted], or [batch, contracted, free] if it stands that way already.

    Returns the matrices (without a batch axis if there is none) and whether contracted comes first. So a
    weight is used as it is stored, whichever way round.
    """
    free = [a for a in range(x.rank) if a not in batch and a not in contracted]
    inner, outer = (_size([x.shape[a] for a in axes]) for axes in (contracted, free))
    front = [_size([x.shape[a] for a in batch])] if batch else []
    stands = _moving([*batch, *contracted, *free], x)
    swapped = stands == sorted(stands)
    order = [*batch, *contracted, *free] if swapped else [*batch, *free, *contracted]
    shape = [*front, inner, outer] if swapped else [*front, outer, inner]
    return b.reshape(b.transpose(x, order), shape), swapped


def _moving(order: Sequence[int], x: Tensor) -> list[int]:
    return [a for a in order if x.shape[a] != 1]


def dot_general(b: TfliteBuilder, eqn: Any, x: Tensor, y: Tensor) -> Tensor:
    (x_contracted, y_contracted), (x_batch, y_batch) = eqn.params["dimension_numbers"]
    if not dtype(eqn, 0) == dtype(eqn, 1) == out_dtype(eqn):
        refuse(f"dot_general from {dtype(eqn, 0)} and {dtype(eqn, 1)} to {out_dtype(eqn)}")
    if x.dtype != "float32":
        refuse(f"dot_general on {dtype(eqn)}: BATCH_MATMUL multiplies float32, and quantized integers")
    if x.size == 0 or y.size == 0:
        return b.broadcast_to(b.scalar(0, x.dtype), out_shape(eqn))
    left, left_swapped = _as_matrices(b, x, x_batch, x_contracted)
    right, right_swapped = _as_matrices(b, y, y_batch, y_contracted)
    shape = out_shape(eqn)
    if left.is_constant and not right.is_constant:
        # The kernels are made for a constant on the right: (left right)^T = right^T left^T.
        turned = _matmul(b, right, right_swapped, left, not left_swapped)
        axes = [*range(turned.rank - 2), turned.rank - 1, turned.rank - 2]
        return b.reshape(b.transpose(turned, axes), shape)
    return b.reshape(_matmul(b, left, left_swapped, right, not right_swapped), shape)


def _matmul(b: TfliteBuilder, x: Tensor, adj_x: bool, y: Tensor, adj_y: bool) -> Tensor:
    """[..., M, K] (adj_x: [..., K, M]) times [..., K, N] (adj_y: [..., N, K])."""
    rows = x.shape[-1] if adj_x else x.shape[-2]
    columns = y.shape[-2] if adj_y else y.shape[-1]
    shape = (*x.shape[:-2], rows, columns)
    return b.op1("BATCH_MATMUL", [x, y], shape, x.dtype, adjX=adj_x, adjY=adj_y)


def conv_general_dilated(b: TfliteBuilder, eqn: Any, x: Tensor, kernel: Tensor) -> Tensor:
    """1-D and 2-D, ordinary, depthwise or in groups (which CONV_2D sees from the shapes).

    Layouts become NHWC and OHWI; weights once, in the file.
    """
    p = eqn.params
    spec = p["dimension_numbers"]
    spatial = len(spec.lhs_spec) - 2
    _check_conv(eqn, x, spatial)
    x = b.transpose(x, [spec.lhs_spec[0], *spec.lhs_spec[2:], spec.lhs_spec[1]])
    out_channels, in_channels, *window = spec.rhs_spec
    groups, depthwise = int(p["feature_group_count"]), False
    if groups != 1:
        depthwise = groups == x.shape[-1] and kernel.shape[in_channels] == 1
    order = [in_channels, *window, out_channels] if depthwise else [out_channels, *window, in_channels]
    weights = b.transpose(kernel, order)
    strides, dilation = [int(s) for s in p["window_strides"]], [int(d) for d in p["rhs_dilation"]]
    edges = [(int(low), int(high)) for low, high in p["padding"]]
    if spatial == 1:
        x = b.reshape(x, (x.shape[0], 1, *x.shape[1:]))
        weights = b.reshape(weights, (weights.shape[0], 1, *weights.shape[1:]))
        strides, dilation, edges = [strides[0], *strides], [dilation[0], *dilation], [(0, 0), *edges]
    result = _conv2d(b, x, weights, strides, dilation, edges, depthwise)
    if spatial == 1:
        result = b.reshape(result, (result.shape[0], *result.shape[2:]))
    return b.transpose(result, _to_output(spec.out_spec))


def _to_output(out_spec: Sequence[int]) -> list[int]:
    """The permutation from [batch, spatial..., channels] to JAX's output layout."""
    ours = [out_spec[0], *out_spec[2:], out_spec[1]]
    return [ours.index(axis) for axis in range(len(ours))]


def _check_conv(eqn: Any, x: Tensor, spatial: int) -> None:
    p = eqn.params
    if x.dtype != "float32" or dtype(eqn, 1) != "float32" or out_dtype(eqn) != "float32":
        refuse(f"convolution on {dtype(eqn)}")
    if spatial not in (1, 2):
        refuse(f"convolution over {spatial} spatial axes")
    if any(d != 1 for d in p["lhs_dilation"]):
        refuse("transposed convolution (lhs_dilation)")
    if int(p["batch_group_count"]) != 1:
        refuse("convolution with batch groups")
    if any(edge < 0 for pair in p["padding"] for edge in pair):
        refuse("convolution with negative padding")
    if x.size == 0 or 0 in eqn.invars[1].aval.shape:
        refuse("convolution of nothing")


def _conv2d(
    b: TfliteBuilder,
    x: Tensor,
    weights: Tensor,
    strides: Sequence[int],
    dilation: Sequence[int],
    edges: Sequence[tuple[int, int]],
    depthwise: bool,
) -> Tensor:
    """[N, H, W, C] with OHWI weights (depthwise: [1, H, W, C * multiplier])."""
    height, width = weights.shape[1:3]
    spans = [(n - 1) * d + 1 for n, d in zip((height, width), dilation, strict=True)]
    padding = "VALID"
    if any(edge != (0, 0) for edge in edges):
        padding = "SAME" if _is_same(x.shape[1:3], spans, strides, edges) else "VALID"
        if padding == "VALID":
            x = padded(b, x, [(0, 0), *edges, (0, 0)], b.scalar(0, x.dtype))
            edges = [(0, 0), (0, 0)]
    sizes = [
        (n + low + high - span) // s + 1
        for n, span, s, (low, high) in zip(x.shape[1:3], spans, strides, edges, strict=True)
    ]
    options: dict[str, Any] = {
        "padding": padding,
        "strideH": strides[0],
        "strideW": strides[1],
        "dilationHFactor": dilation[0],
        "dilationWFactor": dilation[1],
    }
    channels = weights.shape[3] if depthwise else weights.shape[0]
    if depthwise:
        options["depthMultiplier"] = channels // x.shape[3]
    # Both ops accept no bias, but the delegate takes them only with one.
    bias = b.const(np.zeros(channels, np.float32))
    op = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    result = b.op1(op, [x, weights, bias], (x.shape[0], *sizes, channels), x.dtype, **options)
    return result if weights.is_constant else _with_infinities(b, result)


def _with_infinities(b: TfliteBuilder, x: Tensor) -> Tensor:
    """Infinities in place of the largest finite numbers.

    The runtime's own convolutions clamp to finite numbers even without an activation (measured). The default delegate,
    which takes those with constant weights, does not.
    """
    largest = b.scalar(float(np.finfo(x.dtype).max), x.dtype)
    clamped = b.compare("GREATER_EQUAL", b.unary("ABS", x), largest)
    return b.select(clamped, b.mul(x, b.scalar(2.0, x.dtype)), x)


def _is_same(
    sizes: Sequence[int],
    spans: Sequence[int],
    strides: Sequence[int],
    edges: Sequence[tuple[int, int]],
) -> bool:
    """Whether `edges` are what padding "SAME" would add: ceil(n / stride) outputs, the odd one at the end."""
    for n, span, s, edge in zip(sizes, spans, strides, edges, strict=True):
        total = max(0, (-(-n // s) - 1) * s + span - n)
        if edge != (total // 2, total - total // 2):
            return False
    return True
