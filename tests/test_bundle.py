"""Bundles on disk: the manifest's text, hostile manifests, and writing whole or not at all."""

import copy
import errno
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opcompat
from opcompat.bundle import Bundle, check_output, write_bundle
from opcompat.errors import BundleError, OpcompatError, OutputError
from opcompat.manifest import (
    EntryPointInfo,
    FileInfo,
    Format,
    Init,
    Leaf,
    Manifest,
    WeightInfo,
    is_safe_path,
    parse_manifest,
)

STATE = Leaf("state.deter", (1, 4), "bfloat16", "float32")
KEY = Leaf("key", (2,), "uint32", "uint32", "threefry2x32")


def manifest(**changes: Any) -> Manifest:
    """A manifest that uses every field, without files: `write_bundle` adds them."""
    return replace(
        Manifest(
            name="dreamer",
            opcompat="0.1.0",
            sampling="exact",
            versions={"jax": "0.10.2"},
            config={"x64": False, "matmul_precision": None},
            formats={
                "onnx": Format(
                    {"init": "onnx/init.onnx", "policy": "onnx/policy.onnx"},
                    weights="onnx/weights.bin",
                    opset=21,
                    outputs={"policy": {"state.deter": "next.state.deter"}},
                ),
                "tflite": Format(file="tflite/model.tflite", reinterpret={"uint32": "int32"}),
            },
            entry_points={
                "init": EntryPointInfo((), (STATE,)),
                "policy": EntryPointInfo(
                    (KEY, STATE, replace(STATE, name="goal")),
                    (STATE, Leaf("action", (1,), "int32", "int32")),
                    feedback={"state.deter": "state.deter"},
                    init={
                        "state.deter": Init(output="init.state.deter"),
                        "goal": Init(file="reference/policy.init.npz"),
                    },
                ),
            },
            weights=(WeightInfo("params.w", (3, 4), "float32", "0" * 64),),
            rules={"onnxruntime": {"OC101": 2}},
            checks=({"kind": "replay", "passed": True},),
            model_hash="f" * 64,
        ),
        **changes,
    )


FILES = (
    "onnx/init.onnx",
    "onnx/policy.onnx",
    "onnx/weights.bin",
    "tflite/model.tflite",
    "reference/policy.init.npz",
)


def fill(folder: Path, text: bytes = b"some") -> Manifest:
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text)
    return manifest()


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# The package


def test_version_is_that_of_the_project() -> None:
    project = Path(__file__).parent.parent / "pyproject.toml"
    assert opcompat.__version__ == tomllib.loads(project.read_text())["project"]["version"]


