"""The command line around a stand-in for the engine: options, exit codes, and what goes to which stream."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import opcompat
from opcompat import packs
from opcompat.cli import cli
from opcompat.commands.options import toml_value
from opcompat.errors import BundleError, CrashError, UnsupportedError, VerificationError
from opcompat.report import Check, Report, TargetReport

ROOT = Path(__file__).parents[1]
POLICY = """
from opcompat.model import EntryPoint, Model

print("the factory prints")

def make(size="full", layers=1):
    return Model(name=f"{size}-{layers}", params=None, entry_points={"policy": EntryPoint(print)})

def broken():
    raise ValueError("no weights")
"""


class Engine:
    """Stands in for `opcompat.api`: remembers how it was called, and returns or raises what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.error: BaseException | None = None
        self.stuck = 0
        self.passed = True

    def report(self, command: str) -> Report:
        counts = {"native": 1, "folded": 0, "rewritten": 0, "unsupported": self.stuck, "unknown": 0}
        check = Check("onnx", "onnxruntime", "policy", "step", 1, 1, self.passed)
        target = TargetReport("onnxruntime", "ONNX Runtime", "1", counts, (), ())
        checks = () if command == "scan" else (check,)
        return Report(command, "tiny", "src", ("policy",), targets=(target,), checks=checks)

    def _called(self, command: str, args: tuple[Any, ...], options: dict[str, Any]) -> Report:
        self.calls.append((command, args, options))
        print("the engine prints")
        if options.get("progress"):
            options["progress"]("half \x1b[31mway")
        if self.error is not None:
            raise self.error
        return self.report(command)

    def scan(self, *args: Any, **options: Any) -> Report:
        return self._called("scan", args, options)

    def convert(self, *args: Any, **options: Any) -> tuple[None, Report]:
        return None, self._called("convert", args, options)

    def verify(self, *args: Any, **options: Any) -> Report:
        return self._called("verify", args, options)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    import opcompat.targets

    fake = Engine()
    api = ModuleType("opcompat.api")
    vars(api).update(scan=fake.scan, convert=fake.convert, verify=fake.verify)
    catalog = ModuleType("opcompat.targets.catalog")
    onnx, tflite = SimpleNamespace(name="onnx"), SimpleNamespace(name="tflite")
    ort = SimpleNamespace(
        name="onnxruntime",
        runtime="ONNX Runtime",
        version="1.32",
        backend=onnx,
        evidence="registry",
        summary="on servers",
    )
    litert = SimpleNamespace(
        name="litert", runtime="LiteRT", version="2.3", backend=tflite, evidence="probed", summary="on devices"
    )
    vars(catalog).update(
        TARGETS={"onnxruntime": lambda: ort, "litert": lambda: litert},
        FORMATS={"onnx": "onnxruntime", "tflite": "litert"},
        provenance=lambda name: [("runtime", name), ("evidence", "probed")],
        describe=lambda name: [("Add", "float32"), ("MatMul\x1b", f"of {name}")],
    )
    for parent, name, module in ((opcompat, "api", api), (opcompat.targets, "catalog", catalog)):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(parent, name, module, raising=False)
    return fake


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "cli_policy.py").write_text(POLICY)
    (folder / "opcompat.toml").write_text('factory = "cli_policy:make"\n')
    monkeypatch.chdir(tmp_path)
    yield folder
    sys.modules.pop("cli_policy", None)


