"""The options that several commands share."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from opcompat.config import Wiring, check_sampling
from opcompat.errors import ConfigError
from opcompat.sources import Options

F = TypeVar("F", bound=Callable[..., Any])


def common(function: F) -> F:
    """-q, -v and --color, on every command."""
    for option in (
        click.option("--color/--no-color", default=None, help="Colors; by default on a terminal without NO_COLOR."),
        click.option("-v", "--verbose", is_flag=True, help="Progress as lines, and tracebacks of errors."),
        click.option("-q", "--quiet", is_flag=True, help="No progress on standard error."),
    ):
        function = option(function)
    return function


def reporting(function: F) -> F:
    """--format and --output, on the commands that make a report."""
    for option in (
        click.option(
            "--output",
            "outputs",
            metavar="FORMAT=FILE",
            multiple=True,
            callback=_parse_outputs,
            help="Write the report to a file as well; again and again in one run.",
        ),
        click.option(
            "--format",
            "format_",
            metavar="FORMAT",
            default="text",
            help="text (the default), json, html, markdown, junit, sarif, github.",
        ),
    ):
        function = option(function)
    return function


def loading(function: Callable[..., Any]) -> Callable[..., Any]:
    """What says how a source is loaded, on the commands that do: one argument, `loading`, of type Options."""

    @functools.wraps(function)
    def with_options(
        *positional: Any,
        args: dict[str, Any],
        dims: dict[str, int],
        via: str,
        keys: dict[str, str] | None,
        feedback: dict[str, str],
        init: dict[str, Any],
        **rest: Any,
    ) -> Any:
        wiring = Wiring(feedback=feedback, init=init, keys=keys)
        return function(*positional, loading=Options(args, dims, via, wiring), **rest)

    texts = {
        "args": "Keyword argument for the factory, as a TOML value or else a string: --arg size=small.",
        "dims": "Size of a symbolic dimension of the source: --dim b=1.",
        "via": "Route by which the source is read, where there are several.",
        "keys": "Input that is a PRNG key, if the source does not say so; IMPL by default follows from its shape.",
        "feedback": "Output that is fed back into an input, for a source that cannot say so.",
        "init": "First value of an input that is fed back: ENTRY_POINT.OUTPUT, or a number for all elements.",
    }
    for option in (
        _pairs("--init", "init", "INPUT=VALUE", _parse_args, texts["init"]),
        _pairs("--feedback", "feedback", "OUTPUT=INPUT", _parse_links, texts["feedback"]),
        _pairs("--key", "keys", "INPUT[=IMPL]", _parse_keys, texts["keys"]),
        click.option(
            "--via", metavar="ROUTE", default="", help="Route by which to read the source, if it has several."
        ),
        _pairs("--dim", "dims", "NAME=SIZE", _parse_dims, texts["dims"]),
        _pairs("--arg", "args", "NAME=VALUE", _parse_args, texts["args"]),
    ):
        with_options = option(with_options)
    return with_options


def _pairs(option: str, name: str, metavar: str, callback: Any, text: str) -> Callable[[Any], Any]:
    return click.option(option, name, metavar=metavar, multiple=True, callback=callback, help=text)


def names(option: str, destination: str, text: str) -> Callable[[F], F]:
    """An option that takes names, separated by commas or given again and again."""
    return click.option(option, destination, metavar="NAME,...", multiple=True, callback=_parse_names, help=text)


def sampling(function: F) -> F:
    """--sampling, on convert."""
    text = (
        "What becomes of draws: exact (the default; keys are inputs, and the artifact draws what JAX draws), noise "
        "(each draw is an input), greedy (its mode or mean)."
    )
    return click.option("--sampling", metavar="MODE", callback=_parse_sampling, help=text)(function)


def batch(function: F) -> F:
    """--batch, on the commands that trace the model."""
    text = "Write an entry point NAME@N for each further batch size N, too: --batch 16."
    return click.option("--batch", metavar="N,...", multiple=True, callback=_parse_sizes, help=text)(function)


def narrowing(function: F) -> F:
    """--allow-narrowing, on the commands that rewrite the model."""
    text = "Compute 64-bit values in 32 bits on targets without 64-bit arithmetic."
    return click.option("--allow-narrowing", is_flag=True, help=text)(function)


def positive(option: str, text: str) -> Callable[[F], F]:
    """An option that takes a whole number from 1."""
    return click.option(option, type=click.IntRange(min=1), metavar="N", help=text)


def toml_value(text: str) -> Any:
    """`text` as a TOML value (3, true, [1, 2], "x"), or itself where it is not one."""
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["value"] if len(table) == 1 else text


def _split(ctx: click.Context, param: click.Parameter, value: str, example: str) -> tuple[str, str]:
    name, equals, rest = value.partition("=")
    if not equals or not name.strip() or not rest.strip():
        raise click.BadParameter(f"{value!r} is not of the form {example}", ctx, param)
    return name.strip(), rest.strip()


def _parse_args(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, Any]:
    pairs = [_split(ctx, param, value, "NAME=VALUE") for value in values]
    return {name: toml_value(text) for name, text in pairs}


def _parse_links(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    return dict(_split(ctx, param, value, "OUTPUT=INPUT") for value in values)


def _parse_keys(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str] | None:
    """None if none is named: then the source's own inputs tell."""
    found = [value.partition("=") for value in values]
    if not all(name.strip() for name, _, _ in found):
        raise click.BadParameter("an input has no name", ctx, param)
    return {name.strip(): implementation.strip() for name, _, implementation in found} if values else None


def _parse_dims(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, int]:
    pairs = dict(_split(ctx, param, value, "NAME=SIZE") for value in values)
    for name, size in pairs.items():
        if not size.isdecimal() or not int(size):
            raise click.BadParameter(f"{name}={size}: the size is no whole number from 1", ctx, param)
    return {name: int(size) for name, size in pairs.items()}


def _parse_outputs(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(_split(ctx, param, value, "FORMAT=FILE") for value in values)


def _parse_names(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    parts = [part.strip() for value in values for part in value.split(",")]
    if not all(parts):
        raise click.BadParameter(f"{','.join(values)!r} holds an empty name", ctx, param)
    return tuple(dict.fromkeys(parts))


def _parse_sizes(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[int, ...]:
    names = _parse_names(ctx, param, values)
    if not all(name.isdecimal() and int(name) for name in names):
        raise click.BadParameter(f"{','.join(values)!r} are not whole numbers from 1", ctx, param)
    return tuple(int(name) for name in names)


def _parse_sampling(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else check_sampling(value)
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, param) from error
