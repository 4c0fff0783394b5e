"""Messages: which are written, in which places, and what the digest of a chat says of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import psycopg
import pytest

from agentmove_tools.database import messages
from agentmove_tools.database.imported import Imported
from agentmove_tools.database.importing import ImportOptions, import_package
from agentmove_tools.large_json import LARGE
from agentmove_tools.package import events
from agentmove_tools.package.events import FIRST_TIME, LAST_TIME
from agentmove_tools.refusals import Refusal
from tests.database.databases import Database
from tests.database.teams import Team, changes, lines, package, packed
from tests.package.packages import ALL, told

CHAT: Final = "web:alice"
PATH: Final = "data/sessions/web:alice.jsonl"


def e(name: str | int, text: str = "", *, ts: int = 5, kind: str = "user") -> bytes:
    """An event's line in the one form."""
    value = {"data": {"text": text or f"of {name}"}, "id": str(name), "ts": ts, "type": kind}
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def loose(line: bytes) -> bytes:
    """The same event as somebody else may lay it out."""
    value: dict[str, object] = json.loads(line)
    return json.dumps(dict(reversed(value.items())), separators=(" , ", " :  ")).encode()


def session(*names: str | int) -> bytes:
    """A session of the events of these names."""
    return lines(*map(e, names))


def put(team: Team, text: bytes, **options: Any) -> Imported:  # noqa: ANN401 (of ``bring_in``)
    """Import an agent with this one session."""
    return team.bring_in({PATH: text}, **options)


def state(team: Team) -> tuple[list[str], bool]:
    """The events of the chat by place, and whether the digest is of them.

    A digest that is of anything else must not be there.
    """
    ((digest, digested),) = team.rows(
        "SELECT digest, digested FROM agentfy.chat WHERE team_id = %(team)s"
    )
    held = team.rows(
        "SELECT external_id, event FROM agentfy.message WHERE team_id = %(team)s ORDER BY place"
    )
    if digest is not None:
        text = lines(*(event.encode() for _, event in held))
        assert digest == hashlib.sha256(text).digest()
        assert digested == len(held)
    return [name for name, _ in held], digest is not None


def is_quiet(team: Team, text: bytes, **options: Any) -> bool:  # noqa: ANN401 (as above)
    """Whether an import of this session writes no row, and says so."""
    before = team.stand()
    done = put(team, text, **options)
    return changes(before, team.stand()) == [] and done.result == "unchanged"


def add(team: Team, name: str, line: bytes, *, place: int | None = None) -> None:
    """Write a message as the platform does, at the chat's end unless a place is given."""
    value = json.loads(line)
    team.rows(
        """
        INSERT INTO agentfy.message (team_id, chat_id, external_id, place, type, ts, event)
        SELECT %(team)s, chat.id, %(name)s,
            coalesce(%(place)s, (SELECT max(place) + 1 FROM agentfy.message
                WHERE chat_id = chat.id), 0),
            %(type)s, %(ts)s, %(line)s
        FROM agentfy.chat WHERE team_id = %(team)s
        """,
        name=name,
        place=place,
        type=value["type"],
        ts=value["ts"],
        line=line.decode(),
    )


# -- what is known by its digest


