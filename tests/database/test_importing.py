"""Imports: which rows are written, which are left alone, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import psycopg
import pytest

from agentmove_tools.database import importing
from agentmove_tools.database.connection import bring_forward
from agentmove_tools.database.imported import Imported
from agentmove_tools.package.contents import Options
from agentmove_tools.refusals import Refusal
from tests.database.databases import Database
from tests.database.teams import Team, changes, files_in, lines, packed
from tests.database.whole import EVENTS, WHOLE
from tests.package.packages import ALL, PLAIN, event, package_in, told, zipped

RUN: Final = "skills/pdf/run.sh"
ALICE: Final = "data/sessions/web:alice.jsonl"
CONFIG: Final = "agent.config.json"
E5: Final = event("e5", 5, data={"text": "text 5"}) + b"\n"


def without(*paths: str) -> dict[str, bytes]:
    """The whole agent but for these files."""
    return {path: content for path, content in WHOLE.items() if path not in paths}


def values_in(team: Team, column: str, table: str) -> list[Any]:
    """A column of the team's rows in a table, sorted."""
    rows = team.rows(f"SELECT {column} FROM agentfy.{table} WHERE team_id = %(team)s ORDER BY 1")
    return [value for (value,) in rows]


# -- again


@pytest.mark.parametrize("prune", [False, True], ids=["plain", "prune"])
def test_a_second_import_writes_nothing(team: Team, prune: bool) -> None:
    """No row of any table, and the report says that each was left alone."""
    first = team.bring_in(WHOLE, runnable=[RUN])
    assert first.result == "created"
    before = team.stand()
    assert {label.split()[0] for label in before} >= {
        *("team", "agent", "skill", "file", "memory", "secret"),
        *("access", "access_user", "chat", "message", "usage", "account"),
    }
    again = team.bring_in(WHOLE, runnable=[RUN], prune=prune)
    assert changes(before, team.stand()) == []
    assert again.result == "unchanged"
    assert (again.agent_id, again.team.id) == (first.agent_id, first.team.id)
    report: Any = again.to_json()
    assert report["tables"] == {
        table: {"in": row["in"], "written": 0, "left_alone": row["in"], "removed": 0}
        for table, row in first.to_json()["tables"].items()  # type: ignore[attr-defined]
    }
    assert report["pending_secrets"] == {"agent": ["API_KEY", "TOKEN"], "user-alice": ["HERS"]}


def test_the_first_report_is_of_all_rows(team: Team) -> None:
    """What came in was written, as many rows as there are in each table."""
    done = team.bring_in(WHOLE)
    rows = [label.split()[0] for label in team.stand()]
    for table, counts in done.counts.items():
        assert counts == (rows.count(table), rows.count(table), 0), table


_CONFIG: Final = WHOLE[CONFIG]

