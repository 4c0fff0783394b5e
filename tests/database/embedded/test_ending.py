"""Sessions that are killed, and a server that is to end while it recovers from that."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import psycopg

from agentmove_tools.database.embedded import stop_server
from tests.database.embedded.clients import Client, until


def _numbers(client: Client) -> list[int]:
    with client.connect() as connection:
        return [row[0] for row in connection.execute("SELECT number FROM kept ORDER BY 1")]


def test_after_a_kill_of_a_session(data: Path) -> None:
    """When one session's process is killed the server begins anew, which a hold waits for."""
    with Client(data) as client:
        with client.connect() as connection:
            session = connection.info.backend_pid
            os.kill(session, signal.SIGKILL)
            until(lambda: not os.path.exists(f"/proc/{session}"))  # so the server has noticed
        with Client(data) as other:
            assert _numbers(other) == [7]


def test_stop_while_it_recovers_from_a_crash_of_a_session(data: Path) -> None:
    """A server that begins anew can be stopped then too, and has all when it runs again."""
    with Client(data) as client:
        for _ in range(3):
            with Client(data) as other:
                other.parameters()
                with other.connect() as connection:
                    session = connection.info.backend_pid
                    os.kill(session, signal.SIGKILL)
                    until(lambda: not os.path.exists(f"/proc/{session}"))  # noqa: B023 (at once)
                assert stop_server(str(data))
    with Client(data) as client:
        assert _numbers(client) == [7]


def _run_until_it_breaks(client: Client, word: str) -> None:
    try:
        with client.connect() as connection:
            connection.execute(f"SELECT pg_sleep(60), '{word}'".encode())
    except psycopg.Error:
        return


def test_the_log_holds_no_data(data: Path) -> None:
    """Neither statements nor values get into the log, by an error or a crash of a session."""
    word = "confidential-42"
    with Client(data) as client:
        with client.connect() as connection:
            connection.execute("CREATE TABLE t (name text PRIMARY KEY, number int)")
            connection.execute("INSERT INTO t VALUES (%s)", (word,))
            for statement in (
                f"INSERT INTO t VALUES ('{word}')",
                f"SELECT '{word}'::int",
                f"DO $$ BEGIN RAISE WARNING '{word}'; END $$",
                f"SELECT '{word}' FROM nothing",
            ):
                try:
                    connection.execute(statement.encode())
                except psycopg.Error:
                    continue
        sleeper = threading.Thread(target=_run_until_it_breaks, args=(client, word))
        sleeper.start()
        with client.connect() as connection:
            while True:
                row = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep%'"
                    " AND pid <> pg_backend_pid() AND state = 'active'"
                ).fetchone()
                if row:
                    break
            os.kill(row[0], signal.SIGKILL)
        sleeper.join()
    logs = [path for path in data.iterdir() if path.is_file() and "log" in path.name]
    assert logs
    assert all(word not in path.read_text() for path in logs)


def test_many_open_files(data: Path) -> None:
    """A caller with more open files than select() can look at."""
    before = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n"
        "for n in range(1500): os.open('/dev/null', os.O_RDONLY)\n"
    )
    with Client(data, before=before) as client:
        client.parameters()
