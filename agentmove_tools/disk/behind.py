"""Writing small entries in a second thread, while the stream is read and checked in the first."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agentmove_tools.disk.stage import Stage, Staged

_BATCH_ENTRIES: Final = 128
_BATCH_BYTES: Final = 1 << 18
_BATCHES: Final = 8  # that may wait: what bounds the memory

_Job = tuple["Staged", tuple[bytes, ...], int | None]


class WriteBehind:
    """Puts entries into a ``Stage`` in their order, a little later.

    Most of the time of a small file goes into the system's calls, in which another thread can run.
    An entry's content was checked before it comes here. ``flush`` waits, and raises what went wrong
    meanwhile; nothing else may use the stage before that.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._batch: list[_Job] = []
        self._bytes = 0
        self._jobs: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_BATCHES)
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def put(self, entry: Staged, content: tuple[bytes, ...], mode: int | None) -> None:
        """Put an entry later; raises what an earlier one raised."""
        self._batch.append((entry, content, mode))
        self._bytes += entry.size
        if len(self._batch) >= _BATCH_ENTRIES or self._bytes >= _BATCH_BYTES:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._error is not None:
            self.flush()
        if self._thread is None:
            thread = threading.Thread(target=self._work, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # a limit on threads or memory: then without one
                self._put_batch(self._batch)
                self._batch = []
                self._bytes = 0
                return
            self._thread = thread
        self._room.acquire()
        self._jobs.put(self._batch)
        self._batch = []
        self._bytes = 0

    def _put_batch(self, batch: list[_Job]) -> None:
        for entry, content, mode in batch:
            self._stage.put(entry, content, mode=mode)

    def _work(self) -> None:
        try:
            self._put_batches()
        finally:
            self._ended.set()

    def _put_batches(self) -> None:
        while (batch := self._jobs.get()) is not None:
            try:
                if self._error is None:
                    self._put_batch(batch)
            except BaseException as error:  # noqa: BLE001 - flush raises it
                self._error = error
            finally:
                self._room.release()

    def flush(self) -> None:
        """Wait until all is written; raise what went wrong."""
        self.stop()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def stop(self) -> None:
        """Have all that was put written, unless a write failed, and end the thread."""
        if self._batch and self._error is None:
            self._hand_over()
        if self._thread is not None:
            self._jobs.put(None)
            # A join that a signal interrupts takes the thread for ended, and what is removed then
            # would be written again.
            self._ended.wait()
            self._thread.join()
            self._ended.clear()
            self._thread = None
