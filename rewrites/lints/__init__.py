"""The project's lints, in the order in which reports show their advice."""

from __future__ import annotations

from opcompat.lint import Lint

from . import (
    batch_statistics,
    closed_over,
    constant_output,
    dropout,
    float16_range,
    shown_values,
    state_range,
    undeclared_state,
    unused_input,
    unused_key,
    wide_values,
)

LINTS: tuple[Lint, ...] = (
    batch_statistics.LINT,
    dropout.LINT,
    unused_key.LINT,
    constant_output.LINT,
    undeclared_state.LINT,
    state_range.LINT,
    unused_input.LINT,
    closed_over.LINT,
    shown_values.LINT,
    wide_values.LINT,
    float16_range.LINT,
)