# what is changed -> the files, and the rows that are written then
_SINGLE: Final[Mapping[str, tuple[dict[str, bytes], list[str]]]] = {
    "soul": ({**WHOLE, "SOUL.md": b"another"}, ["~agent agent-of-tests"]),
    "user": ({**WHOLE, "USER.md": b""}, ["~agent agent-of-tests"]),
    "no user": (without("USER.md"), []),
    "no heartbeat": (without("HEARTBEAT.md"), []),
    "config only": ({**WHOLE, CONFIG: _CONFIG + b" "}, ["~agent agent-of-tests"]),
    "strategy": (
        {**WHOLE, CONFIG: _CONFIG.replace(b'"list"', b'"none"')},
        ["~access", "~agent agent-of-tests"],
    ),
    "no strategy": (
        {**WHOLE, CONFIG: _CONFIG.replace(b"accessStrategy", b"other")},
        ["~access", "~agent agent-of-tests"],
    ),
    "no strategy and no list": (
        {**without("data/access.json"), CONFIG: _CONFIG.replace(b"accessStrategy", b"other")},
        ["~access", "~agent agent-of-tests"],
    ),
    "memory": (
        {**WHOLE, "memory/2026-01-02.md": b"another day\n"},
        ["~memory memory/2026-01-02.md"],
    ),
    "one more memory": ({**WHOLE, "memory/é.md": b""}, ["+memory memory/é.md"]),
    "no memory": (without("MEMORY.md"), []),
    "skill": (
        {**WHOLE, "skills/pdf/SKILL.md": b"---\nname: pdf\n---\n"},
        ["~skill skills/pdf"],
    ),
    "no skill": (without("skills/pdf/SKILL.md", RUN), []),
    "asset": ({**WHOLE, RUN: b"#!/bin/sh\n\0\xfe"}, [f"~file {RUN}"]),
    "no asset": (without(RUN), [f"-file {RUN}"]),
    "one more asset": ({**WHOLE, "skills/pdf/a/b": b""}, ["+file skills/pdf/a/b"]),
    "access list": (
        {**WHOLE, "data/access.json": b'["web:bob", "web:carol"]'},
        ["+access_user web:carol", "-access_user web:alice", "~access"],
    ),
    "access laid out": ({**WHOLE, "data/access.json": b'["web:alice",\n"web:bob"]'}, ["~access"]),
    "no access list": (without("data/access.json"), []),
    "one more secret": (
        {**WHOLE, "data/secrets/agent.json": b'["API_KEY", "TOKEN", "\xc3\xa9"]'},
        ["+secret agent é"],
    ),
    "no secret": ({**WHOLE, "data/secrets/agent.json": b"[]"}, []),
    "one more event": (
        {**WHOLE, ALICE: EVENTS + E5},
        ["+message web:alice e5", "~chat web:alice"],
    ),
    "an event in the middle": (
        {**WHOLE, ALICE: lines(*EVENTS.splitlines()[:4], E5[:-1], *EVENTS.splitlines()[4:])},
        ["+message web:alice e5", "~chat web:alice", "~message web:alice e4"],
    ),
    "another order of events": (
        {**WHOLE, ALICE: lines(*EVENTS.splitlines()[:3], *EVENTS.splitlines()[:2:-1])},
        ["~chat web:alice", "~message web:alice e3", "~message web:alice e4"],
    ),
    "an event repeated": ({**WHOLE, ALICE: EVENTS + EVENTS.splitlines()[0]}, []),
    "an event less": ({**WHOLE, ALICE: lines(*EVENTS.splitlines()[1:])}, []),
    "no chat": (without(ALICE), []),
    "one more chat": (
        {**WHOLE, "data/sessions/web:carol.jsonl": E5},
        ["+chat web:carol", "+message web:carol e5"],
    ),
    "usage": ({**WHOLE, "data/usage.json": b"{}"}, ["~usage"]),
    "browser state": ({**WHOLE, "browser-state/main.json": b"{}"}, ["~account main"]),
    "nothing": (without(*(set(WHOLE) - {"SOUL.md", CONFIG})), []),
}


@pytest.mark.parametrize("what", _SINGLE)
def test_only_what_differs_is_written(team: Team, what: str) -> None:
    """One change is the rows that it is of, and what a package lacks stays."""
    files, expected = _SINGLE[what]
    team.bring_in(WHOLE)
    before = team.stand()
    done = team.bring_in(files)
    assert changes(before, team.stand()) == expected
    assert done.result == ("updated" if expected else "unchanged")
    written: dict[str, int] = {}
    for change in expected:
        table = change[1:].split()[0]
        written[table] = written.get(table, 0) + 1
    told_of = {
        table: counts.written + counts.removed
        for table, counts in done.counts.items()
        if counts.written or counts.removed
    }
    assert told_of == written
    after = team.stand()
    assert team.bring_in(files).result == "unchanged"
    assert changes(after, team.stand()) == []


def test_the_x_bit_alone_is_a_change(team: Team) -> None:
    """It comes and goes with the package, and nothing else is written."""
    team.bring_in(WHOLE)
    for runnable in ([RUN], []):
        before = team.stand()
        team.bring_in(WHOLE, runnable=runnable)
        assert changes(before, team.stand()) == [f"~file {RUN}"]
        assert team.archive() == packed(WHOLE, runnable=runnable)


