"""The recorded reference of one entry point: what went in, what JAX returned, and how close is enough.

A .npz with arrays `inputs/NAME` and `outputs/NAME` of shape [steps, *leaf shape] in the leaf's file dtype,
`tolerance/NAME`, a float64 for each float output, `near_tie/NAME`, bool[steps]: the steps at which an output depends
on a draw within JAX's own margin, so that another runtime may draw otherwise, and `draws_per_mismatch`: one such
difference is allowed for each so many draws, rounded up. An `init` file holds one array per input.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from opcompat.errors import BundleError
from opcompat.manifest import EntryPointInfo, Leaf
from opcompat.runtime.inputs import Array

MAX_BYTES = 4 << 30

_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, eq=False)
class Reference:
    """Recorded steps: see the module. Outputs that `near_tie` lacks never depend on a near tie."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    tolerance: Mapping[str, float]
    near_tie: Mapping[str, Array] = field(default_factory=dict)
    draws_per_mismatch: int = 100_000

    @property
    def steps(self) -> int:
        return len(next(iter(self.outputs.values())))


def write_reference(path: Path, reference: Reference) -> None:
    """Writes the .npz; the same bytes for the same arrays."""
    arrays: dict[str, Any] = {
        **{f"inputs/{name}": array for name, array in reference.inputs.items()},
        **{f"outputs/{name}": array for name, array in reference.outputs.items()},
        **{f"tolerance/{name}": np.float64(value) for name, value in reference.tolerance.items()},
        **{f"near_tie/{name}": array for name, array in reference.near_tie.items()},
        "draws_per_mismatch": np.int64(reference.draws_per_mismatch),
    }
    write_arrays(path, arrays)


def read_reference(path: Path, entry: EntryPointInfo) -> Reference:
    """Reads what `write_reference` wrote for an entry point.

    Raises BundleError if arrays are missing or have the wrong shape or dtype, or nothing is recorded.
    """
    arrays = read_arrays(path)
    inputs = {x.name: _pick(arrays, f"inputs/{x.name}", x, path) for x in entry.inputs}
    outputs = {x.name: _pick(arrays, f"outputs/{x.name}", x, path) for x in entry.outputs}
    lengths = {len(array) for array in (*inputs.values(), *outputs.values())}
    if len(lengths) != 1 or lengths == {0} or not outputs:
        raise BundleError(f"{path}: must hold the same number of steps, at least one, for each array")
    steps = max(lengths)
    ties = {x.name: arrays.get(f"near_tie/{x.name}", np.zeros(steps, bool)) for x in entry.outputs}
    for name, array in ties.items():
        if array.dtype != np.bool_ or array.shape != (steps,):
            raise BundleError(f"{path}: near_tie/{name} must be bool[{steps}]")
    rate = arrays.get("draws_per_mismatch", np.int64(100_000))
    if rate.dtype != np.int64 or rate.shape != () or rate < 1:
        raise BundleError(f"{path}: draws_per_mismatch must be one whole number from 1")
    floats = [x for x in entry.outputs if np.dtype(x.file_dtype).kind == "f"]
    return Reference(inputs, outputs, {x.name: _tolerance(arrays, x, path) for x in floats}, ties, int(rate))


def read_init(path: Path, leaf: Leaf) -> Array:
    """The first value of an input, from an `init` file. Raises BundleError."""
    array = read_arrays(path, [leaf.name]).get(leaf.name)
    if array is None or (array.dtype.name, array.shape) != (leaf.file_dtype, leaf.shape):
        raise BundleError(f"{path}: must hold {leaf.name} as {leaf.type}")
    return array


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes a compressed .npz: the same bytes for the same arrays, in whatever order they come."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            # A ZipInfo of its own: it has a fixed date.
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(arrays[name], order="C"), allow_pickle=False)


def read_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, Array]:
    """The arrays of a .npz by name (only `names`, where given), of numbers only, never unpickled.

    Raises BundleError if it is damaged or larger than MAX_BYTES when unpacked.
    """
    wanted = None if names is None else {f"{name}.npy" for name in names}
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if wanted is None or m.filename in wanted]
            if sum(m.file_size for m in members) > MAX_BYTES:
                raise BundleError(f"{path}: larger than {MAX_BYTES >> 30} GiB")
            return {m.filename.removesuffix(".npy"): _read_member(archive, m) for m in members}
    except (*_DAMAGED, MemoryError) as error:
        raise BundleError(f"{path}: not a readable .npz: {error}") from error


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as stream:
        shape, dtype = _header(stream)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > member.file_size:
        raise ValueError(f"{member.filename} claims more than it holds")
    with archive.open(member) as stream:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype as a .npy's header claims them."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    return shape, dtype


def _pick(arrays: Mapping[str, Array], name: str, leaf: Leaf, path: Path) -> Array:
    array = arrays.get(name)
    if array is None:
        raise BundleError(f"{path}: lacks {name}")
    if array.dtype.name != leaf.file_dtype or array.shape[1:] != leaf.shape or array.ndim == 0:
        raise BundleError(f"{path}: {name} is {array.dtype.name}{list(array.shape)}, not [steps] of {leaf.type}")
    return array


def _tolerance(arrays: Mapping[str, Array], leaf: Leaf, path: Path) -> float:
    array = arrays.get(f"tolerance/{leaf.name}")
    if array is None or array.shape != () or array.dtype.kind != "f" or not 0 <= float(array) < math.inf:
        raise BundleError(f"{path}: tolerance/{leaf.name} must be one finite number of 0 or more")
    return float(array)
