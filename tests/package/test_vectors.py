from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.folder import FolderSource, open_folder
from agentmove_tools.package.layout import ON_REQUEST
from agentmove_tools.package.pack import pack
from agentmove_tools.package.unpack import unpack
from agentmove_tools.package.unpacked import UnpackOptions
from agentmove_tools.refusals import Refusal
from tests.conftest import VECTORS, RunTool
from tests.package.zips import package_of

FOLDER: Final = VECTORS / "package"
INDEX: Final = FOLDER / "index.json"
ROWS: Final[list[dict[str, Any]]] = json.loads(INDEX.read_text()) if INDEX.exists() else []
GOOD: Final = [row for row in ROWS if row.get("accepted")]
BAD: Final = [row for row in ROWS if not row.get("accepted")]

# Those that hold exactly the files of base.json, each packed in another way.
SAME: Final = (
    *("good-infozip.zip", "good-infozip-top-folder.zip", "good-infozip-piped.zip"),
    *("good-bsdtar.zip", "good-7zip.zip", "good-stored.zip", "good-apple-double.zip"),
    *("good-comment.zip", "good-windows-backslashes.zip"),
)

good = pytest.mark.parametrize("row", GOOD, ids=lambda row: row["file"])
bad = pytest.mark.parametrize("row", BAD, ids=lambda row: row["file"])


def folder_package(folder: Path) -> tuple[Package, int]:
    """Give the package of a folder, and the folder's open descriptor, for the caller to close."""
    root = open_folder(os.fsencode(folder))
    return Package(FolderSource(root), Options(wanted=frozenset(ON_REQUEST))), root


def packed(folder: Path) -> bytes:
    package, root = folder_package(folder)
    try:
        return b"".join(pack(package))
    finally:
        os.close(root)


