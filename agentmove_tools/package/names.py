"""Paths in a package: which are plain, and which would meet on a disk (section 2)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, TypeAlias

from agentmove_tools.package.limits import MAX_FOLDERS, MAX_PATH
from agentmove_tools.refusals import Refusal

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_MOST_BYTES: Final = 4  # of a character in UTF-8
_SHORT: Final = 256  # folders of longer paths are looked up part by part, which needs no memory
_SHOWN: Final = 64  # characters of a name that is kept as it is
_ROOT: Final = 0

_Short: TypeAlias = str | int


def composed(name: str) -> str:
    """The name in Unicode's composed form (NFC); macOS hands names out decomposed."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def caseless(name: str) -> str:
    """What two names share that a disk may take for one: case and Unicode form are folded."""
    if name.isascii():
        return name.lower()
    folded = unicodedata.normalize("NFD", name).casefold()
    return unicodedata.normalize("NFC", folded)


def check_path(path: str) -> None:
    """Raise ``Refusal`` (package-path) unless the path is plain and stays in the folder.

    ``path`` has no slash at its end.
    """
    why = _wrong_with(path)
    if why is not None:
        raise Refusal("package-path", why, path=path.encode("utf-8", "surrogateescape"))


def _wrong_with(path: str) -> str | None:
    if _is_plain(path):
        return None
    if "\0" in path:
        return "it holds a NUL"
    if "\\" in path:
        return "it holds a \\: rename it"
    if path.startswith("/"):
        return "it is absolute"
    if _DRIVE.match(path):
        return "it names a drive"
    if len(path.encode("utf-8", "surrogateescape")) > MAX_PATH:
        return f"it is longer than {MAX_PATH} bytes"
    for name in path.split("/"):
        if name in ("", ".", ".."):
            return f"a part of it is {name}" if name else "a part of it is empty"
    return None


def _is_plain(path: str) -> bool:
    """Whether nothing in it needs a closer look; of nearly every path that is so."""
    return (
        "\\" not in path
        and "\0" not in path
        and "//" not in path
        and "/." not in path
        and path[:1] not in "./"  # nor empty
        and path[1:2] != ":"
        and path[-1] != "/"
        and len(path) <= MAX_PATH // _MOST_BYTES
    )


class Paths:
    """The paths of one package as they are found: each once, and no file where a folder must be.

    Folders that are there only because something lies in them count too. Two folders whose names
    differ only in case or Unicode form would be one on some disks, and are refused as files are.
    """

    def __init__(self) -> None:
        # (number of the folder above, caseless name) -> the name as it came, its folder's number
        self._known: dict[tuple[int, _Short], tuple[_Short, int]] = {}
        self._said: set[int] = set()  # folders that were named themselves
        self._numbers: dict[str, int] = {"": _ROOT}  # of folders, by path as it came
        self.folders = 0

    def add(self, path: str, *, is_folder: bool) -> None:
        """Take one more path. Raises ``Refusal`` (package-duplicate, -type, -entries)."""
        above, _, name = path.rpartition("/")
        number = self._numbers.get(above)
        if number is None:
            number = self._add_folders(above, path)
        if is_folder:
            own = self._add_folder(number, name, path)
            if own in self._said:
                raise _refusal("package-duplicate", path)
            self._said.add(own)
            return
        key = (number, _short(name.lower() if name.isascii() else caseless(name)))
        known = self._known.get(key)
        if known is None:
            self._known[key] = (_short(name), -1)
        elif known[1] >= 0 and known[0] == _short(name):
            raise _refusal("package-type", path, "a file and a folder of this path")
        else:
            raise _refusal("package-duplicate", path, _other(known[0], name))

    def _add_folders(self, path: str, wanted_by: str) -> int:
        number = _ROOT
        for name in path.split("/"):
            number = self._add_folder(number, name, wanted_by)
        if len(path) <= _SHORT:
            self._numbers[path] = number
        return number

    def _add_folder(self, above: int, name: str, path: str) -> int:
        key = (above, _short(caseless(name)))
        known = self._known.get(key)
        if known is None:
            self.folders += 1
            if self.folders > MAX_FOLDERS:
                why = f"there are more than {MAX_FOLDERS} folders"
                raise _refusal("package-entries", path, why)
            self._known[key] = (_short(name), self.folders)
            return self.folders
        if known[0] != _short(name):
            raise _refusal("package-duplicate", path, _other(known[0], name))
        if known[1] < 0:
            raise _refusal("package-type", path, f"{name!r} is a file, and something lies in it")
        return known[1]


def _short(name: str) -> _Short:
    """A long name as its hash: there may be 20 000 of them."""
    return name if len(name) <= _SHOWN else hash(name)


def _other(known: _Short, name: str) -> str:
    if known == _short(name):
        return ""
    return f"{known!r} is there too" if isinstance(known, str) else "another such name is there too"


def _refusal(code: str, path: str, why: str = "") -> Refusal:
    return Refusal(code, why, path=path.encode("utf-8", "surrogateescape"))