def run(*args: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


def test_scan(engine: Engine, source: Path) -> None:
    result = run("scan", "model")
    assert result.stdout.startswith("opcompat scan: tiny\n")
    assert "prints" not in result.stdout
    assert "the factory prints" in result.stderr
    assert "the engine prints" in result.stderr
    ((command, (model, targets), options),) = engine.calls
    assert (command, model.name, targets) == ("scan", "full-1", ("onnxruntime", "litert"))
    assert callable(options.pop("progress"))
    assert options == {"source": "model", "opset": None, "batch": (), "allow_narrowing": False}


def test_scan_with_options(engine: Engine, source: Path) -> None:
    (source / "opcompat.toml").write_text(
        'factory = "cli_policy:make"\ntargets = ["litert"]\nopset = 20\nfactory_args = {size = "small", layers = 2}\n'
    )
    run("scan", "model")
    run("scan", "model", "--target", "onnxruntime", "--arg", "layers=3", "--opset", 21)
    assert [(args[0].name, args[1], options["opset"]) for _, args, options in engine.calls] == [
        ("small-2", ("litert",), 20),
        ("small-3", ("onnxruntime",), 21),
    ]


def test_exit_code_1_for_findings_and_mismatches(engine: Engine, source: Path) -> None:
    engine.stuck = 1
    assert "Not supported after rewriting" in run("scan", "model", code=1).stdout
    engine.stuck, engine.passed = 0, False
    assert "FAILED" in run("verify", "dist", code=1).stdout


def test_convert(engine: Engine, source: Path) -> None:
    run("convert", "model", "--to", "onnx,tflite", "--out", "dist", "--force", "--seeds", 3)
    ((_, (model, out, formats), options),) = engine.calls
    assert (model.name, out, formats) == ("full-1", Path("dist"), ("onnx", "tflite"))
    assert callable(options.pop("progress"))
    assert options == {
        "sampling": "exact",
        "batch": (),
        "opset": None,
        "allow_narrowing": False,
        "prune_inputs": False,
        "force": True,
        "steps": 100,
        "seeds": 3,
        "source": "model",
    }


def test_convert_as_configured(engine: Engine, source: Path) -> None:
    (source / "opcompat.toml").write_text(
        'factory = "cli_policy:make"\nto = ["tflite"]\nout = "dist"\nopset = 20\nsteps = 5\nseeds = 2\n'
    )
    run("convert", "model")
    run("convert", "model", "--to", "onnx", "--out", "x", "--opset", 21, "--steps", 6, "--sampling", "exact")
    (_, first, a), (_, second, b) = engine.calls
    assert first[1:] == (source / "dist", ("tflite",))
    assert (a["opset"], a["steps"], a["seeds"]) == (20, 5, 2)
    assert second[1:] == (Path("x"), ("onnx",))
    assert (b["opset"], b["steps"], b["seeds"]) == (21, 6, 2)


def test_verify(engine: Engine, source: Path) -> None:
    run("verify", "dist")
    run("verify", "dist", "model", "--steps", 7, "--arg", "size=small")
    (_, first, a), (_, second, b) = engine.calls
    assert first == (Path("dist"), None)
    assert (a["steps"], a["seeds"], a["source"]) == (1000, 1, "")
    assert second[1].name == "small-1"
    assert (b["steps"], b["source"]) == (7, "model")


@pytest.mark.parametrize("kind", [UnsupportedError, VerificationError])
def test_an_error_with_a_report_shows_it(engine: Engine, source: Path, kind: type[Exception]) -> None:
    engine.stuck = 1
    engine.error = kind("eigh stays\x1b[31m unsupported")
    engine.error.report = engine.report("convert")  # type: ignore[attr-defined]
    result = run("convert", "model", "--to", "onnx", "--out", "dist", "--output", "json=r.json", code=1)
    assert result.stdout.startswith("opcompat convert: tiny")
    assert result.stderr.endswith("error: eigh stays\\x1b[31m unsupported\n")
    assert json.loads(Path("r.json").read_text())["ok"] is False


@pytest.mark.parametrize(("error", "code"), [(BundleError("not a bundle"), 2), (CrashError("died"), 3)])
def test_the_errors_have_exit_codes(engine: Engine, source: Path, error: Exception, code: int) -> None:
    engine.error = error
    result = run("verify", "dist", code=code)
    assert result.stdout == ""
    assert result.stderr.endswith(f"error: {error}\n")
    assert "Traceback" not in result.stderr


def test_a_crash_ends_in_exit_code_3(engine: Engine, source: Path) -> None:
    engine.error = KeyError("lost")
    result = run("scan", "model", code=3)
    assert "error: opcompat crashed: KeyError: 'lost' (test_cli.py:" in result.stderr
    assert "Run again with -v for the traceback." in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback (most recent call last)" in run("scan", "model", "-v", code=3).stderr


def test_an_interruption(engine: Engine, source: Path) -> None:
    engine.error = KeyboardInterrupt()
    assert run("scan", "model", code=130).stderr.endswith("interrupted\n")


def test_a_factory_that_raises_shows_its_traceback_on_demand(engine: Engine, source: Path) -> None:
    (source / "opcompat.toml").write_text('factory = "cli_policy:broken"\n')
    message = "error: the factory cli_policy:broken raised at model/cli_policy.py:10: ValueError: no weights"
    result = run("scan", "model", code=2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    result = run("scan", "model", "--verbose", code=2)
    assert message in result.stderr
    assert 'raise ValueError("no weights")' in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["scan"], "Missing argument 'SOURCE'"),
        (["scan", "nowhere"], "no such folder or file: nowhere"),
        (["scan", "model", "--target", "liter"], "no target 'liter'; did you mean 'litert'?"),
        (["scan", "model", "--target", ","], "holds an empty name"),
        (["scan", "model", "--arg", "size"], "'size' is not of the form NAME=VALUE"),
        (["scan", "model", "--arg", "sise=1"], "did you mean 'size'?"),
        (["scan", "model", "--format", "jsn"], "no format 'jsn'; did you mean 'json'?"),
        (["scan", "model", "--output", "r.json"], "'r.json' is not of the form FORMAT=FILE"),
        (["scan", "model", "--output", "xml=r"], "no format 'xml' (formats: "),
        (["scan", "model", "--output", "json=no/r.json"], "there is no folder"),
        (["scan", "model", "--output", "json=model"], "is not a regular file"),
        (["scan", "model", "--output", "json=-"], "--format chooses what standard output shows"),
        (["scan", "model", "--output", "json=model/cli_policy.py"], "it is an existing file of the source"),
        (["scan", "model", "--output", "json=model/opcompat.toml"], "it is an existing file of the source"),
        (["scan", "model", "--output", "json=r", "--output", "html=./r"], "is given more than once"),
        (["convert", "model", "--out", "dist"], "give --to onnx,tflite, or set to in opcompat.toml"),
        (["convert", "model", "--to", "onnx"], "give --out DIR, or set out in opcompat.toml"),
        (["convert", "model", "--to", "onx", "--out", "d"], "no format 'onx'; did you mean 'onnx'?"),
        (["convert", "model", "--sampling", "greed"], "sampling 'greed' does not exist; did you mean 'greedy'?"),
        (["convert", "model", "--steps", "0"], "0 is not in the range x>=1"),
        (["verify", "bundle", "--output", "json=bundle/r.json"], "it lies inside a bundle"),
        (["verify", "bundle", "--arg", "a=1"], "they need SOURCE"),
        (["targets", "litter"], "no target 'litter'; did you mean 'litert'?"),
        (["scann", "model"], "No such command 'scann'"),
    ],
)
def test_mistakes_end_in_exit_code_2(engine: Engine, source: Path, args: list[str], message: str) -> None:
    Path("bundle").mkdir()
    before = {path: path.read_bytes() for path in source.rglob("*.*") if path.suffix in (".py", ".toml")}
    result = run(*args, code=2)
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert engine.calls == []
    assert {path: path.read_bytes() for path in before} == before


