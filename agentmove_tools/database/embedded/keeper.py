"""The keeper: the small process that starts the server and, when nobody uses it, stops it.

It holds the keeper's lock as long as it lives, which it inherits from the client that started it;
so there is one. If it is killed, the server lives on, and the next keeper takes it over.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Final, NoReturn

from agentmove_tools.database.embedded import report
from agentmove_tools.database.embedded.account import server_user
from agentmove_tools.database.embedded.cluster import (
    check_cluster,
    make_cluster,
    version_of,
    write_settings,
)
from agentmove_tools.database.embedded.locks import Patience, lock, open_lock, unlock
from agentmove_tools.database.embedded.places import Places, open_to_account
from agentmove_tools.database.embedded.postmaster import (
    Answer,
    Ending,
    clear_leftovers,
    forget_pid_file,
    knock,
    pid_file,
    postmaster,
)
from agentmove_tools.database.embedded.programs import programs_of, reachable
from agentmove_tools.database.embedded.settings import options
from agentmove_tools.database.embedded.socket_folder import (
    drop_socket,
    find_socket,
    has_socket,
    make_socket,
)
from agentmove_tools.database.embedded.words import environment, telling_line
from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    import subprocess
    from types import FrameType

_LONGEST_LOG: Final = 1 << 20
_LONGEST_LOOK: Final = 1.0  # seconds between two looks at the clients
_SHORTEST_LOOK: Final = 0.05
_KNOCKS: Final = 0.5  # seconds between two knocks at a server that says no: it logs each


class _Server:
    """The server of one data folder: started, or found running and taken over."""

    def __init__(self, places: Places, wheel: str) -> None:
        self._places = places
        self._wheel = wheel
        self._user = server_user()
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.socket = ""
        self.clients = open_lock(places.clients)

    def start(self) -> None:
        """Bring it to where it takes connections. Raises ``MachineError`` and ``OSError``."""
        open_to_account(self._places)
        fd = open_lock(self._places.server)
        try:
            while not lock(fd):
                if self._take_over():
                    return
            self._start(fd)
        finally:
            os.close(fd)  # not unlocked: the server has inherited the lock
        self._wait_until_ready()

    def _take_over(self) -> bool:
        """Take over the server that runs; false if none does any more, or it had to be ended."""
        if postmaster(self._places) is None:
            clear_leftovers(self._places, self._user.uid)
            return False
        socket = find_socket(self._places, self._user.uid)
        if socket is not None and has_socket(socket):
            self.socket = socket
            with contextlib.suppress(FileNotFoundError):
                self._log_start = os.stat(self._places.log).st_size
            self._wait_until_ready()
            return True
        found = pid_file(self._places)
        if found is not None and found.ready:
            # A socket that was tidied away does not come back: only a new server makes one.
            self.end()
        time.sleep(_SHORTEST_LOOK)
        return False

    def _start(self, fd: int) -> None:
        import subprocess  # noqa: PLC0415 - a server that is taken over needs none

        places, user = self._places, self._user
        programs = reachable(programs_of(self._wheel), user, places)
        if version_of(places) is None:
            report.waiting("the database is being made")
        make_cluster(programs, user, places, fd)
        check_cluster(programs, user, places)
        write_settings(places.cluster, user)
        if postmaster(places) is not None:
            raise MachineError(
                "another PostgreSQL server runs in the data folder: stop that first",
                path=places.cluster,
            )
        crashed = pid_file(places) is not None
        report.waiting("the database recovers" if crashed else "the database server starts")
        forget_pid_file(places)
        self.socket = make_socket(places, user)
        log = _open_log(places)
        try:
            self._log_start = os.lseek(log, 0, os.SEEK_END)
            self._child = subprocess.Popen(  # noqa: S603 - the wheel's server
                [
                    programs.postgres,
                    *("-D", places.cluster),
                    *options(self.socket, places.title),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment(),
                pass_fds=(fd,),
                umask=0o077,
                start_new_session=True,
                **user.run_as(),
            )
        except BaseException:
            drop_socket(places, self.socket)
            raise
        finally:
            os.close(log)

    def _wait_until_ready(self) -> None:
        patience = Patience(None)
        while True:
            found = pid_file(self._places)
            if found is not None and found.ready:
                answer = knock(self.socket)
                if answer is Answer.YES:
                    return
                time.sleep(_KNOCKS if answer is Answer.NOT_YET else 0)
            if not self.lives():
                self._fail()
            patience.wait("")

    def _fail(self) -> NoReturn:
        drop_socket(self._places, self.socket)
        status = None if self._child is None else self._child.returncode
        if status == 0:
            raise MachineError("the database server was stopped while it started")
        with open(self._places.log, "rb") as file:
            file.seek(self._log_start)
            said = file.read(_LONGEST_LOG)
        why = telling_line(said)
        if status is not None and status < 0:
            why = f"it was ended by signal {-status}"
        why = why or "it ended without a word"
        raise MachineError(
            f"the database server cannot start: {why}", hint=f"see {self._places.log}"
        )

    def lives(self) -> bool:
        """Say whether the server runs. Raises ``OSError``."""
        if self._child is not None:
            return self._child.poll() is None
        return postmaster(self._places) is not None

    def end(self) -> None:
        """End the server well, and wait until all of its processes have ended.

        Raises ``OSError``.
        """
        pid = self._child.pid if self._child is not None else postmaster(self._places)
        ending = Ending(self._places, self.socket or None)
        patience = Patience(None)
        while pid is not None and self.lives():
            ending.push(pid)
            patience.wait("")
        clear_leftovers(self._places, self._user.uid)

    def watch(self, idle: float, signals: _Signals) -> None:
        """Wait until nobody has used the server for ``idle`` seconds, or it has ended.

        A client holds the lock in common; this takes it alone before it ends the server, and
        does not give it back, so that no client is given a server that goes away. Raises
        ``OSError``.
        """
        look = min(max(idle / 4, _SHORTEST_LOOK), _LONGEST_LOOK)
        quiet_since = time.monotonic()
        last_use = None
        while self.lives() and not signals.asked_to_end:
            if lock(self.clients):
                # one who came and went between two looks has left a time
                use = os.fstat(self.clients).st_mtime_ns
                if use != last_use:
                    last_use, quiet_since = use, time.monotonic()
                if time.monotonic() - quiet_since >= idle:
                    break
                unlock(self.clients)
            else:
                quiet_since = time.monotonic()
            signals.wait(look)
        self.end()
        drop_socket(self._places, self.socket)


def _open_log(places: Places) -> int:
    """The log, made when missing; one that has got long is kept aside, and replaces the last."""
    with contextlib.suppress(FileNotFoundError):
        if os.lstat(places.log).st_size > _LONGEST_LOG:
            os.rename(places.log, f"{places.log}.old")
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(places.log, flags, 0o600)


class _Signals:
    """The signals that this process looks at, whatever the client may have set.

    ``asked_to_end`` says whether it was told to end.
    """

    def __init__(self) -> None:
        self.asked_to_end = False
        self._pipe, writing = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGCHLD, self._look)  # it ends the wait when the server ends
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_to_end = True

    def _look(self, _number: int, _frame: FrameType | None) -> None:
        pass

    def wait(self, seconds: float) -> None:
        """Wait, but not when a signal comes."""
        if select.select([self._pipe], [], [], seconds)[0]:
            os.read(self._pipe, 4096)


def main(arguments: list[str]) -> None:
    """Keep the server; the arguments are those that ``hold.py`` gives."""
    if os.fork():
        os._exit(0)  # so that no client has to wait for its end
    folder, wheel, fd, idle = arguments
    os.set_inheritable(int(fd), False)
    signals = _Signals()
    places = Places(folder)
    try:
        server = _Server(places, wheel)
        server.start()
    except MachineError as error:
        report.failed(error)
        return
    except OSError as error:
        place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
        report.failed(MachineError(error.strerror or str(error), path=place))
        return
    log = _open_log(places)
    report.ready(log)
    os.close(log)
    server.watch(float(idle), signals)


if __name__ == "__main__":
    main(sys.argv[1:])
