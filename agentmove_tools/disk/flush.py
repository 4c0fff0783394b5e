"""Bringing what is written to the disk while more is being written, so that the end waits less."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final, Self

from agentmove_tools.disk.system import sync_file_system

if TYPE_CHECKING:
    from types import TracebackType

# The first wait, in seconds, and how much longer each is than the one before: a sync is of all
# that anybody has written to the file system, so a long run must not ask for one all the time.
_FIRST_WAIT: Final = 0.05
_LONGER: Final = 2


class Flusher:
    """Syncs the file system of the open folder ``fd`` now and then, in a thread.

    A context manager; leaving it well syncs once more, and raises what any of the syncs raised.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._done = threading.Event()
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.platform == "linux":  # elsewhere a sync is of every file system
            thread = threading.Thread(target=self._work, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # a limit on threads: then all of it waits for the end
                return self
            self._thread = thread
        return self

    def _work(self) -> None:
        wait = _FIRST_WAIT
        while not self._done.wait(wait):
            wait *= _LONGER
            try:
                sync_file_system(self._fd)
            except OSError as error:
                # The kernel tells of a failed write once: it must not be forgotten here.
                self._error = error
                return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if kind is not None:
            return
        if self._error is not None:
            raise self._error
        sync_file_system(self._fd)
