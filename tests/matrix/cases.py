"""The table: primitive -> cases, what is refused, and which differences are documented."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from . import elementwise, linear_algebra, programs, reductions, structure
from .harness import Case

POLICIES = frozenset(
    name
    for line in (
        "add dot_general jit mul broadcast_in_dim max sub tanh reshape exp convert_element_type div select_n",
        "reduce_sum random_wrap random_bits shift_right_logical or bitcast_convert_type neg concatenate slice log",
        "split iota custom_jvp_call square abs squeeze ne transpose logistic rsqrt reduce_max argmax erf_inv",
        "stop_gradient random_split random_unwrap lt gt log1p eq not is_finite conv_general_dilated and copy min",
        "scan gather integer_pow reduce_and stack sqrt rem sign custom_vjp_call name scatter ge expm1",
        "dynamic_slice atanh reduce_min while erf nextafter top_k dynamic_update_slice le sin cos random_gamma",
        "reduce_window_max reduce_window_sum sort",
    )
    for name in line.split()
)
"""The primitives of 42 real policies."""

ALIASES: Mapping[str, str] = {
    "copy_p": "copy",
    "scatter_add": "scatter-add",
    "scatter_max": "scatter-max",
    "scatter_min": "scatter-min",
    "scatter_mul": "scatter-mul",
    "remat": "checkpoint",
    "remat2": "checkpoint",
    "pjit": "jit",
}
"""Names that some versions of JAX have for the primitive of another row."""

UNNAMED = frozenset({"expand_dims", "device_put", "random_wrap", "unstack", "stack"})
"""Rows whose primitive other versions of JAX spell by others."""


@cache
def rows() -> Mapping[str, tuple[Case, ...]]:
    """Primitive -> its cases. Each row's cases have names of their own."""
    found: dict[str, tuple[Case, ...]] = {}
    for module in (elementwise, structure, reductions, linear_algebra, programs):
        for name, cases in module.rows().items():
            found[name] = (*found.get(name, ()), *cases)
    return found


REFUSED: Mapping[tuple[str, str, str], str] = {
    (backend, primitive, "*"): reason
    for backend in ("onnx", "tflite")
    for primitive, reason in (("eigh", "custom call @lapack_ssyevd_ffi is opaque"),)
}
"""(backend, primitive, pattern of case names) -> part of the reason. Each entry has to be refused."""

_CHOSEN = "ONNX Runtime's Where turns a chosen -0 into +0"
_EQUAL = "of -0 and +0, which are equal, either may come out"
_ALONE = "a sum of -0 alone is -0 in ONNX Runtime, and +0 in XLA, which starts from +0"

ZERO_SIGNS: Mapping[tuple[str, str], str] = {
    (backend, primitive): reason
    for backend, reason, names in (
        ("onnx", _CHOSEN, "select_n expm1 log1p atanh sinh reduce_precision"),
        ("onnx", _EQUAL, "max min clamp reduce_max reduce_min cummax cummin reduce_window_max"),
        ("onnx", _ALONE, "reduce_sum cumsum"),
        ("tflite", _EQUAL, "clamp"),
    )
    for primitive in names.split()
}
"""(backend, primitive) -> why signs of zeros may differ, as the lowering documents."""
