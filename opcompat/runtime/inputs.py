"""From what a caller passes to the arrays that a file takes: names, shapes and dtypes, all checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from opcompat.errors import BundleError
from opcompat.manifest import Leaf

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class InputError(BundleError, ValueError):
    """A call with a missing or unknown input, or one of the wrong shape or dtype."""


def take(values: Mapping[str, Any], leaves: Iterable[Leaf], where: str) -> dict[str, Array]:
    """Returns `values` as arrays by leaf name; leaves that are not given are left out.

    `values` holds dotted names, nested mappings, tuples and named tuples, or a mix. Arrays must have the
    leaf's shape and file dtype (or its logical dtype, if the file's holds all of its values). Python numbers
    and lists of them are converted where no value changes its kind or leaves the range.

    Raises InputError, naming `where` and the input.
    """
    known = {leaf.name: leaf for leaf in leaves}
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: inputs must be a mapping by name, not {type(values).__name__}")
    result: dict[str, Array] = {}
    for name, value in _flatten("", values, known):
        if name not in known:
            raise InputError(f"{where}: unknown input {name!r}; it takes {_listed(known)}")
        if name in result:
            raise InputError(f"{where}: input {name!r} is given twice")
        result[name] = convert(value, known[name], where)
    return result


def require(values: Mapping[str, Array], leaves: Iterable[Leaf], where: str) -> None:
    """Raises InputError with all the leaves that `values` lacks."""
    missing = [f"{leaf.name} {leaf.type}" for leaf in leaves if leaf.name not in values]
    if missing:
        raise InputError(f"{where}: missing input{'s' * (len(missing) > 1)} {', '.join(missing)}")


def convert(value: Any, leaf: Leaf, where: str) -> Array:
    """One value as an array of the leaf's shape and file dtype. Raises InputError."""
    try:
        array: Array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{where}: input {leaf.name!r} is no array: {error}") from error
    wanted = np.dtype(leaf.file_dtype)
    if array.dtype != wanted and not (
        _holds(wanted, array, leaf) if isinstance(value, np.ndarray | np.generic) else _fits(wanted, array)
    ):
        raise InputError(f"{where}: input {leaf.name!r} must be {leaf.type}, not {_type(array)}")
    if array.shape != leaf.shape:
        raise InputError(f"{where}: input {leaf.name!r} must be {leaf.type}, not {_type(array)}")
    return array.astype(wanted, order="C", copy=False)


def _flatten(prefix: str, value: Any, known: Mapping[str, Leaf]) -> Iterator[tuple[str, Any]]:
    """(leaf name, value) pairs. Whatever has a leaf's name is one; None outside of leaves holds nothing."""
    if prefix in known:
        yield prefix, value
        return
    for name, item in _children(value):
        yield from _flatten(f"{prefix}.{name}" if prefix else name, item, known)
    if prefix and value is not None and not isinstance(value, Mapping | tuple | list):
        yield prefix, value


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(name), item) for name, item in value.items())
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", None) or map(str, range(len(value)))
        yield from zip(names, value, strict=True)


def _holds(wanted: np.dtype[Any], array: Array, leaf: Leaf) -> bool:
    """Whether an array has the logical dtype of a leaf that the file widens (float16 to float32)."""
    return array.dtype.name == leaf.dtype and array.dtype.itemsize < wanted.itemsize


def _fits(wanted: np.dtype[Any], array: Array) -> bool:
    """Whether Python numbers may become `wanted`: integers within range, or anything real as floats."""
    if wanted.kind == "f":
        return array.dtype.kind in "iuf"
    if wanted.kind not in "iu" or array.dtype.kind not in "iu":
        return False
    info = np.iinfo(wanted)
    return array.size == 0 or (int(array.min()) >= info.min and int(array.max()) <= info.max)


def _type(array: Array) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def _listed(known: Mapping[str, Leaf]) -> str:
    return ", ".join(known) or "none"
