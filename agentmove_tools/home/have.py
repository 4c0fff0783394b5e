"""What a receiver holds, and what a sender must say of it (Move Stream, sections 3 and 4)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentmove_tools.disk.folders import open_below
from agentmove_tools.home.digests import Refresh
from agentmove_tools.home.index import DIGEST, UNKNOWN, Index, IndexWriter
from agentmove_tools.home.layout import CONVERSATIONS, FILES, MEMORY
from agentmove_tools.home.recovery import finish_interrupted
from agentmove_tools.home.state import HOME_INDEX, STAGED, STAGED_INDEX, TREE, HomePlace
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.have import render_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentmove_tools.disk.walk import Folder


class Holdings:
    """The digests of what a Home holds, through the index, which each use brings up to date.

    ``state`` is the open working state, or None where there is none: then nothing is remembered.
    ``unreadable`` names what had to be left out; ``index`` is the newest index.
    """

    def __init__(self, state: int | None) -> None:
        self._state = state
        self.unreadable: list[bytes] = []
        self.index = Index(None, b"")

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def refresh(
        self,
        root: int,
        name: bytes,
        *tops: bytes,
        leave_out: Callable[[bytes], bool] | None = None,
    ) -> Iterator[tuple[Folder, bytearray, Iterator[bytes]]]:
        """Each folder at and below ``tops``: digests, rows of ``have``; and make a new index.

        ``name`` is the index's. Raises ``OSError``, and ``Refusal`` (home-path).
        """
        old = Index(self._state, name)
        try:
            writer = IndexWriter(self._state, name)
        except OSError:
            writer = IndexWriter(None, name)  # no room or no right to remember: it works without
        kept = False
        try:
            refresh = Refresh(root, old, writer, leave_out=leave_out)
            yield from refresh.folders(*tops)
            self.index.adopt(writer.keep())
            kept = True
            self.unreadable += refresh.unreadable
        finally:
            old.close()
            if not kept:
                writer.drop()

    def have(self, home: int | None) -> Iterator[bytes]:
        """The rows of ``have``, what is staged first.

        ``home`` is the open Home, None where there is none. Raises ``OSError``, ``Refusal``
        (home-path).
        """
        tops = (FILES, MEMORY, CONVERSATIONS)
        staged: set[bytes] = set()
        if self._state is not None:
            try:
                tree = open_below(self._state, STAGED + b"/" + TREE)
            except (FileNotFoundError, NotADirectoryError):
                pass
            else:
                try:
                    for folder, digests, rows in self.refresh(tree, STAGED_INDEX, *tops):
                        staged.update(path for path, _ in _known(folder, digests))
                        yield from rows
                finally:
                    os.close(tree)
        if home is None:
            return
        for folder, digests, rows in self.refresh(home, HOME_INDEX, *tops):
            if not staged:
                yield from rows
                continue
            for path, digest in _known(folder, digests):
                if path not in staged:
                    above, _, name = path.rpartition(b"/")
                    yield render_rows(above, (name,), digest)


def _known(folder: Folder, digests: bytearray) -> Iterator[tuple[bytes, bytes]]:
    prefix = folder.path + b"/"
    data = bytes(digests)
    for at, name in enumerate(folder.files):
        digest = data[at * DIGEST : (at + 1) * DIGEST]
        if digest != UNKNOWN:
            yield prefix + name, digest


def holdings_of(home: bytes, unreadable: Callable[[bytes], None]) -> Iterator[bytes]:
    """The rows of ``have`` for all that a Home and its staged copy hold (section 4).

    ``unreadable`` is told the paths that had to be left out. Raises ``OSError``, ``Refusal``
    (home-path, home-busy) and ``MachineError``.
    """
    place = HomePlace(home)
    finish_interrupted(place)
    place = HomePlace(home)
    state = place.state_for_index() if place.exists else place.open_state(make=False)
    root = place.open() if place.exists else None
    holdings = Holdings(state)
    try:
        yield from holdings.have(root)
        if root is not None and not place.is_home(root):
            raise Refusal("home-busy", "a move was put in place meanwhile", place=place.shown)
        for path in holdings.unreadable:
            unreadable(path)
    finally:
        holdings.close()
        for fd in (state, root):
            if fd is not None:
                os.close(fd)