@pytest.fixture
def read_lines(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many lines of sessions each reading of events looked at."""
    read: list[int] = []
    real = events.lines_of

    def counted(*given: Any) -> Any:  # noqa: ANN401 (what the real one takes and gives)
        read.append(0)
        for line in real(*given):
            read[-1] += 1
            yield line

    monkeypatch.setattr(events, "lines_of", counted)
    return read


def test_a_known_session_is_not_read(team: Team, read_lines: list[int]) -> None:
    """Of one that is as it was not an event is looked at, of one that grew only what is new."""
    put(team, session(1, 2, 3))
    read_lines.clear()
    assert is_quiet(team, session(1, 2, 3))
    assert read_lines == []
    before = team.stand()
    done = put(team, session(1, 2, 3, 4, 5))
    assert read_lines == [2]
    assert done.counts["message"] == (5, 2, 0)
    assert done.counts["chat"] == (1, 1, 0)
    after = team.stand()
    assert changes(before, after) == [f"+message {CHAT} 4", f"+message {CHAT} 5", f"~chat {CHAT}"]
    assert state(team) == (["1", "2", "3", "4", "5"], True)
    assert team.places(CHAT) == {"1": 0, "2": 1, "3": 2, "4": 3, "5": 4}


@pytest.mark.parametrize("size", [1, 7, 1 << 18], ids=str)
def test_a_start_is_known_in_whatever_pieces(size: int) -> None:
    """The first lines are found however the content comes, and never too many of them."""
    text = session(1, 2, 3)
    digest = hashlib.sha256(session(1, 2)).digest()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    start = messages._start_with_digest
    assert start(pieces, digest, 2) == len(session(1, 2))
    assert start(pieces, digest, 3) is None
    assert start(pieces, digest, 4) is None
    assert start(pieces, hashlib.sha256(b"").digest(), 0) == 0
    assert start([], digest, 2) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (session(1, 2, 3)[:-1], True),
        (lines(*(loose(e(name)) for name in (1, 2, 3))), True),
        (lines(e(1), loose(e(2)), e(3)), True),
        (session(1, 1, 2, 3, 3), True),
        (session(1, 2, 3, 1), True),
        (session(1, 2), True),
        (session(2), True),
        (b"", True),
        (session(1, 3, 2), False),
        (session(1, 2, 3, 4), False),
    ],
    ids=[
        *("no line feed at the end", "another layout", "another layout in the middle"),
        *("repeated", "the first again at the end", "a shorter one", "one of them", "none"),
        *("another order", "one more"),
    ],
)
def test_what_is_there_already_is_left_alone(team: Team, text: bytes, expected: bool) -> None:
    """Nothing is written, the digest included, where a session has no more than the chat has."""
    put(team, session(1, 2, 3))
    assert is_quiet(team, text) == expected
    assert is_quiet(team, text)
    assert is_quiet(team, session(1, 2, 3)) == (text != session(1, 3, 2))


def test_what_is_laid_out_otherwise_and_grew(team: Team) -> None:
    """Only what is new is written, in the one form."""
    put(team, session(1, 2))
    before = team.stand()
    put(team, lines(loose(e(1)), loose(e(2)), loose(e(3))))
    assert changes(before, team.stand()) == [f"+message {CHAT} 3", f"~chat {CHAT}"]
    assert state(team) == (["1", "2", "3"], True)
    assert team.files()[PATH] == session(1, 2, 3)


def test_a_tail_with_events_of_the_start(team: Team) -> None:
    """An equal one is left alone, and the second import of such a file writes nothing."""
    put(team, session(1, 2))
    before = team.stand()
    put(team, session(1, 2, 1, 3, 2, 4))
    assert changes(before, team.stand()) == [
        f"+message {CHAT} 3",
        f"+message {CHAT} 4",
        f"~chat {CHAT}",
    ]
    assert state(team) == (["1", "2", "3", "4"], True)
    assert is_quiet(team, session(1, 2, 1, 3, 2, 4))
    assert is_quiet(team, session(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (lines(e(1), e(2), e(1, "other")), 3),
        (lines(e(1), e(2), e(3), e(2, "other"), e(4)), 4),
        (lines(e(1, "other"), e(2)), 1),
        (lines(e(2), e(1, ts=6)), 2),
        (lines(e(3), e(3), e(1, kind="summary"), e(2, "other")), 3),
    ],
    ids=["in the tail", "in the tail among new ones", "at once", "reordered", "two of them"],
)
def test_messages_do_not_change(team: Team, text: bytes, line: int) -> None:
    """Another event of an ID that the chat has is refused, with file and line; all stays."""
    put(team, session(1, 2))
    refusal = team.refusal_of({PATH: text})
    assert told(refusal) == ("event-duplicate", PATH, "message.id", line)
    assert "database" in refusal.why
    assert state(team) == (["1", "2"], True)


def test_two_that_differ_in_a_tail(team: Team) -> None:
    """They are refused as they are in any file, by the line of the second."""
    put(team, session(1, 2))
    refusal = team.refusal_of({PATH: lines(e(1), e(2), e(3), e(4), e(3, "other"))})
    assert told(refusal) == ("event-duplicate", PATH, "message.id", 5)
    assert "database" not in refusal.why


@pytest.mark.parametrize(
    ("bad", "code", "field"),
    [
        (b"no JSON", "field-json", "message"),
        (b"", "field-json", "message"),
        (b'{"id":"x","type":"user","ts":1}', "field-json", "message.data"),
        (b'{"id":"x","type":"song","ts":1,"data":{}}', "event-type", "message.type"),
        (b'{"id":"x","type":"user","ts":1e99,"data":{}}', "field-json", "message.ts"),
        (b'{"id":"x","type":"user","ts":1,"data":{"text":"\\u0000"}}', "field-nul", None),
        (b'{"id":"x\\u0000","type":"user","ts":1,"data":{}}', "field-nul", None),
        (b'{"id":"x","type":"user","ts":1,"data":{"\\u0000":1}}', "field-nul", None),
        (b'{"id":"x","type":"user","ts":1,"data":{"text":"\\ud800"}}', "field-surrogate", None),
        (b'{"id":"x","type":"user","ts":1,"data":{"\\udc00":1}}', "field-surrogate", None),
        (b'{"id":"\xff","type":"user","ts":1,"data":{}}', "field-encoding", "message"),
    ],
    ids=[
        *("no json", "empty line", "no data", "type", "ts", "nul", "nul in id", "nul in key"),
        *("surrogate", "surrogate in key", "latin 1"),
    ],
)
def test_a_fault_in_a_tail_is_told_by_its_line(
    team: Team, bad: bytes, code: str, field: str | None
) -> None:
    """Of the file, not of the part that is read; the same as of a new chat."""
    text = lines(e(1), e(2), e(3), bad, e(4))
    fresh = team.refusal_of({PATH: text})
    put(team, session(1, 2))
    refusal = team.refusal_of({PATH: text})
    assert told(refusal) == told(fresh)
    assert (refusal.code, refusal.details["line"]) == (code, 4)
    assert str(refusal.details["field"]).startswith("message")
    assert field in (None, refusal.details["field"])


@pytest.mark.parametrize("known", [(), (1, 2)], ids=["new chat", "tail"])
def test_a_torn_line(team: Team, known: tuple[int, ...]) -> None:
    """It is refused with file and line; told so, all but it is written, and once."""
    torn = session(1, 2, 3) + e(4)[:-7]
    if known:
        put(team, session(*known))
        assert told(team.refusal_of({PATH: torn})) == ("field-json", PATH, "message", 4)
    else:
        assert told(team.refusal_of({PATH: torn})) == ("field-json", PATH, "message", 4)
    drop = ALL._replace(drop_torn_line=True)
    done = put(team, torn, reading=drop)
    assert done.to_json()["warnings"] == [
        {"path": PATH, "warning": "its last line was cut short, and is left out"}
    ]
    assert state(team) == (["1", "2", "3"], True)
    assert is_quiet(team, torn, reading=drop)
    assert is_quiet(team, session(1, 2, 3))
    put(team, session(1, 2, 3, 4))
    assert state(team) == (["1", "2", "3", "4"], True)


@pytest.mark.parametrize(
    "texts",
    [
        (session(1, 2, 3), session(1, 2, 3, 4), session()),
        (session(1, 2, 3), session(1, 2, 3), session(4)),
        (session(1, 2, 3, 4, 5), session(), session()),
    ],
    ids=["tail", "another chat", "new"],
)
def test_all_events_count(
    team: Team, monkeypatch: pytest.MonkeyPatch, texts: tuple[bytes, bytes, bytes]
) -> None:
    """Those that are known count towards the most that a package may hold, too."""
    if texts[1]:
        team.bring_in({PATH: texts[0]})
    later = {PATH: texts[1] or texts[0], "data/sessions/web:bob.jsonl": texts[2]}
    monkeypatch.setattr(events, "MAX_EVENTS", 3)
    refusal = team.refusal_of(later)
    assert refusal.code == "package-entries"
    monkeypatch.setattr(events, "MAX_EVENTS", 5)
    assert team.bring_in(later).result in ("created", "updated")
    monkeypatch.setattr(events, "MAX_EVENTS", 3)
    assert team.refusal_of(later).code == "package-entries"


# -- order and places


def test_places_are_the_file_s(team: Team) -> None:
    """Whatever the times say; a conversation is read by its times, and of one time by place."""
    text = lines(e("c", ts=9), e("a", ts=1), e("b", ts=9), e("d", ts=1))
    put(team, text)
    assert state(team) == (["c", "a", "b", "d"], True)
    read = team.rows(
        "SELECT external_id FROM agentfy.conversation WHERE team_id = %(team)s ORDER BY ts, place"
    )
    assert [name for (name,) in read] == ["a", "d", "c", "b"]
    assert team.files()[PATH] == text


@pytest.mark.parametrize(
    ("names", "moved"),
    [("0123", 0), ("1320", 2), ("321", 2), ("1203", 2), ("31204", 2), ("0123456", 0)],
    ids=["same", "and one", "turned", "one to the front", "both", "grown"],
)
def test_a_file_with_all_gives_the_places(team: Team, names: str, moved: int) -> None:
    """Messages that are held move to where a file has them that has them all."""
    first = [name for name in "123" if name in names]
    put(team, session(*first))
    before = team.stand()
    put(team, session(*names))
    assert state(team) == (list(names), True)
    assert team.places(CHAT) == {name: place for place, name in enumerate(names)}
    found = changes(before, team.stand())
    assert {change for change in found if change.startswith("+")} == {
        f"+message {CHAT} {name}" for name in names if name not in first
    }
    expected = sum(names.index(name) != at for at, name in enumerate(first))
    assert sum(change.startswith("~message") for change in found) == expected
    assert expected >= min(moved, 1)
    assert is_quiet(team, session(*names))
    assert team.files()[PATH] == session(*names)


def test_what_the_platform_wrote_keeps_its_place(team: Team) -> None:
    """What is new comes after it, and the chat has no digest, since it is not as the file is."""
    put(team, session(1, 2))
    add(team, "p", e("p"))
    assert state(team) == (["1", "2", "p"], False)
    assert is_quiet(team, session(1, 2))
    before = team.stand()
    done = put(team, session(4, 1, 3, 2))
    assert done.counts["message"] == (4, 2, 0)
    assert done.counts["chat"] == (1, 0, 0)
    assert changes(before, team.stand()) == [f"+message {CHAT} 3", f"+message {CHAT} 4"]
    assert state(team) == (["1", "2", "p", "4", "3"], False)
    assert is_quiet(team, session(4, 1, 3, 2))
    assert team.files()[PATH] == session(1, 2, "p", 4, 3)
    # and what comes out has all of it: from then on there is a digest
    put(team, session(1, 2, "p", 4, 3))
    assert state(team) == (["1", "2", "p", "4", "3"], True)
    assert is_quiet(team, session(1, 2, "p", 4, 3))


def test_places_with_gaps(team: Team) -> None:
    """The platform may leave places free; what is new follows the last, and all is exported."""
    put(team, session(1))
    add(team, "p", e("p"), place=1000)
    put(team, session(1, 2))
    assert team.places(CHAT) == {"1": 0, "p": 1000, "2": 1001}
    assert team.files()[PATH] == session(1, "p", 2)
    put(team, session(1, "p", 2))
    assert team.places(CHAT) == {"1": 0, "p": 1, "2": 2}


def test_a_platform_s_event_in_another_layout(team: Team) -> None:
    """It is the same event if its JSON is equal; it stays as it is, and is exported in one form."""
    put(team, session(1))
    add(team, "p", loose(e("p")))
    assert is_quiet(team, session(1)) is True
    put(team, session(1, "p"))
    texts = team.rows("SELECT event FROM agentfy.message WHERE team_id = %(team)s ORDER BY place")
    assert [text for (text,) in texts] == [e(1).decode(), loose(e("p")).decode()]
    assert team.files()[PATH] == session(1, "p")
    assert is_quiet(team, session(1, "p"))
    refusal = team.refusal_of({PATH: lines(e(1), e("p", "other"))})
    assert told(refusal) == ("event-duplicate", PATH, "message.id", 2)


@pytest.mark.parametrize("broken", ["{", '{"id":"p","ts":1,"ts":', "{} {}"], ids=str)
def test_a_platform_s_event_that_is_no_json(team: Team, broken: str) -> None:
    """It is another one than any that comes, and no export takes it."""
    put(team, session(1))
    add(team, "p", e("p"))
    team.rows(
        "UPDATE agentfy.message SET event = %(broken)s"
        " WHERE team_id = %(team)s AND external_id = 'p'",
        broken=broken,
    )
    assert team.refusal_of({PATH: session(1, "p")}).code == "event-duplicate"
    with pytest.raises(Refusal) as caught:
        team.archive()
    assert told(caught.value)[:2] == ("field-json", PATH)


@pytest.mark.parametrize("gone", ["1", "2", "3"], ids=str)
def test_a_deleted_message_comes_back(team: Team, gone: str) -> None:
    """To its place, and only it is written, with the chat's digest."""
    put(team, session(1, 2, 3))
    team.rows(
        "DELETE FROM agentfy.message WHERE team_id = %(team)s AND external_id = %(gone)s",
        gone=gone,
    )
    assert state(team)[1] is False
    before = team.stand()
    assert put(team, session(1, 2, 3)).counts["message"] == (3, 1, 0)
    assert changes(before, team.stand()) == [f"+message {CHAT} {gone}", f"~chat {CHAT}"]
    assert state(team) == (["1", "2", "3"], True)
    assert team.places(CHAT) == {"1": 0, "2": 1, "3": 2}


# -- the digest


_CHANGES: Final[Mapping[str, str]] = {
    "insert": """
        INSERT INTO agentfy.message (team_id, chat_id, external_id, place, type, ts, event)
        SELECT team_id, id, 'new', 99, 'user', 1, '{}' FROM agentfy.chat
        WHERE team_id = %(team)s AND "user" = 'alice'
    """,
    "delete": "DELETE FROM agentfy.message WHERE id = %(first)s",
    "event": "UPDATE agentfy.message SET event = event || ' ' WHERE id = %(first)s",
    "place": "UPDATE agentfy.message SET place = 98 WHERE id = %(first)s",
    "move": """
        UPDATE agentfy.message SET place = 97, chat_id = (SELECT id FROM agentfy.chat
            WHERE team_id = %(team)s AND "user" = 'carol')
        WHERE id = %(first)s
    """,
    "upsert": """
        INSERT INTO agentfy.message (team_id, chat_id, external_id, place, type, ts, event)
        SELECT team_id, chat_id, external_id, place, type, ts, event FROM agentfy.message
        WHERE id = %(first)s
        ON CONFLICT (chat_id, external_id) DO UPDATE SET ts = excluded.ts
    """,
    "merge": """
        MERGE INTO agentfy.message USING (SELECT %(first)s AS id) AS came ON message.id = came.id
        WHEN MATCHED THEN UPDATE SET text = 'x'
    """,
}


@pytest.mark.parametrize("how", _CHANGES)
def test_a_digest_is_forgotten_with_any_change(team: Team, how: str) -> None:
    """Of the chats that it changes, and of no others; and no digest stays that is wrong."""
    users = ("alice", "bob", "carol")
    names = {"alice": "123", "bob": "123", "carol": "456"}
    team.bring_in({f"data/sessions/web:{user}.jsonl": session(*names[user]) for user in users})
    ((first,),) = team.rows(
        """
        SELECT message.id FROM agentfy.message JOIN agentfy.chat ON chat.id = chat_id
        WHERE chat.team_id = %(team)s AND "user" = 'alice' AND place = 0
        """
    )
    team.rows(_CHANGES[how], first=first)
    held = team.rows(
        'SELECT "user" FROM agentfy.chat'
        " WHERE team_id = %(team)s AND digest IS NULL AND digested IS NULL ORDER BY 1"
    )
    changed = ["alice", "carol"] if how == "move" else ["alice"]
    assert [user for (user,) in held] == changed


def test_a_change_of_no_message_forgets_no_digest(team: Team) -> None:
    """A statement that finds nothing to change changes nothing else either."""
    put(team, session(1, 2))
    before = team.stand()
    team.rows("UPDATE agentfy.message SET place = 5 WHERE team_id = %(team)s AND place = 77")
    team.rows("DELETE FROM agentfy.message WHERE team_id = %(team)s AND place = 77")
    assert changes(before, team.stand()) == []


def test_a_digest_that_is_of_other_events(team: Team) -> None:
    """It does no harm if it is wrong: the session is looked at as one that is new."""
    put(team, session(1, 2))
    team.rows("UPDATE agentfy.chat SET digest = sha256('x'), digested = 2 WHERE team_id = %(team)s")
    put(team, session(1, 2, 3))
    assert state(team) == (["1", "2", "3"], True)


def test_an_emptied_table(database: Database) -> None:
    """TRUNCATE is seen too: what is gone comes back."""
    team = Team(database, "t")
    put(team, session(1, 2))
    database.rows("TRUNCATE agentfy.message")
    assert state(team) == ([], False)
    assert put(team, session(1, 2)).counts["message"].written == 2
    assert state(team) == (["1", "2"], True)


# -- sessions of other shapes


@pytest.mark.parametrize("text", [b"", session(1)], ids=["first empty", "first with one"])
def test_an_empty_session(team: Team, text: bytes) -> None:
    """It makes its chat, is known again, and takes nothing from a chat that has events."""
    put(team, text)
    assert is_quiet(team, text)
    assert is_quiet(team, b"")
    assert team.files()[PATH] == text
    put(team, session(1, 2))
    assert state(team) == (["1", "2"], True)
    assert is_quiet(team, b"")
    assert state(team) == (["1", "2"], True)


def test_a_chat_that_the_platform_made(team: Team) -> None:
    """It has no digest, and no events yet: it takes the file's."""
    team.bring_in({})
    team.rows(
        """
        INSERT INTO agentfy.chat (team_id, agent_id, channel, "user")
        SELECT team_id, id, 'web', 'alice' FROM agentfy.agent WHERE team_id = %(team)s
        """
    )
    assert put(team, session(2, 1)).counts["chat"] == (1, 1, 0)
    assert state(team) == (["2", "1"], True)
    assert is_quiet(team, session(2, 1))


def test_many_sessions_of_all_kinds_at_once(team: Team) -> None:
    """Known, grown, reordered, shorter, new and empty ones: each is as if it came alone."""
    before: dict[str, bytes] = {
        "known": session(1, 2),
        "grown": session(1, 2),
        "turned": session(1, 2, 3),
        "shorter": session(1, 2, 3),
        "repeated": session(1, 2),
        "filled": b"",
    }
    after = {
        **before,
        "grown": session(1, 2, 3),
        "turned": session(3, 4, 2, 1),
        "shorter": session(2),
        "repeated": session(1, 2, 2, 3, 1),
        "filled": session(9),
        "new": session(7, 8),
        "empty": b"",
    }

    def files(texts: dict[str, bytes]) -> dict[str, bytes]:
        return {f"data/sessions/c:{name}.jsonl": text for name, text in texts.items()}

    team.bring_in(files(before))
    done = team.bring_in(files(after))
    held = {**after, "shorter": before["shorter"], "repeated": session(1, 2, 3)}
    assert team.archive() == packed(files(held))
    assert done.counts["message"].came == 2 + 3 + 4 + 1 + 3 + 1 + 2
    # one grew by 1, of one 3 changed places and 1 is new, the others grew by 1, 1 and 2
    assert done.counts["message"].written == 1 + 4 + 1 + 1 + 2
    assert done.counts["chat"] == (8, 6, 0)
    quiet = team.stand()
    assert team.bring_in(files(after)).result == "unchanged"
    assert changes(quiet, team.stand()) == []


def test_one_id_in_two_chats(team: Team) -> None:
    """An event's ID is of its chat only."""
    other = "data/sessions/web:bob.jsonl"
    files = {PATH: lines(e(1, "hers"), e(2)), other: lines(e(2, "his"), e(1, "his"))}
    team.bring_in(files)
    assert team.archive() == packed(files)
    files[other] += e(3) + b"\n"
    team.bring_in(files)
    assert team.archive() == packed(files)


def test_large_events(team: Team) -> None:
    """Over 1 MiB they are checked in another way, and are as the others in every respect."""
    big = "\u00e9 \u2028" * (LARGE // 4)
    text = lines(e(1), e("big", big), e(2))
    assert len(e("big", big)) > LARGE
    put(team, text)
    assert team.archive() == packed({PATH: text})
    assert is_quiet(team, text)
    assert is_quiet(team, lines(e(1), loose(e("big", big)), e(2)))
    put(team, lines(e(1), loose(e("big", big)), e(2), loose(e("more", big))))
    assert state(team) == (["1", "big", "2", "more"], True)
    # the platform's own layout of it, too
    team.rows(
        "UPDATE agentfy.message SET event = %(line)s"
        " WHERE team_id = %(team)s AND external_id = 'big'",
        line=loose(e("big", big)).decode(),
    )
    put(team, lines(e(1), e("big", big), e(2), e("more", big)))
    assert team.archive() == packed({PATH: lines(e(1), e("big", big), e(2), e("more", big))})
    refusal = team.refusal_of({PATH: lines(e(1), e("big", big + "x"))})
    assert told(refusal) == ("event-duplicate", PATH, "message.id", 2)


def test_what_can_be_asked_for(team: Team) -> None:
    """The columns say what the event does, where it is a text; the rest is in the event."""
    put(
        team,
        lines(
            *(
                json.dumps({"id": name, "type": kind, "ts": 1, "data": data}).encode()
                for name, kind, data in (
                    ("1", "user", {"text": "Grüße", "from": "Zoë", "name": "n", "toolUseId": "u"}),
                    ("2", "assistant", {"text": 5, "from": None}),
                    ("3", "tool_call", {"name": "ls", "toolUseId": "u", "params": {"a": [1]}}),
                    ("4", "tool_result", {"toolUseId": "u", "name": "ls", "result": "ok"}),
                    ("5", "summary", {"text": "short"}),
                )
            )
        ),
    )
    columns = team.rows(
        """
        SELECT external_id, type, role, sender, text, name, tool_use_id, params::text, result::text
        FROM agentfy.conversation WHERE team_id = %(team)s ORDER BY place
        """
    )
    assert columns == [
        ("1", "user", "user", "Zoë", "Grüße", None, None, None, None),
        ("2", "assistant", "assistant", None, None, None, None, None, None),
        ("3", "tool_call", None, None, None, "ls", "u", '{"a":[1]}', None),
        ("4", "tool_result", None, None, None, None, "u", None, '"ok"'),
        ("5", "summary", None, None, "short", None, None, None, None),
    ]


@pytest.mark.parametrize(
    "value",
    ["-0.0", "1" + "0" * 400, "123456789012345678901234567890", "0.10000000000000000", "1E5"],
    ids=["zero", "very long", "long", "digits", "exponent"],
)
def test_numbers_stay(team: Team, value: str) -> None:
    """What a database's own kind of JSON would change is as ``pack`` writes it."""
    line = f'{{"id":"1","type":"user","ts":1,"data":{{"x":{value},"y":[{value}]}}}}'.encode()
    put(team, lines(line))
    assert team.archive() == packed({PATH: lines(line)})
    assert is_quiet(team, lines(line))


def test_a_number_that_the_one_form_has_not(team: Team) -> None:
    """It is refused as it is anywhere else."""
    line = b'{"id":"1","type":"user","ts":1,"data":{"x":1e400}}'
    assert told(team.refusal_of({PATH: lines(line)})) == ("field-json", PATH, "message", 1)


# -- times


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def test_the_first_and_the_last_time(team: Team) -> None:
    """Both are taken, and one beyond on either side is refused, with the field and the line."""
    edges = {"first": FIRST_TIME, "last": LAST_TIME}
    put(team, lines(*(e(name, ts=ts) for name, ts in edges.items())))
    for ts in (FIRST_TIME - 1, LAST_TIME + 1, -(10**18), 10**18, 10**30):
        refusal = team.refusal_of({PATH: lines(e("first", ts=FIRST_TIME), e("x", ts=ts))})
        assert told(refusal) == ("field-timestamp", PATH, "message.ts", 2)
    found = team.rows(
        "SELECT external_id, ts, (at AT TIME ZONE 'UTC')::text FROM agentfy.message"
        " WHERE team_id = %(team)s ORDER BY ts"
    )
    assert found == [
        ("first", FIRST_TIME, "4714-11-24 00:00:00 BC"),
        ("last", LAST_TIME, "294276-12-31 23:59:59.999"),
    ]


def test_a_time_beyond_is_not_written_past_the_check(team: Team) -> None:
    """The table refuses it too, whoever writes it."""
    put(team, session(1))
    for ts in (FIRST_TIME - 1, LAST_TIME + 1):
        with pytest.raises((psycopg.DataError, psycopg.IntegrityError)):
            add(team, "x", e("x", ts=ts))


def test_the_time_is_exact(team: Team) -> None:
    """To the millisecond, over all that there are: by the server's own count, and Python's."""
    random = Random(9)
    times = {FIRST_TIME, FIRST_TIME + 1, LAST_TIME - 1, LAST_TIME, 0, -1, 1, 999, -999, -1001}
    times |= {86_400_000 * n + d for n in (-1, 0, 1, 20_000) for d in (-1, 0, 1)}
    times |= {random.randint(FIRST_TIME, LAST_TIME) for _ in range(200)}
    times |= {random.randint(-6 * 10**13, 2 * 10**14) for _ in range(200)}
    put(team, lines(*(e(ts, ts=ts) for ts in sorted(times))))
    # extract(epoch) of a timestamptz is an exact numeric
    wrong = team.rows(
        "SELECT ts, at::text FROM agentfy.message"
        " WHERE team_id = %(team)s AND extract(epoch FROM at) * 1000 <> ts"
    )
    assert wrong == []
    found = team.rows(
        "SELECT ts, at FROM agentfy.message WHERE team_id = %(team)s"
        " AND at BETWEEN '0002-01-01' AND '9998-12-31' ORDER BY ts"
    )
    assert len(found) > 200
    assert [at for _, at in found] == [EPOCH + timedelta(milliseconds=ts) for ts, _ in found]


def test_the_time_does_not_depend_on_the_session_s_zone(team: Team) -> None:
    """A server whose zone is another writes the same."""
    made = package({PATH: lines(e(1, ts=1_700_000_000_123))})
    with Database(team.database.parameters).connect() as connection:
        connection.execute("SET TIME ZONE 'Asia/Kolkata'")
        connection.commit()
        import_package(connection, made, ImportOptions(team.name, create_team=True))
    ((at,),) = team.rows("SELECT at FROM agentfy.message WHERE team_id = %(team)s")
    assert at == EPOCH + timedelta(milliseconds=1_700_000_000_123)
