"""Known accidents that happen to a stream on its way, told by its bytes.

A hint says what most likely happened and what to do. It never decides whether a stream is taken,
and it shows none of the stream's bytes: they may be a secret.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

Expected: TypeAlias = Literal["sealed", "move", "package"]

_SEALED: Final = b"LNKSEAL1"
_ZIP: Final = b"PK\x03\x04"
_MANIFEST: Final = b"lnk-move-4.json"
_USTAR: Final = b"ustar"
_USTAR_AT: Final = 257  # where a tar header says that it is one
_TAR_BLOCK: Final = 512

_TERMINAL: Final = "its line ends were rewritten: it went through a terminal; use ssh -T"
_AS_TEXT: Final = "a program rewrote it as UTF-8 text: send it through one that leaves bytes alone"
_PACKAGE: Final = (
    "it is a ZIP archive, such as an agent package: agentfy-unpack makes a Move Stream of that"
)
_POWERSHELL: Final = "PowerShell's > rewrote it as text: use -o FILE, or run the pipe in cmd"

# What other files start with, and what to do about each.
_OTHERS: Final = (
    (b"\xff\xfe", _POWERSHELL),
    (b"\xfe\xff", _POWERSHELL),
    (b"\xef\xbb\xbf", _POWERSHELL),
    (b"\x1f\x8b", "it is compressed with gzip: put gzip -d before"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd: put zstd -d before"),
    (b"\xfd7zXZ\x00", "it is compressed with xz: put xz -d before"),
    (b"BZh", "it is compressed with bzip2: put bzip2 -d before"),
    (_ZIP, "it is a ZIP archive, such as an agent package: agentfy-verify reads that"),
    (b"age-encryption.org/", "it is encrypted with age: put age -d before"),
    (b"-----BEGIN AGE ENCRYPTED FILE-----", "it is encrypted with age: put age -d before"),
    (b"TE5LU0VBTDE", "it is a sealed envelope in base64: put base64 -d before"),
    (b"UEsDB", "it is a ZIP archive in base64: put base64 -d before"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive: unpack it, and pack it again as a ZIP"),
    (b"<!DOCTYPE html", "it is a web page, such as one that asks to log in"),
    (b"<html", "it is a web page, such as one that asks to log in"),
)
# The only line end in a Move Stream's first KiB may be the one behind its first hash.
_HASH_REWRITTEN: Final = re.compile(rb"LNK\.sha256=[0-9a-f]{64}\r\n")
_SECRET_NAME: Final = b"LNK-SECRET-KEY-1"


def hint_for(head: bytes, expected: Expected) -> str | None:
    """Tell what a stream is that is not what was ``expected``, by its first bytes.

    ``head`` is the stream's first few KiB, all of it if it is shorter. ``None``: nothing known.
    """
    if not head:
        return "nothing came: look whether the command before it failed"
    for start, hint in _OTHERS:
        if head.startswith(start) and not (start == _ZIP and expected == "package"):
            return _PACKAGE if start == _ZIP and expected == "move" else hint
    if _SECRET_NAME in head:
        return "it is an identity file: give it with lnk-unseal -i FILE"
    at = _AT[expected](head)
    if at > 0:
        return _before(head[:at])
    if at == 0:
        return hint_of_damage(head)
    return _other_kind(head, expected)


def hint_of_damage(sample: bytes) -> str | None:
    """Tell what rewrote binary data that does not check, by a piece of it.

    A few KiB are enough: in as many random bytes no line feed comes after a carriage return often.
    """
    feeds = sample.count(b"\n")
    rewritten = feeds >= 2 and feeds == sample.count(b"\r\n")
    if rewritten or _HASH_REWRITTEN.search(sample):
        return _TERMINAL
    if sample.count(b"\xef\xbf\xbd") >= 4:
        return _AS_TEXT
    return None


def _before(text: bytes) -> str:
    """Tell of what comes before the magic: how much it is, and where it may come from."""
    count = f"{len(text)} byte{'s' if len(text) != 1 else ''}"
    try:
        shown = text.decode()
    except UnicodeDecodeError:
        shown = "\0"
    if any(character < " " and character not in "\t\n\r\x1b" for character in shown):
        return f"{count} of something else come first: cut them off"
    return f"{count} of text come first: a login banner? (a shell's start files must print nothing)"


def _other_kind(head: bytes, expected: Expected) -> str | None:
    """Tell of this project's own kinds, and tar, where another kind was expected."""
    if expected == "package" and _move_at(head) == 0:
        return "it is a Move Stream: agentfy-pack makes an agent package of it"
    if expected == "sealed":
        if _move_at(head) == 0:
            return "it is a Move Stream that is not sealed: it needs no lnk-unseal"
        if _is_tar(head):
            return "it is a plain tar, not sealed"
    elif (at := _sealed_at(head)) == 0:
        return "it is sealed: put lnk-unseal -i FILE before"
    elif at > 0:
        return f"{_before(head[:at])}; and it is sealed: put lnk-unseal -i FILE before"
    elif _is_tar(head):
        if expected == "package":
            return "it is a tar: unpack it, and give the folder to agentfy-pack"
        return "it is a tar that lnk-tar-create did not make"
    if head.lstrip().startswith(b"{"):
        if expected == "move" and b'"format"' in head:
            return "it is a manifest: put lnk-tar-create HOME before"
        if expected == "package":
            return "it is JSON, as --report gives it in the package's place"
        return "it is JSON"
    return hint_of_damage(head)


def _sealed_at(head: bytes) -> int:
    """Where an envelope starts in ``head``, or -1."""
    return head.find(_SEALED)


def _move_at(head: bytes) -> int:
    """Where a Move Stream's tar starts in ``head``, or -1.

    Its first header is the manifest's, or that of the PAX header before it.
    """
    at = head.find(_USTAR) - _USTAR_AT
    if at >= 0 and _MANIFEST in head[at : at + 4 * _TAR_BLOCK]:
        return at
    return -1


def _zip_at(head: bytes) -> int:
    """Where a ZIP archive starts in ``head``, or -1."""
    return -1 if _is_tar(head) or head.startswith(_SEALED) else head.find(_ZIP)


def _is_tar(head: bytes) -> bool:
    return head[_USTAR_AT : _USTAR_AT + len(_USTAR)] == _USTAR


_AT: Final = {"sealed": _sealed_at, "move": _move_at, "package": _zip_at}
