"""Writing in a thread of its own, so that records are sealed or opened meanwhile."""

from __future__ import annotations

from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmove_tools.streams import ByteSink


class BackgroundSink:
    """A ``ByteSink`` that writes one piece at a time in another thread, without a copy.

    ``write`` waits for the piece before, and returns while its own is being written: nobody may
    change that until the next ``write`` or ``flush`` is done. These raise what the write before
    raised, and ``MachineError`` where it was not whole.
    """

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink
        self._pieces: SimpleQueue[bytes | bytearray | memoryview | None] = SimpleQueue()
        self._outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
        self._writing = False
        # A daemon: a write that never ends must not keep a process that was told to stop.
        Thread(target=self._work, daemon=True).start()

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Hand over all of ``data``; give its length in bytes."""
        self.flush()
        self._writing = True
        self._pieces.put(data)
        return len(data)

    def flush(self) -> None:
        """Wait until all is written."""
        if self._writing:
            self._writing = False
            outcome = self._outcomes.get()
            if outcome is not None:
                raise outcome

    def stop(self) -> None:
        """Let the thread end; what it is writing it may still write."""
        self._pieces.put(None)

    def _work(self) -> None:
        while (piece := self._pieces.get()) is not None:
            outcome: BaseException | None = None
            try:
                written = self._sink.write(piece)
                if written != len(piece):
                    outcome = MachineError(f"only {written} of {len(piece)} bytes could be written")
            except BaseException as error:  # noqa: BLE001  (it is raised where it is waited for)
                outcome = error
            self._outcomes.put(outcome)


@contextmanager
def in_background(sink: ByteSink) -> Iterator[BackgroundSink]:
    """Give a sink that writes to ``sink`` in another thread, and has done so after the block.

    It is not waited for when the block raises, which may be for a signal.
    """
    background = BackgroundSink(sink)
    try:
        yield background
        background.flush()
    finally:
        background.stop()
