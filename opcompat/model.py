"""What a user hands over: a model is parameters plus the functions that share them."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opcompat.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_@-]{0,99}\Z")


@dataclass(frozen=True)
class EntryPoint:
    """One function of a model and how it is called on the device.

    Attributes:
      function: called as `function(params, *args)`; must be traceable by `jax.jit`.
      args: example arguments, pytrees of arrays or `jax.ShapeDtypeStruct`. Only shapes and dtypes count.
      kwargs: further example arguments, which the function takes by keyword; their keys name them.
      static: arguments that are fixed at these values and passed by keyword: switches, texts, whatever the function
        branches on. They are no inputs.
      outputs: names of the results where the function returns a tuple. One name for a single result. A
        dict result names itself.
      names: names of the arguments; by default those of the function's own signature.
      feedback: output name -> input name, for state that the caller feeds back at the next step. Keys and
        values name whole pytrees ("state") or leaves ("state.deter").
      init: input name -> where its first value comes from: "ENTRY_POINT.OUTPUT", or a pytree of arrays.
      inputs: optional sampler for verification, `inputs(rng) -> (*args, *kwargs)`, where rng is a numpy Generator.
        Keys in its result are ignored: verification sets them.
      tolerance: largest absolute error allowed, for all float outputs (a number) or by output name.
      complete: for arguments whose shapes only the params tell: `complete(entry_point, params)` gives the entry point
        with all its `args`. `Model` calls it.

    Once made, an entry point has neither `kwargs` nor `static`: `function` takes all of `args` by position.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    outputs: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    feedback: Mapping[str, str] = field(default_factory=dict)
    init: Mapping[str, Any] = field(default_factory=dict)
    inputs: Callable[[Any], tuple[Any, ...]] | None = None
    tolerance: float | Mapping[str, float] | None = None
    complete: Callable[[EntryPoint, Any], EntryPoint] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    static: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for field_name in ("outputs", "names"):
            given = getattr(self, field_name)
            if given is not None and (isinstance(given, str) or not all(isinstance(n, str) for n in given)):
                raise ConfigError(f'{field_name} must be a tuple of names, as in ("action",), not {given!r}')
        for field_name in ("feedback", "init"):
            if not isinstance(getattr(self, field_name), Mapping):
                raise ConfigError(f"{field_name} must map names to names, not {getattr(self, field_name)!r}")
        for field_name in ("kwargs", "static"):
            given = getattr(self, field_name)
            if not isinstance(given, Mapping) or not all(isinstance(n, str) for n in given):
                raise ConfigError(f"{field_name} must map argument names to values, not {given!r}")
        if self.kwargs or self.static:
            self._bind()

    def _bind(self) -> None:
        """Puts `kwargs` and `static` into `function`, `args` and `names`, so that nothing else needs to know them."""
        names = (*self.argument_names(), *self.kwargs)
        twice = sorted(n for n in {*names, *self.static} if (*names, *self.static).count(n) > 1)
        if twice:
            raise ConfigError(f"{', '.join(twice)}: given more than once in args, kwargs and static")
        by_position = len(self.args) if self.names is not None else self._before_static()
        bound = _bound(self.function, by_position, names[by_position:], dict(self.static))
        for field_name, value in (
            ("function", bound),
            ("args", (*self.args, *self.kwargs.values())),
            ("names", names),
            ("kwargs", {}),
            ("static", {}),
        ):
            object.__setattr__(self, field_name, value)

    def _before_static(self) -> int:
        """How many of `args` come before the first static one in the function's signature."""
        own = self._positional()
        return min([len(self.args), *(own.index(n) for n in self.static if n in own)])

    def _positional(self) -> list[str]:
        """The function's parameters after the first that can be passed by position."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"cannot read the signature of {self.function!r}: give names=") from error
        return [p.name for p in parameters if p.kind in kinds][1:]

    def argument_names(self) -> tuple[str, ...]:
        """The names of `args`, in order: `names`, else the function's parameters after the first, without static ones.

        Raises ConfigError if there are not as many names as arguments.
        """
        if self.names is not None:
            names = tuple(self.names)
        else:
            names = tuple(n for n in self._positional() if n not in self.static)[: len(self.args)]
        if len(names) != len(self.args):
            raise ConfigError(
                f"{getattr(self.function, '__name__', self.function)!r} has {len(self.args)} example "
                f"arguments but {len(names)} argument names {list(names)}; args= is without params, "
                "names= sets the names, and what the function takes by keyword only goes into kwargs="
            )
        return names


def _bound(
    function: Callable[..., Any], by_position: int, keywords: tuple[str, ...], static: dict[str, Any]
) -> Callable[..., Any]:
    """The same function with `static` in place, its other arguments by position; those behind `by_position` have
    the names `keywords`."""

    @functools.wraps(function)
    def bound(params: Any, *args: Any) -> Any:
        named = dict(zip(keywords, args[by_position:], strict=True))
        return function(params, *args[:by_position], **named, **static)

    return bound


@dataclass(frozen=True)
class Model:
    """A policy to export: `params` and the entry points that use them, by name.

    `params` is any pytree: a dict, a Flax FrozenDict or nnx.State, an Equinox module. Its arrays are weights, named by
    their paths, and so are floats in dicts and lists. Functions, bools, ints, floats that are attributes of a module
    and other settings reach the entry points as they are.
    """

    name: str
    params: Any
    entry_points: Mapping[str, EntryPoint]

    def __post_init__(self) -> None:
        if not self.entry_points:
            raise ConfigError(f"model {self.name!r} has no entry points")
        for name in (self.name, *self.entry_points):
            if not isinstance(name, str) or not _NAME.match(name):
                raise ConfigError(
                    f"{str(name)[:100]!r} cannot name a model or entry point: up to 100 letters, digits, _, - and @, "
                    "starting with a letter or _ (it becomes a file name and a signature key)"
                )
        for name, entry in self.entry_points.items():
            if not isinstance(entry, EntryPoint):
                raise ConfigError(f"entry point {name!r} is {type(entry).__name__}, not opcompat.EntryPoint")
        complete = {n: e if e.complete is None else e.complete(e, self.params) for n, e in self.entry_points.items()}
        object.__setattr__(self, "entry_points", complete)
