from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from agentmove_tools.canonical import is_canonical
from agentmove_tools.refusals import Refusal, UsageError
from agentmove_tools.stream import manifest as module
from agentmove_tools.stream.manifest import (
    Agent,
    Manifest,
    check_move_id,
    check_phase,
    new_move_id,
    read_manifest,
)
from tests.conftest import VECTORS

MOVE = "0123456789abcdef" * 2
TREE = "0123456789abcdef" * 4
GOOD: dict[str, Any] = {
    "format": 4,
    "phase": "switch",
    "move": MOVE,
    "version": "0.1.0",
    "agent": {"id": "a-1", "name": "Ада", "owner": "team"},
    "harness": "h",
    "removed": ["files/old.txt", "memory/vec/é"],
    "tree": TREE,
    "modes": {"files/run.sh": "755", "files/n": "000"},
    "collections": ["jobs", "notes"],
}
WHOLE = Manifest(
    phase="switch",
    move=MOVE,
    version="0.1.0",
    agent=Agent("a-1", "Ада", "team"),
    harness="h",
    removed=(b"files/old.txt", "memory/vec/é".encode()),
    tree=TREE,
    modes={b"files/run.sh": 0o755, b"files/n": 0},
    collections=("notes", "jobs"),
)
SMALLEST = {key: GOOD[key] for key in ("format", "phase", "move", "version", "agent", "harness")}
INDEX = VECTORS / "stream" / "index.json"
ROWS = [
    row
    for row in (json.loads(INDEX.read_text()) if INDEX.exists() else [])
    if "-manifest-" in row["file"]
    and row["file"] not in ("bad-manifest-second.tar", "bad-manifest-twice.tar")
]


def text(**changes: object) -> bytes:
    """Give the good manifest's text with some members set otherwise."""
    return json.dumps({**GOOD, **changes}).encode()


def without(*names: str) -> bytes:
    return json.dumps({key: GOOD[key] for key in GOOD if key not in names}).encode()


def refusal_of(data: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        Manifest.parse(data)
    return caught.value


def test_there_are_vectors(vectors: Path) -> None:
    """The test below is not empty."""
    assert len(ROWS) > 15
    assert vectors == VECTORS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_a_vector_holds(row: dict[str, Any]) -> None:
    """Its manifest alone is taken, or refused with its code and field."""
    with tarfile.open(VECTORS / "stream" / row["file"]) as tar:
        member = tar.next()
        assert member is not None
        file = tar.extractfile(member)
        assert file is not None
        data = file.read()
    if row.get("accepted"):
        Manifest.parse(data)
    else:
        refusal = refusal_of(data)
        assert refusal.code == row["refusal"]
        assert refusal.details.get("field") == row.get("field")


# -- what is taken


def test_every_field_is_read() -> None:
    """Each one has its place, and none is unknown."""
    assert Manifest.parse(text()) == WHOLE


def test_the_optional_fields_are_told_from_empty_ones() -> None:
    """What is not there is None; an empty list or object stays one."""
    least = Manifest.parse(json.dumps(SMALLEST).encode())
    assert (least.removed, least.tree, least.modes, least.collections) == (None, None, None, None)
    empty = Manifest.parse(text(removed=[], modes={}, collections=[]))
    assert (empty.removed, empty.modes, empty.collections) == ((), {}, ())
    assert Manifest.parse(empty.to_json()) == empty
    assert Manifest.parse(least.to_json()) == least


def test_an_agent_without_an_owner_is_written_without_one() -> None:
    """The owner is optional, and comes as None."""
    manifest = Manifest.parse(text(agent={"id": "a", "name": ""}))
    assert manifest.agent == Agent("a", "", None)
    assert b"owner" not in manifest.to_json()


def test_it_is_written_in_the_one_form() -> None:
    """The same manifest gives the same bytes, and they read back as it."""
    written = WHOLE.to_json()
    assert is_canonical(written)
    assert json.loads(written) == {**GOOD, "collections": ["notes", "jobs"]}
    assert Manifest.parse(written) == WHOLE


def test_white_space_around_it_is_taken() -> None:
    """A manifest that a person wrote ends with a newline."""
    assert Manifest.parse(b" \n" + text() + b"\r\n") == WHOLE


def test_of_a_repeated_key_the_last_counts() -> None:
    """At any depth, as in the one form."""
    data = text().replace(b'"harness": "h"', b'"harness": 1, "harness": "h"')
    assert data.count(b"harness") == 2
    assert Manifest.parse(data) == WHOLE


@pytest.mark.parametrize(
    "value",
    [
        b"null",
        b'{"b":[1,{"a":null}],"c":"\xc3\xa9"}',
        b"1.0",
        b"-0.0",
        b"1e-7",
        b"0.00001",
        b"12345678901234567890123",
        b"9" * 5000,
    ],
    ids=lambda value: value[:20].decode(),
)
def test_an_unknown_field_is_kept_as_it_is(value: bytes) -> None:
    """Of the manifest and of the agent: numbers lose no digit, and stay numbers."""
    data = json.dumps(SMALLEST, ensure_ascii=False).encode()
    data = data.replace(b'"harness"', b'"extra":' + value + b',"harness"')
    data = data.replace(b'"owner"', b'"kin":' + value + b',"owner"')
    written = Manifest.parse(data).to_json()
    assert b'"extra":' + value + b"," in written
    assert b'"kin":' + value + b"," in written
    assert Manifest.parse(written).to_json() == written


# -- what is refused


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"[]",
        b'"x"',
        b"4",
        b"null",
        text() + b"{}",
        text() + b"\0",
        b"\xef\xbb\xbf" + text(),
        text().decode().encode("utf-16"),
        text(x="y").replace(b'"y"', b"NaN"),
        text(x="y").replace(b'"y"', b"-Infinity"),
        text(x="y").replace(b'"y"', b"1e400"),
        text(x="y").replace(b'"y"', b'"\xff"'),
        text(x="y").replace(b'"y"', b'"\\ud800"'),
        text(removed=["files/x"]).replace(b"files/x", b"files/\\udfff"),
        text(x="y").replace(b'"y"', b"'y'"),
        text(x="y").replace(b'"y"', b'"a\nb"'),
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        text(x="y").replace(b'"y"', b"[" * 127 + b"]" * 127),
    ],
    ids=range(22),
)
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    """One object in UTF-8 and nothing else; depth and size are no accident of the machine."""
    assert refusal_of(data).code == "manifest-json"


