"""Imports at once, of one agent and of several: all end right, and nothing is there twice."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import psycopg
import pytest

from agentmove_tools.database import importing
from agentmove_tools.database.connection import bring_forward
from agentmove_tools.database.imported import Imported
from agentmove_tools.database.messages import ChangedMeanwhileError, import_messages
from agentmove_tools.refusals import MachineError
from tests.database.databases import Database
from tests.database.whole import WHOLE, all_rows
from tests.package.packages import ALL, contents, event, package_in, zipped

_AGENT: Final = {path: content for path, content in WHOLE.items() if "sessions" not in path}


def session(numbers: Iterable[int]) -> bytes:
    return b"".join(event(f"e{n}", n, data={"text": f"text {n}"}) + b"\n" for n in numbers)


def large(numbers: Iterable[int], chats: int = 3, skills: int = 8) -> dict[str, bytes]:
    """An agent that takes a while: skills, memories and chats, all with the same events."""
    text = session(numbers)
    return {
        **_AGENT,
        **{f"skills/s{n}/SKILL.md": f"skill {n}".encode() for n in range(skills)},
        **{f"skills/s{n}/a.bin": bytes([n]) * 1000 for n in range(skills)},
        **{f"memory/{n}.md": f"memory {n}".encode() for n in range(skills)},
        **{f"data/sessions/web:u{n}.jsonl": text for n in range(chats)},
    }


def at_once(*jobs: Callable[[], Imported]) -> list[Imported]:
    """What comes of the jobs, all begun at the same time."""
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], Imported]) -> Imported:
        start.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as threads:
        return [each.result() for each in [threads.submit(run, job) for job in jobs]]


def counts(database: Database) -> dict[str, int]:
    return {table: len(rows) for table, rows in all_rows(database).items()}


def same(database: Database, agent: str | None, files: dict[str, bytes]) -> bool:
    """Whether what comes out is what these files are as a package."""
    assert agent is not None
    out = contents(package_in(database.archive(agent, wanted=ALL.wanted), ALL))
    return out == contents(package_in(zipped(files), ALL))


@pytest.mark.parametrize("many", [2, 4])
def test_one_new_agent(database: Database, many: int) -> None:
    """One import makes it, and the team; the others find nothing to do."""
    files = large(range(100))
    package = zipped(files)
    done = at_once(*[lambda: database.bring_in(package, reading=ALL)] * many)
    assert sorted(each.result for each in done) == ["created"] + ["unchanged"] * (many - 1)
    assert sorted(each.team.created for each in done) == [False] * (many - 1) + [True]
    assert len({each.agent_id for each in done}) == 1
    assert counts(database) == {
        **dict.fromkeys(counts(database), 0),
        "team": 1,
        "agent": 1,
        "skill": 9,
        "file": 9,
        "memory": 10,
        "secret": 3,
        "access": 1,
        "access_user": 2,
        "chat": 3,
        "message": 300,
        "usage": 1,
        "account": 1,
    }
    assert same(database, done[0].agent_id, files)


def test_from_an_empty_database(empty_database: Database) -> None:
    """Each of them would make the schema too."""
    package = zipped(large(range(100)))

    def bring_in() -> Imported:
        with empty_database.connect() as connection:
            bring_forward(connection)
            options = importing.ImportOptions(team="t", create_team=True)
            return importing.import_package(connection, package_in(package), options)

    done = at_once(*[bring_in] * 3)
    assert sorted(each.result for each in done) == ["created", "unchanged", "unchanged"]
    assert counts(empty_database)["message"] == 300


def test_two_packages_of_one_agent(database: Database) -> None:
    """All events of both are there, the chats of each, and the texts of the one that was last."""
    first, second = large(range(100)), large(range(50, 150))
    del second["data/sessions/web:u0.jsonl"]
    second["data/sessions/web:own.jsonl"] = session(range(5))
    second |= {path: b"second" for path in second if path.startswith("skills/")}
    done = at_once(
        lambda: database.bring_in(zipped(first), reading=ALL),
        lambda: database.bring_in(zipped(second), reading=ALL),
    )
    assert sorted(each.result for each in done) == ["created", "updated"]
    chats = database.rows(
        """
        SELECT "user", count(*), count(DISTINCT message.external_id), count(DISTINCT place),
            max(place)
        FROM agentfy.chat JOIN agentfy.message ON chat.id = chat_id GROUP BY chat.id ORDER BY 1
        """
    )
    assert chats == [
        ("own", 5, 5, 5, 4),
        ("u0", 100, 100, 100, 99),
        ("u1", 150, 150, 150, 149),
        ("u2", 150, 150, 150, 149),
    ]
    assert counts(database)["agent"] == 1
    last = first if done[0].result == "updated" else second
    out = contents(package_in(database.archive(str(done[0].agent_id))))
    for path in ("skills/s1/SKILL.md", "skills/s7/a.bin"):
        assert out[path] == last[path]
    # whichever was first, both find all of theirs now
    for files in (first, second, first):
        database.bring_in(zipped(files), reading=ALL)
    assert counts(database)["message"] == 5 + 100 + 150 + 150


def test_packages_in_other_orders_do_not_deadlock(database: Database) -> None:
    """Updates of the same rows, which one package has in one order and one in the other."""
    files = large(range(50), chats=8, skills=20)
    database.bring_in(zipped(files))
    for round_ in range(2):
        one = {p: c + f"{round_}".encode() for p, c in files.items() if p.startswith("skills/")}
        two = {p: c + f"{round_}+".encode() for p, c in reversed(one.items())}
        more = {
            p: c + session(range(100 + 10 * round_, 110 + 10 * round_))
            for p, c in files.items()
            if p.startswith("data/sessions/")
        }
        files |= more
        turned = dict(reversed({**files, **two}.items()))
        done = at_once(
            partial(database.bring_in, zipped({**files, **one})),
            partial(database.bring_in, zipped(turned)),
        )
        assert [each.result for each in done] == ["updated", "updated"]
    assert counts(database)["message"] == 8 * 70


def test_agents_of_two_teams(database: Database) -> None:
    """Of one external ID: neither waits for what the other does, and each has its own."""
    files = large(range(100))
    package = zipped(files)
    done = at_once(*(partial(database.bring_in, package, team, reading=ALL) for team in "abc"))
    assert [each.result for each in done] == ["created"] * 3
    assert len({each.agent_id for each in done}) == 3
    assert counts(database)["message"] == 3 * 300
    assert all(same(database, each.agent_id, files) for each in done)


def test_other_agents_of_a_team_that_is_new(database: Database) -> None:
    """Each would make the team: it is made once, and each agent is in it."""

    def bring_in(number: int) -> Imported:
        config = f'{{"id": "agent {number}"}}'.encode()
        return database.bring_in(zipped({**large(range(50)), "agent.config.json": config}), "new")

    done = at_once(*(partial(bring_in, number) for number in range(4)))
    assert [each.result for each in done] == ["created"] * 4
    assert sorted(each.team.created for each in done) == [False, False, False, True]
    assert len({each.team.id for each in done}) == 1
    assert (counts(database)["team"], counts(database)["agent"]) == (1, 4)


def test_while_the_platform_writes(database: Database) -> None:
    """Into the same chat: all messages of both are there, each at a place of its own."""
    database.bring_in(zipped({**_AGENT, "data/sessions/web:alice.jsonl": session(range(10))}))
    done = threading.Event()
    written: list[int] = []

    def write() -> None:
        with psycopg.connect(**database.parameters, autocommit=True) as connection:  # type: ignore[arg-type]
            while not done.is_set():
                try:
                    connection.execute(
                        """
                        INSERT INTO agentfy.message (team_id, chat_id, place, type, ts, event)
                        SELECT team_id, id, (
                            SELECT max(place) + 1 FROM agentfy.message WHERE chat_id = chat.id
                        ), 'user', 0, '{"data": {}, "id": "x", "ts": 0, "type": "user"}'
                        FROM agentfy.chat
                        """
                    )
                except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
                    continue  # an import took the place
                written.append(1)
                done.wait(0.02)

    platform = threading.Thread(target=write)
    platform.start()
    try:
        for upto in range(20, 60, 10):
            files = {**_AGENT, "data/sessions/web:alice.jsonl": session(range(upto))}
            assert database.bring_in(zipped(files)).counts["message"].written == 10
    finally:
        done.set()
        platform.join()
    assert written
    ((own, places, digests),) = database.rows(
        """
        SELECT count(*) FILTER (WHERE external_id LIKE 'e%%'), count(DISTINCT place),
            (SELECT count(digest) FROM agentfy.chat)
        FROM agentfy.message
        """
    )
    assert (own, places, digests) == (50, 50 + len(written), 0)


_WRITES: Final = {
    "insert": """
        INSERT INTO agentfy.message (team_id, chat_id, place, type, ts, event)
        SELECT team_id, id, 77, 'user', 0, '{"data": {}, "ts": 0, "type": "user"}' FROM agentfy.chat
    """,
    "update": "UPDATE agentfy.message SET place = 77 WHERE external_id = 'e3'",
    "delete": "DELETE FROM agentfy.message WHERE external_id = 'e3'",
}


@pytest.mark.parametrize("is_digested", [True, False], ids=["digested", "not digested"])
@pytest.mark.parametrize("how", _WRITES)
def test_a_transaction_of_the_platform_that_is_open(
    database: Database, how: str, is_digested: bool
) -> None:
    """The import waits for it, and its digest is of what is there then."""
    session_file = "data/sessions/web:alice.jsonl"
    database.bring_in(zipped({**_AGENT, session_file: session(range(5))}))
    if not is_digested:
        database.rows("UPDATE agentfy.chat SET digest = NULL, digested = NULL")
    with (
        psycopg.connect(**database.parameters) as platform,  # type: ignore[arg-type]
        ThreadPoolExecutor(1) as threads,
    ):
        platform.execute(_WRITES[how].encode())
        archive = zipped({**_AGENT, session_file: session(range(6))})
        grown = threads.submit(database.bring_in, archive)
        while not database.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert not grown.done()
            time.sleep(0.02)
        platform.commit()
        grown.result()
    events = [
        event for (event,) in database.rows("SELECT event FROM agentfy.message ORDER BY place")
    ]
    assert len(events) == {"insert": 7, "update": 6, "delete": 6}[how]
    ((digest,),) = database.rows("SELECT digest FROM agentfy.chat")
    text = "".join(f"{event}\n" for event in events).encode()
    assert digest in (None, hashlib.sha256(text).digest())
    before = all_rows(database)
    assert database.bring_in(archive).counts["message"].written == 0
    assert all_rows(database)["message"] == before["message"]


def test_an_import_that_is_always_disturbed_gives_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a few tries it says so, and has written nothing."""
    tries = []

    def disturbed(*_: object) -> None:
        tries.append(1)
        raise ChangedMeanwhileError

    monkeypatch.setattr(importing, "import_messages", disturbed)
    monkeypatch.setattr(importing, "_WAIT", 0)
    before = all_rows(database)
    with pytest.raises(MachineError, match=r"somebody else changed .* nothing was changed"):
        database.bring_in(zipped(WHOLE))
    assert len(tries) == importing._TRIES
    assert all_rows(database) == before


@pytest.mark.parametrize(
    "error",
    [
        ChangedMeanwhileError,
        psycopg.errors.UniqueViolation,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.SerializationFailure,
    ],
)
def test_an_import_that_is_disturbed_once_begins_again(
    database: Database, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """And ends as one that was not."""
    real = import_messages
    errors = [error]

    def disturbed(*given: object) -> object:
        done = real(*given)  # type: ignore[arg-type]
        if errors:
            raise errors.pop()
        return done

    monkeypatch.setattr(importing, "import_messages", disturbed)
    monkeypatch.setattr(importing, "_WAIT", 0)
    done = database.bring_in(zipped(WHOLE), reading=ALL)
    assert (done.result, done.team.created) == ("created", True)
    assert same(database, done.agent_id, WHOLE)
    assert done.package.found.warnings == {}
    assert done.to_json()["pending_secrets"] == {
        "agent": ["API_KEY", "TOKEN"],
        "user-alice": ["HERS"],
    }