def test_an_unknown_key_ends_in_exit_code_2(engine: Engine, source: Path) -> None:
    (source / "opcompat.toml").write_text('factory = "cli_policy:make"\nstep = 1\n')
    result = run("scan", "model", code=2)
    assert "opcompat.toml: unknown key 'step'; did you mean 'steps'?" in result.stderr


def test_formats_and_files(engine: Engine, source: Path) -> None:
    Path("old.html").write_text("old")
    outputs = ["--output", "html=old.html", "--output", "text=model/r.txt", "--output", "json=r.json"]
    result = run("scan", "model", "--format", "json", *outputs)
    assert json.loads(result.stdout)["model"] == "tiny"
    assert Path("r.json").read_text() == result.stdout
    assert Path("old.html").read_text().startswith("<!doctype html>")
    assert (source / "r.txt").read_text().startswith("opcompat scan: tiny")
    assert not list(source.parent.rglob("*.tmp"))
    assert Path("r.json").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_disk_that_fills_up_leaves_the_old_file(
    engine: Engine, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    Path("r.json").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    result = run("scan", "model", "--output", "json=r.json", code=2)
    assert "r.json: No space left on device" in result.stderr
    assert Path("r.json").read_text() == "old"
    assert not list(source.parent.rglob("*.tmp"))


def test_color(engine: Engine, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run("scan", "model").stdout
    assert "\x1b[1m" in run("scan", "model", "--color").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1m" in run("scan", "model", "--color").stdout
    assert "\x1b" not in run("scan", "model", "--no-color").stdout


def test_progress_is_lines_where_asked(engine: Engine, source: Path) -> None:
    assert "half" not in run("verify", "dist").stderr
    assert "half \\x1b[31mway\n" in run("verify", "dist", "-v").stderr
    assert "half" not in run("verify", "dist", "-q").stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ('"3"', "3"),
        ("small", "small"),
        ("1\nb = 2", "1\nb = 2"),
    ],
)
def test_arguments_are_toml_or_text(text: str, value: object) -> None:
    assert toml_value(text) == value


