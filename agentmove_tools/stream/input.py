"""The bytes of a stream as they come, and their passing on once they are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.tar_header import BLOCK

if TYPE_CHECKING:
    from agentmove_tools.streams import ByteSink, ByteSource

PIECE: Final = 1 << 20


class Input:
    """Buffered input with a mark up to which all is checked.

    ``accept`` moves the mark to where the reading is; what lies before it is given to
    ``passthrough`` when more must be read. ``offset`` counts the bytes taken so far.
    """

    def __init__(
        self, source: ByteSource, passthrough: ByteSink | None, max_bytes: int | None
    ) -> None:
        self._source = source
        self._passthrough = passthrough
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._room = bytearray(PIECE)
        self._view = memoryview(self._room)
        self._data = b""
        self._place = 0
        self._checked = 0
        self._before = 0  # bytes that came before self._data

    @property
    def offset(self) -> int:
        """How many bytes were taken so far."""
        return self._before + self._place

    def block(self) -> bytes:
        """The next 512 bytes. Raises ``Refusal`` (stream-cut)."""
        place = self._place
        end = place + BLOCK
        if end <= len(self._data):
            self._place = end
            return self._data[place:end]
        return self.take(BLOCK)

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes, all of them. Raises ``Refusal`` (stream-cut)."""
        data = self.take_up_to(count)
        if len(data) < count:
            raise self.cut()
        return data

    def take_up_to(self, count: int) -> bytes:
        """The next ``count`` bytes; fewer at the end of the input."""
        if self._place + count > len(self._data):
            if count > PIECE:
                return self._take_long(count)
            self._fill(count)
        data = self._data[self._place : self._place + count]
        self._place += len(data)
        return data

    def _take_long(self, count: int) -> bytes:
        pieces = []
        while count:
            piece = self.take_up_to(min(count, PIECE))
            if not piece:
                break
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def cut(self) -> Refusal:
        """The refusal of a stream that ends here."""
        place = self._before + len(self._data)
        return Refusal("stream-cut", place=f"byte {place}", offset=place)

    def accept(self) -> None:
        """Say that all that was taken is checked."""
        self._checked = self._place

    def pass_accepted(self) -> None:
        """Pass on what was accepted, though nothing more will be read."""
        self._pass_on()

    def _fill(self, count: int) -> None:
        """Have ``count`` bytes ready to be taken, or all that are left of the input."""
        self._pass_on()
        pieces = [self._data[self._checked :]]
        self._before += self._checked
        self._place -= self._checked
        self._checked = 0
        ready = len(pieces[0]) - self._place
        while ready < count and (read := self._read_into(self._view)):
            pieces.append(bytes(self._view[:read]))
            ready += read
        self._data = b"".join(pieces)

    def _pass_on(self) -> None:
        if self._passthrough is not None and self._checked:
            self._passthrough.write(
                self._data
                if self._checked == len(self._data)
                else memoryview(self._data)[: self._checked]
            )
            self._before += self._checked
            self._data = self._data[self._checked :]
            self._place -= self._checked
            self._checked = 0

    def _read_into(self, view: memoryview) -> int:
        count = self._source.readinto(view) or 0
        if self._left is not None:
            self._left -= count
            if self._left < 0:
                raise Refusal(
                    "stream-tar",
                    f"it has more than {self._max_bytes} bytes (--max-bytes)",
                    place=f"byte {self._max_bytes}",
                )
        return count

    # -- long content goes around the buffer

    def rest(self, count: int) -> bytes:
        """Up to ``count`` bytes of what is in the buffer already."""
        data = self._data[self._place : self._place + count]
        self._place += len(data)
        return data

    def read_direct(self, view: memoryview) -> int:
        """Read into ``view`` with the buffer empty; 0 at the end. The caller passes it on."""
        self.accept()
        self._pass_on()
        self._before += self._place
        self._data = b""
        self._place = self._checked = 0
        count = self._read_into(view)
        self._before += count
        return count

    def pass_direct(self, view: memoryview) -> None:
        """Pass on what ``read_direct`` gave."""
        if self._passthrough is not None:
            self._passthrough.write(view)

    # -- the beginning and the end

    def first_block(self) -> bytes:
        """The first 512 bytes, to be taken again; fewer when there are not so many."""
        self._fill(BLOCK)
        block = self._data[:BLOCK]
        return block + bytes(BLOCK - len(block)) if block else b"\xff" * BLOCK

    def head(self, count: int) -> bytes:
        """Up to ``count`` of the input's first bytes, as long as nothing was accepted."""
        self._fill(count)
        return self._data[:count]

    def finish(self) -> None:
        """See that only zeros come to the end of the input, and pass the end on.

        Raises ``Refusal`` (stream-after-end).
        """
        self._pass_on()
        held = self._data
        self._check_zeros(memoryview(held)[self._place :], self._place)
        zeros = 0
        while count := self._read_into(self._view):
            self._check_zeros(self._view[:count], len(held) + zeros)
            zeros += count
        if self._passthrough is not None:
            self._passthrough.write(held)
            nothing = bytes(min(zeros, PIECE))
            while zeros:
                self._passthrough.write(nothing[:zeros])
                zeros -= min(zeros, PIECE)
        self._data = b""
        self._place = self._checked = 0

    def _check_zeros(self, view: memoryview, start: int) -> None:
        if bytes(view).strip(b"\0"):
            place = self._before + start
            raise Refusal(
                "stream-after-end",
                "something other than zeros follows it",
                place=f"byte {place}",
                offset=place,
            )
