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
    keys_as_words,
    log,
    log1p,
    rotate,
    shift_left,
    threefry,
    threefry_counts,
    unit_floats,
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
    bitwise_and.RULE,
    bitwise_or.RULE,
    bitwise_not.RULE,
    shift_left.RULE,
    unsigned_order.RULE,
    unsigned_to_float.RULE,
    gather.RULE,
    log.RULE,
    log1p.RULE,
    expm1.RULE,
    decompose.RULE,
)
