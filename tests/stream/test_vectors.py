from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.paths import END_NAME, FILE, LINK
from agentmove_tools.stream.tar_reader import MoveReader
from agentmove_tools.stream.verify import verify
from tests.conftest import VECTORS
from tests.stream.tars import Chunked, digest

INDEX = VECTORS / "stream" / "index.json"
ROWS: list[dict[str, Any]] = json.loads(INDEX.read_text()) if INDEX.exists() else []
GOOD = [row for row in ROWS if row.get("accepted")]
BAD = [row for row in ROWS if not row.get("accepted")]
COUNTS = [(1 << 20,), (512,), (1,), (700, 3, 1511)]


def test_every_vector_is_here(vectors: Path) -> None:
    """Each file is in the index, and each row is one of the two kinds."""
    files = {path.name for path in (vectors / "stream").glob("*.tar")}
    assert {row["file"] for row in ROWS} == files
    assert all("refusal" in row for row in BAD)
    assert GOOD
    assert BAD


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("row", GOOD, ids=lambda row: row["file"])
def test_a_good_one_is_read(vectors: Path, row: dict[str, Any], counts: tuple[int, ...]) -> None:
    """Exactly its entries, in their order, and what their hashes say; all of it passes."""
    data = (vectors / "stream" / row["file"]).read_bytes()
    reader = MoveReader(Chunked(data, counts))
    got = []
    for entry in reader:
        found: dict[str, Any] = {"path": entry.path.decode(), "kind": entry.kind}
        if entry.kind == FILE:
            found["sha256"] = digest(reader.read()).decode()
        if entry.kind == LINK:
            assert entry.target is not None
            found["target"] = entry.target.decode()
        got.append(found)
    assert got == row["entries"]
    out = io.BytesIO()
    verify(Chunked(data, counts), out)
    assert out.getvalue() == data


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("row", BAD, ids=lambda row: row["file"])
def test_a_bad_one_is_refused(vectors: Path, row: dict[str, Any], counts: tuple[int, ...]) -> None:
    """With its code, and what it names; what passes is a true start without the end."""
    data = (vectors / "stream" / row["file"]).read_bytes()
    out = io.BytesIO()
    with pytest.raises(Refusal) as caught:
        verify(Chunked(data, counts), out)
    assert caught.value.code == row["refusal"]
    for key in ("path", "field"):
        if key in row:
            assert caught.value.details[key] == row[key]
    assert data.startswith(out.getvalue())
    assert END_NAME not in out.getvalue()
    if row["refusal"] in ("stream-not-move", "stream-format", "manifest-json", "manifest-field"):
        assert out.getvalue() == b""
