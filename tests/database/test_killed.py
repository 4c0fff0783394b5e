"""A client or a server that ends in the middle: no row is left, it is said, and it works again."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg import sql

from agentmove_tools.database import importing
from agentmove_tools.database.embedded import server_state, stop_server
from agentmove_tools.database.listing import pending_names
from agentmove_tools.refusals import MachineError
from tests.conftest import ROOT, RunTool, clean_environment
from tests.database.databases import Database, Server
from tests.database.servers import scratch
from tests.database.whole import WHOLE
from tests.home.machine import mounted_tmpfs, only_root
from tests.package.packages import AGENT, zipped

_IMPORT: Final = (sys.executable, str(ROOT / "bin" / "agentfy-import"), "--team", "t")
_EVENTS: Final = 30_000
_LINE: Final = '{"data":{"text":"a text of some length"},"id":"e%d","ts":%d,"type":"user"}\n'


@pytest.fixture(scope="module")
def large() -> bytes:
    """A package that takes a while."""
    events = "".join([_LINE % (n, n) for n in range(_EVENTS)])
    return zipped({**AGENT, "data/sessions/web:alice.jsonl": events.encode()})


@contextmanager
def importing_tool(package: bytes, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """The tool at work on a package."""
    with subprocess.Popen(
        [*_IMPORT, "--create-team"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(env),
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(package)
            process.stdin.close()
            process.stdin = None
            yield process
        finally:
            process.kill()


def backend(database: Database, doing: str, seconds: float = 60) -> int:
    """The server's process for the tool, as soon as what it runs begins so."""
    conninfo = psycopg.conninfo.make_conninfo("", **{**database.parameters, "dbname": "postgres"})
    end = time.monotonic() + seconds
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while time.monotonic() < end:
            row = connection.execute(
                """
                SELECT pid FROM pg_stat_activity
                WHERE datname = %s AND application_name = 'agentfy-import' AND state <> 'idle'
                    AND starts_with(ltrim(query, E' \\n'), %s)
                """,
                (database.name, doing),
            ).fetchone()
            if row is not None:
                return int(row[0])
    raise AssertionError(doing)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_alone(database: Database) -> bool:
    """Whether the server has found out that the tool is gone."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agentfy-import'"
    return database.rows(f"{query} AND datname = current_database()") == [(0,)]


def is_empty(database: Database) -> bool:
    return set(database.counts().values()) == {0}


def error_of(process: subprocess.Popen[bytes]) -> str:
    """The one line that a tool says as it ends with status 3."""
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (3, b"")
    return one_line(stderr)


def one_line(stderr: bytes) -> str:
    line, _, rest = stderr.decode().partition("\n")
    assert rest == ""
    return line


# -- in the middle of an import

_SENDING: Final = "COPY pg_temp.incoming_message"
_WRITING: Final = "INSERT INTO agentfy.message"


@pytest.mark.parametrize("moment", [_SENDING, _WRITING], ids=["sending", "writing"])
def test_a_killed_client_leaves_no_row(database: Database, large: bytes, moment: str) -> None:
    """While it sends and while the server writes; the next import does all of it."""
    with importing_tool(large, AGENTFY_DATABASE_URL=database.url) as process:
        backend(database, moment)
        process.kill()
        process.wait()
    wait_for(lambda: is_alone(database))
    assert is_empty(database)
    assert database.bring_in(zipped(WHOLE)).result == "created"
    assert database.counts()["message"] == 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_row(database: Database, large: bytes, number: signal.Signals) -> None:
    """Ctrl-C is quiet."""
    with importing_tool(large, AGENTFY_DATABASE_URL=database.url) as process:
        backend(database, _SENDING)
        process.send_signal(number)
        assert process.communicate(timeout=60) == (b"", b"")
        assert process.returncode == (130 if number == signal.SIGINT else -number)
    wait_for(lambda: is_alone(database))
    assert is_empty(database)


@pytest.mark.parametrize("moment", [_SENDING, _WRITING], ids=["sending", "writing"])
def test_a_connection_that_is_ended_is_told(database: Database, large: bytes, moment: str) -> None:
    """By an administrator, while the tool sends or waits."""
    with importing_tool(large, AGENTFY_DATABASE_URL=database.url) as process:
        pid = backend(database, moment)
        database.rows("SELECT pg_terminate_backend(%s)", (pid,))
        line = error_of(process)
    assert line.startswith("agentfy-import: failed: the ")
    assert line.endswith("; nothing was changed")
    assert is_empty(database)


def test_a_commit_without_an_answer_is_told_as_such(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been made; so it is not said that nothing was changed."""
    real = pending_names

    def ended(connection: psycopg.Connection[tuple[object, ...]], agent: object) -> object:
        found = real(connection, agent)  # type: ignore[arg-type]
        pid = connection.info.backend_pid
        database.rows("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        return found

    monkeypatch.setattr(importing, "pending_names", ended)
    with pytest.raises(MachineError) as caught:
        database.bring_in(zipped(WHOLE))
    assert "it is not known whether the change was made" in caught.value.message
    assert "nothing was changed" not in caught.value.message
    monkeypatch.undo()
    assert is_empty(database)
    assert database.bring_in(zipped(WHOLE)).result == "created"


def test_a_statement_that_takes_too_long_is_told(
    tool: RunTool, database: Database, large: bytes
) -> None:
    """Where the address, or the server, limits it."""
    url = f"{database.url}&options=-c%20statement_timeout%3D40"
    done = tool("agentfy-import", "--team", "t", "--create-team", "--db", url, stdin=large)
    assert (done.returncode, done.stdout) == (3, b"")
    assert one_line(done.stderr) == (
        "agentfy-import: failed: the database cancelled the statement: statement timeout;"
        " nothing was changed"
    )
    assert is_empty(database)


@only_root
def test_a_full_disk_is_told(tool: RunTool, db_server: Server, template: str, large: bytes) -> None:
    """The database is on a small disk of its own."""
    (place,) = Database({**db_server.parameters, "dbname": "postgres"}).rows("SHOW data_directory")
    owner = os.stat(place[0])
    with scratch() as folder:
        disk = folder / "disk"
        disk.mkdir()
        with mounted_tmpfs(disk, "16m"):
            os.chown(disk, owner.st_uid, owner.st_gid)
            disk.chmod(0o700)
            name = f"small_{os.getpid()}"
            create = "CREATE TABLESPACE {} LOCATION {}"
            db_server.run(sql.SQL(create).format(sql.Identifier(name), sql.Literal(str(disk))))
            try:
                with db_server.database(template) as database:
                    db_server.run(
                        sql.SQL("ALTER DATABASE {} SET TABLESPACE {}").format(
                            sql.Identifier(database.name), sql.Identifier(name)
                        )
                    )
                    done = tool(
                        *("agentfy-import", "--team", "t", "--create-team"),
                        stdin=large,
                        env={"AGENTFY_DATABASE_URL": database.url},
                    )
                    assert (done.returncode, done.stdout) == (3, b"")
                    assert one_line(done.stderr) == (
                        "agentfy-import: failed: the database's disk is full; nothing was changed"
                    )
                    assert is_empty(database)
            finally:
                db_server.run(sql.SQL("DROP TABLESPACE {}").format(sql.Identifier(name)))


# -- the embedded server


def test_a_killed_server_is_told_and_recovers(tool: RunTool, large: bytes) -> None:
    """The import says so; the next command finds what was there, and no row of that import."""
    with scratch() as folder:
        data = folder / "data"
        env = {"AGENTFY_DATA": str(data), "AGENTFY_IDLE": "20"}
        try:
            other = zipped({**AGENT, "agent.config.json": b'{"id": "first"}'})
            done = tool("agentfy-import", "--team", "t", "--create-team", stdin=other, env=env)
            assert done.returncode == 0, done.stderr
            state = server_state(str(data))
            assert state.pid is not None
            assert state.socket is not None
            parameters = {"host": state.socket, "user": "agentfy", "dbname": "agentfy"}
            database = Database({**parameters, "port": "5432"})
            with importing_tool(large, **env) as process:
                backend(database, _SENDING)
                os.kill(state.pid, signal.SIGKILL)
                # the backend lives on until it looks for its postmaster
                for child in _children(state.pid, str(data)):
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                line = error_of(process)
            assert line.startswith(
                "agentfy-import: failed: the connection to the database was lost"
            )
            assert line.endswith("; nothing was changed")
            done = tool("agentfy-db", "agents", env=env)
            assert done.returncode == 0, done.stderr
            assert done.stdout.count(b'"externalId"') == 1
            assert b'"first"' in done.stdout
            done = tool("agentfy-import", "--team", "t", stdin=zipped(WHOLE), env=env)
            assert done.returncode == 0, done.stderr
        finally:
            stop_server(str(data))


def _children(pid: int, data: str) -> list[int]:
    """The server's other processes: those of its own session, which it began."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            cwd = os.readlink(entry.parent / "cwd")
            if cwd.startswith(data) and int(entry.parent.name) != pid and fields[0] != "Z":
                found.append(int(entry.parent.name))
    return found


def test_the_environment_of_other_servers_is_none_of_the_embedded_ones(tool: RunTool) -> None:
    """What libpq would take from it is not taken, and no password is looked for."""
    hostile = {
        "PGHOST": "192.0.2.1",
        "PGHOSTADDR": "192.0.2.1",
        "PGPORT": "1",
        "PGUSER": "nobody",
        "PGDATABASE": "nothing",
        "PGPASSWORD": "hunter2",
        "PGPASSFILE": "/nonexistent",
        "PGOPTIONS": "-c statement_timeout=1 -c search_path=nowhere",
        "PGSERVICE": "nonesuch",
        "PGSERVICEFILE": "/nonexistent",
        "PGSSLMODE": "verify-full",
        "PGREQUIREPEER": "nobody",
        "PGREQUIREAUTH": "scram-sha-256",
        "PGTARGETSESSIONATTRS": "standby",
        "PGCLIENTENCODING": "LATIN1",
        "PGTZ": "Asia/Tokyo",
        "PGDATESTYLE": "German",
        "PGAPPNAME": "x",
    }
    with scratch() as folder:
        data = folder / "data"
        env = {**hostile, "AGENTFY_DATA": str(data), "AGENTFY_IDLE": "20"}
        try:
            done = tool(
                *("agentfy-import", "--team", "t\u00e4m", "--create-team"),
                stdin=zipped(WHOLE),
                env=env,
            )
            assert done.returncode == 0, done.stderr
            done = tool("agentfy-db", "status", env=env)
            assert done.returncode == 0, done.stderr
            assert b'"user": "agentfy"' in done.stdout
        finally:
            stop_server(str(data))


# -- no server, or one that lets nobody in


@contextmanager
def fake_server(answer: bytes | None) -> Iterator[int]:
    """The port of what takes a connection, reads the first message, and answers with this."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    with client:
                        client.recv(4096)
                        if answer is not None:
                            client.sendall(answer)
                        client.recv(4096)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _error(code: str, text: str) -> bytes:
    body = f"SFATAL\0VFATAL\0C{code}\0M{text}\0\0"
    return _message(b"E", body.encode())


_PASSWORD_WANTED: Final = _message(b"R", struct.pack("!i", 3))


_REFUSED: Final = _error("28P01", 'password authentication failed for user "u"')


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("agentfy-import", _REFUSED, 'password authentication failed for user "u"'),
        ("agentfy-export", _REFUSED, 'password authentication failed for user "u"'),
        ("agentfy-db", _REFUSED, 'password authentication failed for user "u"'),
        ("agentfy-db", _PASSWORD_WANTED, "no password supplied"),
        ("agentfy-db", _error("53300", "sorry, too many clients already"), "too many clients"),
        ("agentfy-db", b"HTTP/1.1 400 Bad Request\r\n\r\n", "expected authentication request"),
    ],
    ids=["import", "export", "db", "no-password", "full", "no-postgres"],
)
def test_a_server_that_lets_nobody_in_is_told(
    tool: RunTool, name: str, answer: bytes, said: str
) -> None:
    """In one line, without the password, and with status 3."""
    arguments = {
        "agentfy-import": ["--team", "t"],
        "agentfy-export": ["agent-x"],
        "agentfy-db": ["teams"],
    }[name]
    with fake_server(answer) as port:
        secret = "" if answer == _PASSWORD_WANTED else ":hunter2"
        url = f"postgresql://u{secret}@127.0.0.1:{port}/d?sslmode=disable&gssencmode=disable"
        env = {"AGENTFY_DATABASE_URL": url, "PGPASSFILE": "/nonexistent"}
        done = tool(name, *arguments, stdin=zipped(WHOLE), env=env)
    assert (done.returncode, done.stdout) == (3, b"")
    line = one_line(done.stderr)
    assert line.startswith(f"{name}: failed: cannot connect to the database: ")
    assert said in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://127.0.0.1:1/d", "Connection refused"),
        ("postgresql:///d?host=/nonexistent", "No such file or directory"),
        ("postgresql://127.0.0.1:1,127.0.0.1:2/d", "Connection refused"),
        ("service=nonesuch", 'definition of service "nonesuch" not found'),
    ],
)
def test_no_server_is_told(tool: RunTool, url: str, said: str) -> None:
    """Nothing listens there, or nobody knows the service."""
    done = tool("agentfy-db", "status", "--db", url, env={"PGSERVICEFILE": "/dev/null"})
    assert (done.returncode, done.stdout) == (3, b"")
    line = one_line(done.stderr)
    assert line.startswith("agentfy-db: failed: cannot connect to the database: ")
    assert said in line


