"""The contract by which a collection is read from one store and written to another (section 1).

The collections are instructions, skills, notes, jobs and conversations. A store that stands at
either end of a move is a ``CollectionSource`` or a ``CollectionReceiver``. There are two stores:
the folder (``FileSource`` and ``FileReceiver``) and the agent package (``bridge``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agentmove_tools.stream.paths import Collection
    from agentmove_tools.stream.tar_reader import Entry

NOTHING_HELD: Final[Mapping[bytes, bytes]] = {}


class Record:
    """One file, folder or link as a source hands it over.

    ``path``: its path in the stream. ``kind``: FILE, FOLDER or LINK. ``mode``: permission bits.
    ``mtime``: whole seconds since 1970. ``size``: bytes of content. ``digest``: its SHA-256, 32
    bytes, for a file. ``target``: for a link. ``content``: all of it, or pieces of it that come to
    ``size`` bytes; None where the other end holds it.
    """

    __slots__ = ("content", "digest", "kind", "mode", "mtime", "path", "size", "target")

    def __init__(
        self,
        path: bytes,
        kind: str,
        mode: int,
        mtime: int,
        size: int = 0,
        digest: bytes = b"",
        target: bytes = b"",
        content: bytes | Iterable[bytes | memoryview] | None = None,
    ) -> None:
        self.path = path
        self.kind = kind
        self.mode = mode
        self.mtime = mtime
        self.size = size
        self.digest = digest
        self.target = target
        self.content = content


class CollectionSource(Protocol):
    """A store that collections are read from."""

    def records(
        self, collection: Collection, held: Mapping[bytes, bytes] = NOTHING_HELD
    ) -> Iterator[Record]:
        """The collection's records, sorted by path bytes, in the one form where that applies.

        ``held`` is what the other end holds, digests by path: a file that is in it the same comes
        without content. Raises ``Refusal``, ``MachineError`` and ``OSError``.
        """


class MoveSource(CollectionSource, Protocol):
    """A store that a whole Move Stream is made of: collections, and what else it may carry.

    Each method gives records sorted by path bytes, and raises as ``records`` does.
    """

    def connections(self) -> Iterator[Record]:
        """The credentials."""

    def files(self, held: Mapping[bytes, bytes]) -> Iterator[Record]:
        """What lies under ``files/``."""

    def package(self) -> Iterator[Record]:
        """What came with an agent package and has no other place in a Home."""

    def memory(self, held: Mapping[bytes, bytes], *, notes: bool) -> Iterator[Record]:
        """What lies under ``memory/``, with the notes where asked for."""


class CollectionReceiver(Protocol):
    """A store that collections are written to. Nothing shows in it before ``complete``."""

    def receive(self, entry: Entry, content: Iterable[bytes | memoryview]) -> None:
        """Take one entry whose path is of a collection; ``content`` is checked as it is read.

        Raises ``Refusal``, ``MachineError`` and ``OSError``.
        """

    def complete(self, collections: Iterable[Collection]) -> None:
        """Put in place what was received, for the collections that the stream speaks for.

        Instructions, skills, notes and jobs become what was received; conversations grow by the
        events that they lack. Raises ``Refusal`` (conversation-diverged among them) and
        ``OSError``; then nothing has changed.
        """
