"""Exports: what the platform wrote comes out as a package that an import takes, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from agentmove_tools.database import copying, exporting
from agentmove_tools.package.limits import MAX_EVENTS
from agentmove_tools.refusals import Refusal
from tests.database.databases import Database
from tests.database.teams import Team, changes, files_in, lines, package, packed
from tests.database.whole import EVENTS, WHOLE
from tests.package.packages import AGENT, ALL, event, package_in, told

ALICE: Final = "data/sessions/web:alice.jsonl"
CONFIG: Final = "agent.config.json"
MIB: Final = 1 << 20


def refusal_of(source: Team, **options: Any) -> Refusal:  # noqa: ANN401 (of ExportOptions)
    """Why a team's only agent cannot be exported."""
    with pytest.raises(Refusal) as caught:
        source.archive(**options)
    return caught.value


def born(team: Team, config: str = "{}") -> str:
    """Write an agent as the platform does, which knows of no external ID; its ID."""
    team.database.rows("INSERT INTO agentfy.team (name) VALUES (%s)", (team.name,))
    ((agent,),) = team.rows(
        "INSERT INTO agentfy.agent (team_id, soul, config) VALUES (%(team)s, 'born', %(config)s)"
        " RETURNING id",
        config=config,
    )
    return str(agent)


def skill(
    team: Team, path: str, content: str = "", assets: Mapping[str, bytes] | None = None
) -> None:
    """Write a skill as the platform does; ``assets`` by their paths."""
    ((skill_id,),) = team.rows(
        "INSERT INTO agentfy.skill (team_id, agent_id, path, content)"
        " VALUES (%(team)s, %(agent)s, %(path)s, %(content)s) RETURNING id",
        path=path,
        content=content,
    )
    for name, data in (assets or {}).items():
        team.rows(
            "INSERT INTO agentfy.file (team_id, skill_id, path, content)"
            " VALUES (%(team)s, %(skill)s, %(path)s, %(content)s)",
            skill=skill_id,
            path=name,
            content=data,
        )


def row(team: Team, table: str, **columns: object) -> None:
    """Write a row of an agent's as the platform does."""
    names = "".join(f', "{name}"' for name in columns)
    values = "".join(f", %({name})s" for name in columns)
    team.rows(
        f"INSERT INTO agentfy.{table} (team_id, agent_id{names})"
        f" VALUES (%(team)s, %(agent)s{values})",
        **columns,
    )


def chat(team: Team, channel: str, user: str, *texts: str) -> None:
    """Write a chat with messages of these texts as the platform does; it knows their IDs."""
    row(team, "chat", channel=channel, user=user)
    for place, text in enumerate(texts):
        value = json.loads(text)
        team.rows(
            """
            INSERT INTO agentfy.message (team_id, chat_id, external_id, place, type, ts, event)
            SELECT team_id, id, %(external_id)s, %(place)s, %(type)s, %(ts)s, %(text)s
            FROM agentfy.chat
            WHERE team_id = %(team)s AND channel = %(channel)s AND "user" = %(user)s
            """,
            channel=channel,
            user=user,
            external_id=value["id"],
            place=place,
            type=value["type"],
            ts=value["ts"],
            text=text,
        )


# -- what was imported


def test_it_is_stable(new_team: Callable[[], Team]) -> None:
    """Twice the same bytes, and the same ones from another team, and after an import of them."""
    one, other = new_team(), new_team()
    for team in (one, other):
        team.bring_in(WHOLE, runnable=["skills/pdf/run.sh"])
    archive = one.archive()
    assert archive == packed(WHOLE, runnable=["skills/pdf/run.sh"])
    assert one.archive() == archive
    assert other.archive() == archive
    before = one.stand()
    assert one.bring_in_package(package_in(archive, ALL)).result == "unchanged"
    assert changes(before, one.stand()) == []
    assert one.archive() == archive