def test_a_server_that_does_not_answer_is_told(tool: RunTool) -> None:
    """When the time that the address gives it is over."""
    with fake_server(None) as port:
        url = f"postgresql://127.0.0.1:{port}/d?connect_timeout=2&sslmode=disable"
        done = tool("agentfy-db", "status", "--db", url)
    assert done.returncode == 3
    assert "the database does not answer" in one_line(done.stderr)


def test_a_password_is_in_no_process_list() -> None:
    """While the tool waits for the server: in no command line, its own or a child's."""
    with fake_server(None) as port, tempfile.TemporaryFile() as nothing:
        url = f"postgresql://u:hunter2-1f7c@127.0.0.1:{port}/d?sslmode=disable"
        with subprocess.Popen(
            [sys.executable, ROOT / "bin" / "agentfy-db", "status"],
            stdin=nothing,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=clean_environment({"AGENTFY_DATABASE_URL": url}),
        ) as process:
            wait_for(lambda: _is_connected(port))
            lines = []
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    lines.append(path.read_bytes())
            process.kill()
    assert any(b"agentfy-db" in line for line in lines)
    assert not [line for line in lines if b"hunter2-1f7c" in line]


def _is_connected(port: int) -> bool:
    """Whether somebody has connected to the port of this machine."""
    wanted = f":{port:04X} "
    established = " 01 "
    table = Path("/proc/net/tcp").read_text().splitlines()
    return any(wanted in line and established in line for line in table)
