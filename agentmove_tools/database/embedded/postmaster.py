"""The server as a process: which one it is, whether it answers, and how it is told to end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
import time
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.database.embedded.locks import Patience, is_held
from agentmove_tools.database.embedded.settings import NAME, PORT
from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmove_tools.database.embedded.places import Places

_PROC: Final = "/proc"
_PROTOCOL: Final = 3 << 16  # version 3.0 of PostgreSQL's protocol
_PATIENCE: Final = 10.0  # seconds for one answer
# Seconds after a server was killed: until then its processes may end by themselves, then are told
# to, then are killed; and when they still live, they are not this process's to end.
_BY_ITSELF: Final = 1.0
_GENTLE: Final = 5.0
_OUT_OF_REACH: Final = 15.0
_CHECKPOINT: Final = 60.0
_READY: Final = "ready"
_TOO_MANY: Final = "53300"  # it runs, and is full


class PidFile(NamedTuple):
    """What ``postmaster.pid`` says; ``ready`` of the last start, whatever came after it."""

    pid: int
    ready: bool


class Answer(Enum):
    """What comes of a knock at the socket."""

    YES = "it takes connections"
    NOT_YET = "it starts, or recovers, or ends"
    NOBODY = "nobody listens"


def pid_file(places: Places) -> PidFile | None:
    """What the server's file says; None where there is none, or a half one. Raises ``OSError``."""
    try:
        with open(_pid_path(places), "rb") as file:
            lines = file.read(8192).splitlines()
    except FileNotFoundError:
        return None
    try:
        pid = int(lines[0])
    except (IndexError, ValueError):
        return None
    status = lines[7].strip().decode("ascii", "replace") if len(lines) > 7 else ""
    return PidFile(pid, status == _READY) if pid > 1 else None


def forget_pid_file(places: Places) -> None:
    """Remove the file of a server that is no more, whose number may be another program's now.

    Raises ``OSError``.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_pid_path(places))


def _pid_path(places: Places) -> str:
    return os.path.join(places.cluster, "postmaster.pid")


def postmaster(places: Places) -> int | None:
    """The process id of the server that runs in this data folder; None if none does.

    A number in a file is no proof: the process has to be a server of this very folder. Raises
    ``OSError``.
    """
    found = pid_file(places)
    if found is None:
        return None
    folder = os.fsencode(places.cluster)
    if sys.platform == "linux":
        words = _command(found.pid)
        ours = folder in words and words[0].endswith(b"postgres")
    else:
        ours = folder in _ps(found.pid)
    return found.pid if ours else None


def _command(pid: int) -> list[bytes]:
    """The command line of a process, which all may read, unlike most that is told of one."""
    try:
        with open(f"{_PROC}/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _ps(pid: int) -> bytes:
    import subprocess  # noqa: PLC0415 - Linux has no need of it

    ps = ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(ps, check=False, capture_output=True).stdout  # noqa: S603


def clear_leftovers(places: Places, uid: int) -> None:
    """Wait until all processes have ended of a server that was killed, or of ``initdb``.

    Those of a server that look up end at once, but one that computes does not: it is ended.
    It returns too when a server is seen to run. Raises ``MachineError`` where some live on out
    of reach, and ``OSError``.
    """
    patience = Patience(None)
    began = time.monotonic()
    while is_held(places.server) and postmaster(places) is None:
        patience.wait("")
        waited = time.monotonic() - began
        if waited < _BY_ITSELF or pid_file(places) is None:
            continue
        if waited > _OUT_OF_REACH:
            raise MachineError(
                "the database server runs, but not where this process can reach it",
                path=places.folder,
                hint="it may run in another container: stop it there",
            )
        for pid in _leftovers(places.title, uid):
            send(pid, signal.SIGQUIT if waited < _GENTLE else signal.SIGKILL)


def _leftovers(title: str, uid: int) -> Iterator[int]:
    """The processes of a server of that title but the first, where the system tells."""
    if sys.platform != "linux":
        return
    start = f"postgres: {title}: ".encode()
    for name in os.listdir(_PROC):
        if name.isdecimal() and _owner(name) == uid:
            words = _command(int(name))
            if words and words[0].startswith(start):
                yield int(name)


def _owner(pid: str) -> int | None:
    try:
        return os.stat(f"{_PROC}/{pid}").st_uid
    except OSError:
        return None


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended meanwhile. Raises ``PermissionError``."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Ending:
    """The server is told to end its sessions, to roll back what they did, and to end.

    ``socket`` is its socket folder, if that is known. A fast shutdown ends it well. But one that
    recovers from the crash of a session (PostgreSQL 18) then waits for its own checkpointer and
    never ends: it is told to end at once, since it has to recover anyway. So is one that takes
    longer than the last checkpoint of a healthy server does.
    """

    def __init__(self, places: Places, socket: str | None) -> None:
        self._places = places
        self._socket = socket
        self._told_at: float | None = None

    def push(self, pid: int) -> None:
        """Send what is to be sent now; to be called until the server has ended.

        Raises ``OSError``.
        """
        now = time.monotonic()
        if self._told_at is None:
            send(pid, signal.SIGQUIT if self._recovers() else signal.SIGINT)
            self._told_at = now
        elif now - self._told_at > _CHECKPOINT:
            send(pid, signal.SIGQUIT)
            self._told_at = now

    def _recovers(self) -> bool:
        found = pid_file(self._places)
        if found is None or not found.ready or self._socket is None:
            return False  # it starts, or it ends already
        try:
            return knock(self._socket) is Answer.NOT_YET
        except MachineError:
            return False


def knock(folder: str) -> Answer:
    """Ask the server at the socket folder whether it takes connections, as a client would.

    Raises ``MachineError`` where it refuses for good, such as to another user.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_PATIENCE)
        try:
            asking.connect(os.path.join(folder, f".s.PGSQL.{PORT}"))
        except (BlockingIOError, TimeoutError):
            return Answer.NOT_YET  # too many are asking at once
        except OSError:
            return Answer.NOBODY
        words = f"user\0{NAME}\0database\0{NAME}\0\0".encode()
        try:
            asking.sendall(struct.pack("!II", len(words) + 8, _PROTOCOL) + words)
            return _answer(asking)
        except OSError:
            return Answer.NOT_YET


def _answer(asking: socket.socket) -> Answer:
    while True:
        kind, body = _message(asking)
        if kind == b"Z":  # ready for a query: there is none
            asking.sendall(b"X" + struct.pack("!I", 4))
            return Answer.YES
        if kind == b"E":
            fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0")}
            code = fields.get(b"C")
            if code == _TOO_MANY:
                return Answer.YES
            if code is None or code.startswith("57P"):
                return Answer.NOT_YET
            raise MachineError(f"the database server refuses: {fields.get(b'M', code)}")


def _message(asking: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(asking, 5)
    return head[:1], _exactly(asking, int.from_bytes(head[1:]) - 4)


def _exactly(asking: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = asking.recv(size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return data