def test_the_package_is_lazy() -> None:
    assert opcompat.Model.__module__ == "opcompat.model"
    assert opcompat.runtime.load.__module__ == "opcompat.runtime.loaded"
    assert set(opcompat.__all__) <= set(dir(opcompat))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        opcompat.nothing  # noqa: B018
    code = (
        "import sys; before = set(sys.modules); import opcompat\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "assert new == {'opcompat'}, new"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_module_hides_a_function_of_its_name() -> None:
    """Importing opcompat/NAME.py sets opcompat.NAME: the functions of the package need names of their own."""
    modules = {path.stem for path in Path(opcompat.__file__).parent.iterdir()}
    assert modules & set(opcompat.__all__) == {"runtime"}


# The manifest


def test_manifest_round_trip(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "dist", fill)
    again = Bundle.open(tmp_path / "dist")
    assert again == bundle
    assert again.manifest == parse_manifest(bundle.manifest.text().encode())
    assert bundle.manifest.files.keys() == set(FILES)
    assert again.manifest.formats["onnx"].path_of("policy") == "onnx/policy.onnx"
    assert again.manifest.formats["tflite"].path_of("policy") == "tflite/model.tflite"
    assert again.manifest.formats["onnx"].output_name("policy", "state.deter") == "next.state.deter"
    assert again.manifest.formats["onnx"].output_name("policy", "action") == "action"
    assert again.manifest.entry_points["policy"].input("key").type == "uint32[2]"
    with pytest.raises(KeyError):
        again.manifest.entry_points["policy"].output("key")
    assert again.file("onnx/weights.bin").read_bytes() == b"some"
    with pytest.raises(BundleError, match="lists no secrets"):
        again.file("secrets")


def test_two_bundles_of_the_same_contents_have_the_same_bytes(tmp_path: Path) -> None:
    def backwards(folder: Path) -> Manifest:
        made = fill(folder)
        return replace(made, entry_points=dict(reversed(made.entry_points.items())))

    write_bundle(tmp_path / "a", fill)
    write_bundle(tmp_path / "b", backwards)
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")


def test_numbers_that_json_lacks_become_text() -> None:
    text = manifest(checks=({"error": float("nan"), "worst": [float("inf")]},)).text()
    assert json.loads(text)["checks"] == [{"error": "nan", "worst": ["inf"]}]


def whole() -> dict[str, Any]:
    """A valid manifest as JSON values."""
    files = {name: FileInfo(4, "a" * 64) for name in FILES}
    return copy.deepcopy(manifest(files=files).to_json())


def test_unknown_fields_are_ignored() -> None:
    value = whole()
    value["later"] = value["entry_points"]["policy"]["later"] = 1
    assert Manifest.from_json(value) == Manifest.from_json(whole())


def put(path: str, new: Any) -> Callable[[dict[str, Any]], None]:
    def change(value: Any) -> None:
        *parents, last = path.split("/")
        for key in parents:
            value = value[int(key) if isinstance(value, list) else key]
        if new is None:
            del value[last]
        else:
            value[int(last) if isinstance(value, list) else last] = new

    return change


POLICY = "entry_points/policy"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            put("schema", 2),
            r"m.json: schema: 2 is unknown, this version of opcompat reads 1: upgrade opcompat",
        ),
        (put("schema", None), "m.json: schema: is missing"),
        (put("schema", True), "schema: must be a number"),
        (put("sampling", "some"), "sampling: must be one of exact, noise, greedy"),
        (put("weights/0/shape", None), r"weights\[0\]\.shape: is missing"),
        (put("weights/0/shape", [1.5]), r"weights\[0\]\.shape\[0\]: must be a number of 0 or more"),
        (put("weights/0/shape", [2**40, 2**40]), "too many dimensions or elements"),
        (put("weights/0/sha256", "A"), "is not a SHA-256"),
        (put("weights/0/name", ""), "must be a name"),
        (put("versions", []), "versions: must be an object"),
        (put("entry_points", {}), "entry_points: is empty"),
        (
            put("entry_points", {"../x": whole()["entry_points"]["init"]}),
            "formats.onnx: has no file for entry",
        ),
        (put(f"{POLICY}/inputs/0/file_dtype", "bfloat16"), "no file holds bfloat16"),
        (put(f"{POLICY}/inputs/0/dtype", "<f4"), "is not a dtype"),
        (put(f"{POLICY}/inputs/0/name", "state.deter"), "inputs: has a name twice"),
        (put(f"{POLICY}/inputs/0/name", "a\x1b[2J"), "must be a name of printable characters"),
        (put(f"{POLICY}/inputs/1/shape", [4, 1]), r"float32\[1,4\] cannot become float32\[4,1\]"),
        (put(f"{POLICY}/feedback", {"state.deter": "state.x"}), "one of them does not exist"),
        (put(f"{POLICY}/feedback", {"state.deter": "key"}), r"float32\[1,4\] cannot become uint32\[2\]"),
        (put(f"{POLICY}/init/goal", {"output": "init.x"}), "one of them does not exist"),
        (put(f"{POLICY}/init/goal", {"output": "x.state.deter"}), "one of them does not exist"),
        (put(f"{POLICY}/init/goal", {}), 'must have one of "output" and "file"'),
        (put(f"{POLICY}/init/goal", {"file": "reference/x.npz"}), "a file that is not in the bundle"),
        (put("formats/onnx/files/policy", None), "formats.onnx: has no file for entry point policy"),
        (put("formats/onnx/weights", "onnx/other.bin"), "is not among the bundle's files"),
        (put("formats/onnx/outputs/policy", {"x": "y"}), "renames an output that does not exist"),
        (put("formats/tflite/reinterpret", {"uint32": "int64"}), "uint32 cannot be reinterpreted as int64"),
        (put("formats/tflite/file", "../../etc/passwd"), r"formats\.tflite\.file: \S+ is not a path inside"),
        (put("files/..%2f", {"bytes": 1, "sha256": "a" * 64}), "is not a path inside the bundle"),
        (
            put("files", {"manifest.json": {"bytes": 1, "sha256": "a" * 64}}),
            "is not a path inside the bundle",
        ),
        (put("checks", [1]), r"checks\[0\]: must be an object"),
        (put("rules", {"x": {"OC101": -1}}), r"rules\.x\.OC101: must be a number"),
    ],
)
def test_a_wrong_manifest_names_file_and_field(change: Callable[[dict[str, Any]], None], message: str) -> None:
    value = whole()
    change(value)
    with pytest.raises(BundleError, match=message) as caught:
        parse_manifest(json.dumps(value).encode(), "m.json")
    assert str(caught.value).startswith("m.json: ")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd", "../x", "a/../../x", "a//b", "", ".", "a/.", ".git/config", "a\\b", "C:/x", "a\0b",
        "a/", "~/x", "a b", "a\n", "x" * 300, "/".join(["a"] * 600),
    ],
)  # fmt: skip
def test_no_path_leaves_the_bundle(path: str, tmp_path: Path) -> None:
    assert not is_safe_path(path)
    secret = tmp_path / "x"
    secret.write_bytes(b"some")
    write_bundle(tmp_path / "dist", fill)
    value = json.loads((tmp_path / "dist/manifest.json").read_text())
    value["files"][path] = value["files"]["onnx/init.onnx"]
    value["formats"]["onnx"]["files"]["init"] = path
    (tmp_path / "dist/manifest.json").write_text(json.dumps(value))
    with pytest.raises(BundleError, match="is not a path inside the bundle"):
        Bundle.open(tmp_path / "dist")