def test_it_leaves_the_connection_as_it_was(team: Team) -> None:
    """What follows on it may write, in a transaction of its own kind."""
    team.bring_in({})
    agent = team.agent
    with team.database.connect() as connection:
        before = (connection.isolation_level, connection.read_only)
        for known in (agent, "agent-of-nobody"):
            with suppress(Refusal):
                exporting.export_agent(connection, exporting.ExportOptions(known))
            assert connection.info.transaction_status == TransactionStatus.IDLE
            assert (connection.isolation_level, connection.read_only) == before


def test_it_writes_nothing(team: Team) -> None:
    """No row is touched, not even looked at in a way that locks it."""
    team.bring_in(WHOLE)
    before = team.stand()
    team.archive()
    assert changes(before, team.stand()) == []
    with Database(team.database.parameters).connect() as other:
        other.execute("SELECT FROM agentfy.agent, agentfy.chat FOR UPDATE")
        assert team.archive() == packed(WHOLE)


def test_a_user_s_part(team: Team) -> None:
    """Chats and secrets of that user only, whatever the channel; all else as it is."""
    files = {
        **WHOLE,
        "data/sessions/tg:alice.jsonl": EVENTS,
        "data/secrets/shared.json": b'["S"]',
        "data/secrets/user-bob.json": b'["HIS"]',
    }
    team.bring_in(files)
    alices = {p: c for p, c in files.items() if "bob" not in p}
    assert team.archive(user="alice") == packed(alices)
    nobodys = {
        p: c for p, c in files.items() if not p.startswith(("data/sessions/", "data/secrets/user-"))
    }
    for user in ("nobody", "Alice", "ali%", "", "alice' OR true --"):
        assert team.archive(user=user) == packed(nobodys)


def test_a_team_that_is_given(new_team: Callable[[], Team]) -> None:
    """By name or ID it has to be the agent's; another one, or none, is refused."""
    team, other = new_team(), new_team()
    team.bring_in(WHOLE)
    other.bring_in({})
    for named in (team.name, team.id):
        assert team.archive(team=named) == packed(WHOLE)
    for named in (other.name, other.id):
        assert refusal_of(team, team=named).code == "agent-unknown"
    for named in ("no such team", "team-00000000-0000-0000-0000-000000000000", ""):
        assert refusal_of(team, team=named).code == "team-unknown"
    for agent in ("agent-of-tests", "agent-00000000-0000-0000-0000-000000000000", "", team.id):
        with pytest.raises(Refusal) as caught:
            team.database.take_out(agent)
        assert caught.value.code == "agent-unknown"


def test_only_what_is_asked_for_goes_out(team: Team) -> None:
    """Usage and the browser's state, each by itself."""
    team.bring_in(WHOLE)
    for wanted in (frozenset(), frozenset({"usage"}), frozenset({"browser-state"})):
        reading = ALL._replace(wanted=wanted)  # type: ignore[arg-type]
        assert team.archive(wanted=wanted) == packed(WHOLE, reading)


