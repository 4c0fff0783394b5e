from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from agentmove_tools.bridge.to_package import package_of as package_of_stream
from agentmove_tools.bridge.to_stream import write_stream
from agentmove_tools.package.pack import pack
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.paths import END_NAME
from agentmove_tools.stream.tar_reader import MoveReader
from tests.bridge.crossings import lost, to_package
from tests.home.builder import Bytes
from tests.package.packages import ALL
from tests.package.test_vectors import BAD as BAD_PACKAGES
from tests.package.test_vectors import GOOD as GOOD_PACKAGES
from tests.package.test_vectors import check_refusal
from tests.package.zips import package_of
from tests.stream.tars import Chunked
from tests.stream.test_vectors import BAD as BAD_STREAMS
from tests.stream.test_vectors import GOOD as GOOD_STREAMS

# What the good streams become: the paths in the package, or the code of the refusal.
NO_SOUL: Final = "package-required"
PLAIN: Final = ("MEMORY.md", "SOUL.md", "agent.config.json")
BECOME: Final[dict[str, tuple[str, ...] | str]] = {
    "good-copy.tar": PLAIN,
    "good-unknown-manifest-fields.tar": PLAIN,
    "good-manifest-extras.tar": PLAIN,
    "good-switch.tar": (
        *PLAIN,
        "data/secrets/agent.json",
        "data/sessions/thread:t1.jsonl",
    ),
    "good-empty-copy.tar": NO_SOUL,
    "good-files.tar": NO_SOUL,
    "good-names.tar": NO_SOUL,
    "good-links.tar": NO_SOUL,
    "good-raw-blocks.tar": NO_SOUL,
    "good-pax-path-and-size.tar": NO_SOUL,
    "good-rust-tar.tar": NO_SOUL,
}


def named(row: dict[str, Any]) -> str:
    return str(row["file"])


# -- packages


@pytest.mark.parametrize("row", GOOD_PACKAGES, ids=named)
def test_a_good_package_comes_back(vectors: Path, row: dict[str, Any]) -> None:
    """Through a stream, byte for byte what is packed of it; what it has no place for is told."""
    data = (vectors / "package" / row["file"]).read_bytes()
    sink = Bytes()
    crossing = write_stream(package_of(data), sink)
    made = to_package(sink.getvalue(), strict=True)
    assert b"".join(made.pieces) == b"".join(pack(package_of(data)))
    told = {path for path, _ in lost(crossing)}
    assert {path for path in told if path in row.get("unknown", [])} == set(row.get("unknown", []))
    assert made.crossing.lost == []
    for counts in (*crossing.kinds.values(), *made.crossing.kinds.values()):
        assert counts["in"] == counts["written"] + counts["passed_over"]
    assert made.crossing.events["in"] == crossing.events["written"]


@pytest.mark.parametrize("row", BAD_PACKAGES, ids=named)
def test_a_bad_package_becomes_no_stream(vectors: Path, row: dict[str, Any]) -> None:
    """It is refused with its own code, and what was written by then has no end."""
    data = (vectors / "package" / row["file"]).read_bytes()
    sink = Bytes()
    with pytest.raises(Refusal) as caught:
        write_stream(package_of(data), sink)
    check_refusal(row, caught.value.code, caught.value.details)
    assert END_NAME not in sink.getvalue()
    with pytest.raises(Refusal):
        to_package(sink.getvalue())


# -- streams


def test_every_good_stream_is_known_here(vectors: Path) -> None:
    """None is passed over."""
    assert vectors.exists()
    assert BECOME.keys() == {row["file"] for row in GOOD_STREAMS}


@pytest.mark.parametrize("row", GOOD_STREAMS, ids=named)
def test_what_a_good_stream_becomes(vectors: Path, row: dict[str, Any]) -> None:
    """A package where it has instructions; every file in it is written or told."""
    data = (vectors / "stream" / row["file"]).read_bytes()
    expected = BECOME[row["file"]]
    if isinstance(expected, str):
        with pytest.raises(Refusal) as caught:
            to_package(data)
        assert caught.value.code == expected
        return
    made = to_package(data)
    paths = [file.path for file in made.package.files]
    assert paths == list(expected)
    told = {path for path, _ in lost(made.crossing)} - {"lnk-move-4.json"}
    files = {entry["path"] for entry in row["entries"] if entry["kind"] != "folder"}
    written = sum(counts["written"] for counts in made.crossing.kinds.values())
    assert told <= files
    assert len(told) + written == len(files)
    again = package_of(b"".join(made.pieces))
    again.check()
    assert b"".join(pack(again)) == b"".join(made.pieces)


@pytest.mark.parametrize("counts", [(1 << 20,), (700, 3, 1511)], ids=str)
@pytest.mark.parametrize("row", BAD_STREAMS, ids=named)
def test_a_bad_stream_becomes_no_package(
    vectors: Path, row: dict[str, Any], counts: tuple[int, ...]
) -> None:
    """It is refused with its own code, whatever is wrong with it for a package."""
    data = (vectors / "stream" / row["file"]).read_bytes()
    with pytest.raises(Refusal) as caught:
        package_of_stream(MoveReader(Chunked(data, counts)), ALL, skip_events=True)
    assert caught.value.code == row["refusal"]
    for key in ("path", "field"):
        if key in row:
            assert caught.value.details[key] == row[key]
