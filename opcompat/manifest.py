"""What manifest.json says about a bundle, and how it is read from files of unknown origin.

Standard library only: devices read it. The text is deterministic: sorted keys, no times, no machine's names.

# Data: Leaf, Init, EntryPointInfo, Format, WeightInfo, FileInfo, Manifest
# Reading: parse_manifest, and _Field, a JSON value that knows where it stands
# Checking: names, paths, and that all parts agree
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeVar

from opcompat.errors import BundleError

SCHEMA = 1
MANIFEST = "manifest.json"
MAX_BYTES = 64 << 20

Sampling = Literal["exact", "noise", "greedy"]
SAMPLING: tuple[Sampling, ...] = ("exact", "noise", "greedy")

DISTRIBUTIONS = ("normal", "gumbel", "uniform", "bits")
"""Standard normal, standard Gumbel, uniform in [0, 1), and unsigned integers of uniform random bits."""

WIDTHS = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
"""The dtypes that inputs and outputs of a file may have, as numpy names them -> bytes per element."""

_MAX_RANK, _MAX_SIZE = 32, 1 << 62
_ENTRY_POINT = re.compile(r"[A-Za-z_][A-Za-z0-9_@-]{0,127}\Z")
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_PATH_PART = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_@+.-]{0,199}\Z")

T = TypeVar("T")

# Data


@dataclass(frozen=True)
class Noise:
    """What an input takes that stands for a draw of the policy (sampling "noise").

    Attributes:
      distribution: one of DISTRIBUTIONS; elements are independent.
      place: the line of the policy that draws, as in "dreamer.py:112"; "" if unknown.
      function: the function that the line is in.
    """

    distribution: str
    place: str = ""
    function: str = ""


@dataclass(frozen=True)
class Leaf:
    """One array among an entry point's inputs or outputs.

    Attributes:
      name: dotted path in the pytree, as in "obs.vector".
      shape: static.
      dtype: what it is in the policy ("bfloat16"); a key is "uint32".
      file_dtype: what callers pass and get ("float32"), one of WIDTHS.
      key: the PRNG implementation ("threefry2x32") if this is a key, else "".
      noise: what to fill it with if it stands for a draw.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    file_dtype: str
    key: str = ""
    noise: Noise | None = None

    @property
    def type(self) -> str:
        """As in "float32[1,16]", with the file's dtype."""
        return f"{self.file_dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Init:
    """Where the first value of an input comes from: one of the two is set.

    Attributes:
      output: "ENTRY_POINT.LEAF", an output of another entry point.
      file: a .npz of the bundle that holds the array under the input's name, in its file dtype.
    """

    output: str = ""
    file: str = ""

    def split(self) -> tuple[str, str]:
        """`output` as (entry point, leaf)."""
        entry_point, _, leaf = self.output.partition(".")
        return entry_point, leaf


@dataclass(frozen=True)
class EntryPointInfo:
    """How one function of the bundle is called. `feedback` maps an output's name to the input it becomes.

    `dropped` names the inputs and outputs of the policy that the bundle has not: keys, unless sampling is "exact".
    `pruned` names the inputs that were left out on request because no output depends on them.
    """

    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    feedback: Mapping[str, str] = field(default_factory=dict)
    init: Mapping[str, Init] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()

    def input(self, name: str) -> Leaf:
        """Raises KeyError if there is no input of this name."""
        return _by_name(self.inputs, name)

    def output(self, name: str) -> Leaf:
        """Raises KeyError if there is no output of this name."""
        return _by_name(self.outputs, name)


@dataclass(frozen=True)
class Format:
    """The files of one format ("onnx", "tflite"), as paths in the bundle.

    Attributes:
      files: entry point -> its file, where each has one.
      file: the file with all entry points, as signatures, where one file holds them.
      weights: the file with the weights, where it stands apart.
      opset: ONNX's, None for other formats.
      outputs: entry point -> output -> its name in the file, for those that have another there: in ONNX an
        input and an output cannot both be called "state.deter".
      narrowed: whether 64-bit values are computed in 32 bits.
      reinterpret: file dtype -> the dtype of the same width that this format's files have in its place, with
        the same bits: {"uint32": "int32"} for a runtime whose interface lacks uint32.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    weights: str = ""
    opset: int | None = None
    outputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reinterpret: Mapping[str, str] = field(default_factory=dict)
    narrowed: bool = False

    def path_of(self, entry_point: str) -> str:
        """The file to run for an entry point. Raises KeyError if there is none."""
        return self.file or self.files[entry_point]

    def output_name(self, entry_point: str, leaf: str) -> str:
        """What an output is called in the file."""
        return self.outputs.get(entry_point, {}).get(leaf, leaf)

    def paths(self) -> Iterator[str]:
        yield from self.files.values()
        yield from filter(None, (self.file, self.weights))


@dataclass(frozen=True)
class WeightInfo:
    """A parameter leaf: the hash is over its bytes in C order, little endian, as the model holds it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str


