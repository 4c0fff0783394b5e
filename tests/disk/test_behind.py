from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, NamedTuple

import pytest

from agentmove_tools.disk.behind import WriteBehind


class Entry(NamedTuple):
    path: bytes = b"a"
    kind: str = "file"
    mode: int = 0o644
    mtime: int | None = None
    size: int = 1
    target: bytes | None = None


class SlowStage:
    """Writes one entry when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.written = 0

    def put(self, *_: object, mode: int | None) -> None:  # noqa: ARG002 (a Stage's)
        self.let.wait(30)
        self.written += 1


class Stopped(BaseException):
    pass


def test_a_signal_while_it_stops_does_not_let_the_thread_go_on_alone() -> None:
    """What is removed after the second call must not be written again."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    stage: Any = SlowStage()
    behind = WriteBehind(stage)
    behind.put(Entry(), (b"x",), None)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Stopped):
            behind.stop()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert stage.written == 0
    threading.Timer(0.2, stage.let.set).start()
    behind.stop()
    assert stage.written == 1