def test_names_in_use_are_safe_paths() -> None:
    for path in ("onnx/policy@16.onnx", "saved_model/variables/variables.data-00000-of-00001", "report.html"):
        assert is_safe_path(path)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"null", b"[]", b'"x"', b"1", b"\xff\xfe{}", b"{}", b'{"schema": 1}', b"[" * 100_000,
        b'{"schema": ' + b"9" * 10_000 + b"}", b'{"schema": NaN}', b'{"schema": 1, "schema": 1}',
        '{"schema": 1}'.encode("utf-16"), b'{"a":' * 50_000,
    ],
)  # fmt: skip
def test_text_that_is_no_manifest(text: bytes) -> None:
    with pytest.raises(BundleError):
        parse_manifest(text)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*at, key))


HOSTILE = [
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    1e999,
    "",
    "../x",
    "/",
    "\ud800",
    "x" * 5000,
    [],
    [[]],
    {},
    {"": {}},
]


def test_every_field_may_be_anything() -> None:
    original = whole()
    for at in places(original):
        for hostile in HOSTILE:
            value = copy.deepcopy(original)
            parent: Any = {"": value}
            for key in ("", *at)[:-1]:
                parent = parent[key]
            parent[("", *at)[-1]] = hostile
            text = json.dumps(value if at else hostile).encode()
            _works_or_refuses(lambda text=text: parse_manifest(text))


def test_a_truncated_or_noisy_manifest(tmp_path: Path) -> None:
    write_bundle(tmp_path / "dist", fill)
    file = tmp_path / "dist/manifest.json"
    text, rng = file.read_bytes(), np.random.default_rng(0)
    for size in range(0, len(text), 29):
        file.write_bytes(text[:size])
        with pytest.raises(BundleError):
            Bundle.open(tmp_path / "dist")
    for _ in range(500):
        noisy = bytearray(text)
        for at in rng.integers(0, len(text), 3):
            noisy[at] = rng.integers(256)
        file.write_bytes(noisy)
        _works_or_refuses(lambda: Bundle.open(tmp_path / "dist"))


def _works_or_refuses(action: Callable[[], object]) -> None:
    """Any other exception than ours fails the test, and so does a message that would confuse a terminal."""
    message = ""
    try:
        action()
    except OpcompatError as error:
        message = str(error)
    assert message.isprintable(), repr(message)


# Opening


def test_open_refuses_what_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such folder"):
        Bundle.open(tmp_path / "none")
    with pytest.raises(BundleError, match=r"no manifest\.json in it"):
        Bundle.open(tmp_path)
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(BundleError, match=r"no manifest\.json in it"):
        Bundle.open(tmp_path)


def test_open_and_check_files(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "dist", fill).path
    weights = path / "onnx/weights.bin"
    weights.write_bytes(b"soma")
    with pytest.raises(BundleError, match=r"changed since it was written: onnx/weights\.bin$"):
        Bundle.open(path).check_files()
    weights.write_bytes(b"somewhat")
    with pytest.raises(BundleError, match="8 bytes, but the manifest says 4"):
        Bundle.open(path)
    weights.unlink()
    with pytest.raises(BundleError, match=r"weights\.bin: missing; the manifest lists it"):
        Bundle.open(path)
    (tmp_path / "outside").write_bytes(b"some")
    weights.symlink_to(tmp_path / "outside")
    with pytest.raises(BundleError, match="a link that leaves the bundle"):
        Bundle.open(path)
    weights.unlink()
    weights.symlink_to("weights.bin")
    with pytest.raises(BundleError):
        Bundle.open(path)