@dataclass(frozen=True)
class FileInfo:
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The whole of manifest.json.

    `files` lists every file of the bundle but the manifest; `write_bundle` fills it in. `checks` are
    `opcompat.report.Check`s as plain dicts, `rules` maps target -> rule id -> how often it fired, `config`
    holds the JAX settings that are part of the policy.
    """

    name: str
    opcompat: str
    sampling: Sampling
    versions: Mapping[str, str]
    config: Mapping[str, Any]
    formats: Mapping[str, Format]
    entry_points: Mapping[str, EntryPointInfo]
    weights: tuple[WeightInfo, ...] = ()
    rules: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    checks: tuple[Mapping[str, Any], ...] = ()
    model_hash: str = ""
    files: Mapping[str, FileInfo] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values. Infinities and NaN, which JSON lacks, become the strings that Python prints."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "opcompat": self.opcompat,
            "sampling": self.sampling,
            "versions": dict(self.versions),
            "config": _plain(self.config),
            "formats": {name: _format_json(f) for name, f in self.formats.items()},
            "entry_points": {name: _entry_point_json(e) for name, e in self.entry_points.items()},
            "weights": [{**vars(w), "shape": list(w.shape)} for w in self.weights],
            "rules": {target: dict(rules) for target, rules in self.rules.items()},
            "checks": _plain(self.checks),
            "model_hash": self.model_hash,
            "files": {path: vars(f) for path, f in self.files.items()},
        }

    @staticmethod
    def from_json(value: Any, file: str = MANIFEST) -> Manifest:
        """Reads what `to_json` wrote; unknown fields are ignored.

        Raises BundleError, naming `file` and the field, for an unknown schema, a missing or wrong field, an
        unsafe path, or parts that contradict each other.
        """
        manifest = _read_manifest(_Field(value, file, ""))
        check_manifest(manifest, file)
        return manifest

    def text(self) -> str:
        """The contents of manifest.json: the same for equal manifests."""
        return json.dumps(self.to_json(), sort_keys=True, indent=1, allow_nan=False) + "\n"


def parse_manifest(text: bytes, file: str = MANIFEST) -> Manifest:
    """Reads the contents of a manifest.json. Raises BundleError for whatever is wrong with it."""
    return Manifest.from_json(parse_json(text, file), file)


def parse_json(text: bytes, file: str) -> Any:
    """JSON with limits on size and depth, and without doubled names. Raises BundleError."""
    if len(text) > MAX_BYTES:
        raise BundleError(f"{file}: larger than {MAX_BYTES >> 20} MiB")
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{file}: not valid JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _by_name(leaves: tuple[Leaf, ...], name: str) -> Leaf:
    for leaf in leaves:
        if leaf.name == name:
            return leaf
    raise KeyError(name)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _leaf_json(leaf: Leaf) -> dict[str, Any]:
    plain = {**vars(leaf), "shape": list(leaf.shape), "noise": leaf.noise and vars(leaf.noise)}
    return {name: value for name, value in plain.items() if name not in ("key", "noise") or value}


def _entry_point_json(entry: EntryPointInfo) -> dict[str, Any]:
    left_out = {"dropped": list(entry.dropped), "pruned": list(entry.pruned)}
    return {name: names for name, names in left_out.items() if names} | {
        "inputs": [_leaf_json(x) for x in entry.inputs],
        "outputs": [_leaf_json(x) for x in entry.outputs],
        "feedback": dict(entry.feedback),
        "init": {k: {"output": v.output} if v.output else {"file": v.file} for k, v in entry.init.items()},
    }


def _format_json(form: Format) -> dict[str, Any]:
    plain = {**vars(form), "files": dict(form.files), "reinterpret": dict(form.reinterpret)}
    plain["outputs"] = {entry_point: dict(names) for entry_point, names in form.outputs.items() if names}
    return {name: value for name, value in plain.items() if value not in ("", None, {}) and value is not False}


# Reading


@dataclass(frozen=True)
class _Field:
    """A JSON value, the file that it came from, and its name there ("weights[0].shape")."""

    value: Any
    file: str
    name: str

    def fail(self, problem: str) -> NoReturn:
        raise BundleError(f"{self.file}: {self.name or 'the manifest'}: {problem}")

    def child(self, key: str, value: Any) -> _Field:
        return _Field(value, self.file, f"{self.name}.{key}" if self.name else key)

    def items(self) -> Iterator[tuple[str, _Field]]:
        if not isinstance(self.value, dict):
            self.fail("must be an object")
        for key, value in self.value.items():
            yield key, self.child(_shown(key), value)

    def get(self, key: str) -> _Field:
        if not isinstance(self.value, dict):
            self.fail("must be an object")
        if key not in self.value:
            self.child(key, None).fail("is missing")
        return self.child(key, self.value[key])

    def get_or(self, key: str, default: Any) -> _Field:
        if isinstance(self.value, dict) and key not in self.value:
            return self.child(key, default)
        return self.get(key)

    def each(self, read: Callable[[_Field], T]) -> tuple[T, ...]:
        if not isinstance(self.value, list):
            self.fail("must be a list")
        return tuple(read(_Field(v, self.file, f"{self.name}[{i}]")) for i, v in enumerate(self.value))

    def table(self, read: Callable[[_Field], T]) -> dict[str, T]:
        return {key: read(item) for key, item in self.items()}

    def text(self) -> str:
        if not isinstance(self.value, str):
            self.fail("must be a string")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail("must be true or false")
        return self.value

    def matching(self, pattern: re.Pattern[str], what: str) -> str:
        if not pattern.match(self.text()):
            self.fail(f"{_shown(self.value)} is not {what}")
        return self.text()

    def count(self) -> int:
        if type(self.value) is not int or not 0 <= self.value <= _MAX_SIZE:
            self.fail("must be a number of 0 or more, without a fraction")
        return int(self.value)

    def shape(self) -> tuple[int, ...]:
        shape = self.each(_Field.count)
        if len(shape) > _MAX_RANK or math.prod(shape) > _MAX_SIZE:
            self.fail("has too many dimensions or elements")
        return shape

    def leaf_name(self) -> str:
        if not 0 < len(self.text()) <= 1024 or not self.text().isprintable():
            self.fail("must be a name of printable characters")
        return self.text()

    def path(self) -> str:
        if not is_safe_path(self.text()):
            self.fail(f"{_shown(self.value)} is not a path inside the bundle")
        return self.text()


def _shown(text: str) -> str:
    """Unknown text, short and printable, for a message."""
    return text if len(text) <= 80 and text.isprintable() and " " not in text else ascii(text[:80])


def is_safe_path(path: str) -> bool:
    """Whether `path` is relative, with plain names between single slashes, and so stays below its folder."""
    return len(path) <= 1000 and all(_PATH_PART.match(part) for part in path.split("/"))


def _read_manifest(root: _Field) -> Manifest:
    schema = root.get("schema")
    if schema.count() != SCHEMA:
        schema.fail(f"{schema.value} is unknown, this version of opcompat reads {SCHEMA}: upgrade opcompat")
    sampling = root.get("sampling")
    known = next((s for s in SAMPLING if s == sampling.text()), None)
    if known is None:
        sampling.fail(f"must be one of {', '.join(SAMPLING)}")
    return Manifest(
        name=root.get("name").matching(_ENTRY_POINT, "a model's name"),
        opcompat=root.get("opcompat").text(),
        sampling=known,
        versions=root.get("versions").table(_Field.text),
        config=root.get("config").table(lambda f: f.value),
        formats=root.get("formats").table(_read_format),
        entry_points=root.get("entry_points").table(_read_entry_point),
        weights=root.get("weights").each(_read_weight),
        rules=root.get("rules").table(lambda f: f.table(_Field.count)),
        checks=root.get("checks").each(lambda f: f.table(lambda g: g.value)),
        model_hash=root.get("model_hash").text(),
        files=root.get("files").table(_read_file),
    )


def _read_format(source: _Field) -> Format:
    opset = source.get_or("opset", None)
    return Format(
        files=source.get_or("files", {}).table(_Field.path),
        file=source.get("file").path() if "file" in source.value else "",
        weights=source.get("weights").path() if "weights" in source.value else "",
        opset=None if opset.value is None else opset.count(),
        outputs=source.get_or("outputs", {}).table(lambda f: f.table(_Field.leaf_name)),
        reinterpret=source.get_or("reinterpret", {}).table(_Field.text),
        narrowed=source.get_or("narrowed", False).flag(),
    )


def _read_entry_point(source: _Field) -> EntryPointInfo:
    return EntryPointInfo(
        inputs=source.get("inputs").each(_read_leaf),
        outputs=source.get("outputs").each(_read_leaf),
        feedback=source.get("feedback").table(_Field.text),
        init=source.get("init").table(_read_init),
        dropped=source.get_or("dropped", []).each(_Field.leaf_name),
        pruned=source.get_or("pruned", []).each(_Field.leaf_name),
    )


def _read_leaf(source: _Field) -> Leaf:
    return Leaf(
        name=source.get("name").leaf_name(),
        shape=source.get("shape").shape(),
        dtype=source.get("dtype").matching(_DTYPE, "a dtype"),
        file_dtype=source.get("file_dtype").matching(_DTYPE, "a dtype"),
        key=source.get_or("key", "").text(),
        noise=_read_noise(source.get("noise")) if "noise" in source.value else None,
    )


def _read_noise(source: _Field) -> Noise:
    distribution = source.get("distribution")
    if distribution.text() not in DISTRIBUTIONS:
        distribution.fail(f"must be one of {', '.join(DISTRIBUTIONS)}")
    return Noise(distribution.text(), source.get("place").text(), source.get("function").text())


def _read_init(source: _Field) -> Init:
    output, file = source.get_or("output", None), source.get_or("file", None)
    if (output.value is None) == (file.value is None):
        source.fail('must have one of "output" and "file"')
    return Init(output=output.text()) if file.value is None else Init(file=file.path())


def _read_weight(source: _Field) -> WeightInfo:
    return WeightInfo(
        name=source.get("name").leaf_name(),
        shape=source.get("shape").shape(),
        dtype=source.get("dtype").matching(_DTYPE, "a dtype"),
        sha256=source.get("sha256").matching(_SHA256, "a SHA-256"),
    )


def _read_file(source: _Field) -> FileInfo:
    return FileInfo(source.get("bytes").count(), source.get("sha256").matching(_SHA256, "a SHA-256"))


# Checking


def check_manifest(manifest: Manifest, file: str = MANIFEST) -> None:
    """Raises BundleError, naming the field, if the manifest's parts contradict each other.

    Every path must be safe and listed in `files`, every entry point must have a file in each format, names
    must be unique, and feedback and init must join leaves that exist and have the same type.
    """
    root = _Field(None, file, "")
    for path in manifest.files:
        if not is_safe_path(path) or path == MANIFEST:
            root.child("files", None).fail(f"{_shown(path)} is not a path inside the bundle")
    if not manifest.entry_points:
        root.child("entry_points", None).fail("is empty")
    for name, form in manifest.formats.items():
        _check_format(form, manifest, root.child(f"formats.{_shown(name)}", None))
    for name, entry in manifest.entry_points.items():
        where = root.child(f"entry_points.{_shown(name)}", None)
        if not _ENTRY_POINT.match(name):
            where.fail("is not an entry point's name")
        _check_entry_point(entry, manifest, where)


def _check_format(form: Format, manifest: Manifest, where: _Field) -> None:
    for path in form.paths():
        if path not in manifest.files:
            where.fail(f"{_shown(path)} is not among the bundle's files")
    for name in manifest.entry_points:
        if not form.file and name not in form.files:
            where.fail(f"has no file for entry point {_shown(name)}")
    for name, renamed in form.outputs.items():
        entry = manifest.entry_points.get(name)
        if entry is None or not renamed.keys() <= {leaf.name for leaf in entry.outputs}:
            where.child("outputs", None).fail("renames an output that does not exist")
    for dtype, stored in form.reinterpret.items():
        if WIDTHS.get(dtype, -1) != WIDTHS.get(stored, -2):
            where.fail(f"{_shown(dtype)} cannot be reinterpreted as {_shown(stored)}")


def _check_entry_point(entry: EntryPointInfo, manifest: Manifest, where: _Field) -> None:
    inputs = _checked_leaves(entry.inputs, where.child("inputs", None))
    outputs = _checked_leaves(entry.outputs, where.child("outputs", None))
    for output, name in entry.feedback.items():
        _check_joined(outputs.get(output), inputs.get(name), where.child(f"feedback.{_shown(output)}", None))
    if len(set(entry.feedback.values())) != len(entry.feedback):
        where.child("feedback", None).fail("sets one input twice")
    for name, init in entry.init.items():
        here = where.child(f"init.{_shown(name)}", None)
        if init.output:
            source, leaf = init.split()
            others = manifest.entry_points.get(source)
            given = next((x for x in others.outputs if x.name == leaf), None) if others else None
            _check_joined(given, inputs.get(name), here)
        elif name not in inputs or init.file not in manifest.files:
            here.fail("names no input, or a file that is not in the bundle")


def _checked_leaves(leaves: tuple[Leaf, ...], where: _Field) -> dict[str, Leaf]:
    for leaf in leaves:
        if leaf.file_dtype not in WIDTHS:
            where.fail(f"{_shown(leaf.name)}: no file holds {leaf.file_dtype}")
    result = {leaf.name: leaf for leaf in leaves}
    if len(result) != len(leaves):
        where.fail("has a name twice")
    return result


def _check_joined(source: Leaf | None, target: Leaf | None, where: _Field) -> None:
    if source is None or target is None:
        where.fail("joins an output and an input, and one of them does not exist")
    if (source.type, source.key) != (target.type, target.key):
        where.fail(f"{source.type} cannot become {target.type}")
