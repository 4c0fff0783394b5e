"""Progress on standard error: bytes, files and rate, only where somebody sees it."""

from __future__ import annotations

import os
import threading
from typing import Any, Final, Self

from agentmove_tools.cli.terminal import is_terminal
from agentmove_tools.streams import ByteSink, ByteSource

_STDERR: Final = 2
_QUIET_SECONDS: Final = 0.5  # shorter work shows nothing, and does not wait for rich to load
_TICK_SECONDS: Final = 0.2


class Meter:
    """Counts what passes. ``bytes`` and ``files`` may be added to by the tool as well.

    ``total`` is the length in bytes of all there will be, None when it is not known.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.files = 0
        self.total: int | None = None

    def watch(self, source: ByteSource) -> ByteSource:
        """Give the source back, with what is read from it counted when that is shown."""
        return source

    def watch_sink(self, sink: ByteSink) -> ByteSink:
        """Give the sink back, with what is written to it counted when that is shown."""
        return sink

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def progress(name: str, quiet: bool = False) -> Meter:
    """Give a meter to use in a ``with``: one that shows itself if standard error is a terminal."""
    if quiet or os.environ.get("TERM", "dumb") == "dumb" or not is_terminal(_STDERR):
        return Meter()
    return _ShownMeter(name)


class _ShownMeter(Meter):
    """Shows itself from a thread, which the work never waits for."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def watch(self, source: ByteSource) -> ByteSource:
        return _WatchedSource(source, self)

    def watch_sink(self, sink: ByteSink) -> ByteSink:
        return _WatchedSink(sink, self)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _show(self) -> None:
        if self._done.wait(_QUIET_SECONDS):
            return
        try:
            terminal = os.open(os.ttyname(_STDERR), os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if self._wait_for_turn(terminal):
                self._draw()
        except OSError:
            pass  # the terminal went away: the work goes on
        finally:
            os.close(terminal)

    def _wait_for_turn(self, terminal: int) -> bool:
        """Wait until no other tool of the pipeline draws on this terminal; False: done before."""
        import fcntl  # noqa: PLC0415  (long work only)

        while True:
            try:
                fcntl.flock(terminal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._done.wait(_TICK_SECONDS):
                    return False
            else:
                return True

    def _draw(self) -> None:
        from rich.console import Console  # noqa: PLC0415  (60 ms, and only for long work)
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TransferSpeedColumn,
        )

        columns: list[Any] = [TextColumn(self._name, markup=False), DownloadColumn()]
        columns += [TransferSpeedColumn(), TextColumn("{task.fields[files]}", markup=False)]
        if self.total is not None:
            columns.insert(1, BarColumn())
        console = Console(stderr=True)
        shown = Progress(*columns, console=console, auto_refresh=False, transient=True)
        with shown:
            task = shown.add_task("", total=self.total, files="")
            while True:
                files = f"{self.files} files" if self.files else ""
                shown.update(task, completed=self.bytes, files=files)
                shown.refresh()
                if self._done.wait(_TICK_SECONDS):
                    return


class _WatchedSource:
    def __init__(self, source: ByteSource, meter: Meter) -> None:
        self._source = source
        self._meter = meter

    def readinto(self, buffer: memoryview | bytearray, /) -> int | None:
        count = self._source.readinto(buffer)
        self._meter.bytes += count or 0
        return count


class _WatchedSink:
    def __init__(self, sink: ByteSink, meter: Meter) -> None:
        self._sink = sink
        self._meter = meter

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        count = self._sink.write(data)
        self._meter.bytes += count
        return count
