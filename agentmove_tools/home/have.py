"""What a receiver holds, and what a sender must say of it (Move Stream, sections 3 and 4)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentmove_tools.home.digests import Refresh
from agentmove_tools.home.folders import open_below
from agentmove_tools.home.index import DIGEST, UNKNOWN, Index, IndexWriter
from agentmove_tools.home.layout import CONVERSATIONS, FILES, MEMORY
from agentmove_tools.home.recovery import finish_interrupted
from agentmove_tools.home.state import HOME_INDEX, STAGED, STAGED_INDEX, TREE, HomePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentmove_tools.home.walk import Folder


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
    ) -> Iterator[tuple[Folder, bytes]]:
        """Each folder at and below ``tops`` with the digests of its files, and a new index.

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
            for folder, digests in refresh.folders(*tops):
                folder.digests = bytes(digests)
                yield folder, folder.digests
            self.index.adopt(writer.keep())
            kept = True
            self.unreadable += refresh.unreadable
        finally:
            old.close()
            if not kept:
                writer.drop()

    def have(self, home: int | None) -> Iterator[tuple[bytes, bytes]]:
        """The path and digest of all that counts for ``have``, what is staged first.

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
                    for path, digest in _rows(self.refresh(tree, STAGED_INDEX, *tops)):
                        staged.add(path)
                        yield path, digest
                finally:
                    os.close(tree)
        if home is not None:
            rows = _rows(self.refresh(home, HOME_INDEX, *tops))
            if staged:
                yield from (row for row in rows if row[0] not in staged)
            else:
                yield from rows


def _rows(folders: Iterator[tuple[Folder, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for folder, digests in folders:
        prefix = folder.path + b"/"
        at = 0
        for name in folder.files:
            digest = digests[at : at + DIGEST]
            at += DIGEST
            if digest != UNKNOWN:
                yield prefix + name, digest


def holdings_of(
    home: bytes, unreadable: Callable[[bytes], None]
) -> Iterator[tuple[bytes, bytes]]:
    """The path and digest of all that a Home and its staged copy hold (section 4).

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
        for path in holdings.unreadable:
            unreadable(path)
    finally:
        holdings.close()
        for fd in (state, root):
            if fd is not None:
                os.close(fd)
