"""Holding the server: the one that runs is found, or one is started, and it stays while held."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from typing import TYPE_CHECKING, Final, Self

from agentmove_tools.database.embedded import report
from agentmove_tools.database.embedded.account import server_user
from agentmove_tools.database.embedded.locks import Patience, is_held, take, try_take
from agentmove_tools.database.embedded.places import Places, make_folder
from agentmove_tools.database.embedded.postmaster import (
    Answer,
    Ending,
    knock,
    pid_file,
    postmaster,
)
from agentmove_tools.database.embedded.settings import NAME, PORT
from agentmove_tools.database.embedded.socket_folder import find_socket, has_socket
from agentmove_tools.database.embedded.words import environment, telling_line
from agentmove_tools.refusals import MachineError, UsageError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from types import TracebackType

_IDLE: Final = 60.0  # seconds
_STARTS: Final = "the database server starts"
_STOPS: Final = "the database server stops, to be started again"
_MOST_STARTS: Final = 3  # of servers that are ready and end at once
_NO_SOCKET: Final = 1.0  # seconds in which a server that is ready must have a socket

_ROOT: Final = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
# The package is found where this one is, whatever the environment says, and nothing else is.
_RUN: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from agentmove_tools.database.embedded.keeper import main; main(sys.argv[1:])"
)


class Held:
    """A server that stays while this is open, by a lock that a killed process gives back too.

    ``parameters`` are for ``psycopg.connect``: by socket, and whatever the environment says of
    another server is overruled. A context manager.
    """

    def __init__(self, socket: str, fd: int) -> None:
        self._fd: int | None = fd
        self.parameters: Final[dict[str, str]] = {
            "host": socket,
            "user": NAME,
            "dbname": NAME,
            "port": PORT,
            "hostaddr": "",
            "options": "",
            "sslmode": "disable",
            "gssencmode": "disable",
            "channel_binding": "disable",
            "requirepeer": "",
            "require_auth": "",
            "target_session_attrs": "any",
        }

    def close(self) -> None:
        """Give the lock back; the server stops when nobody has held it for a while."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.utime(fd)  # a keeper sees that somebody was there
            finally:
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def hold_server(folder: str | None = None, *, waiting: Callable[[str], None] | None = None) -> Held:
    """Hold the server of the data folder ``folder``, or of ``data_folder()``; it runs then.

    It is started if it does not run, and its data are made if there are none yet. That takes as
    long as it takes: a server that recovers is waited for, one that cannot start is told.
    ``waiting`` is called once, with what is waited for, when that has been two seconds.
    Raises ``MachineError``, ``UsageError`` where ``AGENTFY_IDLE`` is no number of seconds, and
    ``OSError``.
    """
    places = Places(folder)
    idle = _idle()
    uid = server_user().uid
    make_folder(places)
    patience = Patience(waiting)
    fd = take(places.clients, patience, _STOPS, shared=True)
    try:
        socket = _running(places, uid) or _started(places, uid, idle, patience)
        os.utime(fd)
    except BaseException:
        os.close(fd)
        raise
    return Held(socket, fd)


def _idle() -> float:
    text = os.environ.get("AGENTFY_IDLE")
    if not text:
        return _IDLE
    try:
        idle = float(text)
    except ValueError:
        idle = -1
    if not 0 <= idle < float("inf"):
        raise UsageError("AGENTFY_IDLE is no number of seconds")
    return idle


def _running(places: Places, uid: int) -> str | None:
    """The socket folder of a server that has a keeper and takes connections, or None."""
    if not is_held(places.keeper):
        return None
    found = pid_file(places)
    if found is None or not found.ready:
        return None  # a knock would only be logged
    socket = find_socket(places, uid)
    return socket if socket is not None and knock(socket) is Answer.YES else None


def _started(places: Places, uid: int, idle: float, patience: Patience) -> str:
    """The socket folder of the server, once it takes connections; a keeper is started for it.

    The caller shares the clients' lock: no keeper ends the server meanwhile for want of use.
    """
    start = take(places.start, patience, _STARTS)
    starts = 0
    no_socket_since: float | None = None
    try:
        while True:
            socket = _running(places, uid)
            if socket is not None:
                return socket
            keeper = try_take(places.keeper)
            if keeper is None:
                if not _lacks_socket(places, uid):
                    no_socket_since = None
                elif no_socket_since is None:
                    no_socket_since = time.monotonic()
                elif time.monotonic() - no_socket_since > _NO_SOCKET:
                    no_socket_since = None
                    _end_unreachable(places)
                patience.wait(_STARTS)
                continue
            try:
                starts += 1
                if starts > _MOST_STARTS:
                    raise MachineError(
                        "the database server ends as soon as it has started",
                        hint=f"see {places.log}",
                    )
                _start_keeper(places, keeper, idle, patience)
            finally:
                os.close(keeper)
    finally:
        os.close(start)


def _lacks_socket(places: Places, uid: int) -> bool:
    found = pid_file(places)
    if found is None or not found.ready:
        return False
    socket = find_socket(places, uid)
    return socket is None or not has_socket(socket)


def _end_unreachable(places: Places) -> None:
    """End a server whose socket was tidied away; its keeper then ends too."""
    pid = postmaster(places)
    if pid is None:
        raise MachineError(
            "the database server runs, but not where this process can reach it",
            path=places.folder,
            hint="it may run in another container: stop it there",
        )
    Ending(places, None).push(pid)


def _start_keeper(places: Places, lock: int, idle: float, patience: Patience) -> None:
    """Start a keeper, and wait until its server is ready. Raises ``MachineError``."""
    import subprocess  # noqa: PLC0415 - a server that runs is found without it

    from agentmove_tools.database.embedded.programs import find_wheel  # noqa: PLC0415 - as above

    command = [sys.executable, "-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
    command += ["-c", _RUN, _ROOT, places.folder, find_wheel(), str(lock), str(idle)]
    with subprocess.Popen(  # noqa: S603 - this very Python
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=environment(),
        pass_fds=(lock,),
        umask=0o077,
        start_new_session=True,
    ) as keeper:
        _wait_for(keeper, patience)


def _wait_for(keeper: subprocess.Popen[bytes], patience: Patience) -> None:
    if keeper.stdout is None:
        raise AssertionError
    fd = keeper.stdout.fileno()
    poll = select.poll()  # which takes any descriptor, unlike select
    poll.register(fd, select.POLLIN)
    what, said = _STARTS, b""
    while True:
        if not poll.poll(patience.step * 1000):
            patience.tell(what)
            continue
        piece = os.read(fd, 65536)
        said += piece
        *lines, rest = said.split(b"\n")
        for line in lines:
            word, _, text = line.partition(b" ")
            if word == report.READY:
                return
            if word == report.FAILED:
                raise report.error_of(text)
            if word == report.WAITING:
                what = text.decode()
        if not piece:
            why = telling_line(rest or said) or "it was killed"
            raise MachineError(f"the database server's keeper ended: {why}")