def test_targets(engine: Engine) -> None:
    assert run("targets").stdout == (
        "onnxruntime  ONNX Runtime 1.32  onnx    registry  on servers\n"
        "litert       LiteRT 2.3         tflite  probed    on devices\n"
    )
    assert run("targets", "litert").stdout == (
        "runtime   litert\nevidence  probed\nAdd         float32\nMatMul\\x1b  of litert\n"
    )


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "Threefry bits.\n\nBefore: random_bits\n    After: add, xor\n"
    first = SimpleNamespace(
        id="OC101",
        title="Threefry bits",
        stage="legalize",
        exactness="bit for bit",
        page=page,
        module="a.bits",
    )
    second = SimpleNamespace(**{**vars(first), "id": "OC301", "title": "Slices", "stage": "keys"})
    monkeypatch.setattr(packs, "rules", lambda: (first, second))
    lint = SimpleNamespace(id="OC701", title="Keys", page="Keys.\n\nFinds: keys\n", module="a.keys")
    monkeypatch.setattr(packs, "lints", lambda: (lint,))


def test_rules(rules: None) -> None:
    assert run("rules").stdout == (
        "OC101  legalize  bit for bit  Threefry bits\nOC301  keys      bit for bit  Slices\n"
        "OC701  lint      advice       Keys\n"
    )


def test_explain(rules: None) -> None:
    assert run("explain", "oc101").stdout == (
        "OC101: Threefry bits\n\nStage: legalize. Exactness: bit for bit. File: a.bits.\n\n"
        "Before: random_bits\n    After: add, xor\n"
    )
    assert run("explain", "OC701").stdout == (
        "OC701: Keys\n\nLint: it gives advice and changes nothing. File: a.keys.\n\nFinds: keys\n"
    )
    message = run("explain", "OC102", code=2).stderr
    assert message == "error: no rule 'OC102'; did you mean 'OC101'?; `opcompat rules` lists them\n"


def _python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["", "scan", "convert", "verify", "rules", "explain", "targets", "probe"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(sorted({'jax', 'numpy', 'rich', 'jinja2'} & set(sys.modules))))\n"
        "from opcompat.cli import main; main()"
    )
    done = _python(code, *([command] if command else []), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: opcompat" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_the_version() -> None:
    done = _python("from opcompat.cli import main; main()", "--version")
    assert done.stdout == f"opcompat {opcompat.__version__}\n"


def test_a_checkout_that_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "cli.py").write_bytes((ROOT / "cli.py").read_bytes())
    package = tmp_path / "opcompat"
    package.mkdir()
    (package / "__init__.py").touch()
    done = subprocess.run([sys.executable, "-S", "cli.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install -e ." in done.stderr


def test_batch_sizes(engine: Engine, source: Path) -> None:
    run("scan", "model", "--batch", "1,16", "--batch", "4")
    run("convert", "model", "--to", "onnx", "--out", "dist", "--batch", "16")
    assert [options["batch"] for _, _, options in engine.calls] == [(1, 16, 4), (16,)]


@pytest.mark.parametrize("value", ["0", "-1", "two", "1,,2", ""])
def test_batch_sizes_are_whole_numbers(engine: Engine, source: Path, value: str) -> None:
    run("scan", "model", "--batch", value, code=2)
    assert not engine.calls
