"""Python factories: what they may be, and what each mistake says. None of it needs JAX."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opcompat.errors import ConfigError, SourceError
from opcompat.sources import Options, load

POLICY = """
from opcompat.model import EntryPoint, Model

def apply(params, x):
    return x

def make(name="tiny", flag=False):
    return Model(name=name, params={"flag": flag}, entry_points={"policy": EntryPoint(apply, (1.0,), ("y",))})

def broken():
    helper()

def helper():
    raise ValueError("no weights\\nsecond line")

def stops():
    raise SystemExit(4)

def wrong():
    return {"a": 1}

def nothing():
    pass

NUMBER = 3
"""


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.py").write_text(POLICY)
    (tmp_path / "opcompat.toml").write_text('factory = "policy:make"\n[factory_args]\nname = "from_toml"\n')
    return tmp_path


def configure(folder: Path, factory: str) -> str:
    (folder / "opcompat.toml").write_text(f'factory = "{factory}"\n')
    return str(folder)


def failure(source: str, **args: object) -> str:
    with pytest.raises(SourceError) as caught:
        load(source, Options(factory_args=args))
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_folder(folder: Path) -> None:
    loaded = load(str(folder))
    assert (loaded.model.name, loaded.name, loaded.root) == ("from_toml", str(folder), folder)
    assert load(str(folder), Options(factory_args={"name": "given", "flag": True})).model.params == {"flag": True}


def test_a_folder_with_only_pyproject(folder: Path) -> None:
    (folder / "opcompat.toml").unlink()
    (folder / "pyproject.toml").write_text('[tool.opcompat]\nfactory = "policy:make"\n')
    assert load(str(folder)).model.name == "tiny"


def test_module_and_function(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert load("policy:make").model.name == "from_toml"  # it is the configured factory
    configure(folder, "policy:other")
    assert load("policy:make").model.name == "tiny"  # it is not: its arguments are another function's


def test_siblings_can_be_imported_when_functions_run(folder: Path) -> None:
    (folder / "late.py").write_text("VALUE = 7\n")
    (folder / "policy.py").write_text(POLICY.replace("    return x", "    import late\n    return late.VALUE"))
    model = load(str(folder)).model
    assert model.entry_points["policy"].function(None, 1.0) == 7
    assert sys.path.count(str(folder)) == 1


def test_no_such_folder() -> None:
    assert failure("no/such/place") == "no such folder or file: no/such/place"
    assert "a Python factory is written module:function" in failure("nosuch")


def test_a_folder_without_configuration(tmp_path: Path) -> None:
    message = failure(str(tmp_path))
    assert "has no opcompat.toml: write one" in message
    assert 'factory = "policy:make"' in message


def test_a_parent_s_factory_is_not_the_folder_s(folder: Path) -> None:
    (folder / "inner").mkdir()
    assert "has no opcompat.toml" in failure(str(folder / "inner"))


def test_a_configuration_without_factory(tmp_path: Path) -> None:
    (tmp_path / "opcompat.toml").write_text("steps = 3\n")
    assert "opcompat.toml names no factory" in failure(str(tmp_path))


def test_an_unknown_key(tmp_path: Path) -> None:
    (tmp_path / "opcompat.toml").write_text('factori = "a:b"\n')
    with pytest.raises(ConfigError, match="unknown key 'factori'; did you mean 'factory'"):
        load(str(tmp_path))


def test_no_such_module_or_function(folder: Path) -> None:
    assert "no module 'polcy' in" in failure(configure(folder, "polcy:make"))
    message = failure(configure(folder, "policy:mak"))
    assert "has no function 'mak'; did you mean 'make'?" in message
    assert str(folder / "policy.py") in message
    assert "policy:NUMBER is an int, not a function" in failure(configure(folder, "policy:NUMBER"))


def test_a_module_that_cannot_be_imported(folder: Path) -> None:
    (folder / "syntax.py").write_text("a = 1\ndef f(:\n")
    message = failure(configure(folder, "syntax:f"))
    assert f"importing syntax failed at {folder / 'syntax.py'}:2: SyntaxError" in message
    (folder / "imports.py").write_text("\nimport no_such_package\n")
    message = failure(configure(folder, "imports:f"))
    assert f"imports failed at {folder / 'imports.py'}:2: ModuleNotFoundError: No module named" in message
    assert f"failed at {folder / 'raises.py'}:1: ZeroDivisionError" in raises(folder)


def raises(folder: Path) -> str:
    (folder / "raises.py").write_text("1 / 0\n")
    return failure(configure(folder, "raises:f"))


def test_a_factory_that_raises(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = configure(folder, "policy:broken")
    expected = "the factory policy:broken raised at {}:14: ValueError: no weights"
    assert failure(source) == expected.format(folder / "policy.py")
    monkeypatch.chdir(folder)
    assert failure(".") == expected.format("policy.py")
    assert "policy.py:17: SystemExit: 4" in failure(configure(folder, "policy:stops"))


def test_a_factory_that_returns_something_else(folder: Path) -> None:
    assert "returned a dict, not an opcompat.Model" in failure(configure(folder, "policy:wrong"))
    assert "returned None, not an opcompat.Model" in failure(configure(folder, "policy:nothing"))


def test_arguments_that_the_factory_does_not_take(folder: Path) -> None:
    message = failure(configure(folder, "policy:make"), flga=True)
    assert "policy:make(name='tiny', flag=False) does not take these arguments" in message
    assert "did you mean 'flag'?" in message


def test_a_module_of_that_name_is_loaded_already(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    load(str(folder))
    other = tmp_path_factory.mktemp("other")
    (other / "policy.py").write_text(POLICY)
    assert "is already loaded under that name" in failure(configure(other, "policy:make"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.bin", "a file of a kind that opcompat does not know"),
    ],
)
def test_kinds_that_are_not_readable_yet(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    message = failure(str(path if path.parent == tmp_path else path.parent))
    assert kind in message
    assert "not readable yet" in message


def test_files_that_are_nearly_right(folder: Path) -> None:
    assert f"give its folder, {folder}" in failure(str(folder / "opcompat.toml"))
    assert "give policy:FUNCTION" in failure(str(folder / "policy.py"))