def test_columns_are_read_from_the_configuration(team: Team) -> None:
    """With their defaults, and they follow it when it changes."""
    columns = (
        "SELECT agent.name, runtime_profile, limits::text, strategy FROM agentfy.agent"
        " LEFT JOIN agentfy.access ON agent_id = agent.id WHERE agent.team_id = %(team)s"
    )
    team.bring_in(WHOLE)
    assert team.rows(columns) == [("Ada", "large", '{"tokens":5}', "list")]
    team.bring_in({**WHOLE, CONFIG: b'{"id": "agent-of-tests", "limits": {"b": 1, "a": -0.0}}'})
    assert team.rows(columns) == [(None, "default", '{"a":-0.0,"b":1}', None)]
    # and what is in a team, a type or an owner of it means nothing
    team.bring_in({**WHOLE, CONFIG: b'{"id": "agent-of-tests", "type": "concierge", "team": "x"}'})
    assert team.rows(columns) == [(None, "default", None, None)]
    assert values_in(team, "type", "agent") == ["agent"]


# -- prune


_MORE: Final = {
    **WHOLE,
    "skills/old/SKILL.md": b"old",
    "skills/old/a": b"a",
    "memory/old.md": b"old",
    "data/secrets/agent.json": b'["API_KEY", "TOKEN", "OLD", "ENTERED"]',
    "data/secrets/shared.json": b'["OTHER"]',
    "data/sessions/web:old.jsonl": E5,
}


def test_prune_removes_what_the_package_lacks(team: Team) -> None:
    """Skills, memories, and pending names in the scopes that it has; never messages."""
    team.bring_in(_MORE)
    team.rows(
        "UPDATE agentfy.secret SET value = 'sealed' WHERE team_id = %(team)s AND name = 'ENTERED'"
    )
    before = team.stand()
    assert team.bring_in(WHOLE).result == "unchanged"
    assert changes(before, team.stand()) == []
    done = team.bring_in(WHOLE, prune=True)
    assert changes(before, team.stand()) == [
        "-file skills/old/a",
        "-memory memory/old.md",
        "-secret agent OLD",
        "-skill skills/old",
    ]
    for table in ("skill", "file", "memory", "secret"):
        assert done.counts[table].removed == 1
    assert done.result == "updated"
    assert done.pending["shared"] == ["OTHER"]
    assert team.bring_in(WHOLE, prune=True).result == "unchanged"


def test_prune_by_a_package_without_any(team: Team) -> None:
    """All skills and memories go; scopes, the list of access, texts and chats stay."""
    team.bring_in(_MORE)
    before = team.stand()
    team.bring_in({CONFIG: _CONFIG, "SOUL.md": WHOLE["SOUL.md"]}, prune=True)
    gone = {label for label in before if label.split()[0] in ("skill", "file", "memory")}
    assert changes(before, team.stand()) == sorted(f"-{label}" for label in gone)


def test_prune_leaves_other_agents_alone(team: Team) -> None:
    """Of the same team."""
    team.bring_in(_MORE)
    other = team.agent
    archive = team.archive()
    team.bring_in({CONFIG: b'{"id": "another"}'}, prune=True)
    assert team.database.archive(other, wanted=ALL.wanted) == archive


# -- which agent


NO_ID: Final = {**WHOLE, CONFIG: b'{"name": "Ada"}\n'}


def test_agent_names_one_of_the_team(team: Team) -> None:
    """A package with its ID, and one without any, are that agent's; no other is made."""
    agent = team.bring_in(WHOLE).agent_id
    assert team.bring_in(WHOLE, agent=agent).result == "unchanged"
    done = team.bring_in(NO_ID, agent=agent)
    assert (done.agent_id, done.result) == (agent, "updated")
    assert values_in(team, "external_id", "agent") == ["agent-of-tests"]
    assert done.to_json()["agent"] == {
        "id": agent,
        "externalId": "agent-of-tests",
        "name": "Ada",
    }


