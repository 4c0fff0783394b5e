"""Files of a package as they are staged: their modes, and contents that are held or not."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.stream.paths import FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentmove_tools.package.contents import File
    from agentmove_tools.package.layout import Part

HELD: Final = 1 << 20  # bytes up to which a content is held whole
_PRIVATE: Final[tuple[Part, ...]] = ("secrets", "browser-state")


class StagedFile(NamedTuple):
    """A file as ``Stage`` takes it; written now, so it has the time of now."""

    path: bytes
    mode: int
    size: int = 0
    kind: str = FILE
    mtime: int | None = None
    target: bytes | None = None


def hold(content: Iterable[bytes]) -> tuple[list[bytes], Iterator[bytes] | None]:
    """All of a small content, or its start and the rest."""
    if isinstance(content, tuple):
        return list(content), None
    pieces = iter(content)
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > HELD:
            return held, pieces
    return held, None


def mode_of(file: File, own: os.stat_result | None, umask_less: int) -> int:
    """The permission bits of a file: those it has; of an asset the x bits are the package's."""
    if file.part in _PRIVATE:
        return 0o600 if own is None else stat.S_IMODE(own.st_mode)
    if own is None or file.part == "asset":
        plain = 0o755 if file.executable else 0o644
        if own is None:
            return plain & umask_less
        mode = stat.S_IMODE(own.st_mode)
        if (mode & 0o111 != 0) == file.executable:
            return mode
        readable = (mode & 0o444) >> 2
        return mode | readable if file.executable else mode & ~0o111
    return stat.S_IMODE(own.st_mode)


def less_umask() -> int:
    """A mask of the permission bits that the user wants new files to have."""
    umask = os.umask(0o077)
    os.umask(umask)
    return ~umask
