"""Writing a Move Stream: ustar with PAX headers (Move Stream, section 2)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from zlib import adler32

from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.paths import (
    END_NAME,
    FILE,
    FOLDER,
    LINK,
    MANIFEST_NAME,
    check_any_link,
    check_folder,
    check_link,
    check_place,
    check_plain,
)
from agentmove_tools.stream.pax import pax_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentmove_tools.stream.manifest import Manifest
    from agentmove_tools.streams import ByteSink

BLOCK: Final = 512
RECORD: Final = 20 * BLOCK  # what tar pads a whole archive to

_ZEROS: Final = bytes(BLOCK)
_AT_ONCE: Final = 1 << 20
_LARGEST_OCTAL: Final = 8**11 - 1
_OWNER: Final = b"0000000\0" * 2  # user and group: nobody's in particular
_TAIL: Final = b"ustar\x0000" + bytes(64) + b"0000000\0" * 2 + bytes(167)
_PAX_NAME: Final = b"PaxHeaders/lnk"
_TYPES: Final = {FILE: b"0", LINK: b"2", FOLDER: b"5"}


def _header(name: bytes, kind: bytes, mode: int, size: int, mtime: int, target: bytes) -> bytes:
    """One header block; name and target of at most 100 bytes, numbers that fit."""
    start = b"%b%07o\0%b%011o\0%011o\0" % (name.ljust(100, b"\0"), mode, _OWNER, size, mtime)
    end = kind + target.ljust(100, b"\0") + _TAIL
    # Each sum of up to 256 bytes is the low half of its Adler-32, less the 1 that it starts with.
    total = (
        (adler32(start) & 0xFFFF)
        + (adler32(end[:128]) & 0xFFFF)
        + (adler32(end[128:]) & 0xFFFF)
        - 3
        + 8 * 32
    )
    return b"%b%06o\0 %b" % (start, total, end)


_FILE_END: Final = b"0" + bytes(100) + _TAIL
_FILE_SUM: Final = sum(_FILE_END) - 1 + 8 * 32
_PAX_WITH_HASH: Final = _header(_PAX_NAME, b"x", 0o644, 79, 0, b"") + b"79 LNK.sha256="
_ONE_HASH_BYTES: Final = 79
_AFTER_HASH: Final = b"\n" + bytes(BLOCK - _ONE_HASH_BYTES)
_SHORT: Final = 1024
_DIGEST: Final = 32
_NOT_NAMES: Final = (b"", b".", b"..")


def _record(key: bytes, value: bytes) -> bytes:
    """A PAX record, whose length counts its own digits."""
    length = len(key) + len(value) + 3
    total = length + len(str(length))
    total = length + len(str(total))
    return b"%d %b=%b\n" % (total, key, value)


def _pax(records: bytes, name: bytes) -> bytes:
    header = _header(name, b"x", 0o644, len(records), 0, b"")
    return header + records + _ZEROS[: -len(records) % BLOCK]


class MoveWriter:
    """Writes one Move Stream to ``sink``, in pieces of about 1 MiB.

    It refuses what the reader refuses. After any error, and after its end, it is unusable: every
    later call raises ``MachineError``, so a stream that went wrong never gets an end. Entries out
    of order are a ``ValueError``: they are the caller's mistake.
    """

    def __init__(self, sink: ByteSink, manifest: Manifest, *, any_links: bool = False) -> None:
        self._sink = sink
        self._phase = manifest.phase
        self._any_links = any_links
        self._good_folder = b"/"  # whose path was checked with the entry before
        self._leaves: list[bytes] = []  # files and links that a next path may lie under
        self._last = b""
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._broken = False  # True on the way through every call: what raises leaves it so
        self._written = 0
        self._guarded(MANIFEST_NAME, manifest.to_json())

    def folder(self, path: bytes, mode: int, mtime: int) -> None:
        """Write a folder's entry: permission bits, and seconds since 1970. Raises ``Refusal``."""
        self._check(path, FOLDER)
        self._add(self._headers(path, FOLDER, mode, 0, mtime, b"", b""))
        self._broken = False

    def link(self, path: bytes, target: bytes, mtime: int) -> None:
        """Write a symbolic link's entry. Raises ``Refusal``."""
        self._check(path, LINK)
        if self._any_links:
            check_any_link(path, target)
        else:
            check_link(path, target)
        self._add(self._headers(path, LINK, 0o777, 0, mtime, target, b""))
        self._broken = False

    def file(self, path: bytes, mode: int, mtime: int, content: bytes, digest: bytes) -> None:
        """Write a file whose content is in memory; ``digest`` is its SHA-256.

        The content is not hashed again: the caller just did. Raises ``Refusal``, and what the
        sink raises.
        """
        self._check(path, FILE)
        self._check_hash(path, digest)
        if path.startswith(b"schedule/"):
            self._check_schedule_size(path, len(content))
            self._check_schedule(path, content)
        self._file(path, mode, mtime, content, digest)
        self._broken = False

    def file_chunks(
        self,
        path: bytes,
        mode: int,
        mtime: int,
        size: int,
        digest: bytes,
        chunks: Iterable[bytes | memoryview],
    ) -> None:
        """Write a file piece by piece; ``size`` bytes and ``digest`` were promised.

        Raises ``Refusal``, what the sink and ``chunks`` raise, and ``MachineError`` when it turns
        out to be another content: it changed meanwhile.
        """
        self._check(path, FILE)
        self._check_hash(path, digest)
        scheduled = path.startswith(b"schedule/")
        if scheduled:
            self._check_schedule_size(path, size)
        else:
            self._add(self._headers(path, FILE, mode, size, mtime, b"", digest))
            self._flush()
        held: list[bytes] = []  # of a file that is looked into before any of it is written
        seen = hashlib.sha256()
        count = 0
        for chunk in chunks:
            count += len(chunk)
            if count > size:
                break
            seen.update(chunk)
            if scheduled:
                held.append(bytes(chunk))
            else:
                self._sink.write(chunk)
        if count != size or seen.digest() != digest:
            msg = "it changed while it was sent: stop the agent first"
            raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))
        if scheduled:
            content = b"".join(held)
            self._check_schedule(path, content)
            self._file(path, mode, mtime, content, digest)
        else:
            self._written += size
            self._add(_ZEROS[: -size % BLOCK])
        self._broken = False

    def end(self) -> None:
        """Write the end, and all that was still held. Raises what the sink raises."""
        self._start()
        self._guarded(END_NAME, b"")
        blocks = 2 * BLOCK
        self._add(bytes(blocks + -(self._written + self._waiting + blocks) % RECORD))
        self._flush()

    def _start(self) -> None:
        """Begin a call; the writer is usable again only when it sets ``_broken`` back."""
        if self._broken:
            msg = "this stream has its end, or went wrong before: nothing more can be written to it"
            raise MachineError(msg)
        self._broken = True

    def _check(self, path: bytes, kind: str) -> None:
        self._start()
        if path <= self._last:
            msg = f"entries are to be sorted, and {path!r} comes after {self._last!r}"
            raise ValueError(msg)
        self._last = path
        above, _, name = path.rpartition(b"/")
        if (
            above != self._good_folder
            or len(path) > _SHORT
            or name in _NOT_NAMES
            or b"\0" in name
            or not name.isascii()
        ):
            check_plain(path)
            check_folder(path, self._phase, kind)
            if path.startswith(b"schedule"):
                check_place(path, kind)
            elif above:
                self._good_folder = above
        self._check_parents(path, kind)

    def _check_hash(self, path: bytes, digest: bytes) -> None:
        if len(digest) != _DIGEST:
            raise Refusal("hash-missing", path=path)

    def _check_schedule_size(self, path: bytes, size: int) -> None:
        from agentmove_tools.stream.schedule import (  # noqa: PLC0415 - few streams have any
            check_schedule_size,
        )

        check_schedule_size(path, size)

    def _check_schedule(self, path: bytes, content: bytes) -> None:
        from agentmove_tools.stream.schedule import (  # noqa: PLC0415 - few streams have any
            check_schedule_file,
        )

        check_schedule_file(path, content)

    def _check_parents(self, path: bytes, kind: str) -> None:
        """Refuse what lies under a file or a link.

        Paths are sorted, so all that start with a file's path come right after it: only those
        files count whose path the last one started with.
        """
        leaves = self._leaves
        while leaves and not path.startswith(leaves[-1]):
            leaves.pop()
        for leaf in leaves:
            if path.startswith(leaf + b"/"):
                shown = leaf.decode("utf-8", "backslashreplace")
                raise Refusal("entry-parent", f"{shown} is a file or a link", path=path)
        if kind is not FOLDER:
            leaves.append(path)

    def _guarded(self, name: bytes, content: bytes) -> None:
        """Write the manifest or the end, whose hash a reader could do without."""
        records = b"79 LNK.sha256=%b\n" % hashlib.sha256(content).hexdigest().encode()
        header = _header(name, b"0", 0o644, len(content), 0, b"")
        padding = _ZEROS[: -len(content) % BLOCK]
        self._add(_pax(records, pax_name(records)) + header + content + padding)

    def _file(self, path: bytes, mode: int, mtime: int, content: bytes, digest: bytes) -> None:
        size = len(content)
        if size > _AT_ONCE:
            self._add(self._headers(path, FILE, mode, size, mtime, b"", digest))
            self._flush()
            self._write(content)
            self._add(_ZEROS[: -size % BLOCK])
            return
        if len(path) <= 100 and 0 <= mtime <= _LARGEST_OCTAL and path.isascii():
            # What nearly every file is: one record, and a header that differs in few places.
            start = b"%b%07o\0%b%011o\0%011o\0" % (
                path.ljust(100, b"\0"),
                mode & 0o777,
                _OWNER,
                size,
                mtime,
            )
            self._pieces += (
                _PAX_WITH_HASH,
                digest.hex().encode(),
                _AFTER_HASH,
                start,
                b"%06o\0 " % ((adler32(start) & 0xFFFF) + _FILE_SUM),
                _FILE_END,
                content,
                _ZEROS[: -size % BLOCK],
            )
            self._waiting += 3 * BLOCK + size + -size % BLOCK
            if self._waiting >= _AT_ONCE:
                self._flush()
            return
        headers = self._headers(path, FILE, mode, size, mtime, b"", digest)
        self._add(headers + content + _ZEROS[: -size % BLOCK])

    def _headers(
        self, path: bytes, kind: str, mode: int, size: int, mtime: int, target: bytes, digest: bytes
    ) -> bytes:
        records = b"79 LNK.sha256=%b\n" % digest.hex().encode() if digest else b""
        name = path + b"/" if kind == FOLDER else path
        # A name that is not plain ASCII goes into a record, where it is UTF-8 by definition. What
        # stands in its place in the header is refused, should the record be lost.
        if len(name) > 100 or not name.isascii():
            records += _record(b"path", name)
            name = b"PaxHeaders/name"
        if len(target) > 100 or not target.isascii():
            records += _record(b"linkpath", target)
            target = b""
        if size > _LARGEST_OCTAL:
            records += _record(b"size", b"%d" % size)
            size = 0
        if not 0 <= mtime <= _LARGEST_OCTAL:
            records += _record(b"mtime", b"%d" % mtime)
            mtime = 0
        header = _header(name, _TYPES[kind], mode & 0o777, size, mtime, target)
        if not records:
            return header
        # A file's hash guards itself; other records get a sum.
        alone = len(digest) > 0 and len(records) == _ONE_HASH_BYTES
        return _pax(records, _PAX_NAME if alone else pax_name(records)) + header

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._waiting += len(piece)
        if self._waiting >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if not self._pieces:
            return
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._waiting = 0
        self._write(data)

    def _write(self, data: bytes) -> None:
        self._sink.write(data)
        self._written += len(data)
