"""Function -> Trace: names from pytrees, keys, closed-over weights, and where each equation comes from."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from opcompat import jaxcompat
from opcompat.errors import ConfigError, TraceError
from opcompat.model import EntryPoint, Model
from opcompat.reference import Reference
from opcompat.trace import Trace, trace


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_dataclass
@dataclass
class Carry:
    deter: Any
    stoch: Any


def model_of(function: Callable[..., Any], args: tuple[Any, ...] = (), params: Any = (), **options: Any) -> Model:
    return Model("m", params, {"f": EntryPoint(function, args, **options)})


def traced(function: Callable[..., Any], args: tuple[Any, ...] = (), params: Any = (), **options: Any) -> Trace:
    return trace(model_of(function, args, params, **options), "f")


def names(leaves: Any) -> list[str]:
    return [leaf.name for leaf in leaves]


X = jnp.arange(3.0)

# Names


def test_inputs_are_named_by_argument_and_path() -> None:
    def f(params: Any, obs: Any, state: Any, *, unused: int = 0) -> Any:
        return {"y": params["w"][0] + params["w"][1] + obs["image"] + obs["pair"].left + state.deter + state.stoch[1]}

    one = traced(
        f,
        ({"pair": Pair(X, X), "image": X}, Carry(X, (X, X))),
        {"w": [X, jax.ShapeDtypeStruct((3,), np.float32)]},
    )
    assert names(one.params) == ["params.w.0", "params.w.1"]
    assert names(one.inputs) == [
        "obs.image", "obs.pair.left", "obs.pair.right", "state.deter", "state.stoch.0", "state.stoch.1",
    ]  # fmt: skip
    assert {(leaf.shape, leaf.dtype, leaf.key) for leaf in one.inputs} == {((3,), "float32", "")}


@pytest.mark.parametrize(
    ("result", "outputs", "expected"),
    [
        (lambda x: {"b": x, "a": x}, None, ["a", "b"]),
        (lambda x: OrderedDict(b=x, a=x), None, ["b", "a"]),
        (lambda x: Pair(x, {"k": x}), None, ["left", "right.k"]),
        (lambda x: Carry(x, x), None, ["output.deter", "output.stoch"]),
        (lambda x: x, None, ["output"]),
        (lambda x: [x, x], None, ["output.0", "output.1"]),
        (lambda x: x, ("action",), ["action"]),
        (lambda x: (x,), ("action",), ["action"]),
        (lambda x: (x, Carry(x, (x,))), ("action", "state"), ["action", "state.deter", "state.stoch.0"]),
        (lambda x: (x, x), ("pair",), ["pair.0", "pair.1"]),
        (lambda x: {"a": x, "b": None}, None, ["a"]),
    ],
)
def test_outputs_are_named_by_the_result(result: Any, outputs: Any, expected: list[str]) -> None:
    assert names(traced(lambda params, x: result(x), (X,), names=("x",), outputs=outputs).outputs) == expected


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_names_follow_the_order_in_which_jax_returns_results(kind: Any) -> None:
    model = model_of(lambda params, x: kind(b=x + 1, a=x), (X,), names=("x",))
    got = Reference(model, trace(model, "f")).step({"x": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(got["b"], 1.0)
    np.testing.assert_array_equal(got["a"], 0.0)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda params, x: (x, x), {}, "tuple of 2; name its parts with outputs="),
        (lambda params, x: (x, x), {"outputs": ("a", "b", "c")}, "outputs= has 3 names ['a', 'b', 'c'], the result 2"),
        (lambda params, x: [x, x], {"outputs": ("a", "b")}, "outputs= has 2 names ['a', 'b'], the result 1"),
        (lambda params, x: (x, x), {"outputs": ("a", "a")}, "two outputs are named 'a'"),
        (lambda params, x: {"a": {"b": x}, "a.b": x}, {}, "two outputs are named 'a.b'"),
        (lambda params, x: {1: x, "1": x}, {}, "TypeError"),
        (lambda params, x: "text", {}, "'text'"),
        (lambda params, x: x @ jnp.ones(4), {}, "called with {'x': 'float32[3]'}"),
        (lambda params, x: float(x[0]), {}, "ConcretizationTypeError"),
    ],
)
def test_results_that_cannot_be_named(function: Any, options: Any, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        traced(function, (X,), names=("x",), **options)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_error_in_the_function_names_its_line() -> None:
    def f(params: Any, x: Any) -> Any:
        raise ValueError("only one row\nand more")

    line = inspect.getsourcelines(f)[1] + 1
    with pytest.raises(TraceError, match="f: the function fails on its example arguments: ValueError: only one row\n"):
        traced(f, (X,))
    with pytest.raises(TraceError, match=rf"at {__file__}:{line}\n"):
        traced(f, (X,))


def test_names_that_collide() -> None:
    def f(params: Any, x: Any) -> Any:
        return x

    with pytest.raises(TraceError, match=r"two params are named 'params\.a\.b'"):
        traced(f, (X,), {"a": {"b": X}, "a.b": X})
    with pytest.raises(TraceError, match=r"two inputs are named 'x\.a\.b'"):
        traced(f, ({"a": {"b": X}, "a.b": X},))


def test_arguments_that_are_no_arrays() -> None:
    with pytest.raises(TraceError, match=r"^x\.text: .*<class 'str'>.*next: give arrays"):
        traced(lambda params, x: x, ({"text": "hello"},), names=("x",))
    with pytest.raises(TraceError, match=r"^params\.w: "):
        traced(lambda params: X, params={"w": np.array(["hello"])})


@pytest.mark.parametrize(("args", "options"), [((X, X), {}), ((X,), {"names": ("a", "b")})])
def test_arguments_without_a_name(args: Any, options: Any) -> None:
    with pytest.raises(ConfigError, match="example arguments but"):
        traced(lambda params, x: x, args, **options)


def test_python_numbers_are_arrays() -> None:
    one = traced(lambda params, x: x * params["scale"], (2,), {"scale": 3.0}, names=("x",))
    assert [(leaf.shape, leaf.dtype) for leaf in (*one.params, *one.inputs)] == [((), "float32"), ((), "int32")]


# Keys


def draw(key: Any) -> Any:
    return jax.random.uniform(key, (2,))


def through_scan(key: Any) -> Any:
    return lax.scan(lambda c, _: (c, draw(c)), key, length=3)[1]


def through_xs(keys: Any) -> Any:
    return lax.scan(lambda c, k: (c, draw(k)), 0.0, keys)[1]


def through_while(key: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + draw(s[2]), s[2]), (0, jnp.zeros(2), key))[1]


def through_cond(key: Any) -> Any:
    return lax.cond(jnp.sum(X) > 0, draw, lambda _: jnp.zeros(2), key)


@pytest.mark.parametrize("function", [draw, through_scan, through_while, through_cond, lambda k: draw(k.reshape(2))])
def test_raw_words_that_are_used_as_a_key(function: Any) -> None:
    one = traced(lambda params, key, seed: function(key) + seed[0], (jax.random.PRNGKey(0), jnp.zeros(2, jnp.uint32)))
    key, seed = one.inputs
    assert (key.key, key.typed_key, key.shape, key.dtype) == ("threefry2x32", False, (2,), "uint32")
    assert seed.key == ""


def test_raw_words_of_many_keys() -> None:
    (leaf,) = traced(lambda params, keys: through_xs(keys), (jax.random.split(jax.random.PRNGKey(0), 5),)).inputs
    assert (leaf.key, leaf.shape) == ("threefry2x32", (5, 2))


def test_typed_keys() -> None:
    one = traced(
        lambda params, one, many, other: {"y": draw(one), "next": many, "other": other},
        (jax.random.key(0), jax.random.split(jax.random.key(0), 3), jax.random.key(0, impl="rbg")),
    )
    assert [(x.key, x.typed_key, x.shape) for x in one.inputs] == [
        ("threefry2x32", True, (2,)),
        ("threefry2x32", True, (3, 2)),
        ("rbg", True, (4,)),
    ]
    assert [(x.name, x.key, x.shape) for x in one.outputs] == [
        ("next", "threefry2x32", (3, 2)),
        ("other", "rbg", (4,)),
        ("y", "", (2,)),
    ]


# Closures


def test_large_closures_are_weights_and_stored_once() -> None:
    large = jnp.asarray(np.random.default_rng(0).standard_normal((20, 20)), jnp.float32)
    small = jnp.arange(20.0)

    def f(params: Any, x: Any) -> Any:
        inner = jax.jit(lambda c: lax.scan(lambda c, _: (c @ large + small, None), c, length=2)[0])
        return inner(x) + large[0]

    one = traced(f, (small,))
    (leaf,) = one.params
    assert leaf.name.startswith("closure.")
    np.testing.assert_array_equal(one.weights[leaf.name], large)
    assert [c.shape for c in jaxcompat.parts(one.closed).consts] == [(20,)]


def test_closures_are_named_by_content() -> None:
    def leaf(value: float) -> Any:
        array = jnp.full((10, 10), value)
        return traced(lambda params, x: x @ array, (jnp.zeros(10),)).params[0]

    assert leaf(1.0) == leaf(1.0)
    assert leaf(1.0).name != leaf(2.0).name


# Ids and places


@jax.custom_jvp
def custom(x: Any) -> Any:
    return jnp.sin(x)


custom.defjvp(lambda primals, tangents: (custom(*primals), tangents[0]))


@jax.custom_vjp
def reverse(x: Any) -> Any:
    return jnp.cos(x)


reverse.defvjp(lambda x: (reverse(x), None), lambda _, g: (g,))


def everything(params: Any, x: Any) -> Any:
    x = jax.jit(jnp.tanh)(x)
    x = lax.scan(lambda c, _: (jnp.exp(c), None), x, length=2)[0]
    x = lax.cond(x[0] > 0, jnp.log, lambda v: lax.rsqrt(v), x)
    x = lax.while_loop(lambda c: c[0] > 1, lambda c: jnp.floor(c), x)
    x = jax.checkpoint(lambda v: jnp.ceil(v))(x)
    x = custom(x)
    return custom(x) + reverse(x)


def line_of(text: str) -> int:
    lines, start = inspect.getsourcelines(everything)
    return start + next(i for i, line in enumerate(lines) if text in line)


def places(one: Trace, primitive: str) -> list[tuple[str, int]]:
    return [(o.place.file, o.place.line) for o in one.originals.values() if o.primitive == primitive]


@pytest.mark.parametrize(
    ("primitive", "text"),
    [
        ("tanh", "jax.jit(jnp.tanh)"),
        ("exp", "lax.scan"),
        ("log", "lax.cond"),
        ("rsqrt", "lax.cond"),
        ("floor", "lax.while_loop"),
        ("gt", "lax.while_loop"),
        ("ceil", "jax.checkpoint"),
    ],
)
def test_places_inside_calls_and_bodies(primitive: str, text: str) -> None:
    assert (__file__, line_of(text)) in places(traced(everything, (X,)), primitive)


def test_ids_tell_every_equation_apart() -> None:
    one = traced(everything, (X,))
    found = [o.primitive for o in one.originals.values()]
    assert not {"jit", "pjit", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"} & set(found)
    assert {"scan", "while", "cond"} <= set(found)
    assert found.count("sin") == 2, "a function that is called on two lines has equations for each"
    assert [o.operands for o in one.originals.values() if o.primitive == "cos"] == ["float32[3]"]
    assert all(one.originals)


def test_a_library_s_lines_give_way_to_the_caller_s() -> None:
    def f(params: Any, key: Any) -> Any:
        first = jax.random.normal(key, (2,))
        second = jax.random.normal(key, (2,))
        return first + second

    start = inspect.getsourcelines(f)[1]
    assert [line for _, line in places(traced(f, (jax.random.key(0),)), "erf_inv")] == [start + 1, start + 2]


class _Keeper:
    """A policy that changes itself: its state is a tracer when it is traced again."""

    def __init__(self) -> None:
        self.hidden: Any = np.zeros(3, np.float32)
        self.calls: list[int] = []

    def keeps(self, params: Any, obs: jax.Array) -> jax.Array:
        self.hidden = jnp.tanh(self.hidden + obs)
        return self.hidden

    def counts(self, params: Any, obs: jax.Array) -> jax.Array:
        self.calls.append(1)
        return obs + len(self.calls)

    def repeats(self, params: Any, obs: jax.Array) -> jax.Array:
        self.calls.append(1)
        for _ in self.calls:
            obs = jnp.sin(obs)
        return obs

    def draws(self, params: Any, obs: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, x: x + np.random.default_rng().normal(size=3), obs)

    def names(self, params: Any, obs: jax.Array) -> jax.Array:
        """What is only called otherwise each time is the same program."""
        self.calls.append(1)
        return jax.named_call(jnp.tanh, name=f"call_{len(self.calls)}")(obs)


@pytest.mark.parametrize("method", ["keeps", "counts", "repeats", "draws"])
def test_a_function_that_changes_from_trace_to_trace_is_refused_with_its_line(method: str) -> None:
    entry = EntryPoint(getattr(_Keeper(), method), (np.zeros(3, np.float32),), ("action",))
    with pytest.raises(
        TraceError, match=r"another program each time .*test_trace\.py:\d+ there is .*\n  next: make what"
    ):
        trace(Model("impure", np.ones(2), {"act": entry}), "act")


def test_other_names_are_no_other_program() -> None:
    entry = EntryPoint(_Keeper().names, (np.zeros(3, np.float32),), ("action",))
    assert trace(Model("pure", np.ones(2), {"act": entry}), "act").outputs


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (lambda params, obs: np.tanh(np.asarray(obs)), "next: call jax.numpy where the function calls numpy"),
        (lambda params, obs: obs[obs > 0], "next: select with jax.numpy.where"),
        (lambda params, obs: obs if obs.sum() > 0 else -obs, "next: fix what the function branches on"),
        (lambda params, obs: [obs, -obs][obs[0].astype(int)], "next: fix what the function branches on"),
        (lambda params, obs: obs @ jnp.ones((7, 2)), "next: check args="),
        (lambda params, obs: params["missing"] * obs, "next: repair the function"),
    ],
)
def test_advice_fits_the_error(function: Any, advice: str) -> None:
    with pytest.raises(TraceError, match=advice):
        trace(Model("bad", {"w": np.ones(2)}, {"act": EntryPoint(function, (np.zeros(3),), ("action",))}), "act")
