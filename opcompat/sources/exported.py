"""A file that `jax.export` wrote: one entry point, whose arguments keep the names and the shapes of their pytrees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax import export

from opcompat import jaxcompat
from opcompat.errors import SourceError
from opcompat.model import EntryPoint, Model
from opcompat.sources import names
from opcompat.sources.base import Loaded, Options
from opcompat.sources.stablehlo_file import bound, guarded, read
from opcompat.stablehlo.parse import dotted, interfaces
from opcompat.stablehlo.program import Interface


def load(source: str, options: Options) -> Loaded:
    """Raises SourceError for what cannot be read, has effects, needs several devices, or leaves sizes open."""
    options.check(source, "dims")
    path = Path(source)
    exported = _deserialize(source, read(path))
    _check(source, exported)
    module = bytes(exported.mlir_module_serialized)
    _, found = guarded(source, lambda: interfaces(module))
    interface = found["main"]
    argument_names = _argument_names(exported, interface)
    avals = [
        _bound_aval(a, options.dims, f"{source}: {n}") for n, a in zip(argument_names, exported.in_avals, strict=True)
    ]
    kept = exported.module_kept_var_idx
    platform = exported.platforms.index("cpu") if "cpu" in exported.platforms else 0
    inner, _ = bound(
        source,
        module,
        interface,
        options.dims,
        platform=platform if len(exported.platforms) > 1 else None,
        shapes=[_words(avals[i]).shape for i in kept],
    )

    def function(_: Any, *args: Any) -> Any:
        words = [jax.random.key_data(x) if jaxcompat.is_key(jax.typeof(x).dtype) else x for x in args]
        outs = inner(*(words[i] for i in kept))
        return tuple(
            jax.random.wrap_key_data(x, impl=jaxcompat.key_implementation(a.dtype)) if jaxcompat.is_key(a.dtype) else x
            for x, a in zip(outs, exported.out_avals, strict=True)
        )

    entry = EntryPoint(function, tuple(avals), names.results([r.name for r in interface.results]), argument_names)
    name = names.entry_name(exported.fun_name, "main")
    return Loaded(Model(names.model_name(source), {}, {name: entry}), source, path.parent.resolve(), guess_keys=True)


def _deserialize(source: str, data: bytes) -> export.Exported:
    try:
        return export.deserialize(bytearray(data))
    except Exception as error:  # a damaged flatbuffer raises anything
        raise SourceError(
            f"{source}: jax {jax.__version__} cannot read this as a jax.export file: {type(error).__name__}: {error}; "
            "next: if its arguments or results are of classes of its own, export a function of dicts and arrays"
        ) from error


def _check(source: str, exported: export.Exported) -> None:
    effects = [str(e) for e in (*exported.ordered_effects, *exported.unordered_effects)]
    if effects:
        raise SourceError(
            f"{source}: has effects ({', '.join(effects)}), which artifacts have not; next: leave them out"
        )
    if exported.nr_devices != 1:
        raise SourceError(
            f"{source}: is made for {exported.nr_devices} devices; next: export it for one, without shardings"
        )


def _argument_names(exported: export.Exported, interface: Interface) -> tuple[str, ...]:
    """The parameters' names where a kept argument tells them, else "arg0"; then the path inside each."""
    leaves = [object() for _ in exported.in_avals]
    paths = [
        p for p, _ in jax.tree_util.tree_flatten_with_path(jax.tree_util.tree_unflatten(exported.in_tree, leaves))[0]
    ]
    said = [a.name for a in interface.arguments if not a.constant]
    kept = dict(zip(exported.module_kept_var_idx, said, strict=True))
    stems: dict[str, str] = {}
    for index, path in enumerate(paths):
        inside = _inside(path)
        if kept.get(index) and kept[index].endswith(inside):
            stems[str(path[1])] = kept[index][: len(kept[index]) - len(inside)] if inside else kept[index]
    # The tree is (positional, keyword): keywords name themselves.
    found = []
    for path in paths:
        keyword = path[0].idx == 1
        stem = dotted(str(path[1])) if keyword else f"arg{path[1].idx}"
        found.append((stems.get(str(path[1])) or stem.lstrip(".")) + _inside(path))
    return names.unique(found, "arg")


def _inside(path: Any) -> str:
    rest = str(jax.tree_util.keystr(path[2:], simple=True, separator="."))
    return f".{rest}" if rest else ""


def _bound_aval(aval: Any, dims: Mapping[str, int], where: str) -> Any:
    return jaxcompat.shape_dtype(tuple(names.size(n, dims, where) for n in aval.shape), aval.dtype)


def _words(aval: Any) -> Any:
    """The array that a typed key is in the module."""
    return jax.eval_shape(jax.random.key_data, aval) if jaxcompat.is_key(aval.dtype) else aval
