"""The project's rules, in the order in which they are tried: within a stage, the first match acts."""

from __future__ import annotations

from opcompat.rule import Rule

from . import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    decompose,
    expm1,
    gather,
    half_precision,
    index_dtype,
    keys_as_words,
    log1p,
    philox,
    rotate,
    shift_left,
    sort,
    threefry,
    threefry_counts,
    total_order,
    unit_floats,
    unsigned_division,
    unsigned_order,
    unsigned_to_float,
)

RULES: tuple[Rule, ...] = (
    keys_as_words.RULE,
    half_precision.RULE,
    unit_floats.RULE,
    rotate.RULE,
    threefry.RULE,
    threefry_counts.RULE,
    philox.RULE,
    bitwise_and.RULE,
    bitwise_or.RULE,
    bitwise_not.RULE,
    shift_left.RULE,
    unsigned_order.RULE,
    unsigned_division.RULE,
    unsigned_to_float.RULE,
    index_dtype.RULE,
    gather.RULE,
    sort.RULE,
    total_order.RULE,
    log1p.RULE,
    expm1.RULE,
    decompose.RULE,
)