def test_a_manifest_over_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte; and none is written that would be."""
    monkeypatch.setattr(module, "MAX_MANIFEST", len(WHOLE.to_json()))
    assert Manifest.parse(WHOLE.to_json()) == WHOLE
    assert refusal_of(WHOLE.to_json() + b" ").why == "it is longer than 64 MiB"
    monkeypatch.setattr(module, "MAX_MANIFEST", len(WHOLE.to_json()) - 1)
    with pytest.raises(Refusal, match="64 MiB"):
        WHOLE.to_json()


def test_a_name_that_no_json_can_hold_is_not_written() -> None:
    """A lone surrogate is a refusal, and no traceback."""
    agent = Agent("a", "\ud800")
    with pytest.raises(Refusal, match="lone surrogate") as caught:
        Manifest("copy", MOVE, "1", agent, "h").to_json()
    assert caught.value.code == "manifest-json"


@pytest.mark.parametrize("name", ["format", "phase", "move", "version", "agent", "harness"])
def test_a_missing_field_is_named(name: str) -> None:
    """Each field that is not optional is."""
    refusal = refusal_of(without(name))
    assert (refusal.code, refusal.details["field"]) == ("manifest-field", name)
    assert "missing" in refusal.why


@pytest.mark.parametrize("name", ["id", "name"])
def test_a_missing_field_of_the_agent_is_named(name: str) -> None:
    """By its whole name."""
    agent = {key: value for key, value in GOOD["agent"].items() if key != name}
    refusal = refusal_of(text(agent=agent))
    assert (refusal.code, refusal.details["field"]) == ("manifest-field", f"agent.{name}")
    assert "missing" in refusal.why


WRONG_TYPES: dict[str, list[object]] = {
    "format": [None, True, "4", 4.0, [4], {}],
    "phase": [None, 1, "", "Switch", "move", ["switch"], {}],
    "move": [None, 1, "", MOVE[:-1], MOVE + "0", MOVE.upper(), MOVE + "\n", "٣" * 32],
    "version": [None, 1, [], {}],
    "agent": [None, "a", [], 1],
    "harness": [None, False, [], {}],
    "removed": [None, "files/a", {}, [1], [None], [["files/a"]]],
    "tree": [None, 1, "", TREE[:-1], TREE.upper(), TREE + "\n"],
    "modes": [
        None,
        [],
        {"files/a": 493},
        {"files/a": "0755"},
        {"files/a": "75"},
        {"files/a": "758"},
        {"files/a": "٧٥٥"},
        {"files/a": None},
    ],
    "collections": [None, "jobs", {}, ["dreams"], ["jobs", "jobs"], [1], [["jobs"]], [None]],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG_TYPES.items() for value in values]
)
def test_a_field_of_a_wrong_type_or_form_is_named(name: str, value: object) -> None:
    """True is no number, null is no text, and digits are ASCII digits."""
    refusal = refusal_of(text(**{name: value}))
    assert (refusal.code, refusal.details["field"]) == ("manifest-field", name)
    assert refusal.place == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", None),
        ("id", 1),
        ("id", ""),
        ("name", None),
        ("name", []),
        ("owner", None),
        ("owner", 1),
    ],
)
def test_a_wrong_field_of_the_agent_is_named(name: str, value: object) -> None:
    """An ID is not empty, and an owner that is there is text."""
    refusal = refusal_of(text(agent={**GOOD["agent"], name: value}))
    assert (refusal.code, refusal.details["field"]) == ("manifest-field", f"agent.{name}")


@pytest.mark.parametrize("name", ["version", "harness"])
def test_a_number_of_any_length_is_no_text(name: str) -> None:
    """Also one so long that it is kept as its digits."""
    refusal = refusal_of(text(**{name: "?"}).replace(b'"?"', b"9" * 5000))
    assert (refusal.code, refusal.details["field"]) == ("manifest-field", name)


@pytest.mark.parametrize("number", [b"3", b"5", b"0", b"-4", b"9" * 600, b"9" * 6000])
def test_another_format_is_said_to_be_one(number: bytes) -> None:
    """Before anything else, since the other fields may be others there; and not at any length."""
    refusal = refusal_of(b'{"format":' + number + b"}")
    assert refusal.code == "stream-format"
    assert len(refusal.message) < 120


@pytest.mark.parametrize(
    "path",
    [
        "",
        "files",
        "files/",
        "memory",
        "/files/a",
        "files/../x",
        "files/./x",
        "files//x",
        "files/x/",
        "files/a\0b",
        "harness/x",
        "connections/x",
        "Files/x",
        "filesx/a",
        "files/" + "x" * 4096,
    ],
)
def test_a_path_that_is_none_of_the_receivers_is_refused(path: str) -> None:
    """What is removed, or given a mode, lies under ``files/`` or ``memory/``, strictly."""
    for name, value in (("removed", ["files/a", path]), ("modes", {"files/a": "644", path: "644"})):
        refusal = refusal_of(text(**{name: value}))
        assert (refusal.code, refusal.details["field"]) == ("manifest-field", name)


@pytest.mark.parametrize("phase", ["copy", "files"])
def test_only_a_switch_removes(phase: str) -> None:
    """An empty list is refused too: no copy has the field."""
    refusal = refusal_of(text(phase=phase, removed=[]))
    assert refusal.details["field"] == "removed"
    assert Manifest.parse(without("removed").replace(b"switch", phase.encode())).phase == phase


# -- around it


class Dribble:
    """A source that gives seven bytes at most."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        return self._data.readinto(memoryview(buffer)[:7])


