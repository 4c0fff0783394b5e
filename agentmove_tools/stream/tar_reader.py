"""Reading a Move Stream: strict, streaming, and complete or refused (Move Stream, section 2)."""

from __future__ import annotations

import re
from binascii import unhexlify
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.content import ContentReader, is_small
from agentmove_tools.stream.input import Input
from agentmove_tools.stream.manifest import MAX_MANIFEST, Manifest
from agentmove_tools.stream.paths import (
    END_NAME,
    FILE,
    FOLDER,
    LINK,
    MANIFEST_NAME,
    Seen,
    check_any_link,
    check_folder,
    check_link,
    check_place,
    check_plain,
)
from agentmove_tools.stream.pax import MAX_PAX, check_pax_name, parse_pax, pax_size, pax_time
from agentmove_tools.stream.tar_header import (
    BLOCK,
    ZERO_BLOCK,
    Header,
    Malformed,
    parse_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmove_tools.streams import ByteSink, ByteSource

_MAX_NAME: Final = 1 << 20  # bytes of a GNU long name; paths and targets have limits of their own
_HASH: Final = b"LNK.sha256"
_HEX: Final = re.compile(rb"[0-9a-f]{64}")
_FORMAT_NAME: Final = re.compile(rb"lnk-move-[0-9]+\.json")
_FILE_TYPES: Final = (b"0", b"\0")
_TYPE_NAMES: Final = {
    b"1": "a hard link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"7": "a contiguous file",
    b"S": "a sparse file",
    b"g": "a global PAX header",
}
_NOT_NAMES: Final = (b"", b".", b"..")
_SHORT: Final = 1024  # bytes; of a longer path all is checked
_NO_RECORDS: Final[dict[bytes, bytes]] = {}
# What a PAX header with nothing but the hash holds, and where in it and its header the hash lies.
_ONE_HASH: Final = b"79 LNK.sha256="
_ONE_HASH_BYTES: Final = 79
_HASH_START: Final = BLOCK + len(_ONE_HASH)
_HASH_END: Final = _HASH_START + 64
_AFTER_HASH: Final = b"\n".ljust(2 * BLOCK - _HASH_END, b"\0")
_USTAR: Final = b"ustar"
_USTAR_AT: Final = 257
_NOT_ZEROS: Final = "what fills a block up is not zeros"
# Refusals of a stream's first entry that an accident on its way may have brought.
_ACCIDENTS: Final = ("stream-not-move", "stream-tar", "hash-mismatch")


class Entry:
    """One entry of a stream, checked.

    ``path``: plain bytes. ``kind``: FILE, FOLDER or LINK. ``mode``: permission bits. ``mtime``:
    whole seconds since 1970. ``size``: bytes of content. ``sha256``: what the content's 32 bytes of
    SHA-256 must be, for a file. ``target``: for a link.
    """

    __slots__ = ("kind", "mode", "mtime", "path", "sha256", "size", "target")

    def __init__(
        self,
        path: bytes,
        kind: str,
        mode: int,
        mtime: int,
        size: int,
        sha256: bytes | None,
        target: bytes | None,
    ) -> None:
        self.path = path
        self.kind = kind
        self.mode = mode
        self.mtime = mtime
        self.size = size
        self.sha256 = sha256
        self.target = target


class MoveReader:
    """Reads one Move Stream.

    The manifest is read when it is made. Iterating gives the entries; going on to the next one
    drains and checks the content of the one before, and the iteration ends only when the end was
    seen and nothing but zeros came after it. Every refusal names the path, or the byte.

    ``passthrough`` is given the same bytes as they are checked, but those of the end only when
    all is checked. ``any_links`` takes links that leave their folder. ``max_bytes`` and
    ``max_entries`` bound the stream. Raises ``Refusal``, and what ``source`` and ``passthrough``
    raise.
    """

    def __init__(
        self,
        source: ByteSource,
        *,
        any_links: bool = False,
        max_bytes: int | None = None,
        max_entries: int | None = None,
        passthrough: ByteSink | None = None,
    ) -> None:
        self._input = Input(source, passthrough, max_bytes)
        self._any_links = any_links
        self._max_entries = max_entries
        self._seen = Seen()
        self._count = 0
        self._at = 0  # the byte that the entry starts at, with what comes before its header
        self._one_hash = b""  # a PAX header that holds a hash only, up to the hash: most are alike
        self._good_folder = b"/"  # whose path was checked with the entry before
        # What is left to be taken of the entry that the iteration is at: one of them, or none.
        self._small: Entry | None = None
        self._content: ContentReader | None = None
        try:
            self.manifest = self._read_manifest()
        except Refusal as refusal:
            if refusal.code in _ACCIDENTS:
                refusal.hint = self._hint()
            raise
        self._phase = self.manifest.phase
        self._input.accept()

    def kind_of(self, path: bytes) -> str | None:
        """FILE, FOLDER or LINK as it was in the stream so far, IMPLIED for a folder on the way."""
        return self._seen.kind_of(path)

    def digest_of(self, path: bytes) -> bytes | None:
        """The SHA-256 of a file that was in the stream so far."""
        return self._seen.digest_of(path)

    def pass_accepted(self) -> None:
        """Pass on what was checked so far, after a refusal. Raises what the sink raises."""
        self._input.pass_accepted()

    # -- the entries

    def __iter__(self) -> Iterator[Entry]:
        """The entries, the manifest and the end aside."""
        while True:
            try:
                entry = self._next()
            except Refusal as refusal:
                refusal.details.setdefault("offset", self._at)
                refusal.place = refusal.place or f"byte {self._at}"
                raise
            if entry is None:
                return
            yield entry
            if self._small is not None:
                self._take_small(self._small)
            elif self._content is not None:
                self._content.finish()
                self._content = None
            self._input.accept()

    def read(self) -> bytes:
        """The whole content of the file that the iteration is at, checked.

        It is held in memory; look at ``size`` first. Raises ``Refusal`` (hash-mismatch,
        stream-cut, stream-tar, schedule-json).
        """
        if self._small is not None:
            return self._take_small(self._small)
        content, self._content = self._content, None
        return b"" if content is None else content.read()

    def chunks(self) -> Iterator[memoryview | bytes]:
        """The content in pieces of up to 1 MiB, each good until the next; checked at their end.

        Raises as ``read`` does.
        """
        if self._small is not None:
            yield self._take_small(self._small)
        elif self._content is not None:
            for piece in self._content.pieces():  # noqa: UP028 - that would end with this one
                yield piece
            self._content = None

    def _take_small(self, entry: Entry) -> bytes:
        self._small = None
        size = entry.size
        content = self._input.take(size)
        if sha256(content).digest() != entry.sha256:
            raise self._refused("hash-mismatch", "send it again", entry.path)
        padding = -size % BLOCK
        if padding and self._input.take(padding) != ZERO_BLOCK[:padding]:
            raise self._refused("stream-tar", _NOT_ZEROS, entry.path)
        return content

    def _next(self) -> Entry | None:
        self._at = self._input.offset
        header, records, digest = self._headers()
        path, flag, mode, size, mtime, target = header
        kind = FILE if flag == b"0" and not records else self._kind(header, records)
        if kind is FOLDER and path.endswith(b"/"):
            path = path[:-1]
        if path == END_NAME:
            self._end(kind, size, digest)
            return None
        if size and kind is not FILE:
            raise self._refused("stream-tar", f"a {kind} has content", path)
        self._check_path(path, kind)
        if self._count == self._max_entries:
            raise self._refused(
                "stream-tar", f"it has more than {self._max_entries} entries (--max-entries)", path
            )
        self._count += 1
        if kind is FILE:
            self._seen.add(path, kind, digest)
            if digest is None:
                raise self._refused("hash-missing", "", path)
            entry = Entry(path, kind, mode, mtime, size, digest, None)
            if is_small(path, size):
                self._small = entry
            else:
                self._content = ContentReader(self._input, path, size, digest, self._at)
            return entry
        self._seen.add(path, kind)
        if kind is FOLDER:
            return Entry(path, kind, mode, mtime, 0, None, None)
        if self._any_links:
            check_any_link(path, target)
        else:
            check_link(path, target)
        return Entry(path, kind, mode, mtime, 0, None, target)

    def _kind(self, header: Header, records: dict[bytes, bytes]) -> str:
        if any(key.startswith(b"GNU.sparse.") for key in records):
            raise self._refused("entry-type", "it is a sparse file", header.name)
        flag = header.kind
        if flag in _FILE_TYPES:
            return FILE
        if flag == b"5":
            return FOLDER
        if flag == b"2":
            return LINK
        seen = _TYPE_NAMES.get(flag, f"type {flag.decode('latin-1')!r}")
        raise self._refused("entry-type", f"it is {seen}", header.name)

    def _check_path(self, path: bytes, kind: str) -> None:
        above, _, name = path.rpartition(b"/")
        if (
            above == self._good_folder
            and len(path) <= _SHORT
            and name not in _NOT_NAMES
            and name.isascii()
        ):
            return
        check_plain(path)
        check_folder(path, self._phase, kind)
        if path.startswith(b"schedule"):
            check_place(path, kind)
        elif above:
            self._good_folder = above

    # -- the headers before an entry

    def _headers(self) -> tuple[Header, dict[bytes, bytes], bytes | None]:
        """The next entry's header, with what comes before it taken into account."""
        input_ = self._input
        digest = None
        records = _NO_RECORDS
        had_pax = False
        if self._one_hash and input_.data.startswith(self._one_hash, input_.place):
            digest = self._next_hash()
        if digest is not None:
            had_pax = True
            header = self._parse(input_.block())
        else:
            block = input_.block()
            header = self._parse(block)
            if header.kind == b"x":
                had_pax = True
                if header.size > MAX_PAX:
                    raise self._refused("stream-tar", "a PAX header over 1 MiB")
                data = input_.take(header.size + -header.size % BLOCK)
                records, digest, guarded = self._records(data, header)
                if header.size == _ONE_HASH_BYTES and digest is not None and not guarded:
                    self._one_hash = block + _ONE_HASH
                header = self._parse(input_.block())
        if header.kind in (b"x", b"L", b"K"):
            header = self._long_names(header, records, had_pax=had_pax)
        if records:
            header = self._with_records(header, records)
        return header, records, digest

    def _next_hash(self) -> bytes | None:
        """The hash of a PAX header that starts as the last one did, which is taken if it is good.

        None where it is to be looked at closely.
        """
        input_ = self._input
        data, place = input_.data, input_.place
        text = data[place + _HASH_START : place + _HASH_END]
        if data[place + _HASH_END : place + 2 * BLOCK] != _AFTER_HASH or text != text.lower():
            return None
        try:
            digest = unhexlify(text)
        except ValueError:
            return None
        input_.place = place + 2 * BLOCK
        return digest

    def _records(
        self, data: bytes, header: Header
    ) -> tuple[dict[bytes, bytes], bytes | None, bool]:
        """The records of a PAX header, the hash in them, and whether its name guards them."""
        content = data[: header.size]
        try:
            guarded = check_pax_name(header.name, content)
            records = parse_pax(content)
        except Malformed as error:
            raise self._refused("stream-tar", str(error)) from None
        self._check_padding(data[header.size :])
        text = records.pop(_HASH, None)
        if text is None:
            return records, None, guarded
        if not _HEX.fullmatch(text):
            raise self._refused("stream-tar", "LNK.sha256 is not 64 lower-case hex digits")
        return records, unhexlify(text), guarded

    def _check_padding(self, padding: bytes) -> None:
        if padding.strip(b"\0"):
            raise self._refused("stream-tar", _NOT_ZEROS)

    def _parse(self, block: bytes) -> Header:
        try:
            return parse_header(block)
        except Malformed as error:
            if block == ZERO_BLOCK:
                raise self._zero_block() from None
            raise self._refused("stream-tar", str(error)) from None

    def _zero_block(self) -> Refusal:
        """What a block of zeros means where an entry should come."""
        if self._input.offset > self._at + BLOCK:
            return self._refused("stream-tar", "no entry follows what was said of it")
        rest = self._input.take_up_to(BLOCK)
        if not rest or rest == ZERO_BLOCK[: len(rest)]:
            return self._refused("stream-cut", "the tar ends without it")
        return self._refused("stream-tar", "a lone zero block")

    def _long_names(self, header: Header, records: dict[bytes, bytes], *, had_pax: bool) -> Header:
        """Take GNU long names and links, each at most once, and give the entry's own header."""
        long_names: dict[bytes, bytes] = {}
        while header.kind in (b"L", b"K"):
            if header.kind in long_names:
                raise self._refused("stream-tar", "two long names before one entry")
            if header.size > _MAX_NAME:
                raise self._refused("stream-tar", "a long name over 1 MiB")
            data = self._input.take(header.size + -header.size % BLOCK)
            name = data[: header.size]
            if name.endswith(b"\0"):
                name = name[:-1]
            if not name or b"\0" in name:
                raise self._refused("stream-tar", "a long name is empty, or has a NUL in it")
            self._check_padding(data[header.size :])
            long_names[header.kind] = name
            header = self._parse(self._input.block())
        if header.kind == b"x":
            what = "two PAX headers" if had_pax else "a PAX header after a long name"
            raise self._refused("stream-tar", f"{what} before one entry")
        if any(key in records for key in (b"path", b"linkpath", b"size")):
            raise self._refused("stream-tar", "a long name and a PAX name or size for one entry")
        return header._replace(
            name=long_names.get(b"L", header.name), target=long_names.get(b"K", header.target)
        )

    def _with_records(self, header: Header, records: dict[bytes, bytes]) -> Header:
        name = records.get(b"path", header.name)
        if name != header.name and header.name in (MANIFEST_NAME, END_NAME):
            # A reader that passes over the record would see the stream's first or last entry.
            raise self._refused("stream-tar", "its header has the name of another entry", name)
        target = records.get(b"linkpath", header.target)
        size, mtime = header.size, header.mtime
        try:
            if b"size" in records:
                said = pax_size(records[b"size"])
                # Zero stands for a size that the header's own field cannot hold.
                fits = said < 8**11
                if said != size and (size != 0 or fits):
                    raise self._refused("stream-tar", "the PAX size is not the header's", name)
                size = said
            if b"mtime" in records:
                mtime = pax_time(records[b"mtime"])
        except Malformed as error:
            raise self._refused("stream-tar", str(error), name) from None
        return Header(name, header.kind, header.mode, size, mtime, target)

    # -- the first and the last entry

    def _read_manifest(self) -> Manifest:
        first = self._input.head(BLOCK)
        if len(first) < BLOCK:
            if first.startswith(_USTAR, _USTAR_AT):
                raise self._input.cut()
            raise Refusal("stream-not-move", "it is no tar" if first else "it is empty")
        try:
            parse_header(first)
        except Malformed:
            raise Refusal("stream-not-move", "it is no tar") from None
        header, records, digest = self._headers()
        name = header.name
        if name != MANIFEST_NAME and _FORMAT_NAME.fullmatch(name):
            raise self._refused("stream-format", f"it starts with {name.decode()}")
        if name != MANIFEST_NAME or header.kind not in _FILE_TYPES:
            raise Refusal("stream-not-move", "its first entry is no manifest")
        self._kind(header, records)
        if header.size > MAX_MANIFEST:
            raise self._refused("stream-tar", "a manifest over 64 MiB", name)
        content = self._input.take(header.size)
        self._check_padding(self._input.take(-header.size % BLOCK))
        if digest is not None and sha256(content).digest() != digest:
            raise self._refused("hash-mismatch", "", name)
        return Manifest.parse(content)

    def _hint(self) -> str | None:
        from agentmove_tools.accidents import hint_for  # noqa: PLC0415 - only for what is refused

        return hint_for(self._input.head(4096), "move")

    def _end(self, kind: str, size: int, digest: bytes | None) -> None:
        if kind is not FILE or size:
            raise self._refused("stream-after-end", "it is not an empty file", END_NAME)
        if digest is not None and digest != sha256().digest():
            raise self._refused("hash-mismatch", "", END_NAME)
        self._input.finish()

    def _refused(self, code: str, why: str, path: bytes | None = None) -> Refusal:
        if path is not None:
            return Refusal(code, why, path=path, offset=self._at)
        return Refusal(code, why, place=f"byte {self._at}", offset=self._at)
