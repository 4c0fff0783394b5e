"""The cluster: made beside and then renamed, checked, and given its settings at each start."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from agentmove_tools.database.embedded.settings import ACCESS, NAME, settings, user_map
from agentmove_tools.database.embedded.words import environment, telling_line
from agentmove_tools.disk.folders import CREATE_FILE, OPEN_FOLDER, name_bytes, remove
from agentmove_tools.disk.system import write_all
from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from agentmove_tools.database.embedded.account import ServerUser
    from agentmove_tools.database.embedded.places import Places
    from agentmove_tools.database.embedded.programs import Programs

_INITDB: Final = (
    *("--username", NAME),
    *("--encoding", "UTF8", "--locale", "C"),
    *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
    *("--auth-local", "peer", "--auth-host", "reject"),
    *("--data-checksums", "--no-instructions"),
)
_SINGLE: Final = ("--single", "-c", "exit_on_error=on", "-c", "log_min_messages=warning")
_MADE: Final = f"CREATE DATABASE {NAME};\n"


def version_of(places: Places) -> str | None:
    """The major version of the data; None if there are none yet. Raises ``OSError``."""
    try:
        with open(os.path.join(places.cluster, "PG_VERSION"), encoding="ascii") as file:
            return file.read(20).strip()
    except FileNotFoundError:
        return None


def make_cluster(programs: Programs, user: ServerUser, places: Places, lock: int) -> None:
    """Make the cluster if it is missing, with one role and one database.

    The caller holds the server's lock, which the programs inherit as ``lock``: should this
    process be killed, the next one waits until they have ended. Raises ``MachineError`` where
    they fail, and ``OSError``.
    """
    above = os.open(places.folder, OPEN_FOLDER)
    try:
        new = name_bytes(os.path.basename(places.new_cluster))
        remove(above, new)  # what a killed one left
        if os.path.lexists(places.cluster):
            return
        os.mkdir(new, 0o700, dir_fd=above)
        try:
            if user.separate:
                os.chown(new, user.uid, user.gid, dir_fd=above, follow_symlinks=False)
            folder = places.new_cluster
            _run([programs.initdb, "-D", folder, *_INITDB], user, lock)
            write_settings(folder, user)
            single = [programs.postgres, *_SINGLE, "-D", folder, "template1"]
            _run(single, user, lock, said=_MADE)
        except BaseException:
            remove(above, new)  # most of all where the disk is full
            raise
        os.rename(places.new_cluster, places.cluster)
        os.fsync(above)
    finally:
        os.close(above)


def check_cluster(programs: Programs, user: ServerUser, places: Places) -> None:
    """Check that the cluster is one that these programs can run.

    Raises ``MachineError`` for one of another major version and for what is none, and
    ``OSError``.
    """
    version = version_of(places)
    if version is None:
        raise MachineError("the data folder holds no database", path=places.cluster)
    if version != programs.major:
        raise MachineError(
            f"the data are PostgreSQL {version}'s, and the server is PostgreSQL {programs.major}",
            path=places.cluster,
            hint="export with the release that made them and import into a new data folder",
        )
    owner = os.lstat(places.cluster).st_uid
    if owner != user.uid:
        if not user.separate:
            raise MachineError("the database belongs to another user", path=places.cluster)
        # root's account was made anew, with another number, such as in a new container
        _give(places.cluster, user)


def _give(folder: str, user: ServerUser) -> None:
    for _, folders, files, fd in os.fwalk(folder, topdown=False):
        for name in (*folders, *files):
            os.chown(name, user.uid, user.gid, dir_fd=fd, follow_symlinks=False)
    os.chown(folder, user.uid, user.gid, follow_symlinks=False)  # last: it tells that all are


def write_settings(folder: str, user: ServerUser) -> None:
    """Write the settings into the cluster at ``folder``, where they are not so yet.

    No link is followed: the folder is the account's. Raises ``OSError``.
    """
    fd = os.open(folder, OPEN_FOLDER)
    try:
        _write(fd, "postgresql.conf", settings(), user)
        _write(fd, "pg_hba.conf", ACCESS, user)
        _write(fd, "pg_ident.conf", user_map(user), user)
    finally:
        os.close(fd)


def _write(fd: int, name: str, text: str, user: ServerUser) -> None:
    data = text.encode("utf-8", "surrogateescape")
    if _read(fd, name, len(data) + 1) == data:
        return
    beside = f"{name}.new"
    remove(fd, beside.encode())
    writing = os.open(beside, CREATE_FILE, 0o600, dir_fd=fd)
    try:
        write_all(writing, data)
        if user.separate:
            os.fchown(writing, user.uid, user.gid)
        os.fsync(writing)
    finally:
        os.close(writing)
    os.rename(beside, name, src_dir_fd=fd, dst_dir_fd=fd)
    os.fsync(fd)


def _read(fd: int, name: str, size: int) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        reading = os.open(name, flags, dir_fd=fd)
    except OSError:
        return None  # a link, or none: it is written anew
    try:
        return os.read(reading, size) if stat.S_ISREG(os.fstat(reading).st_mode) else None
    finally:
        os.close(reading)


def _run(command: list[str], user: ServerUser, lock: int, *, said: str = "") -> None:
    import subprocess  # noqa: PLC0415 - a client needs this module for the version only

    done = subprocess.run(  # noqa: S603 - the wheel's programs
        command,
        check=False,
        input=said.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=environment(),
        pass_fds=(lock,),
        umask=0o077,
        **user.run_as(),
    )
    if done.returncode != 0:
        why = telling_line(done.stdout) or f"{os.path.basename(command[0])} ended without a word"
        raise MachineError(f"the database could not be made: {why}")
