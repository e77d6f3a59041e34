"""The table from JAX primitive to TFLite lowering. To add an op: write a function, and name it here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from opcompat.inline import IDENTITIES, OUTSIDE
from opcompat.lowering.builder import Backend, Lowering
from opcompat.lowering.graph import Tensor
from opcompat.lowering.passes import drop_dead, merge_equal, skip_broadcasts
from opcompat.lowering.tflite import control, dot, elementwise, indexing, reductions, structure
from opcompat.lowering.tflite.aliases import keep_apart
from opcompat.lowering.tflite.builder import TfliteBuilder, interface, storage
from opcompat.lowering.tflite.common import no_form

TABLE: Mapping[str, Lowering] = {
    # arithmetic
    "add": elementwise.arithmetic("ADD"),
    "add_any": elementwise.arithmetic("ADD"),
    "sub": elementwise.arithmetic("SUB"),
    "mul": elementwise.arithmetic("MUL"),
    "div": elementwise.div,
    "rem": elementwise.rem,
    "neg": elementwise.neg,
    "abs": elementwise.absolute,
    "sign": elementwise.sign,
    "square": elementwise.square,
    "integer_pow": elementwise.integer_pow,
    "pow": elementwise.power,
    "max": elementwise.extremum("MAXIMUM"),
    "min": elementwise.extremum("MINIMUM"),
    "clamp": elementwise.clamp,
    # functions
    "exp": elementwise.precise("EXP"),
    "exp2": elementwise.exp2,
    "log": elementwise.precise("LOG"),
    "sqrt": elementwise.precise("SQRT"),
    "rsqrt": elementwise.precise("RSQRT"),
    "sin": elementwise.precise("SIN"),
    "cos": elementwise.precise("COS"),
    "tan": elementwise.tan,
    "cbrt": no_form("TFLite has no cube root, and POW gives NaN for negative numbers"),
    "tanh": elementwise.delegated("TANH"),
    "logistic": elementwise.logistic,
    "atan2": elementwise.atan2,
    "floor": elementwise.unary("FLOOR"),
    "ceil": elementwise.unary("CEIL"),
    "round": elementwise.round_,
    "is_finite": elementwise.is_finite,
    "log1p": no_form("TFLite has no log1p, and log(1 + x) loses small x"),
    "expm1": no_form("TFLite has no expm1, and exp(x) - 1 loses small x"),
    "erf": no_form("TFLite has no erf"),
    "erf_inv": no_form("TFLite has no erf_inv"),
    "atanh": no_form("TFLite has no atanh"),
    "nextafter": no_form("TFLite has no nextafter"),
    # logic and bits
    "and": elementwise.and_,
    "or": elementwise.or_,
    "xor": elementwise.xor,
    "not": elementwise.not_,
    "shift_right_logical": elementwise.shift_right_logical,
    "shift_right_arithmetic": elementwise.shift_right_arithmetic,
    "shift_left": no_form("LiteRT has no kernel for shift_left"),
    # comparison and choice
    "eq": elementwise.compare("EQUAL"),
    "ne": elementwise.compare("NOT_EQUAL"),
    "lt": elementwise.ordered("LESS"),
    "le": elementwise.ordered("LESS_EQUAL"),
    "gt": elementwise.ordered("GREATER"),
    "ge": elementwise.ordered("GREATER_EQUAL"),
    "select_n": elementwise.select_n,
    # conversion
    "convert_element_type": elementwise.convert_element_type,
    "bitcast_convert_type": elementwise.bitcast_convert_type,
    # values that pass
    **dict.fromkeys(IDENTITIES, elementwise.identity),
    # calls out of the program
    **{name: no_form(reason) for name, reason in OUTSIDE.items()},
    # structure
    "reshape": structure.reshape,
    "squeeze": structure.to_result_shape,
    "expand_dims": structure.to_result_shape,
    "transpose": structure.transpose,
    "broadcast_in_dim": structure.broadcast_in_dim,
    "iota": structure.iota,
    "rev": structure.rev,
    "concatenate": structure.concatenate,
    "stack": structure.stack,
    "split": structure.split,
    "slice": structure.slice_,
    "pad": structure.pad,
    # indexing
    "dynamic_slice": indexing.dynamic_slice,
    "dynamic_update_slice": indexing.dynamic_update_slice,
    "gather": indexing.gather,
    "scatter": no_form("TFLite's scatter starts from zeros and adds repeated indices"),
    "scatter-add": no_form("TFLite's scatter starts from zeros"),
    # reductions
    "reduce_sum": reductions.plain("SUM", 0),
    "reduce_prod": reductions.plain("REDUCE_PROD", 1),
    "reduce_max": reductions.extremum("REDUCE_MAX"),
    "reduce_min": reductions.extremum("REDUCE_MIN"),
    "reduce_and": reductions.logical("REDUCE_ALL", True),
    "reduce_or": reductions.logical("REDUCE_ANY", False),
    "reduce_window_max": reductions.windowed("max"),
    "reduce_window_min": reductions.windowed("min"),
    "reduce_window_sum": reductions.windowed("sum"),
    "argmax": reductions.arg_extremum("ARG_MAX"),
    "argmin": reductions.arg_extremum("ARG_MIN"),
    "cumsum": reductions.cumsum,
    "top_k": reductions.top_k,
    "sort": reductions.sort,
    # products
    "dot_general": dot.dot_general,
    "conv_general_dilated": dot.conv_general_dilated,
    # control
    "while": control.while_,
    "scan": control.scan,
    "cond": control.cond,
}

_HAVE_BODIES = frozenset({"while", "scan", "cond"})

BROADCASTING = frozenset(
    {
        "ADD",
        "SUB",
        "MUL",
        "DIV",
        "FLOOR_MOD",
        "MAXIMUM",
        "MINIMUM",
        "EQUAL",
        "NOT_EQUAL",
        "LESS",
        "LESS_EQUAL",
        "GREATER",
        "GREATER_EQUAL",
        "LOGICAL_AND",
        "LOGICAL_OR",
        "SELECT_V2",
    }
)
"""Ops whose inputs broadcast like numpy's. Not POW and ATAN2: one is wrong and one is refused then."""


def _without_empty(name: str, function: Lowering) -> Lowering:
    """The lowering, except that results without elements are constants: few kernels accept such shapes."""

    @wraps(function)
    def lower(b: TfliteBuilder, eqn: Any, *operands: Tensor) -> Tensor | Sequence[Tensor]:
        if name not in _HAVE_BODIES and eqn.outvars and all(0 in v.aval.shape for v in eqn.outvars):
            return [b.const(np.zeros(v.aval.shape, storage(v.aval.dtype.name))) for v in eqn.outvars]
        return function(b, eqn, *operands)

    return lower


def backend() -> Backend:
    """TFLite files, as LiteRT runs them."""
    return Backend(
        name="tflite",
        table={name: _without_empty(name, function) for name, function in TABLE.items()},
        storage=storage,
        interface=interface,
        builder=TfliteBuilder,
        passes=(skip_broadcasts("BROADCAST_TO", BROADCASTING), merge_equal, drop_dead, keep_apart),
    )
