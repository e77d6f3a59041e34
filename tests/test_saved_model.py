"""What is said of a SavedModel of TensorFlow's own ops before TensorFlow is needed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from opcompat.errors import SourceError, UnsupportedError
from opcompat.sources import Options, load
from opcompat.sources.classic.survey import survey
from opcompat.sources.tf import messages


def _save(folder: Path, *ops: str, objects: int = 1, signature: bool = True) -> Path:
    """A SavedModel whose one signature calls a function with these ops."""
    saved = messages._classes()["SavedModel"]()
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    for _ in range(objects):
        meta.object_graph_def.nodes.add()
    meta.graph_def.node.add(name="x", op="Placeholder")
    call = meta.graph_def.node.add(name="call", op="StatefulPartitionedCall", input=["x"])
    call.attr["f"].func.name = "inside"
    function = meta.graph_def.library.function.add()
    function.signature.name = "inside"
    for index, op in enumerate(ops):
        function.node_def.add(name=f"node{index}", op=op)
    if signature:
        meta.signature_def["act"].inputs["x"].name = "x:0"
        meta.signature_def["act"].outputs["y"].name = "call:0"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return folder


def test_every_refused_node_is_named_with_its_reason(tmp_path: Path) -> None:
    found = survey(str(_save(tmp_path / "m", "Tanh", "RandomUniform", "ReadFile", "RandomUniform")))
    assert [(u.signature, u.function, u.node, u.op) for u in found.refused] == [
        ("act", "inside", "node1", "RandomUniform"),
        ("act", "inside", "node2", "ReadFile"),
        ("act", "inside", "node3", "RandomUniform"),
    ]
    with pytest.raises(UnsupportedError, match=r"(?s)3 nodes.*signature act, node node3, in function inside") as error:
        found.check(found.refused)
    assert str(error.value).count("RandomUniform") == 1


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = str(_save(tmp_path / "m", "Tanh"))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "tensorflow" else find(name, *a))
    with pytest.raises(SourceError, match=r'pip install "opcompat\[tensorflow\]"') as error:
        load(source)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"objects": 0}, "TensorFlow 1"),
        ({"signature": False}, "no signatures"),
    ],
)
def test_what_has_no_entry_points(made: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message):
        load(str(_save(tmp_path / "m", **made)))


def test_an_unknown_route_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="did you mean 'tf2onnx'"):
        load(str(_save(tmp_path / "m", "Tanh")), Options(via="tf2onx"))


def test_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\xff" * 100)
    with pytest.raises(SourceError, match="damaged"):
        load(str(tmp_path))


def test_a_keras_file_says_how_to_export_it(tmp_path: Path) -> None:
    (tmp_path / "policy.keras").write_bytes(b"PK")
    with pytest.raises(SourceError, match=r"model\.export\(FOLDER\)"):
        load(str(tmp_path / "policy.keras"))
