"""`opcompat probe`: writes the file that was named, shows what differs, and `opcompat targets T SOURCE`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from opcompat.cli import cli
from opcompat.targets import catalog, table


def run(*args: object, code: int) -> Result:
    result = CliRunner().invoke(cli, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


def test_a_document_gives_its_table_again(tmp_path: Path) -> None:
    file = tmp_path / "coreml.json"
    result = run("probe", "coreml", "--out", file, code=0)
    assert "0 differences" in result.stdout
    assert table.read(file).content == table.load("coreml").content


def test_differences_are_shown_and_end_in_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.loads(json.dumps(table.load("coreml").content))
    content["ops"]["Add"] = [{"is": "no", "why": "gone"}]
    old = catalog.stored
    monkeypatch.setattr(catalog, "stored", lambda name: table.Table(content) if name == "coreml" else old(name))
    result = run("probe", "coreml", "--out", tmp_path / "new.json", code=1)
    assert "2 differences" in result.stdout
    assert "T: float32 float16  nothing -> yes" in result.stdout
    assert "no -> unknown" in result.stdout


def test_files_are_not_replaced_unasked(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text("mine")
    assert "exists" in run("probe", "coreml", "--out", file, code=2).stderr
    assert file.read_text() == "mine"
    run("probe", "coreml", "--out", file, "--force", code=0)
    assert "name the file" in run("probe", "coreml", code=2).stderr


def test_a_table_is_printed_with_its_provenance() -> None:
    printed = run("targets", "tensorrt", code=0).stdout
    assert "onnx-tensorrt, operators.md, 10.1" in printed
    assert "documented, 2026-11-30" in printed
