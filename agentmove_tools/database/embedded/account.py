"""Who the server runs as: this user; as root a system account of its own, made when missing."""

from __future__ import annotations

import os
import pwd
import shutil
import time
from typing import Final, NamedTuple, TypedDict

from agentmove_tools.refusals import MachineError

ACCOUNT: Final = "agentfy-postgres"

_SYSTEM_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_NOWHERE: Final = "/nonexistent"
_TRIES: Final = 50
_WAIT: Final = 0.2  # seconds: another useradd may be at work on the list of users


class RunAs(TypedDict, total=False):
    """What ``subprocess`` takes to run a program as another user."""

    user: int
    group: int
    extra_groups: list[int]


class ServerUser(NamedTuple):
    """The account that the server runs as, and the name of the user that may connect.

    ``separate``: the account is another than this user's, who is root then.
    """

    client: str
    uid: int
    gid: int
    separate: bool

    def run_as(self) -> RunAs:
        """What ``subprocess`` takes to run a program as the account."""
        if not self.separate:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def server_user() -> ServerUser:
    """Who the server runs as; root's account is made when it is missing.

    Raises ``MachineError`` where this user has no entry in the list of users, by which PostgreSQL
    knows who connects, or the account cannot be made.
    """
    uid = os.geteuid()
    try:
        own = pwd.getpwuid(uid)
    except KeyError:
        raise MachineError(
            f"user id {uid} has no name, and the database server knows users by name",
            hint="add a line for it to /etc/passwd, or name another server with --db",
        ) from None
    if any(c in own.pw_name for c in "\n\r") or own.pw_name.startswith("/"):
        raise MachineError("the user's name is one that no user map can hold")
    if uid != 0:
        return ServerUser(own.pw_name, uid, own.pw_gid, separate=False)
    account = _account() or _made_account()
    if account.pw_uid == 0:
        raise MachineError(f"the account {ACCOUNT} is root's, as which no server runs")
    return ServerUser(own.pw_name, account.pw_uid, account.pw_gid, separate=True)


def check_reach(user: ServerUser, folder: str) -> None:
    """Raise ``MachineError`` where the account cannot pass through ``folder``."""
    if not runs_as(user, ["/bin/sh", "-c", 'test -x "$1"/', "sh", folder]):
        raise MachineError(
            f"the account {ACCOUNT}, which the database server runs as, cannot reach it",
            path=folder,
            hint="name a folder in AGENTFY_DATA that all users can pass through to",
        )


def runs_as(user: ServerUser, command: list[str]) -> bool:
    """Say whether ``command`` ends well when the account runs it.

    Raises ``MachineError`` where this process may not run anything as the account.
    """
    import subprocess  # noqa: PLC0415 - a server that runs is found without it

    try:
        done = subprocess.run(  # noqa: S603 - a fixed program
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": _SYSTEM_PATH},
            **user.run_as(),
        )
    except (PermissionError, subprocess.SubprocessError) as error:
        raise MachineError(f"no program can be run as the account {ACCOUNT}: {error}") from None
    return done.returncode == 0


def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        return None


def _made_account() -> pwd.struct_passwd:
    commands = _commands()
    if commands is None:
        raise MachineError(
            f"the system account {ACCOUNT} is missing, and there is no useradd to make it",
            hint="make it by hand, or run this as an ordinary user",
        )
    said = ""
    for _ in range(_TRIES):
        for command in commands:
            status, said = _run(command)
        account = _account()  # by this command, or by another that was at it
        if account is not None:
            return account
        if status == 0 or "lock" not in said:
            break
        time.sleep(_WAIT)
    raise MachineError(
        f"the system account {ACCOUNT} cannot be made: {said or 'no reason was given'}",
        hint="make it by hand, or run this as an ordinary user",
    )


def _commands() -> list[list[str]] | None:
    shell = next(
        (path for path in ("/usr/sbin/nologin", "/sbin/nologin") if os.path.exists(path)),
        "/bin/false",
    )
    useradd = shutil.which("useradd", path=_SYSTEM_PATH)
    if useradd is not None:
        options = ["--system", "--user-group", "--no-create-home", "--home-dir", _NOWHERE]
        return [[useradd, *options, "--shell", shell, ACCOUNT]]
    # busybox has no useradd, and its adduser other options than Debian's, which has one
    adduser = shutil.which("adduser", path=_SYSTEM_PATH)
    addgroup = shutil.which("addgroup", path=_SYSTEM_PATH)
    if adduser is None or addgroup is None:
        return None
    options = ["-S", "-D", "-H", "-h", _NOWHERE, "-s", shell, "-G", ACCOUNT]
    return [[addgroup, "-S", ACCOUNT], [adduser, *options, ACCOUNT]]


def _run(command: list[str]) -> tuple[int, str]:
    """Run a command; give its status and the last line that it said."""
    import subprocess  # noqa: PLC0415 - a server that runs is found without it

    done = subprocess.run(  # noqa: S603 - a fixed program
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={"PATH": _SYSTEM_PATH, "LC_ALL": "C"},
    )
    lines = done.stdout.decode("utf-8", "backslashreplace").strip().splitlines()
    return done.returncode, lines[-1] if lines else ""