def tree(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Every path below a folder, with its permission bits and, for a file, its content."""
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mode & 0o777,
            None if path.is_dir() else path.read_bytes(),
        )
        for path in folder.rglob("*")
    }


def unpacked(data: bytes, folder: Path) -> None:
    unpack(package_of(data), os.fsencode(folder), UnpackOptions())


def test_every_vector_is_here(vectors: Path) -> None:
    """Each file is in the index once, and each row is one of the two kinds."""
    files = sorted(path.name for path in (vectors / "package").glob("*.zip"))
    assert sorted(row["file"] for row in ROWS) == files
    assert all(("refusal" in row) != bool(row.get("accepted")) for row in ROWS)
    assert GOOD
    assert BAD
    assert set(SAME) <= {row["file"] for row in GOOD}


# -- those that are taken


@good
def test_a_good_one_is_taken(vectors: Path, row: dict[str, Any]) -> None:
    """All of it is right, and the paths that a package has no place for are those that it says."""
    data = (vectors / "package" / row["file"]).read_bytes()
    assert Archive(data).data == data
    package = package_of(data)
    package.check()
    assert package.unknown == sorted(row.get("unknown", []))


def test_strict_refuses_those_with_unknown_paths(vectors: Path) -> None:
    """By the first path; the others of the same kind of content are taken as before."""
    rows = [row for row in GOOD if "unknown" in row]
    assert rows
    for row in rows:
        with pytest.raises(Refusal) as caught:
            package_of((vectors / "package" / row["file"]).read_bytes(), strict=True)
        assert caught.value.code == "package-path"
        assert caught.value.details["path"] == min(row["unknown"])


@pytest.mark.parametrize(
    "row", [row for row in GOOD if "order" in row], ids=lambda row: row["file"]
)
def test_a_conversation_is_read_in_order(vectors: Path, row: dict[str, Any]) -> None:
    """Its events by their time, and of one time in the file's order."""
    package = package_of((vectors / "package" / row["file"]).read_bytes())
    package.begin()
    (session,) = [file for file in package.files if file.part == "session"]
    events = [event for event, _ in package.events(session, forms=False)]
    assert [event.id for event in sorted(events, key=lambda event: event.ts)] == row["order"]


@pytest.mark.parametrize("row", [row for row in GOOD if "chat" in row], ids=lambda row: row["file"])
def test_a_chat_is_whose_its_name_says(vectors: Path, row: dict[str, Any]) -> None:
    """Its channel and user are decoded, and split at the first colon."""
    package = package_of((vectors / "package" / row["file"]).read_bytes())
    assert row["chat"] in [list(file.chat) for file in package.files if file.part == "session"]


@pytest.mark.parametrize("name", SAME)
def test_what_packed_it_makes_no_difference(vectors: Path, name: str) -> None:
    """One agent is read out of each of these, with the files of base.json, byte for byte."""
    base = json.loads((vectors / "package" / "base.json").read_text())
    package = package_of((vectors / "package" / name).read_bytes())
    read = {
        item.path: hashlib.sha256(b"".join(item.pieces())).hexdigest()
        for file in package.files
        for item in file.items
    }
    derived = "data/memory.sqlite"
    assert read == {path: row["sha256"] for path, row in base.items() if path != derived}
    assert derived in {each.path for each in package.passed_over}


@good
def test_a_good_one_comes_back(vectors: Path, here: Path, row: dict[str, Any]) -> None:
    """Unpacked, packed and unpacked again it is the same agent, and the packing is stable."""
    data = (vectors / "package" / row["file"]).read_bytes()
    unpacked(data, here / "first")
    assert [path.name for path in here.iterdir()] == ["first"]
    again = packed(here / "first")
    assert again == b"".join(pack(package_of(data)))
    package = package_of(again)
    package.check()
    assert package.unknown == []
    unpacked(again, here / "second")
    assert tree(here / "second") == tree(here / "first")
    assert packed(here / "second") == again


# -- those that are refused


def check_refusal(row: dict[str, Any], code: object, details: dict[str, Any]) -> None:
    assert code in (row["refusal"], row.get("also"))
    for key in ("path", "field", "line"):
        if key in row:
            assert details[key] == row[key]


@bad
def test_a_bad_one_is_refused(vectors: Path, row: dict[str, Any]) -> None:
    """With its code, and what it names."""
    data = (vectors / "package" / row["file"]).read_bytes()
    with pytest.raises(Refusal) as caught:
        package_of(data).check()
    check_refusal(row, caught.value.code, caught.value.details)


@bad
def test_of_a_bad_one_nothing_is_unpacked(vectors: Path, here: Path, row: dict[str, Any]) -> None:
    """No folder is made, and nothing is left beside where it would lie."""
    data = (vectors / "package" / row["file"]).read_bytes()
    with pytest.raises(Refusal) as caught:
        unpacked(data, here / "agent")
    check_refusal(row, caught.value.code, caught.value.details)
    assert list(here.iterdir()) == []


def test_a_torn_line_can_be_left_out(vectors: Path) -> None:
    """The vector with one is taken then, without that line, and with a warning."""
    package = package_of((vectors / "package/bad-torn-line.zip").read_bytes(), drop_torn_line=True)
    package.check()
    path = "data/sessions/telegram:u42.jsonl"
    assert package.found.chats[path].torn
    assert package.found.warnings[path] == ["its last line was cut short, and is left out"]


def test_an_agent_without_an_id_can_be_told_one(vectors: Path) -> None:
    """The vector without one is taken then, under that ID."""
    data = (vectors / "package/bad-no-id.zip").read_bytes()
    package = package_of(data, external_id="told")
    package.check()
    assert package.found.config.id == "told"


# -- the executable


def test_the_tool_takes_the_good_ones(vectors: Path, tool: RunTool) -> None:
    """The same bytes come out, and nothing is said but warnings and what was left out."""
    for row in GOOD:
        data = (vectors / "package" / row["file"]).read_bytes()
        done = tool("agentfy-verify", stdin=data)
        assert done.returncode == 0, (row["file"], done.stderr)
        assert done.stdout == data
        said = done.stderr.decode().splitlines()
        left_out = [line.split(": ")[2] for line in said if ": no part of the agent: " in line]
        assert left_out == sorted(row.get("unknown", [])), row["file"]
        assert all(": no part of the agent: " in line or ": warning: " in line for line in said)


def test_the_tool_refuses_the_bad_ones(vectors: Path, tool: RunTool) -> None:
    """With its code, what it names, status 1, and not a byte of output."""
    for row in BAD:
        data = (vectors / "package" / row["file"]).read_bytes()
        done = tool("agentfy-verify", "--json-errors", stdin=data)
        assert done.returncode == 1, (row["file"], done.stderr)
        assert done.stdout == b""
        details = json.loads(done.stderr)["error"]["details"]
        check_refusal(row, details["refusal"], details)
