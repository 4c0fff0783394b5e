"""What happens in a Home while a sender reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agentmove_tools.home.snapshot import Snapshot, SnapshotReader


@contextmanager
def meanwhile(action: Callable[[int], object]) -> Iterator[None]:
    """Do ``action(0)``, ``action(1)``, ... in a thread all the while, once before it at least."""
    stop = threading.Event()
    begun = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            action(number)
            begun.set()
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def just_before_reading(
    monkeypatch: pytest.MonkeyPatch, path: bytes, action: Callable[[], object]
) -> None:
    """Let ``action`` happen after the sender saw the file's name and before it opens it."""
    real = SnapshotReader.read

    def read(
        self: SnapshotReader, folder: int, name: bytes, path_: bytes, known: None = None
    ) -> Snapshot | None:
        if path_ == path:
            action()
        return real(self, folder, name, path_, known)

    monkeypatch.setattr(SnapshotReader, "read", read)
