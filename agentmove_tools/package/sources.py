"""Where a package's files come from: an archive here, a folder in ``folder``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentmove_tools.package.layout import is_leftover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agentmove_tools.package.archive_reader import Archive


class Item(NamedTuple):
    """A file of a source. ``pieces`` gives its content, and again each time it is called."""

    path: str
    executable: bool
    size: int
    pieces: Callable[[], Iterable[bytes]]


class Source(Protocol):
    """What a package is read from.

    ``is_folder``: an agent's own folder, in which secrets have values, and in which names that
    differ only in case may stand side by side.
    """

    is_folder: bool

    def items(self) -> Sequence[Item]:
        """All files but those that were ``passed_over``. Raises ``Refusal`` and ``OSError``."""

    def passed_over(self) -> Sequence[str]:
        """What was not looked into: paths that a package has no place for; folders end in /."""


class MadeSource:
    """Files that were made here, out of a database or a stream; none of it was passed over."""

    is_folder = True  # names are checked, since no archive's reader has

    def __init__(self, items: list[Item]) -> None:
        self._items = items

    def items(self) -> list[Item]:
        """All of them."""
        return self._items

    def passed_over(self) -> list[str]:
        """Nothing."""
        return []


class ArchiveSource:
    """An archive's files; one top folder that all of them lie in is taken off."""

    is_folder = False

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._top = _top_folder(archive)

    def items(self) -> list[Item]:
        """All files of the archive."""
        cut = len(self._top)
        top = self._top
        archive = self._archive
        return [
            Item(
                entry.path[cut:] if cut and entry.path.startswith(top) else entry.path,
                entry.executable,
                entry.size,
                lambda entry=entry: archive.pieces(entry),  # type: ignore[misc]
            )
            for entry in archive.entries
            if not entry.is_folder
        ]

    def passed_over(self) -> list[str]:
        """Nothing: every entry of an archive is looked at."""
        return []


def _top_folder(archive: Archive) -> str:
    """The folder that everything lies in, with a / at its end; "" where there is none."""
    top = None
    for entry in archive.entries:
        first, slash, _ = entry.path.partition("/")
        if first == "__MACOSX" or is_leftover(entry.path) or not entry.path:
            continue
        if not slash and not entry.is_folder:
            return ""
        if top is None:
            top = first
        elif top != first:
            return ""
    return f"{top}/" if top else ""
