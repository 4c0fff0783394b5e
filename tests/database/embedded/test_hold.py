from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from agentmove_tools.database.embedded import hold_server, locks, server_state
from agentmove_tools.refusals import MachineError, UsageError
from tests.database.embedded.holding import (
    Holder,
    ask,
    commands,
    keeper_of,
    kill,
    server_of,
    until,
)

KEPT = "SELECT number FROM kept"


def test_the_first_command_makes_the_database(new_data: Path) -> None:
    """It is UTF-8, sorts by code points whatever the system's locale is, and has one role."""
    with hold_server(str(new_data)) as held:
        (found,) = ask(
            held.parameters,
            "SELECT current_user, current_database(), current_setting('server_encoding'),"
            " current_setting('data_checksums'), datlocprovider, datlocale, upper('é')"
            " FROM pg_database WHERE datname = current_database()",
        )
        assert found == ("agentfy", "agentfy", "UTF8", "on", "b", "C.UTF-8", "É")
        assert ask(held.parameters, "SELECT rolname FROM pg_roles WHERE rolcanlogin") == [
            ("agentfy",)
        ]


def test_the_next_command_finds_the_server(data: Path) -> None:
    """It is the same process."""
    with hold_server(str(data)):
        first = server_of(data)
    with hold_server(str(data)) as held:
        assert server_of(data) == first
        assert ask(held.parameters, KEPT) == [(7,)]


def test_many_at_once_get_one_server(new_data: Path) -> None:
    """Also where its data are yet to be made."""
    with Holder(new_data) as one, Holder(new_data) as two, Holder(new_data) as three:
        said = [one.said(), two.said(), three.said()]
        assert said[0] == said[1] == said[2]
        assert ask(said[0], "SELECT 1") == [(1,)]
        assert len(commands("postgres -D", str(new_data))) == 1
        assert keeper_of(new_data)


def test_a_link_names_the_same_data_folder(data: Path) -> None:
    """There is one server, whichever name a command uses."""
    link = data.with_name("link")
    link.symlink_to(data)
    with hold_server(str(data)) as one, hold_server(str(link)) as other:
        assert one.parameters == other.parameters


def test_a_copied_data_folder_has_a_server_of_its_own(data: Path) -> None:
    """Though the file that names the socket folder was copied while the server ran."""
    copy = data.with_name("copy")
    with hold_server(str(data)) as held:
        subprocess.run(["cp", "-a", str(data), str(copy)], check=True)
        from agentmove_tools.database.embedded import stop_server

        with hold_server(str(copy)) as other:
            assert other.parameters["host"] != held.parameters["host"]
            ask(other.parameters, "UPDATE kept SET number = 8")
            assert ask(held.parameters, KEPT) == [(7,)]
        assert stop_server(str(copy))


HOSTILE = {
    "PGHOST": "nowhere.invalid",
    "PGHOSTADDR": "192.0.2.1",
    "PGPORT": "1",
    "PGUSER": "somebody",
    "PGDATABASE": "other",
    "PGDATA": "/nonexistent",
    "PGOPTIONS": "-c search_path=nowhere",
    "PGSSLMODE": "verify-full",
    "PGGSSENCMODE": "require",
    "PGREQUIREAUTH": "scram-sha-256",
    "PGTARGETSESSIONATTRS": "standby",
    "PGTZ": "Asia/Tokyo",
    "TZ": "Asia/Tokyo",
    "LC_ALL": "tr_TR.UTF-8",
    "LANG": "tr_TR.UTF-8",
    "PYTHONHOME": "",
    "TMPDIR": "/nonexistent",
}


def test_the_environment_of_the_first_command_does_not_reach_the_server(new_data: Path) -> None:
    """Neither what steers PostgreSQL, nor the locale or the time zone."""
    with Holder(new_data, env={**HOSTILE, "AGENTFY_TEST_SECRET": "x"}) as holder:
        said = holder.said()
        assert said["host"].startswith("/tmp/")
        environment = Path(f"/proc/{keeper_of(new_data)}/environ")
        if environment.exists():
            given = {part.split(b"=")[0].decode() for part in environment.read_bytes().split(b"\0")}
            assert not given & {name for name in HOSTILE if name.startswith("PG")}
            assert "AGENTFY_TEST_SECRET" not in given
        assert ask(said, "SELECT current_setting('TimeZone'), current_setting('lc_messages')") == [
            ("UTC", "C")
        ]


