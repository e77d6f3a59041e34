"""Arguments that a function takes by keyword, and arguments that are fixed: `EntryPoint(kwargs=..., static=...)`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import opcompat.runtime
from opcompat import api
from opcompat.errors import ConfigError, TraceError
from opcompat.model import EntryPoint, Model
from opcompat.trace import Trace, trace

PARAMS = {"w": jnp.arange(12, dtype=jnp.float32).reshape(4, 3)}
X, KEY = jnp.zeros((1, 4)), jax.random.key(0)


def draw(params: Any, obs: Any, deterministic: bool, key: Any) -> Any:
    """A switch in the middle."""
    logits = obs @ params["w"]
    return jnp.argmax(logits, -1) if deterministic else jax.random.categorical(key, logits)


def by_keyword(params: Any, *, obs: Any, key: Any, mode: str = "greedy") -> Any:
    return draw(params, obs["x"], mode == "greedy", key)


def model(entry: EntryPoint) -> Model:
    return Model("m", PARAMS, {"act": entry})


def traced(entry: EntryPoint) -> Trace:
    return trace(model(entry), "act")


def names(entry: EntryPoint) -> list[str]:
    return [leaf.name for leaf in traced(entry).inputs]


def primitives(entry: EntryPoint) -> set[str]:
    return {original.primitive for original in traced(entry).originals.values()}


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("wrap", [lambda f: f, partial(jax.jit, static_argnames="deterministic")])
def test_a_static_argument_is_fixed_and_no_input(wrap: Any, deterministic: bool) -> None:
    entry = EntryPoint(wrap(draw), (X, KEY), outputs=("action",), static={"deterministic": deterministic})
    assert names(entry) == ["obs", "key"]
    assert ("random_bits" in primitives(entry)) == (not deterministic)


def test_keyword_arguments_are_named_by_themselves() -> None:
    entry = EntryPoint(by_keyword, outputs=("action",), kwargs={"key": KEY, "obs": {"x": X}}, static={"mode": "draw"})
    assert names(entry) == ["key", "obs.x"]
    assert "random_bits" in primitives(entry)


def test_the_names_of_the_other_arguments_may_be_given() -> None:
    entry = EntryPoint(draw, (X,), names=("board",), kwargs={"key": KEY}, static={"deterministic": False})
    assert names(entry) == ["board", "key"]


def test_through_the_files_and_back(tmp_path: Path) -> None:
    def inputs(rng: np.random.Generator) -> tuple[Any, ...]:
        return {"x": rng.standard_normal((1, 4))}, KEY

    entry = EntryPoint(
        by_keyword, outputs=("action",), kwargs={"obs": {"x": X}, "key": KEY}, static={"mode": "draw"}, inputs=inputs
    )
    _, report = api.convert(model(entry), tmp_path / "dist", steps=20)
    assert report.ok
    policy = opcompat.runtime.load(tmp_path / "dist").entry_point("act")
    drawn = policy.step({"key": np.array([0, 7], np.uint32), "obs.x": np.ones((1, 4), np.float32)})["action"]
    key = jax.random.wrap_key_data(jnp.array([0, 7], jnp.uint32))
    assert drawn == by_keyword(PARAMS, obs={"x": jnp.ones((1, 4))}, key=key, mode="draw")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"args": (X,), "kwargs": {"obs": X}}, "obs: given more than once"),
        ({"kwargs": {"key": KEY}, "static": {"key": KEY}}, "key: given more than once"),
        ({"static": ("deterministic",)}, "static must map argument names to values"),
        ({"kwargs": {1: X}}, "kwargs must map argument names to values"),
        ({"args": (X, KEY, X), "static": {"deterministic": True}}, "3 example arguments but 2 argument names"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EntryPoint(draw, **given)


def test_errors_say_where_fixed_arguments_belong() -> None:
    with pytest.raises(TraceError, match="fix what the function branches on, with static="):
        traced(EntryPoint(draw, (X, True, KEY), outputs=("action",)))
    with pytest.raises(TraceError, match="name what is fixed in static="):
        traced(EntryPoint(draw, (X, "greedy", KEY), outputs=("action",)))


def test_a_static_argument_that_the_function_does_not_take() -> None:
    with pytest.raises(TraceError, match="unexpected keyword argument 'sampling'"):
        traced(EntryPoint(draw, (X, True, KEY), outputs=("action",), static={"sampling": "greedy"}))
