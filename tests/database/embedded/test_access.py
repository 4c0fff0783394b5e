from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from agentmove_tools.database.embedded import hold_server
from tests.conftest import clean_environment
from tests.database.embedded.holding import (
    ask,
    copy_package,
    copy_wheel,
    python_for,
    server_of,
    until,
)
from tests.home.machine import NOBODY, as_nobody, only_root

SOCKET = ".s.PGSQL.5432"


@only_root
def test_another_user_cannot_reach_the_socket(data: Path) -> None:
    """Its folder is the server's account's alone."""
    with hold_server(str(data)) as held:
        folder = Path(held.parameters["host"])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / SOCKET).stat().st_mode) == 0o700

        def connect() -> None:
            with socket.socket(socket.AF_UNIX) as asking, pytest.raises(PermissionError):
                asking.connect(str(folder / SOCKET))

        as_nobody(connect, reach=Path("/tmp"))


@only_root
def test_another_user_who_reaches_the_socket_is_refused(data: Path) -> None:
    """By the server, which asks the system who it is: with our role, another or its own."""
    with hold_server(str(data)) as held:
        folder = Path(held.parameters["host"])
        folder.chmod(0o755)
        (folder / SOCKET).chmod(0o777)

        def connect() -> None:
            for user in ("agentfy", "postgres", "nobody"):
                with pytest.raises(psycopg.OperationalError, match="Peer authentication failed"):
                    ask({**held.parameters, "user": user}, "SELECT 1")

        as_nobody(connect, reach=Path("/tmp"))
        folder.chmod(0o700)


@only_root
def test_the_servers_own_account_is_refused(data: Path) -> None:
    """Only the user connects; the account that the server runs as is nobody's way in."""
    uid, gid = (data / "postgres").stat().st_uid, (data / "postgres").stat().st_gid
    assert uid != 0
    with hold_server(str(data)) as held:
        from tests.home.dying import forked

        def connect() -> None:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            with pytest.raises(psycopg.OperationalError, match="Peer authentication failed"):
                ask(held.parameters, "SELECT 1")

        assert forked(connect) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="it takes /proc")
def test_the_server_has_no_port(data: Path) -> None:
    """Of all its open files none is a TCP or UDP socket; nor can one be set by SQL."""
    with hold_server(str(data)) as held:
        inodes = set()
        for name in ("tcp", "tcp6", "udp", "udp6"):
            path = Path("/proc/net") / name
            if path.exists():
                lines = path.read_text().splitlines()[1:]
                inodes |= {f"socket:[{line.split()[9]}]" for line in lines}
        files = Path(f"/proc/{server_of(data)}/fd")
        links = {os.readlink(path) for path in files.iterdir()}
        assert any(link.startswith("socket:") for link in links)
        assert not links & inodes
        assert ask(held.parameters, "SHOW listen_addresses") == [("",)]
        with pytest.raises(psycopg.Error, match="ALTER SYSTEM is not allowed"):
            ask(held.parameters, "ALTER SYSTEM SET listen_addresses = '*'")


def test_what_is_changed_by_hand_does_not_open_the_server(data: Path) -> None:
    """The files are written anew, and what opens it is said over them at each start."""
    (data / "postgres" / "pg_hba.conf").write_text("local all all trust\nhost all all all trust\n")
    (data / "postgres" / "postgresql.conf").write_text("listen_addresses = '*'\n")
    with open(data / "postgres" / "postgresql.auto.conf", "a", encoding="ascii") as file:
        file.write("listen_addresses = '127.0.0.1'\nunix_socket_permissions = 0777\n")
    with hold_server(str(data)) as held:
        assert ask(held.parameters, "SHOW listen_addresses") == [("",)]
        assert stat.S_IMODE((Path(held.parameters["host"]) / SOCKET).stat().st_mode) == 0o700
        rules = ask(held.parameters, "SELECT type, auth_method FROM pg_hba_file_rules")
        assert rules == [("local", "peer")]


_AS_A_USER = """
import json, os, subprocess, sys
from agentmove_tools.database.embedded import data_folder, hold_server, server_state, stop_server
from agentmove_tools.database.embedded.programs import find_wheel
with hold_server() as held:
    psql = os.path.join(find_wheel(), "pginstall", "bin", "psql")
    names = ("host", "port", "user", "dbname")
    conninfo = " ".join(f"{name}={held.parameters[name]}" for name in names)
    done = subprocess.run([psql, "-XAtc", "SELECT current_user", conninfo],
        capture_output=True, text=True)
    state = server_state()
    print(json.dumps({"said": done.stdout.strip() or done.stderr, "host": held.parameters["host"],
        "pid": state.pid, "folder": data_folder()}), flush=True)
    sys.stdin.read()
sys.exit(0 if stop_server() else 1)
"""


@only_root
@pytest.mark.parametrize("umask", [0o022, 0o777], ids=["022", "777"])
def test_an_ordinary_user(place: Path, umask: int) -> None:
    """The server runs as that user, in that user's home; even root cannot connect."""
    import json

    copy_wheel(place / "site")
    copy_package(place / "site")
    subprocess.run(["chmod", "-R", "a+rX", str(place / "site")], check=True)
    home = place / "home"
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    environment = {"PYTHONPATH": str(place / "site"), "HOME": str(home)}
    with subprocess.Popen(
        [python_for(NOBODY), "-c", _AS_A_USER],
        env=clean_environment(environment),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        umask=umask,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        assert found["said"] == "agentfy"
        folder = home / ".local" / "share" / "agentmove-tools"
        assert found["folder"] == str(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert Path(f"/proc/{found['pid']}").stat().st_uid == NOBODY
        parameters = {"host": found["host"], "user": "agentfy", "dbname": "agentfy"}
        with pytest.raises(psycopg.OperationalError, match="Peer authentication failed"):
            ask(parameters, "SELECT 1")
        process.communicate(timeout=60)
    assert process.returncode == 0
    until(lambda: not os.path.exists(found["host"]))


@only_root
def test_a_user_without_a_name(place: Path) -> None:
    """The server knows users by their names: it is told in one line, and nothing is made."""
    copy_package(place / "site")
    subprocess.run(["chmod", "-R", "a+rX", str(place / "site")], check=True)
    user = 54321
    program = (
        "from agentmove_tools.database.embedded import hold_server\n"
        "from agentmove_tools.refusals import MachineError\n"
        "try: hold_server()\n"
        "except MachineError as error: print(error.message)\n"
    )
    home = place / "home"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    done = subprocess.run(
        [python_for(user), "-c", program],
        check=True,
        env=clean_environment({"PYTHONPATH": str(place / "site"), "HOME": str(home)}),
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout.startswith(f"user id {user} has no name")
    assert list(home.iterdir()) == []