def test_the_parameters_overrule_the_environment(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is to the embedded server, whatever the environment names."""
    with hold_server(str(data)) as held:
        for name, value in HOSTILE.items():
            if name.startswith("PG") and name != "PGTZ":
                monkeypatch.setenv(name, value)
        assert ask(held.parameters, KEPT) == [(7,)]


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777], ids=["000", "077", "777"])
def test_the_umask_does_not_matter(place: Path, umask: int) -> None:
    """The folders that are made can be passed, and the data are nobody else's."""
    from tests.database.embedded.holding import stopped_after

    with stopped_after(place / "new" / "below" / "data") as folder:
        for _ in range(2):
            with Holder(folder, umask=umask) as holder:
                assert ask(holder.said(), "SELECT 1") == [(1,)]
        for path in folder.rglob("*"):
            mode = stat.S_IMODE(path.lstat().st_mode)
            assert not mode & 0o077, (path, oct(mode))
        assert stat.S_IMODE(folder.stat().st_mode) == (0o710 if os.geteuid() == 0 else 0o700)


def test_a_tidied_socket_folder_is_made_anew(data: Path) -> None:
    """Though the server still runs, with its keeper or without."""
    for with_keeper in (True, False):
        with hold_server(str(data)) as held:
            socket = held.parameters["host"]
        if not with_keeper:
            kill(keeper_of(data))
        shutil.rmtree(socket)
        with hold_server(str(data)) as held:
            assert held.parameters["host"] != socket
            assert ask(held.parameters, KEPT) == [(7,)]


def test_a_socket_folder_that_others_could_enter_is_not_used(data: Path) -> None:
    """After its server was killed, a folder of another mode is left, and a new one made."""
    with hold_server(str(data)) as held:
        socket = Path(held.parameters["host"])
        kill(keeper_of(data), server_of(data))
    socket.chmod(0o777)
    try:
        with hold_server(str(data)) as held:
            assert held.parameters["host"] != str(socket)
            assert ask(held.parameters, KEPT) == [(7,)]
    finally:
        shutil.rmtree(socket)


def test_a_long_wait_is_told_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here another command is at the start."""
    monkeypatch.setattr(locks, "_LONG", 0.1)
    told: list[str] = []
    data.mkdir(exist_ok=True)
    lock = locks.try_take(str(data / "start.lock"))
    assert lock is not None

    def free() -> None:
        until(lambda: told)
        os.close(lock)

    thread = threading.Thread(target=free)
    thread.start()
    with hold_server(str(data), waiting=told.append):
        thread.join()
    assert told == ["the database server starts"]


def test_a_server_that_cannot_start_is_told_at_once(data: Path) -> None:
    """By the line of its log that says why; the next try is no other."""
    (data / "postgres" / "global" / "pg_control").unlink()
    for _ in range(2):
        with pytest.raises(MachineError) as caught:
            hold_server(str(data))
        assert "global/pg_control" in caught.value.message
        assert "\n" not in caught.value.message
        assert caught.value.details["hint"] == f"see {data / 'server.log'}"
    assert not server_state(str(data)).running


@pytest.mark.parametrize("idle", ["soon", "-1", "inf", "nan"])
def test_an_idle_time_that_is_none(data: Path, idle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, not taken for another."""
    monkeypatch.setenv("AGENTFY_IDLE", idle)
    with pytest.raises(UsageError, match="AGENTFY_IDLE is no number of seconds"):
        hold_server(str(data))


def test_the_log_holds_no_data(data: Path) -> None:
    """Neither of a statement that failed, nor of one at which a process of the server died."""
    with hold_server(str(data)) as held:
        import psycopg

        with pytest.raises(psycopg.Error):
            ask(held.parameters, "SELECT 'a-secret'::int")
        ask(held.parameters, "CREATE UNIQUE INDEX ON kept (number)")
        with pytest.raises(psycopg.Error):
            ask(held.parameters, "INSERT INTO kept SELECT 7 WHERE 'a-secret' <> ''")
        with psycopg.connect(**held.parameters) as connection:  # type: ignore[arg-type]
            pid = connection.info.backend_pid

            def sleep() -> None:
                with pytest.raises(psycopg.Error):
                    connection.execute("SELECT pg_sleep(60), 'a-secret'")

            thread = threading.Thread(target=sleep)
            thread.start()
            until(
                lambda: ask(
                    held.parameters,
                    f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND state = 'active'",
                )
            )
            os.kill(pid, 9)
            thread.join()
        # the death is seen by whom it served before the server sees it
        until(lambda: "reinitializing" in (data / "server.log").read_text())
        with hold_server(str(data)) as again:  # the server has recovered by then
            assert ask(again.parameters, KEPT) == [(7,)]
    log = (data / "server.log").read_text()
    assert "was terminated by signal 9" in log
    assert "a-secret" not in log