def test_it_is_read_from_a_source_that_gives_little_at_a_time() -> None:
    """Short reads are put together."""
    assert read_manifest(Dribble(text())) == WHOLE


def test_a_source_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops once it is too long."""
    monkeypatch.setattr(module, "MAX_MANIFEST", 1 << 16)

    class Endless:
        given = 0

        def readinto(self, buffer: memoryview | bytearray, /) -> int:
            self.given += len(buffer)
            assert self.given < 1 << 20
            return len(buffer)

    with pytest.raises(Refusal, match="64 MiB"):
        read_manifest(Endless())


def test_a_new_move_has_an_id_of_its_own() -> None:
    """32 lower-case hex digits, and never the same."""
    ids = {new_move_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in ids)
    for name in ids:
        check_move_id(name)


@pytest.mark.parametrize("name", ["", MOVE[1:], MOVE.upper(), MOVE + "\n"])
def test_a_mistyped_move_id_is_a_wrong_command_line(name: str) -> None:
    """With what makes one."""
    with pytest.raises(UsageError, match="openssl rand -hex 16"):
        check_move_id(name)


def test_a_phase_is_one_of_three() -> None:
    """And a mistyped one is a wrong command line."""
    assert [check_phase(name) for name in ("copy", "switch", "files")] == [
        "copy",
        "switch",
        "files",
    ]
    with pytest.raises(UsageError, match="'Copy'"):
        check_phase("Copy")


def test_its_summary_is_short_however_many_it_removes() -> None:
    """It counts, and shows the first twenty."""
    removed = tuple(b"files/%03d" % number for number in range(300))
    manifest = Manifest(
        "switch", MOVE, "1", Agent("a", "A"), "h", removed=removed, unknown={"x": 1}
    )
    rows = manifest.summary()
    assert ("removed", "300 files") in rows
    assert ("", "files/019") in rows
    assert ("", "files/020") not in rows
    assert ("x", "(unknown field)") in rows
    assert len(rows) < 40
