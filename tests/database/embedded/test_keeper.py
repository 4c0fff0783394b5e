from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import psycopg
import pytest

from agentmove_tools.database.embedded import hold_server, server_state, stop_server
from tests.database.embedded.holding import (
    Holder,
    ask,
    commands,
    has_ended,
    keeper_of,
    kill,
    server_of,
    until,
)

KEPT = "SELECT number FROM kept"


def test_the_server_stops_when_nobody_has_used_it(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It and its keeper end, and the socket folder goes; while one holds it, it stays."""
    monkeypatch.setenv("AGENTFY_IDLE", "0.2")
    with hold_server(str(data)) as held:
        time.sleep(0.6)
        assert ask(held.parameters, KEPT) == [(7,)]
    until(lambda: not commands(str(data)))
    assert not os.path.exists(held.parameters["host"])
    assert not server_state(str(data)).running


def test_a_command_that_comes_while_the_server_stops(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets one that stays, each time: the keeper stops at every moment that it can."""
    monkeypatch.setenv("AGENTFY_IDLE", "0")
    servers = set()
    for number in range(12):
        with hold_server(str(data)) as held:
            servers.add(server_of(data))
            time.sleep(0.02)
            assert ask(held.parameters, KEPT) == [(7,)]
        time.sleep(number * 0.01)
    assert len(servers) > 1


def test_many_commands_that_come_and_go(data: Path) -> None:
    """None is given a server that goes away."""
    program = (
        "import sys, psycopg\n"
        "from agentmove_tools.database.embedded import hold_server\n"
        "for _ in range(8):\n"
        "    with hold_server(sys.argv[1]) as held:\n"
        "        with psycopg.connect(**held.parameters) as connection:\n"
        "            assert connection.execute('SELECT number FROM kept').fetchone() == (7,)\n"
    )
    import sys

    from tests.conftest import clean_environment

    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, data], env=clean_environment({"AGENTFY_IDLE": "0"})
        )
        for _ in range(3)
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]


@pytest.mark.parametrize("killed", ["client", "keeper", "server", "keeper-server", "all"])
def test_what_was_committed_is_there_after_a_kill(data: Path, killed: str) -> None:
    """The next command works, and what was not committed is not there."""
    with Holder(data) as holder:
        said = holder.said()
        ask(said, "INSERT INTO kept VALUES (8)")
        connection = psycopg.connect(**said)  # type: ignore[arg-type]
        connection.execute("INSERT INTO kept VALUES (9)")
        keeper, server = keeper_of(data), server_of(data)
        if killed in ("client", "all"):
            holder.kill()
        kill(
            *([keeper] if killed in ("keeper", "keeper-server", "all") else []),
            *([server] if killed in ("server", "keeper-server", "all") else []),
        )
        with hold_server(str(data)) as held:
            assert ask(held.parameters, f"{KEPT} ORDER BY 1") == [(7,), (8,)]
            assert (server_of(data) == server) == (killed in ("client", "keeper"))
            assert keeper_of(data)
        connection.close()


def test_a_keeper_takes_over_the_server_of_one_that_was_killed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And stops it when nobody has used it."""
    with hold_server(str(data)):
        kill(keeper_of(data))
        server = server_of(data)
        monkeypatch.setenv("AGENTFY_IDLE", "0.2")
        with hold_server(str(data)):
            assert server_of(data) == server
    until(lambda: has_ended(server))
    until(lambda: not commands(str(data)))


def test_what_a_killed_server_still_computes_does_not_last(data: Path) -> None:
    """A process of it that never looks up is ended, as the next server needs its place."""
    with hold_server(str(data)) as held:

        def compute() -> None:
            with pytest.raises(psycopg.OperationalError):
                ask(held.parameters, "SELECT count(*) FROM generate_series(1, 1000000000000)")

        thread = threading.Thread(target=compute)
        thread.start()
        until(
            lambda: ask(
                held.parameters,
                "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query ~ '1000000000000'"
                " AND pid <> pg_backend_pid()",
            )
        )
        kill(server_of(data))
        with hold_server(str(data)) as again:
            assert ask(again.parameters, KEPT) == [(7,)]
        thread.join()


@pytest.mark.parametrize("after", [0.0, 0.2, 0.6])
def test_killed_while_the_database_is_made(new_data: Path, after: float) -> None:
    """Whoever makes it and whoever waits for it: the next command makes it."""
    with Holder(new_data) as holder:
        until(lambda: commands("embedded.keeper", f" {new_data} "))
        time.sleep(after)
        for pid in commands("embedded.keeper", f" {new_data} "):
            kill(pid)
        holder.kill()
    with hold_server(str(new_data)) as held:
        assert ask(held.parameters, "SELECT current_user") == [("agentfy",)]
    assert not (new_data / "postgres.new").exists()


def test_all_killed_while_the_database_is_made(new_data: Path) -> None:
    """The programs of the wheel too."""
    with Holder(new_data) as holder:
        until((new_data / "postgres.new" / "global").exists)
        for pid in commands(str(new_data)):
            os.kill(pid, signal.SIGKILL)
        holder.process.wait()
    with hold_server(str(new_data)) as held:
        assert ask(held.parameters, "SELECT current_user") == [("agentfy",)]


def test_the_number_of_a_killed_server_is_another_programs(data: Path) -> None:
    """A program of the same user, as in a container that begins again: it is left alone."""
    with hold_server(str(data)) as held:
        socket = Path(held.parameters["host"])
        kill(keeper_of(data), server_of(data))
    owner = (data / "postgres").stat().st_uid
    other = {} if os.geteuid() != 0 else {"user": owner}
    with subprocess.Popen(["sleep", "60"], **other) as sleeping:  # type: ignore[call-overload]
        for path in (data / "postgres" / "postmaster.pid", socket / ".s.PGSQL.5432.lock"):
            _, *rest = path.read_text().splitlines(keepends=True)
            path.write_text("".join([f"{sleeping.pid}\n", *rest]))
        assert not server_state(str(data)).running
        assert not stop_server(str(data))
        with hold_server(str(data)) as held:
            assert ask(held.parameters, KEPT) == [(7,)]
        assert sleeping.poll() is None
        sleeping.kill()


def test_a_keeper_that_is_told_to_end_stops_the_server(data: Path) -> None:
    """As a system does that goes down."""
    with hold_server(str(data)):
        os.kill(keeper_of(data), signal.SIGTERM)
        until(lambda: not commands(str(data)))
    with hold_server(str(data)) as held:
        assert ask(held.parameters, KEPT) == [(7,)]
    assert "was not properly shut down" not in (data / "server.log").read_text()