# Writing


def test_parents_are_made_and_permissions_are_ordinary(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        bundle = write_bundle(tmp_path / "a/b/dist", fill)
    finally:
        os.umask(mask)
    assert bundle.path == tmp_path / "a/b/dist"
    assert os.listdir(tmp_path / "a/b") == ["dist"]
    assert bundle.path.stat().st_mode & 0o777 == 0o755
    bundle.check_files()


def failing(error: BaseException) -> Callable[[Path], Manifest]:
    def fill_some(folder: Path) -> Manifest:
        (folder / "onnx").mkdir()
        (folder / "onnx/policy.onnx").write_bytes(b"half")
        raise error

    return fill_some


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), ValueError("x"), OSError(errno.EIO, "x")])
def test_a_failure_leaves_nothing_and_passes_through(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        write_bundle(tmp_path / "a/b/dist", failing(error))
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(tmp_path: Path, number: int) -> None:
    with pytest.raises(OutputError, match=r"dist: cannot be written: .*free some space") as caught:
        write_bundle(tmp_path / "dist", failing(OSError(number, os.strerror(number))))
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_replacing_keeps_the_old_bundle(tmp_path: Path) -> None:
    write_bundle(tmp_path / "dist", fill)
    before = snapshot(tmp_path)

    def onto_a_full_device(folder: Path) -> Manifest:
        (folder / "weights.bin").symlink_to("/dev/full")
        (folder / "weights.bin").write_bytes(b"x")
        return manifest()

    with pytest.raises(OutputError, match="No space left on device"):
        write_bundle(tmp_path / "dist", onto_a_full_device, force=True)
    assert snapshot(tmp_path) == before


def test_an_inconsistent_manifest_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"formats\.onnx: onnx/init\.onnx is not among"):
        write_bundle(tmp_path / "dist", lambda folder: manifest())
    assert list(tmp_path.iterdir()) == []


def test_links_are_not_written(tmp_path: Path) -> None:
    def with_link(folder: Path) -> Manifest:
        (folder / "more").symlink_to(tmp_path)
        return fill(folder)

    with pytest.raises(OutputError, match="more: not a plain file"):
        write_bundle(tmp_path / "dist", with_link)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"cannot be written: .*/file"):
        write_bundle(tmp_path / "file/dist", fill)
    with pytest.raises(OutputError, match="cannot be written: File name too long"):
        write_bundle(tmp_path / ("x" * 300), fill)
    assert snapshot(tmp_path) == {"file": b"mine"}


def test_what_exists_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"mine")
    write_bundle(tmp_path / "dist", fill)
    (tmp_path / "link").symlink_to(tmp_path / "dist")
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake/manifest.json").write_text('{"name": "web app", "icons": []}')
    before = snapshot(tmp_path)
    with pytest.raises(OutputError, match=r"dist: exists: choose another output, or replace .* --force"):
        write_bundle(tmp_path / "dist", fill)
    for force in (False, True):
        for name, message in {
            "empty": "exists and holds no bundle",
            "fake": "exists and holds no bundle",
            "file": "exists and is not a folder",
            "link": "exists and is not a folder",
        }.items():
            with pytest.raises(OutputError, match=f"{name}: {message}") as caught:
                write_bundle(tmp_path / name, fill, force=force)
            assert caught.value.exit_code == 2
    assert snapshot(tmp_path) == before


def test_force_swaps_a_bundle(tmp_path: Path) -> None:
    write_bundle(tmp_path / "dist", fill)
    write_bundle(tmp_path / "dist", lambda folder: fill(folder, b"new"), force=True).check_files()
    assert os.listdir(tmp_path) == ["dist"]
    assert (tmp_path / "dist/onnx/weights.bin").read_bytes() == b"new"


def test_force_swaps_a_bundle_of_another_version_and_a_damaged_one(tmp_path: Path) -> None:
    write_bundle(tmp_path / "dist", fill)
    value = json.loads((tmp_path / "dist/manifest.json").read_text())
    (tmp_path / "dist/manifest.json").write_text(json.dumps({**value, "schema": 7, "weights": None}))
    (tmp_path / "dist/onnx/weights.bin").unlink()
    write_bundle(tmp_path / "dist", fill, force=True).check_files()


def test_force_keeps_files_that_are_not_the_bundles(tmp_path: Path) -> None:
    write_bundle(tmp_path / "dist", fill)
    (tmp_path / "dist/notes.txt").write_text("mine")
    before = snapshot(tmp_path)
    with pytest.raises(OutputError, match=r"not the bundle's \(notes\.txt\): move them away first"):
        write_bundle(tmp_path / "dist", fill, force=True)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("failing_call", [1, 2])