@pytest.mark.parametrize("what", ["text", "bytes", "wide text"])
def test_a_large_content(team: Team, what: str) -> None:
    """Over 4 MiB it is fetched in pieces, and comes back byte for byte."""
    size = 9 * MIB + 3
    content = {
        "text": b"0123456789" * (size // 10),
        "bytes": bytes(range(256)) * (size // 256) + b"x",
        "wide text": "aé漢😀".encode() * (size // 10),
    }[what]
    files = {"skills/a/SKILL.md": b"", "skills/a/b": content}
    if what != "bytes":
        files |= {"memory/a.md": content, "memory/b.md": b"small", "SOUL.md": content}
    team.bring_in(files)
    assert files_in(team.archive()) == files_in(packed(files))
    before = team.stand()
    assert team.bring_in(files).result == "unchanged"
    assert changes(before, team.stand()) == []


def test_large_and_small_ones_among_each_other(team: Team) -> None:
    """Each content is its own file's, whichever way it is fetched."""
    files = {"skills/a/SKILL.md": b"a"}
    for number in range(12):
        size = 4 * MIB + number - 6 if number % 3 == 0 else number
        files[f"skills/a/{number:02}"] = bytes([number]) * size
        files[f"memory/{number:02}.md"] = b"%d" % number * (5 * MIB if number == 4 else 1)
    team.bring_in(files)
    assert files_in(team.archive()) == files_in(packed(files))


# -- what is too much


def test_too_much_is_refused_before_it_is_fetched(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each table, by the sizes alone."""
    team.bring_in(AGENT)
    fetched: list[object] = []
    monkeypatch.setattr(exporting._Rows, "_pieces", lambda *given: fetched.append(given))
    monkeypatch.setattr(exporting, "_take", lambda *given: fetched.append(given))
    monkeypatch.setattr(exporting, "MAX_UNPACKED", 2000)
    kinds: tuple[dict[str, bytes], ...] = (
        {"SOUL.md": b"x" * 2000},
        {CONFIG: b'{"id": "agent-of-tests"}' + b" " * 2000},
        {"memory/a.md": b"x" * 1000, "memory/b.md": b"x" * 1000},
        {"skills/a/SKILL.md": b"x" * 2000},
        {"skills/a/SKILL.md": b"x", "skills/a/b": b"x" * 1000, "skills/a/c": b"x" * 1000},
        {"data/access.json": b'["a:%s"]' % (b"x" * 2000)},
        {"data/usage.json": b'["a:%s"]' % (b"x" * 2000)},
        {"browser-state/x.json": b'["a:%s"]' % (b"x" * 2000)},
        {ALICE: lines(*(event(f"e{number}") for number in range(50)))},
    )
    for files in kinds:
        team.rows("DELETE FROM agentfy.agent WHERE team_id = %(team)s")
        team.bring_in(files)
        assert refusal_of(team).code == "package-unpacked-size"
    assert fetched == []


def test_too_many_events_are_refused(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all chats together, also where none of them is read again."""
    team.bring_in({ALICE: EVENTS, "data/sessions/web:bob.jsonl": EVENTS})
    assert MAX_EVENTS > 10
    monkeypatch.setattr(exporting, "MAX_EVENTS", 9)
    assert refusal_of(team).code == "package-entries"
    monkeypatch.setattr(exporting, "MAX_EVENTS", 10)
    assert len(files_in(team.archive())) == 4


# -- what was born in the database


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{}", '{"id": "ID"}'),
        (' { "name": "x"}', ' {"id": "ID",  "name": "x"}'),
        ('{"a": 1.50, "id": null, "b": -0.0}', None),
        ('{"id": "", "x": "é"}', None),
        ('{"id": "ID", "x": 1.0}', '{"id": "ID", "x": 1.0}'),
        ('{"x": ' + "9" * 5000 + "}", '{"id": "ID", "x": ' + "9" * 5000 + "}"),
        ('{"id": null, "x": ' + "9" * 5000 + "}", None),
    ],
    ids=["empty", "without", "null", "empty id", "own id", "long number", "null and long number"],
)
def test_an_agent_born_here(
    new_team: Callable[[], Team], config: str, expected: str | None
) -> None:
    """Its package has its ID, so that nothing is doubled here, and in another team it is one."""
    team, other = new_team(), new_team()
    agent = born(team)
    team.rows(
        "UPDATE agentfy.agent SET config = %(config)s WHERE id = %(agent)s",
        config=config.replace("ID", agent),
    )
    skill(team, "skills/own", "own", {"a/b": b"\0"})
    row(team, "memory", path="MEMORY.md", content="own")
    row(team, "secret", scope="agent", name="OWN")
    row(team, "access", list='["web:alice"]')
    chat(team, "web", "alice", event("m1").decode(), event("m2").decode())
    archive = team.archive()
    written = files_in(archive)[CONFIG]
    if expected is not None:
        assert written == expected.replace("ID", agent).encode()
    value = package_in(archive, ALL)
    value.check()
    assert value.found.config.own_id == agent

    before = team.stand()
    done = team.bring_in_package(package_in(archive, ALL))
    assert done.agent_id == agent
    found = changes(before, team.stand())
    assert set(found) <= {
        f"~agent {agent}",  # the configuration has the ID now
        "+access_user web:alice",
        "~chat web:alice",  # of which the digest is known now
    }
    assert team.archive() == archive
    before = team.stand()
    assert team.bring_in_package(package_in(archive, ALL)).result == "unchanged"
    assert changes(before, team.stand()) == []

    moved = other.bring_in_package(package_in(archive, ALL))
    assert moved.agent_id != agent
    assert other.rows("SELECT external_id FROM agentfy.agent WHERE team_id = %(team)s") == [
        (agent,)
    ]
    assert other.archive() == archive


@pytest.mark.parametrize(
    "written",
    ['{"data":{},"ts":1,"type":"user"}', ' { "data": {}, "ts": 1, "type": "user" } '],
    ids=["tight", "loose"],
)
def test_a_message_born_here(team: Team, written: str) -> None:
    """Its event gets the ID of its row, so that it comes out, and back as the same message."""
    born(team)
    row(team, "chat", channel="web", user="alice")
    team.rows(
        """
        INSERT INTO agentfy.message (team_id, chat_id, place, type, ts, event)
        SELECT team_id, id, 0, 'user', 1, %(written)s FROM agentfy.chat WHERE team_id = %(team)s
        """,
        written=written,
    )
    ((own, external_id),) = team.rows(
        "SELECT id, external_id FROM agentfy.message WHERE team_id = %(team)s"
    )
    assert own == external_id
    archive = team.archive()
    assert json.loads(files_in(archive)[ALICE]) == {"id": own, **json.loads(written)}
    assert team.bring_in_package(package_in(archive, ALL)).counts["message"].written == 0
    assert team.archive() == archive


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ("[]", "field-json"),
        ("{", "field-json"),
        ("", "field-json"),
        ('{"id": "another"}', "agent-id"),
        ('{"id": 5}', "field-json"),
        ("[" * 100_000, "field-json"),
        ('{"x":' * 100_000, "field-json"),
        ('{"\\ud800": 1}', "field-surrogate"),
    ],
    ids=["list", "cut", "empty", "other id", "number", "deep", "deep objects", "surrogate"],
)
def test_a_configuration_that_no_import_takes(team: Team, config: str, code: str) -> None:
    """The platform may have written anything: it is refused, and the file named."""
    born(team, config)
    assert told(refusal_of(team))[:2] == (code, CONFIG)


