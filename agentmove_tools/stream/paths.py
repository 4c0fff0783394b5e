"""The rules for the paths and links of a stream (Move Stream, section 2).

Paths are bytes, relative, with no slash at the end. Every check raises ``Refusal`` and gives
nothing back, so that none can be forgotten.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from agentmove_tools.refusals import Refusal, UsageError

Phase: TypeAlias = Literal["copy", "switch", "files"]
Collection: TypeAlias = Literal["instructions", "skills", "notes", "jobs", "conversations"]

FILE: Final = "file"
FOLDER: Final = "folder"
LINK: Final = "link"
IMPLIED: Final = "implied"  # a folder that the stream has something in and has not listed

MANIFEST_NAME: Final = b"lnk-move-4.json"
END_NAME: Final = b"lnk-move-4.end"
MAX_PATH: Final = 4096

PHASES: Final[tuple[Phase, ...]] = ("copy", "switch", "files")
COLLECTIONS: Final[tuple[Collection, ...]] = (
    "instructions",
    "skills",
    "notes",
    "jobs",
    "conversations",
)
FOLDERS: Final[dict[Phase, frozenset[bytes]]] = {
    "copy": frozenset((b"files", b"memory", b"harness")),
    "switch": frozenset((b"files", b"memory", b"harness", b"connections", b"schedule")),
    "files": frozenset((b"files",)),
}

_PLACES: Final = (b"waiting", b"firing", b"ending")
_NOT_PLAIN: Final = (b"", b".", b"..")


def check_plain(path: bytes) -> None:
    """Refuse (entry-path) a path that is not plain: see section 2, Paths."""
    if len(path) > MAX_PATH:
        raise Refusal("entry-path", f"it has {len(path)} bytes", path=path[:80] + b"...")
    try:
        path.decode()
    except UnicodeDecodeError:
        raise Refusal("entry-path", "it is not UTF-8", path=path) from None
    if b"\0" in path:
        raise Refusal("entry-path", "there is a NUL in it", path=path)
    for name in path.split(b"/"):
        if name in _NOT_PLAIN:
            seen = f"a component is {name.decode()!r}" if name else "a component is empty"
            raise Refusal("entry-path", seen, path=path)


def check_folder(path: bytes, phase: Phase, kind: str) -> None:
    """Refuse a path under no folder of the phase (entry-folder).

    A file in the place of such a folder is no path for a file (entry-path); a link there leaves
    its folder (entry-link).
    """
    top, slash, _ = path.partition(b"/")
    if top not in FOLDERS[phase]:
        allowed = ", ".join(sorted(name.decode() + "/" for name in FOLDERS[phase]))
        raise Refusal("entry-folder", f"a {phase} has {allowed}", path=path)
    if not slash and kind == FILE:
        raise Refusal("entry-path", "a folder's bare name is none for a file", path=path)


def check_place(path: bytes, kind: str) -> None:
    """Refuse (schedule-place) what lies in no place that a schedule has (section 6).

    Only for paths at or under ``schedule``.
    """
    parts = path.split(b"/")
    if kind == FOLDER:
        good = len(parts) == 1 or (len(parts) == 2 and parts[1] in _PLACES)
    elif len(parts) == 2:
        good = parts[1] == b"day.json"
    else:
        good = (
            len(parts) == 3
            and parts[1] in _PLACES
            and parts[2].endswith(b".json")
            and parts[2] != b".json"
        )
    if not good:
        raise Refusal("schedule-place", path=path)


def check_link(path: bytes, target: bytes) -> None:
    """Refuse (entry-link) a link that leaves the folder it may point around in (section 2, Links).

    That folder is ``files/``, its memory engine's or its skill's.
    """
    parts = path.split(b"/")
    if parts[0] == b"files":
        top = 1
    elif parts[0] == b"memory":
        top = 2
    elif parts[:2] == [b"harness", b"skills"]:
        top = 3
    else:
        raise Refusal("entry-link", "a link cannot stand here", path=path)
    if len(parts) <= top:
        raise Refusal("entry-link", "a link cannot stand here", path=path)
    shown = target.decode("utf-8", "backslashreplace")
    if not target or target.startswith(b"/"):
        raise Refusal("entry-link", f"the target {shown!r} is not relative", path=path)
    check_target(path, target)
    names = target.split(b"/")
    ups = 0
    while ups < len(names) and names[ups] == b"..":
        ups += 1
    if b".." in names[ups:]:
        raise Refusal("entry-link", f"the target {shown!r} has .. in its middle", path=path)
    if ups > len(parts) - 1 - top:
        raise Refusal("entry-link", f"the target {shown!r} climbs out", path=path)


def check_any_link(path: bytes, target: bytes) -> None:
    """As ``check_link`` where links may point anywhere (``--links any``).

    They still stand only where an agent may have links at all: not in place of a top folder, of
    the notes or a job, say, whose form would then be anything.
    """
    parts = path.split(b"/")
    allowed = (
        parts[0] in (b"files", b"memory") and len(parts) > 1 and path != b"memory/notes.md"
    ) or (parts[:2] == [b"harness", b"skills"] and len(parts) > 2)
    if not allowed:
        raise Refusal("entry-link", "a link cannot stand here", path=path)
    check_target(path, target)


def check_target(path: bytes, target: bytes) -> None:
    """Refuse (entry-link) a target that no link can have: too long, not UTF-8, empty."""
    if not target or len(target) > MAX_PATH or b"\0" in target:
        raise Refusal("entry-link", "its target is empty or too long", path=path)
    try:
        target.decode()
    except UnicodeDecodeError:
        raise Refusal("entry-link", "its target is not UTF-8", path=path) from None


def check_links_option(value: str) -> bool:
    """Whether ``--links`` says that any link is taken. Raises ``UsageError``."""
    if value not in ("inside", "any"):
        msg = "--links is inside or any"
        raise UsageError(msg)
    return value == "any"


class Seen:
    """The paths of a stream so far: none twice, and nothing under a file or a link (section 2).

    For a file its digest is kept with it. A long path is kept by a hash, so that hostile names cost
    no more memory than others.
    """

    __slots__ = ("_known", "_last")

    def __init__(self) -> None:
        self._known: dict[bytes, str | bytes] = {}
        self._last = b""  # the folder of the path before: most share it

    def __len__(self) -> int:
        return len(self._known)

    def add(self, path: bytes, kind: str, digest: bytes | None = None) -> None:
        """Add a path. Raises ``Refusal`` (entry-duplicate, entry-parent)."""
        key = path if len(path) <= _LONG else _short(path)
        known = self._known
        before = known.get(key)
        if before is not None and not (before is IMPLIED and kind is FOLDER):
            if before in (FOLDER, IMPLIED) and kind is not FOLDER:
                raise Refusal("entry-parent", "it replaces a folder", path=path)
            raise Refusal("entry-duplicate", path=path)
        above = path.rpartition(b"/")[0]
        if above != self._last:
            self._imply(above, path)
            self._last = above
        known[key] = kind if digest is None else digest

    def _imply(self, folder: bytes, path: bytes) -> None:
        known = self._known
        while folder:
            key = folder if len(folder) <= _LONG else _short(folder)
            kind = known.get(key)
            if kind is None:
                known[key] = IMPLIED
            elif kind is IMPLIED or kind is FOLDER:
                return
            else:
                what = "link" if kind is LINK else "file"
                shown = folder.decode("utf-8", "backslashreplace")
                raise Refusal("entry-parent", f"{shown} is a {what}", path=path)
            folder = folder.rpartition(b"/")[0]

    def kind_of(self, path: bytes) -> str | None:
        """FILE, FOLDER, LINK or IMPLIED; None for a path that was not there."""
        found = self._known.get(path if len(path) <= _LONG else _short(path))
        return FILE if isinstance(found, bytes) else found

    def digest_of(self, path: bytes) -> bytes | None:
        """The SHA-256 of a file that was there."""
        found = self._known.get(path if len(path) <= _LONG else _short(path))
        return found if isinstance(found, bytes) else None


_LONG: Final = 96


def _short(path: bytes) -> bytes:
    from hashlib import blake2b  # noqa: PLC0415 - most streams have no such path

    # No path starts with a slash, so this is none.
    return b"/" + blake2b(path, digest_size=32).digest()