def test_a_failing_swap_puts_the_old_bundle_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int
) -> None:
    write_bundle(tmp_path / "dist", fill)
    before, rename, calls = snapshot(tmp_path), os.rename, []

    def rename_or_fail(source: Any, target: Any) -> None:
        calls.append(source)
        if len(calls) == failing_call:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_or_fail)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(tmp_path / "dist", lambda folder: fill(folder, b"new"), force=True)
    assert snapshot(tmp_path) == before


def test_sources_are_never_written_to(tmp_path: Path) -> None:
    source = tmp_path / "models/dreamer"
    write_bundle(source, fill)
    for out in (source, tmp_path / "models", tmp_path / "models/x/../dreamer"):
        with pytest.raises(OutputError, match=r"the source .*dreamer lies there"):
            check_output(out, force=True, sources=[source])
    (tmp_path / "alias").symlink_to(tmp_path / "models")
    with pytest.raises(OutputError, match="lies there"):
        write_bundle(tmp_path / "alias/dreamer", fill, force=True, sources=[source])
    check_output(source / "dist", sources=[source])


def test_somebody_else_makes_the_output_meanwhile(tmp_path: Path) -> None:
    def slow(folder: Path) -> Manifest:
        write_bundle(tmp_path / "dist", lambda inner: fill(inner, b"theirs"))
        return fill(folder)

    with pytest.raises(OutputError, match="exists"):
        write_bundle(tmp_path / "dist", slow)
    assert (tmp_path / "dist/onnx/weights.bin").read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["dist"]


# Killed processes

WRITER = """
import os, sys, time
sys.path.insert(0, {tests!r})
import test_bundle as t
def fill(folder):
    made = t.fill(folder, b"new")
    if {swap}:
        rename = os.rename
        def stop(source, target):
            rename(source, target)
            print(flush=True)
            time.sleep(60)
        os.rename = stop
    else:
        print(flush=True)
        time.sleep(60)
    return made
t.write_bundle({out!r}, fill, force=True)
"""


def start_writer(out: Path, swap: bool = False) -> "subprocess.Popen[bytes]":
    """A process that stops in the middle: while it fills, or between the two renames of a swap."""
    code = WRITER.format(tests=str(Path(__file__).parent), out=str(out), swap=swap)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_kill_while_writing(tmp_path: Path) -> None:
    out = tmp_path / "dist"
    process = start_writer(out)
    (partial,) = os.listdir(tmp_path)
    assert partial.startswith(".dist.opcompat-")
    kill(process)
    assert os.listdir(tmp_path) == [partial]
    write_bundle(out, fill).check_files()
    assert os.listdir(tmp_path) == ["dist"]


def test_kill_while_replacing_keeps_the_old_bundle(tmp_path: Path) -> None:
    out = tmp_path / "dist"
    write_bundle(out, fill)
    before = snapshot(out)
    kill(start_writer(out))
    assert snapshot(out) == before
    Bundle.open(out).check_files()


def test_kill_in_mid_swap_is_repaired_by_the_next_run(tmp_path: Path) -> None:
    out = tmp_path / "dist"
    write_bundle(out, fill)
    before = snapshot(out)
    kill(start_writer(out, swap=True))
    assert not out.exists()
    with pytest.raises(OutputError, match="exists"):
        write_bundle(out, fill)
    assert snapshot(out) == before
    assert os.listdir(tmp_path) == ["dist"]


def test_a_live_writer_is_left_alone(tmp_path: Path) -> None:
    process = start_writer(tmp_path / "dist")
    try:
        (partial,) = os.listdir(tmp_path)
        before = snapshot(tmp_path)
        other = write_bundle(tmp_path / "dist", fill)
        assert {k: v for k, v in snapshot(tmp_path).items() if k.startswith(partial)} == before
        other.check_files()
    finally:
        kill(process)


def test_other_hidden_things_are_left_alone(tmp_path: Path) -> None:
    for name in (".dist.opcompat-1.partial", ".dist.opcompat-2.other", ".other.opcompat-3.partial"):
        (tmp_path / name).mkdir()
    (tmp_path / ".dist.opcompat-4.partial").write_bytes(b"a file")
    write_bundle(tmp_path / "dist", fill)
    assert sorted(os.listdir(tmp_path)) == [
        ".dist.opcompat-2.other",
        ".dist.opcompat-4.partial",
        ".other.opcompat-3.partial",
        "dist",
    ]