def test_messages_in_other_layouts(team: Team) -> None:
    """They come out in the one form, a line each, whatever white space they hold."""
    born(team)
    value = {"type": "user", "ts": 1, "id": "m", "data": {"text": "é\n", "x": [1.0, -0.0, 1e22]}}
    texts = [
        json.dumps({**value, "id": "m0"}, indent=2),
        json.dumps({**value, "id": "m1"}, ensure_ascii=True).replace(", ", " ,\r\n\t"),
        json.dumps({**value, "id": "m2"}) + "\n\n",
    ]
    chat(team, "web", "alice", *texts)
    expected = lines(*(json.dumps(json.loads(text)).encode() for text in texts))
    assert files_in(team.archive())[ALICE] == files_in(packed({ALICE: expected}))[ALICE]
    before = team.stand()
    again = team.bring_in_package(package_in(team.archive(), ALL))
    assert again.counts["message"] == (3, 0, 0)
    assert [change for change in changes(before, team.stand()) if "message" in change] == []


def test_a_message_with_a_line_feed_in_a_text(team: Team) -> None:
    """That is no JSON, and is refused rather than mended."""
    born(team)
    chat(team, "web", "alice", event("m").decode())
    team.rows(
        "UPDATE agentfy.message SET event = %(text)s WHERE team_id = %(team)s",
        text='{"id":"m","type":"user","ts":1,"data":{"text":"a\nb"}}',
    )
    assert told(refusal_of(team))[:2] == ("field-json", ALICE)


