"""The HTML page in Chromium: no errors, no requests, everything visible and readable, on a phone and a desktop."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Converted

sys.path.append(str(Path(__file__).parents[1]))
from test_page import many, render

from opcompat.checking.data import CheckReport, ModelResult

HERE = Path(__file__).parent
pytestmark = pytest.mark.browser


def look(page: str, folder: Path, width: int, scheme: str) -> dict[str, Any]:
    """What Chromium sees of a page at a width, in light or dark; leaves a screenshot beside it."""
    file, shot = folder / "page.html", folder / f"{width}-{scheme}.png"
    file.write_text(page, encoding="utf-8")
    command = ["node", str(HERE / "page.mjs"), str(file), str(width), scheme, str(shot)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["messages"] == []
    assert found["requests"] == [file.as_uri()]
    data = shot.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", data[16:20])[0] >= width
    return found


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_the_example(discrete: Converted, tmp_path: Path, width: int, scheme: str) -> None:
    report = CheckReport((ModelResult("examples/dreamer", discrete.report),), versions=discrete.report.versions)
    page = render("html", report)
    assert len(page.encode()) < 2_000_000
    seen = look(page, tmp_path, width, scheme)
    assert seen["plots"] >= 4
    assert seen["margins"] >= 4
    assert seen["matrix"] == 4
    assert seen["findings"] > 10
    assert seen["heat"] > 20
    assert seen["sides"] > 8
    assert seen["scroll"] <= seen["inner"] == width
    assert seen["text"] >= 16
    assert seen["plotText"] >= 9
    dark = sum(map(int, seen["background"][4:-1].split(",")[:3])) < 200
    assert dark is (scheme == "dark")


@pytest.mark.parametrize("width", [390, 1440])
def test_5000_findings(tmp_path: Path, width: int) -> None:
    seen = look(render("html", many(5000)), tmp_path, width, "light")
    assert seen["findings"] == 200
    assert seen["scroll"] <= width