def test_agent_of_another_id_is_refused(team: Team) -> None:
    """With the file, and with what was told."""
    agent = team.bring_in(WHOLE).agent_id
    refusal = team.refusal_of({CONFIG: b'{"id": "another"}'}, agent=agent)
    assert told(refusal)[:2] == ("agent-id", CONFIG)
    assert "--agent" in refusal.why
    assert "'another'" in refusal.why


def test_agent_of_another_team_is_unknown(new_team: Callable[[], Team]) -> None:
    """As is one that is not there at all; neither team changes."""
    mine, theirs = new_team(), new_team()
    agent = theirs.bring_in(WHOLE).agent_id
    mine.bring_in(WHOLE)
    before = theirs.stand()
    for named in (agent, "agent-of-tests", "agent-00000000-0000-0000-0000-000000000000", ""):
        assert mine.refusal_of(WHOLE, agent=named).code == "agent-unknown"
    assert theirs.stand() == before


def test_agent_is_the_one_that_was_looked_at(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the platform changes its external ID meanwhile, no other agent is made or written."""
    agent = team.bring_in(WHOLE).agent_id
    real = importing._Import._external_id

    def renamed(*given: Any) -> str:  # noqa: ANN401 (as the real one takes)
        found = real(*given)
        with psycopg.connect(**team.database.parameters) as platform:  # type: ignore[arg-type]
            platform.execute("UPDATE agentfy.agent SET external_id = id WHERE id = %s", (agent,))
        return found

    monkeypatch.setattr(importing._Import, "_external_id", renamed)
    with pytest.raises(Refusal) as caught:
        team.bring_in(WHOLE, agent=agent)
    assert caught.value.code == "agent-id"
    assert (values_in(team, "id", "agent"), values_in(team, "external_id", "agent")) == (
        [agent],
        [agent],
    )


def test_an_unknown_agent_makes_no_team(team: Team) -> None:
    """The team that would have been made is not there."""
    assert team.refusal_of(WHOLE, agent="x").code == "agent-unknown"
    assert team.stand() == {}


def told_id(external_id: str) -> Options:
    return ALL._replace(external_id=external_id)


def test_an_external_id_is_told(team: Team) -> None:
    """To a package without one; another one than the package's is refused."""
    refusal = team.refusal_of(NO_ID)
    assert told(refusal)[:3] == ("agent-id", CONFIG, "agent.config.id")
    assert refusal.hint is not None
    done = team.bring_in(NO_ID, reading=told_id("Ädä"))
    assert values_in(team, "external_id", "agent") == ["Ädä"]
    before = team.stand()
    assert team.bring_in(NO_ID, reading=told_id("Ädä")).agent_id == done.agent_id
    assert changes(before, team.stand()) == []
    assert team.archive() == packed(NO_ID, told_id("x"))  # byte for byte: without an ID
    assert team.bring_in(WHOLE, reading=told_id("agent-of-tests")).result == "created"
    refusal = team.refusal_of(WHOLE, reading=told_id("another"))
    assert told(refusal)[:2] == ("agent-id", CONFIG)


def test_one_package_in_two_teams_is_two_agents(new_team: Callable[[], Team]) -> None:
    """Of one origin: a change of one is none of the other."""
    one, other = new_team(), new_team()
    first, second = one.bring_in(WHOLE), other.bring_in(WHOLE)
    assert first.agent_id != second.agent_id
    before = one.stand()
    other.bring_in({**WHOLE, "SOUL.md": b"another", ALICE: EVENTS + E5})
    assert one.stand() == before
    assert one.archive() == packed(WHOLE)


def test_a_team_is_named_or_told_by_its_id(team: Team) -> None:
    """Without being asked for none is made; an ID that is not there is no name."""
    refusal = team.refusal_of(WHOLE, create_team=False)
    assert refusal.code == "team-unknown"
    assert refusal.hint is not None
    unknown = "team-00000000-0000-0000-0000-000000000000"
    assert team.refusal_of(WHOLE, team=unknown).code == "team-unknown"
    made = team.bring_in(WHOLE)
    assert made.team.created
    for named in (team.id, team.name):
        again = team.bring_in(WHOLE, team=named, create_team=False)
        assert again.result == "unchanged"
        assert again.to_json()["team"] == {"id": team.id, "name": team.name, "created": False}


# -- concierges


def test_a_concierge_is_neither_overwritten_nor_exported(team: Team) -> None:
    """However it is named, and in a dry run; other agents of its team are."""
    agent = team.bring_in(WHOLE).agent_id
    assert agent is not None
    team.rows("UPDATE agentfy.agent SET type = 'concierge' WHERE id = %(agent)s")
    for options in ({}, {"agent": agent}, {"prune": True}, {"dry_run": True}):
        refusal = team.refusal_of({**WHOLE, "SOUL.md": b"mine"}, **options)
        assert refusal.code == "agent-concierge"
        assert agent in refusal.why
    for exporting in ({}, {"team": team.name}, {"user": "alice"}):
        with pytest.raises(Refusal) as caught:
            team.archive(**exporting)
        assert caught.value.code == "agent-concierge"
    team.bring_in({**WHOLE, CONFIG: b'{"id": "another"}'})
    assert values_in(team, "type", "agent") == ["agent", "concierge"]


# -- dry runs


def report_of(done: Imported) -> dict[str, Any]:
    """What a report says that a dry run can know."""
    report: dict[str, Any] = done.to_json()
    return {
        **report,
        "dry_run": None,
        "team": {"name": report["team"]["name"], "created": report["team"]["created"]},
        "agent": {**report["agent"], "id": None},
    }


@pytest.mark.parametrize("prune", [False, True], ids=["plain", "prune"])
@pytest.mark.parametrize(
    "held", [None, {}, {**_MORE, "SOUL.md": b"x"}, WHOLE], ids=["team", "agent", "rows", "nothing"]
)
def test_a_dry_run_changes_nothing(
    team: Team, held: Mapping[str, bytes] | None, prune: bool
) -> None:
    """Whatever is missing; and it says of each table what the import then does."""
    if held is not None:
        team.bring_in(held)
    before = team.stand()
    dry = team.bring_in(WHOLE, prune=prune, dry_run=True)
    assert team.stand() == before
    assert dry.to_json()["dry_run"] is True
    if held is None:
        assert (dry.agent_id, dry.to_json()["team"]) == (
            None,
            {"id": None, "name": team.name, "created": True},
        )
    else:
        assert dry.agent_id == team.agent
    done = team.bring_in(WHOLE, prune=prune)
    assert report_of(dry) == report_of(done)
    assert done.to_json()["dry_run"] is False


def test_a_dry_run_of_what_is_refused(team: Team) -> None:
    """It is refused as the import is."""
    for files in ({"SOUL.md": b"\0"}, {ALICE: b"x"}):
        refusal = team.refusal_of(files, dry_run=True)
        assert told(refusal) == told(team.refusal_of(files))
    assert team.refusal_of({}, dry_run=True, create_team=False).code == "team-unknown"


_CATALOGUE: Final = """
    SELECT 'role', rolname, pg_roles::text FROM pg_roles
    UNION ALL SELECT 'member', roleid::text, pg_auth_members::text FROM pg_auth_members
    UNION ALL SELECT 'schema', nspname, nspacl::text FROM pg_namespace
        WHERE nspname NOT LIKE 'pg_temp%%' AND nspname NOT LIKE 'pg_toast_temp%%'
    UNION ALL SELECT 'relation', relname, relacl::text FROM pg_class
        WHERE relnamespace <> 'pg_toast'::regnamespace
    UNION ALL SELECT 'function', proname, proacl::text FROM pg_proc
    ORDER BY 1, 2, 3
"""


def test_a_dry_run_without_a_schema(empty_database: Database) -> None:
    """Neither schema nor table nor role is left, and what it says is what the import then does."""
    before = empty_database.rows(_CATALOGUE)
    dry = empty_database.bring_in(zipped(WHOLE), reading=ALL, dry_run=True)
    assert empty_database.rows(_CATALOGUE) == before
    assert dry.result == "created"
    with empty_database.connect() as connection:
        bring_forward(connection)
    assert empty_database.rows(_CATALOGUE) != before
    done = empty_database.bring_in(zipped(WHOLE), reading=ALL)
    assert report_of(dry) == report_of(done)


# -- who may speak, and secrets


def person(team: Team, name: str, *known_as: str) -> str:
    """Make a person of the platform, who speaks as these ``channel:user``; the ID."""
    ((found,),) = team.rows(
        "INSERT INTO agentfy.app_user (team_id, name) VALUES (%(team)s, %(name)s) RETURNING id",
        name=name,
    )
    for each in known_as:
        channel, user = each.split(":", 1)
        team.rows(
            "INSERT INTO agentfy.app_user_identity"
            " VALUES (%(team)s, %(id)s, %(channel)s, %(user)s)",
            id=found,
            channel=channel,
            user=user,
        )
    return str(found)


def speakers(team: Team) -> dict[str, str | None]:
    """Whom the platform knows those as who may speak."""
    return dict(
        team.rows(
            "SELECT channel || ':' || \"user\", app_user_id FROM agentfy.access_user"
            " WHERE team_id = %(team)s"
        )
    )


def test_who_may_speak_is_whom_the_platform_knows(new_team: Callable[[], Team]) -> None:
    """By channel and user, in the agent's team only; and a later import sees who is known then."""
    team, other = new_team(), new_team()
    files = {"data/access.json": b'{"web:alice": {}, "tg:a:b": [], "web:bob": 1, "nobody": {}}'}
    for each in (team, other):
        each.bring_in({})
    alice = person(team, "Alice", "web:alice", "tg:a:b")
    person(team, "Other", "tg:alice", "web:bo")
    person(other, "Bob", "web:bob")
    team.bring_in(files)
    assert speakers(team) == {"web:alice": alice, "tg:a:b": alice, "web:bob": None}
    bob = person(team, "Bob", "web:bob")
    before = team.stand()
    team.bring_in(files)
    assert changes(before, team.stand()) == ["~access_user web:bob"]
    assert speakers(team)["web:bob"] == bob
    team.rows("DELETE FROM agentfy.app_user WHERE team_id = %(team)s AND id = %(id)s", id=alice)
    assert speakers(team) == {"web:alice": None, "tg:a:b": None, "web:bob": bob}
    before = team.stand()
    assert team.bring_in(files).result == "unchanged"
    assert changes(before, team.stand()) == []
    # who was taken out stays out
    team.bring_in({"data/access.json": b'["web:bob"]'})
    assert speakers(team) == {"web:bob": bob}
    team.bring_in({"data/access.json": b"{}"})
    assert speakers(team) == {}


VALUE: Final = "v4lue-that-nobody-sees"


def test_no_value_of_a_secret_comes_in_or_goes_out(team: Team) -> None:
    """Names only are taken; one that was entered stays entered, and is never pending again."""
    files = {
        "data/secrets/agent.json": json.dumps({"TOKEN": VALUE, "KEY": VALUE}).encode(),
        "data/secrets/user-zoë.json": b'{"pendingKeys": ["HERS"]}',
    }
    done = team.bring_in(files)
    assert done.pending == {"agent": ["KEY", "TOKEN"], "user-zoë": ["HERS"]}
    assert VALUE not in str(done.to_json())
    assert VALUE not in str(team.stand())
    team.rows(
        "UPDATE agentfy.secret SET value = %(value)s WHERE team_id = %(team)s AND name = 'TOKEN'",
        value=VALUE.encode(),
    )
    before = team.stand()
    again = team.bring_in(files, prune=True)
    assert changes(before, team.stand()) == []
    assert again.pending == {"agent": ["KEY"], "user-zoë": ["HERS"]}
    # nor does a package without the name, whatever it is told, remove it
    pruned = team.bring_in({"data/secrets/agent.json": b"[]"}, prune=True)
    assert changes(before, team.stand()) == ["-secret agent KEY"]
    assert pruned.pending == {"user-zoë": ["HERS"]}
    archive = team.archive()
    assert VALUE.encode() not in archive
    found = files_in(archive)
    assert found["data/secrets/agent.json"] == b'{"pendingKeys":["TOKEN"]}\n'
    assert all(VALUE.encode() not in content for content in found.values())


def test_a_stem_that_is_no_scope_is_a_user(team: Team) -> None:
    """And two files of one scope are one."""
    files = {"data/secrets/bob.json": b'["A"]', "data/secrets/user-bob.json": b'["B", "A"]'}
    assert team.bring_in(files).pending == {"user-bob": ["A", "B"]}
    assert team.archive() == packed(files)


# -- what is refused


_REFUSED: Final[Mapping[str, tuple[dict[str, bytes], str, str]]] = {
    "nul in soul": ({"SOUL.md": b"a\0"}, "field-nul", "agent.soul"),
    "nul in user": ({"USER.md": b"a\0"}, "field-nul", "agent.user"),
    "nul in heartbeat": ({"HEARTBEAT.md": b"\0"}, "field-nul", "agent.heartbeat"),
    "nul in memory": ({"memory/x.md": b"a\0"}, "field-nul", "memory.content"),
    "nul in skill": ({"skills/x/SKILL.md": b"a\0"}, "field-nul", "skill.content"),
    "nul in secret": ({"data/secrets/agent.json": b'["\\u0000"]'}, "field-nul", "secret.names"),
    "nul in access": ({"data/access.json": b'["a:\\u0000"]'}, "field-nul", "access.list"),
    "nul in usage": ({"data/usage.json": b'"\\u0000"'}, "field-nul", "usage"),
    "nul in cookies": ({"browser-state/x.json": b'{"\\u0000":1}'}, "field-nul", "account"),
    "nul in id": ({CONFIG: b'{"id":"\\u0000"}'}, "field-nul", "agent.config.id"),
    "nul in chat": ({"data/sessions/a:%00.jsonl": b""}, "field-nul", "chat.user"),
    "nul in scope": ({"data/secrets/user-%00.json": b"[]"}, "field-nul", "secret.scope"),
    "surrogate in config": (
        {CONFIG: b'{"id":"a","name":"\\ud800"}'},
        "field-surrogate",
        "agent.config",
    ),
    "surrogate in access": ({"data/access.json": b'["\\udfff"]'}, "field-surrogate", "access.list"),
    "latin 1": ({"MEMORY.md": b"\xe9"}, "field-encoding", "memory.content"),
}


@pytest.mark.parametrize("what", _REFUSED)
def test_what_a_database_cannot_hold_is_refused_before_it(team: Team, what: str) -> None:
    """With the field's name, and nothing of the rest is written, be it new or an update."""
    files, code, field = _REFUSED[what]
    refusal = team.refusal_of({**WHOLE, **files})
    assert (refusal.code, refusal.details["field"]) == (code, field)
    team.bring_in(WHOLE)
    changed = {**WHOLE, "SOUL.md": b"another", "MEMORY.md": b"another", ALICE: EVENTS + E5}
    assert team.refusal_of({**changed, **files}).code == code


def test_a_damaged_file_that_is_no_part_is_refused(team: Team) -> None:
    """All of an archive is read, so that one that was cut in the middle is not half taken."""
    data = bytearray(zipped({**WHOLE, "notes.txt": b"unknown " * 9}))
    at = data.index(b"notes.txt") + len("notes.txt")
    data[at + 2] ^= 0xFF
    with pytest.raises(Refusal) as caught:
        team.bring_in_package(package_in(bytes(data), ALL))
    assert caught.value.code == "package-damaged"
    assert team.stand() == {}


# -- what is asked for


def test_only_what_is_asked_for_comes(team: Team) -> None:
    """Usage and the browser's state are left out, named in the report; what is there stays."""
    done = team.bring_in(WHOLE, reading=PLAIN)
    left_out: Any = done.to_json()["passed_over"]
    assert [each["path"] for each in left_out] == ["browser-state/main.json", "data/usage.json"]
    assert not {"usage", "account"} & {label.split()[0] for label in team.stand()}
    team.bring_in(WHOLE)
    before = team.stand()
    assert team.bring_in(WHOLE, reading=PLAIN).result == "unchanged"
    assert changes(before, team.stand()) == []
    assert team.archive(wanted=frozenset()) == packed(WHOLE, PLAIN)


def test_paths_that_have_no_place_are_told(team: Team) -> None:
    """They are in the report, and nowhere else."""
    done = team.bring_in({**WHOLE, "AGENTS.md": b"x", "data/memory.sqlite": b"x", ".DS_Store": b""})
    report: Any = done.to_json()
    assert report["unknown"] == ["AGENTS.md"]
    assert [each["path"] for each in report["passed_over"]] == [".DS_Store", "data/memory.sqlite"]
    assert team.archive() == packed(WHOLE)


# -- names of every kind


def test_names_of_every_script(team: Team) -> None:
    """Of agents, skills, files, memories, scopes, secrets, channels, users and profiles."""
    odd = "Ünï \u202e 漢字 😀 -rf * ' \" $$ %s"
    quoted = odd.replace("%", "%25")
    files = {
        CONFIG: json.dumps(
            {"id": odd, "name": odd, "runtimeProfile": odd, "accessStrategy": odd}
        ).encode(),
        "SOUL.md": odd.encode(),
        f"skills/{odd}/SKILL.md": f"---\nname: >-\n  {odd}\n---\n{odd}".encode(),
        f"skills/{odd}/{odd}": odd.encode("utf-16"),
        f"memory/{odd}/{odd}.md": odd.encode(),
        f"data/secrets/user-{quoted}.json": json.dumps([odd]).encode(),
        "data/access.json": json.dumps([f"{odd}:{odd}"]).encode(),
        f"data/sessions/{quoted}:{quoted}.jsonl": lines(event(odd, data={odd: odd})),
        f"browser-state/{odd}.json": json.dumps({odd: odd}).encode(),
    }
    done = team.bring_in(files)
    assert done.pending == {f"user-{odd}": [odd]}
    assert team.archive() == packed(files)
    before = team.stand()
    assert team.bring_in(files).result == "unchanged"
    assert changes(before, team.stand()) == []
    assert speakers(team) == {f"{odd}:{odd}": None}
    assert values_in(team, "external_id", "message") == [odd]


def test_names_longer_than_an_index_holds(team: Team) -> None:
    """Keys are found by their hashes: long paths and names that differ at their ends only."""
    long = "x" * 200
    deep = "/".join([long] * 18)
    big = "k" * 50_000
    files = {
        f"skills/{deep}/SKILL.md": b"",
        f"skills/{deep}/a": b"a",
        f"skills/{deep}/b": b"b",
        f"memory/{deep}/1.md": b"1",
        f"memory/{deep}/2.md": b"2",
        "data/secrets/agent.json": json.dumps([big + "1", big + "2"]).encode(),
        "data/access.json": json.dumps([f"c:{big}1", f"c:{big}2"]).encode(),
        f"data/sessions/c:{'u' * 3000}1.jsonl": b"",
        f"data/sessions/c:{'u' * 3000}2.jsonl": lines(event("i" * 1024)),
    }
    team.bring_in(files)
    assert team.archive() == packed(files)
    before = team.stand()
    assert team.bring_in(files).result == "unchanged"
    assert changes(before, team.stand()) == []