def test_a_message_of_two_values(team: Team) -> None:
    """One row is one event: what would come out as two is refused."""
    born(team)
    chat(team, "web", "alice", event("m").decode())
    team.rows(
        "UPDATE agentfy.message SET event = event || chr(10) || %(text)s WHERE team_id = %(team)s",
        text=event("n").decode(),
    )
    assert told(refusal_of(team)) == ("field-json", ALICE, "message", 1)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"id":"m","type":"song","ts":1,"data":{}}', "event-type"),
        ('{"id":"m","type":"user","ts":1}', "field-json"),
        ('{"id":"m","type":"user","ts":1,"data":{"a":"\\u0000"}}', "field-nul"),
        ('{"id":"m","type":"user","ts":1,"data":{"a":"\\ud800"}}', "field-surrogate"),
        ('{"id":"m","type":"user","ts":1e3,"data":{}}', "field-json"),
        ("{}", "field-json"),
    ],
    ids=["type", "no data", "nul", "surrogate", "ts", "empty"],
)
def test_a_message_that_no_import_takes(team: Team, text: str, code: str) -> None:
    """It is refused with the chat's file and the line, also in a chat that was imported."""
    team.bring_in({ALICE: lines(event("a"), event("m"))})
    team.rows(
        "UPDATE agentfy.message SET event = %(text)s"
        " WHERE team_id = %(team)s AND external_id = 'm'",
        text=text,
    )
    refusal = refusal_of(team)
    assert (refusal.code, refusal.details["path"], refusal.details["line"]) == (code, ALICE, 2)


def test_an_event_with_another_row_s_id(team: Team) -> None:
    """Its row's ID and its own do not agree: an import would make another message of it."""
    team.bring_in({ALICE: lines(event("a"), event("b"))})
    for other in ("a", "c"):
        team.rows(
            "UPDATE agentfy.message SET event = %(text)s"
            " WHERE team_id = %(team)s AND external_id = 'b'",
            text=event(other, 7).decode(),
        )
        assert told(refusal_of(team)) == ("field-json", ALICE, "message.id", 2)


# What spoils a row in the midst of its table, and so ends the export there.
_SPOILED: Final[Mapping[str, str | None]] = {
    "none": None,
    "first event": "message SET event = '{}' WHERE external_id = 'm0'",
    "event in the midst": "message SET event = '{}' WHERE external_id = 'm5'",
    "another's event": """message SET event = '{"id":"m6"}' WHERE external_id = 'm5'""",
    "event that is none": "message SET event = '{' WHERE external_id = 'm5'",
    "memory": "memory SET path = 'memory/../5.md' WHERE path = 'memory/5.md'",
    "asset": "file SET path = '../x5' WHERE path = 'x5'",
    "access": "access SET list = '{' WHERE true",
    "profile": "account SET content = '{' WHERE profile = 'p5'",
}


