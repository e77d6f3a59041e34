"""What libraries and people leave in a policy and what changes no result: names, copies, barriers, shardings, prints.

A policy with it must become what it becomes without; what leaves the program for good is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import checkify, io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import opcompat.runtime
from opcompat import EntryPoint, Model, api
from opcompat.errors import ConfigError, UnsupportedError
from opcompat.report import TargetReport
from opcompat.trace import trace

TARGETS = ("onnxruntime", "litert")
MESH = Mesh(np.array(jax.devices()[:1]), ("data",))
SHARDED, EVERYWHERE = (NamedSharding(MESH, PartitionSpec(*axes)) for axes in (("data",), ()))
PARAMS = {"in": jnp.linspace(-1, 1, 24).reshape(4, 6), "out": jnp.linspace(-2, 1, 18).reshape(6, 3)}
KEY, OBS = jax.random.key(0), jnp.zeros((2, 4))

Noise = Callable[[Any], Any]


@jax.custom_jvp
def _with_jvp(x: Any) -> Any:
    return x


_with_jvp.defjvp(lambda primals, tangents: (primals[0], tangents[0]))


@jax.custom_vjp
def _with_vjp(x: Any) -> Any:
    return x


_with_vjp.defvjp(lambda x: (x, None), lambda _, g: (g,))


@jax.custom_batching.custom_vmap
def _with_vmap(x: Any) -> Any:
    return x


_with_vmap.def_vmap(lambda size, batched, x: (x, batched[0]))


@partial(jax.jit, static_argnames=("times", "mode"))
def _library(x: Any, times: int = 1, *, mode: str = "keep") -> Any:
    assert mode == "keep"
    assert x.ndim == 2, "asserts on shapes and settings are gone once a function is traced"
    for _ in range(times):
        x = checkpoint_name(x, "residual")
    return x


def _scoped(x: Any) -> Any:
    with jax.named_scope("oc=1"), jax.named_scope("torso/[0]"):
        return jax.named_call(lambda y: y, name="pjit")(x)


def _shown(show: Callable[[Any], Any]) -> Noise:
    def noise(x: Any) -> Any:
        show(x)
        return x

    return noise


def _print_in_a_loop(x: Any) -> Any:
    lax.fori_loop(0, 3, lambda i, c: (jax.debug.print("{}", i), c)[1], jnp.sum(x))
    lax.scan(lambda c, row: (jax.debug.callback(print, row), (c, None))[1], 0, x)
    lax.cond(jnp.sum(x) > 0, lambda: jax.debug.print("positive"), lambda: None)
    return x


NOISE: Mapping[str, Noise] = {
    "name": lambda x: checkpoint_name(x, "hidden"),
    "copy": lambda x: jnp.copy(jnp.array(x, copy=True)),
    "stop_gradient": lax.stop_gradient,
    "optimization_barrier": lax.optimization_barrier,
    "sharding_constraint": lambda x: lax.with_sharding_constraint(x, SHARDED),
    "device_put": lambda x: jax.device_put(jax.device_put(x, jax.devices()[0]), SHARDED),
    "named_scope": _scoped,
    "jit": lambda x: jax.jit(lambda y: y, inline=True)(jax.jit(lambda y: +y)(x)),
    "remat": lambda x: jax.checkpoint(lambda y: checkpoint_name(y, "kept"))(x),
    "remat_policy": jax.checkpoint(  # type: ignore[attr-defined]
        lambda y: checkpoint_name(y, "kept"), policy=jax.checkpoint_policies.save_only_these_names("kept")
    ),
    "custom_jvp": _with_jvp,
    "custom_vjp": _with_vjp,
    "custom_vmap": _with_vmap,
    "static": lambda x: _library(x, 3, mode="keep"),
    "debug_check": _shown(lambda x: checkify.debug_check(jnp.all(x < 1e9), "too large: {}", x[0, 0])),
    "debug_print": _shown(lambda x: jax.debug.print("seen {x}", x=x)),
    "debug_print_ordered": _shown(lambda x: jax.debug.print("seen {}", x, ordered=True)),
    "debug_callback": _shown(partial(jax.debug.callback, lambda x: print("seen", x))),
    "debug_print_in_a_loop": _print_in_a_loop,
}
"""Functions of float[2, n] that give back what they are given."""

ON_KEYS: Mapping[str, Noise] = {
    "name": lambda key: checkpoint_name(key, "key"),
    "copy": jnp.copy,
    "custom_vmap": _with_vmap,
    "optimization_barrier": lax.optimization_barrier,
    "sharding_constraint": lambda key: lax.with_sharding_constraint(key, EVERYWHERE),
    "device_put": lambda key: jax.device_put(key, jax.devices()[0]),
    "debug_print": _shown(lambda key: jax.debug.print("{}", key)),
}


def policy(noise: Noise = lambda x: x, on_key: Noise = lambda key: key, dtype: Any = jnp.float32) -> Callable[..., Any]:
    def act(params: Any, key: Any, obs: Any) -> Any:
        first, second = jax.random.split(on_key(key))
        hidden = noise(jnp.tanh(noise(obs.astype(dtype)) @ params["in"].astype(dtype)))
        logits = noise(hidden @ params["out"].astype(dtype))
        noisy = logits + noise(jax.random.normal(on_key(first), logits.shape, dtype))
        return {"action": jax.random.categorical(on_key(second), noisy), "logits": logits}

    return act


def model(function: Callable[..., Any], *args: Any) -> Model:
    return Model("m", PARAMS, {"act": EntryPoint(function, args or (KEY, OBS))})


def scanned(function: Callable[..., Any], *args: Any) -> list[tuple[Any, Any, Any]]:
    """(whether it is supported, nodes, rules) on each target."""

    def facts(report: TargetReport) -> tuple[Any, Any, Any]:
        return report.ok, report.nodes, [rule.id for rule in report.rules]

    return [facts(t) for t in api.scan(model(function, *args), TARGETS).targets]


@pytest.fixture(scope="module")
def plain() -> list[tuple[Any, Any, Any]]:
    return scanned(policy())


@pytest.mark.parametrize("noise", NOISE)
def test_it_costs_nothing(noise: str, plain: Any) -> None:
    assert scanned(policy(NOISE[noise])) == plain


@pytest.mark.parametrize("noise", ON_KEYS)
def test_it_costs_nothing_on_keys(noise: str, plain: Any) -> None:
    assert scanned(policy(on_key=ON_KEYS[noise])) == plain


@pytest.mark.parametrize("noise", ["name", "sharding_constraint", "device_put", "debug_print"])
def test_half_precision_is_not_rounded_again(noise: str) -> None:
    assert scanned(policy(NOISE[noise], dtype=jnp.bfloat16)) == scanned(policy(dtype=jnp.bfloat16))


def everything(x: Any) -> Any:
    for noise in NOISE.values():
        x = noise(x)
    return x


def everything_on_keys(key: Any) -> Any:
    for noise in ON_KEYS.values():
        key = noise(key)
    return key


def test_all_of_it_together_on_both_formats_and_nothing_is_shown(tmp_path: Path, capfd: Any) -> None:
    noisy = policy(everything, everything_on_keys)
    _, report = api.convert(model(noisy), tmp_path / "dist", to=("onnx", "tflite"), steps=30)
    assert report.ok
    assert "seen" not in "".join(capfd.readouterr())
    given = {"key": np.array([0, 7], np.uint32), "obs": np.ones((2, 4), np.float32)}
    drawn = opcompat.runtime.load(tmp_path / "dist").entry_point("act").step(given)
    wanted = policy()(PARAMS, jax.random.wrap_key_data(given["key"]), given["obs"])
    np.testing.assert_array_equal(drawn["action"], wanted["action"])
    np.testing.assert_allclose(drawn["logits"], wanted["logits"], rtol=1e-6, atol=1e-6)


def test_noise_as_an_input_is_shared_by_draws_from_one_key_whatever_it_passed_through(tmp_path: Path) -> None:
    def act(params: Any, key: Any, obs: Any) -> Any:
        again = everything_on_keys(key)
        return {"sum": obs + jax.random.normal(key, obs.shape) + jax.random.normal(again, obs.shape)}

    bundle, report = api.convert(model(act), tmp_path / "dist", to=("onnx",), sampling="noise", steps=10)
    assert report.ok
    inputs = [x.name for x in bundle.manifest.entry_points["act"].inputs]
    assert len(inputs) == 2
    assert "obs" in inputs


def test_stacked_copied_and_barred_values_in_loops(tmp_path: Path) -> None:
    def act(params: Any, key: Any, obs: Any) -> Any:
        def step(carry: Any, own: Any) -> Any:
            value, kept = lax.optimization_barrier((checkpoint_name(carry, "carry"), own))
            value = lax.with_sharding_constraint(jnp.stack([value, jnp.copy(value)], 1).mean(1), SHARDED)
            jax.debug.print("{}", value)
            return value + jax.random.normal(kept, value.shape), jnp.max(value)

        last, seen = lax.scan(step, obs, jax.random.split(key, 4))
        pair = lax.cond(seen[-1] > 0, lambda x: (jax.debug.print("up"), x)[1], jnp.negative, jnp.stack([last, obs]))
        return {"last": last, "seen": seen, "pair": pair}

    _, report = api.convert(model(act), tmp_path / "dist", to=("onnx", "tflite"), steps=20)
    assert report.ok


def test_raw_keys_are_known_behind_a_barrier_and_nothing_else_is() -> None:
    def act(params: Any, counts: Any, raw: Any) -> Any:
        counts, raw = lax.optimization_barrier((counts, raw))
        key = jax.random.wrap_key_data(checkpoint_name(raw, "key"))
        return {"action": counts + jax.random.bits(key, (2,))}

    words = jnp.zeros(2, jnp.uint32)
    leaves = trace(model(act, words, words), "act").inputs
    assert {leaf.name: leaf.key for leaf in leaves} == {"counts": "", "raw": "threefry2x32"}


def test_a_loop_that_only_shows_is_gone() -> None:
    found = trace(model(policy(NOISE["debug_print_in_a_loop"])), "act")
    assert found.shows
    _, nodes, _ = scanned(policy(NOISE["debug_print_in_a_loop"]))[0]
    assert nodes == scanned(policy())[0][1]
    assert not trace(model(policy()), "act").shows


def test_the_scan_says_what_is_left_out_and_where() -> None:
    def act(params: Any, key: Any, obs: Any) -> Any:
        jax.debug.print("obs {}", obs)
        return {"action": obs + jax.random.normal(key, obs.shape)}

    (found,) = api.scan(model(act), TARGETS).advice
    assert found.id == "OC706"
    assert found.message.startswith("jax.debug.print is left out")
    assert found.function.endswith("act")
    assert found.file.endswith("test_library_noise.py")


def test_a_rewritten_function_shows_nothing(capfd: Any) -> None:
    jax.block_until_ready(api.rewrite(policy(NOISE["debug_print"]), "litert")(PARAMS, KEY, OBS))
    jax.effects_barrier()
    assert "seen" not in "".join(capfd.readouterr())


# What leaves the program


def _pure(x: Any) -> Any:
    return jax.pure_callback(lambda y: np.asarray(y) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def _io(x: Any) -> Any:
    io_callback(lambda y: None, None, x)
    return x


def _check(x: Any) -> Any:
    checkify.check(jnp.all(x < 1e9), "too large")
    return x


def _mapped(x: Any) -> Any:
    return jax.shard_map(
        lambda y: y + lax.psum(y, "data"),
        mesh=MESH,
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec("data"),
    )(x)


@pytest.mark.parametrize(
    ("leaves", "reason"),
    [
        (_pure, "pure_callback: it calls Python, which an artifact does not have"),
        (_io, "io_callback: it calls Python, which an artifact does not have"),
        (_check, "check: a checkify.check is an error to throw"),
        (_mapped, "shard_map: it is a program for each device"),
    ],
)
def test_what_leaves_the_program_is_refused_on_both_targets(leaves: Noise, reason: str, tmp_path: Path) -> None:
    def act(params: Any, obs: Any) -> Any:
        return {"action": lax.fori_loop(0, 2, lambda _, x: leaves(x), obs)}

    with pytest.raises(UnsupportedError) as caught:
        api.convert(model(act, OBS), tmp_path / "dist", to=("onnx", "tflite"))
    for target in TARGETS:
        lines = [line for line in str(caught.value).splitlines() if line.strip().startswith(f"{target}: ")]
        assert len(lines) == 1
        assert reason in lines[0]
        assert "test_library_noise.py" in lines[0]
    assert not (tmp_path / "dist").exists()


# Arguments that are settled in Python


def _sample(params: Any, obs: Any, key: Any, temperature: float = 1.0, *, mode: str = "mean") -> Any:
    logits = obs @ params["in"] / temperature
    return {"action": jax.random.categorical(key, logits) if mode == "draw" else jnp.argmax(logits, -1)}


@pytest.mark.parametrize(
    ("function", "draws"),
    [
        (_sample, False),
        (partial(_sample, mode="draw"), True),
        (partial(_sample, temperature=0.5, mode="draw"), True),
        (partial(jax.jit(_sample, static_argnames=("mode",)), mode="draw"), True),
        (jax.jit(partial(_sample, mode="draw")), True),
    ],
    ids=["defaults", "partial", "partial in the middle", "partial of jit", "jit of partial"],
)
def test_partials_and_defaults_are_no_inputs(function: Callable[..., Any], draws: bool) -> None:
    found = trace(model(function, OBS, KEY), "act")
    assert [leaf.name for leaf in found.inputs] == ["obs", "key"]
    assert any(o.primitive == "random_bits" for o in found.originals.values()) == draws


def test_what_a_partial_makes_keyword_only_is_given_by_keyword() -> None:
    late = partial(_sample, obs=OBS)
    with pytest.raises(ConfigError, match="what the function takes by keyword only goes into kwargs="):
        trace(model(late, KEY), "act")
    entry = EntryPoint(late, kwargs={"key": KEY, "temperature": jnp.float32(1)}, static={"mode": "draw"})
    assert [leaf.name for leaf in trace(Model("m", PARAMS, {"act": entry}), "act").inputs] == ["key", "temperature"]
