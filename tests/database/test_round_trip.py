"""Into the database and out of it again: every vector, and agents as large as they may be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.pack import pack
from agentmove_tools.refusals import Refusal
from tests.conftest import VECTORS
from tests.database.databases import Database, Server
from tests.database.teams import Team, changes, lines, packed
from tests.package.packages import AGENT, ALL, DROP, package_in

INDEX: Final = VECTORS / "package" / "index.json"
ROWS: Final[list[dict[str, Any]]] = json.loads(INDEX.read_text()) if INDEX.exists() else []
GOOD: Final = [row for row in ROWS if row.get("accepted")]
BAD: Final = [row for row in ROWS if not row.get("accepted")]
# what of the index the tests here look at; another word in it would be one that they pass over
_WORDS: Final = {
    *("file", "accepted", "refusal", "also", "note"),
    *("path", "field", "unknown", "order", "chat"),
}

good = pytest.mark.parametrize("row", GOOD, ids=lambda row: row["file"])


def read(vectors: Path, row: dict[str, Any], options: Options = ALL) -> Package:
    """The package of a vector."""
    return package_in((vectors / "package" / row["file"]).read_bytes(), options)


def test_the_vectors_are_here(vectors: Path) -> None:
    """Those that are taken and those that are refused, and nothing about them is passed over."""
    files = {path.name for path in (vectors / "package").glob("*.zip")}
    assert {row["file"] for row in ROWS} == files
    assert GOOD
    assert BAD
    assert {word for row in ROWS for word in row} == _WORDS


@good
def test_a_good_one_comes_back(vectors: Path, team: Team, row: dict[str, Any]) -> None:
    """As it is packed, byte for byte, and a second import of either writes no row."""
    expected = b"".join(pack(read(vectors, row)))
    done = team.bring_in_package(read(vectors, row))
    assert done.result == "created"
    assert done.to_json()["unknown"] == sorted(row.get("unknown", []))
    assert team.archive() == expected
    before = team.stand()
    for package in (read(vectors, row), package_in(expected, ALL)):
        again = team.bring_in_package(package)
        assert again.result == "unchanged"
        assert changes(before, team.stand()) == []


@good
def test_the_events_of_a_good_one(vectors: Path, team: Team, row: dict[str, Any]) -> None:
    """Each is there once, equal as JSON, by the place in its file; and what is said of it holds."""
    package = read(vectors, row)
    team.bring_in_package(package)
    expected: dict[tuple[str, str], list[object]] = {}
    for file in package.files:
        if file.part == "session":
            text = b"".join(file.items[0].pieces())
            events = [json.loads(line) for line in text.split(b"\n") if line]
            once = {event["id"]: event for event in events}
            expected[file.chat] = list(once.values())
    found: dict[tuple[str, str], list[object]] = {
        (channel, user): [json.loads(text) for text in texts]
        for channel, user, texts in team.rows(
            """
            SELECT channel, "user", array_remove(array_agg(event ORDER BY place), NULL)
            FROM agentfy.chat LEFT JOIN agentfy.message ON message.chat_id = chat.id
            WHERE chat.team_id = %(team)s GROUP BY chat.id
            """
        )
    }
    assert found == expected
    if "chat" in row:
        assert tuple(row["chat"]) in found
    if "order" in row:
        order = team.rows(
            "SELECT external_id FROM agentfy.conversation WHERE team_id = %(team)s"
            " ORDER BY ts, place"
        )
        assert [external_id for (external_id,) in order] == row["order"]


@pytest.fixture(scope="module")
def bare_database(db_server: Server, template: str) -> Iterator[Database]:
    """A database that has no rows, and must have none at the end."""
    with db_server.database(template) as database:
        yield database


@pytest.mark.parametrize("row", BAD, ids=lambda row: row["file"])
def test_a_bad_one_leaves_no_row(
    vectors: Path, bare_database: Database, row: dict[str, Any]
) -> None:
    """It is refused with its code and what it names; not even the team is made."""
    with pytest.raises(Refusal) as caught:
        Team(bare_database, "bad").bring_in_package(read(vectors, row))
    assert caught.value.code in (row["refusal"], row.get("also"))
    for key in ("path", "field"):
        if key in row:
            assert caught.value.details[key] == row[key]
    assert set(bare_database.counts().values()) == {0}


def test_a_torn_line_can_be_left_out(vectors: Path, team: Team) -> None:
    """The vector with one is taken then, and a second time nothing is written."""
    row = {"file": "bad-torn-line.zip"}
    done = team.bring_in_package(read(vectors, row, DROP))
    assert "cut short" in str(done.to_json()["warnings"])
    assert team.archive() == b"".join(pack(read(vectors, row, DROP)))
    before = team.stand()
    assert team.bring_in_package(read(vectors, row, DROP)).result == "unchanged"
    assert changes(before, team.stand()) == []


# -- large ones


def test_two_thousand_skills(team: Team) -> None:
    """Each with assets: all of it comes back, and one that changes is one row."""
    files = dict(AGENT)
    for number in range(2000):
        files[f"skills/s{number}/SKILL.md"] = f"---\nname: s{number}\n---\n{number}\n".encode()
        for asset in range(3):
            files[f"skills/s{number}/lib/{asset}.bin"] = bytes([asset, number % 256, 0, 255])
    done = team.bring_in(files)
    assert done.counts["skill"] == (2000, 2000, 0)
    assert done.counts["file"] == (6000, 6000, 0)
    assert team.archive() == packed(files)
    before = team.stand()
    assert team.bring_in(files).result == "unchanged"
    assert changes(before, team.stand()) == []
    files["skills/s1999/lib/2.bin"] = b"another"
    team.bring_in(files)
    assert changes(before, team.stand()) == ["~file skills/s1999/lib/2.bin"]
    assert team.archive() == packed(files)


_MANY: Final = 500_000


def _event(number: int) -> bytes:
    """The line of an event in the one form."""
    return b'{"data":{"text":"t%d"},"id":"e%d","ts":%d,"type":"user"}' % (
        number,
        number,
        1_700_000_000_000 + number // 3,
    )


def test_half_a_million_events(team: Team) -> None:
    """A chat with so many comes back; again nothing is written, and one more is one row."""
    session = lines(*(_event(number) for number in range(_MANY)))
    path = "data/sessions/web:alice.jsonl"
    done = team.bring_in({path: session})
    assert done.counts["message"] == (_MANY, _MANY, 0)

    marks = """
        SELECT count(*), max(message.xmin::text::bigint), max(place), min(chat.xmin::text)
        FROM agentfy.message JOIN agentfy.chat ON chat.id = chat_id
        WHERE chat.team_id = %(team)s
    """
    ((count, written, last, chat),) = team.rows(marks)
    assert (count, last) == (_MANY, _MANY - 1)
    again = team.bring_in({path: session})
    assert again.result == "unchanged"
    assert again.counts["message"] == (_MANY, 0, 0)
    assert team.rows(marks) == [(count, written, last, chat)]

    session += _event(_MANY) + b"\n"
    more = team.bring_in({path: session})
    assert more.counts["message"] == (_MANY + 1, 1, 0)
    older = team.rows(
        "SELECT count(*) FROM agentfy.message WHERE team_id = %(team)s AND xmin::text = %(xmin)s",
        xmin=str(written),
    )
    assert older == [(_MANY,)]
    assert team.files()[path] == session