@pytest.mark.parametrize("what", _SPOILED)
def test_no_cursor_is_left_open(team: Team, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever an export ends: one that the collector closes can wait for itself for ever."""
    files = {"data/access.json": b"[]", "skills/b/SKILL.md": b"b"}
    for number in range(10):
        files |= {
            f"data/sessions/web:{number}.jsonl": lines(*(event(f"m{n}") for n in range(10))),
            f"memory/{number}.md": b"x",
            f"skills/b/x{number}": b"x",
            f"browser-state/p{number}.json": b"{}",
        }
    team.bring_in(files)
    made: list[Cursors] = []

    class Cursors(psycopg.ServerCursor[TupleRow]):
        """Cursors that are remembered."""

        def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 (of ServerCursor)
            super().__init__(*given, **named)
            made.append(self)

    monkeypatch.setattr(copying, "_MOST_ROWS", 2)  # none is read to its end at once
    with team.database.connect() as connection:
        monkeypatch.setattr(connection, "server_cursor_factory", Cursors)
    spoil = _SPOILED[what]
    refusal = None  # it holds what was not read to its end
    if spoil is None:
        assert team.files()
        assert len(made) == 4 + 10
    else:
        team.rows(f"UPDATE agentfy.{spoil} AND team_id = %(team)s")
        refusal = refusal_of(team)
    assert all(cursor.closed for cursor in made), refusal


# -- names that lead elsewhere


def memories(*paths: str) -> Callable[[Team], None]:
    """Write memories of these paths."""

    def write(team: Team) -> None:
        for path in paths:
            row(team, "memory", path=path, content="")

    return write


def skills(*paths: str) -> Callable[[Team], None]:
    """Write skills of these paths."""

    def write(team: Team) -> None:
        for path in paths:
            skill(team, path)

    return write


def asset(path: str) -> Callable[[Team], None]:
    """Write a skill with an asset of this path."""
    return lambda team: skill(team, "skills/a", assets={path: b""})


def profile(name: str) -> Callable[[Team], None]:
    """Write a browser's state."""
    return lambda team: row(team, "account", profile=name, content="{}")


_LEADS_OUT: Final[Mapping[str, Callable[[Team], None]]] = {
    "memory climbs": memories("memory/../x.md"),
    "memory absolute": memories("memory//etc/x.md"),
    "memory dot": memories("memory/./x.md"),
    "memory backslash": memories("memory/..\\x.md"),
    "memory long": memories(f"memory/{'x' * 5000}.md"),
    "skill climbs": skills("skills/../../x"),
    "skill backslash": skills("skills/a\\b"),
    "skill ends in a slash": skills("skills/a/"),
    "skill is the folder": skills("skills/."),
    "asset climbs": asset("../../x"),
    "asset climbs in itself": asset("b/../x"),
    "asset absolute": asset("/x"),
    "asset backslash": asset("a\\b"),
    "asset empty part": asset("b//c"),
    "asset is a folder": asset("b/"),
    "asset is the skill's text": asset("SKILL.md"),
    "skill in a skill": skills("skills/a", "skills/a/b"),
    "profile climbs": profile("../x"),
    "profile below": profile("a/b"),
    "profile backslash": profile("a\\b"),
    "case of memories": memories("memory/é.md", "memory/É.md"),
    "case of folders": memories("memory/a/xa.md", "memory/A/xA.md"),
    "file and folder": memories("memory/a.md", "memory/a.md/b.md"),
    "unicode forms": memories("memory/é.md", "memory/e\u0301.md"),
}
_CODES: Final = {
    "asset is the skill's text": "package-duplicate",
    "case of memories": "package-duplicate",
    "case of folders": "package-duplicate",
    "unicode forms": "package-duplicate",
    "file and folder": "package-type",
}


@pytest.mark.parametrize("what", _LEADS_OUT)
def test_a_name_that_no_folder_takes(team: Team, what: str) -> None:
    """It is refused, and the path named, whoever wrote the row."""
    born(team)
    _LEADS_OUT[what](team)
    refusal = refusal_of(team)
    assert refusal.code == _CODES.get(what, "package-path")
    assert refusal.details["path"]


_ODD: Final = (
    *("..", ".", "../x", "..\\x", "a/b", "/etc/x", "C:\\x", "%", "%2F", "%00", ".x", "a:b", ":"),
    *("é", "e\u0301", "É", "\u202e", "shared", "agent", "user-x", "\x01", " ", "x" * 5000),
)


@pytest.mark.parametrize("name", [name for name in _ODD if len(name) < 100], ids=ascii)
def test_a_name_that_is_encoded(new_team: Callable[[], Team], name: str) -> None:
    """Of a channel, a user or a scope any is harmless, and read back it is the same."""
    team, other = new_team(), new_team()
    born(team)
    chat(team, name, "u", event("m").decode())
    chat(team, "c", name, event("m").decode())
    row(team, "secret", scope=f"user-{name}", name=name)
    archive = team.archive()
    for path in files_in(archive):
        assert path.count("/") in (0, 2)
        assert "\\" not in path
        assert not path.rpartition("/")[2].startswith(".")
    for each in (team, other):
        each.bring_in_package(package_in(archive, ALL))
        assert sorted(
            each.rows('SELECT channel, "user" FROM agentfy.chat WHERE team_id = %(team)s')
        ) == sorted([(name, "u"), ("c", name)])
        assert each.rows("SELECT scope, name FROM agentfy.secret WHERE team_id = %(team)s") == [
            (f"user-{name}", name)
        ]
        assert each.archive() == archive


def test_chats_and_scopes_that_differ_by_case(new_team: Callable[[], Team]) -> None:
    """Each has a file of its own on any disk, and comes back as it was."""
    team, other = new_team(), new_team()
    born(team)
    names = ("bob", "Bob", "BOB", "é", "É", "e\u0301", "ß", "ss", "K", "\u212a", "k")
    for name in names:
        chat(team, "web", name, event(f"of {name!a}").decode())
        row(team, "secret", scope=f"user-{name}", name="N")
    archive = team.archive()
    found = files_in(archive)
    assert len({path.casefold() for path in found}) == len(found) == 2 + 2 * len(names)
    other.bring_in_package(package_in(archive, ALL))
    held = other.rows(
        'SELECT "user", external_id FROM agentfy.message JOIN agentfy.chat ON chat.id = chat_id'
        " WHERE chat.team_id = %(team)s"
    )
    assert sorted(held) == sorted((name, f"of {name!a}") for name in names)
    assert other.archive() == archive
    # one of them alone has a plain name
    assert "data/sessions/web:Bob.jsonl" in files_in(team.archive(user="Bob"))


def test_skills_side_by_side_and_in_groups(team: Team) -> None:
    """Below a skill all is its own; beside it are others."""
    files = {
        "skills/a/SKILL.md": b"a",
        "skills/a/b/x": b"x",
        "skills/a b/SKILL.md": b"a b",
        "skills/a-b/SKILL.md": b"a-b",
        "skills/group/a/SKILL.md": b"in a group",
        "skills/group/a/deep/deeper/x": b"x",
        "skills/group/b/SKILL.md": b"b",
        # inside of a skill a SKILL.md is a file like another
        "skills/a/b/SKILL.md": b"no skill",
    }
    team.bring_in(files)
    assert team.archive() == packed(files)
    paths = team.rows("SELECT path FROM agentfy.skill WHERE team_id = %(team)s ORDER BY path")
    assert [path for (path,) in paths] == [
        *("skills/a", "skills/a b", "skills/a-b", "skills/group/a", "skills/group/b"),
    ]
    made = package(files)
    assert sum(file.part == "asset" for file in made.files) == 3


def test_a_skill_that_moves_into_another(team: Team) -> None:
    """What was a skill, and becomes an asset of a new one above it, is not lost in silence."""
    team.bring_in({"skills/a/b/SKILL.md": b"b"})
    team.bring_in({"skills/a/SKILL.md": b"a", "skills/a/b/SKILL.md": b"b"})
    assert refusal_of(team).code in ("package-path", "package-duplicate")
    # with --prune it is the package
    files = {"skills/a/SKILL.md": b"a", "skills/a/b/SKILL.md": b"b"}
    team.bring_in(files, prune=True)
    assert team.archive() == packed(files)
