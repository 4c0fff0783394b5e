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
    ``passthrough`` before more is read. ``data[place:]`` is what was read and not taken yet, for a
    caller that looks before it takes.
    """

    def __init__(
        self, source: ByteSource, passthrough: ByteSink | None, max_bytes: int | None
    ) -> None:
        self._source = source
        self._passthrough = passthrough
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._view = memoryview(bytearray(PIECE))
        self.data = b""
        self.place = 0
        self._checked = 0
        self._before = 0  # bytes that came before self.data

    @property
    def offset(self) -> int:
        """How many bytes were taken so far."""
        return self._before + self.place

    def block(self) -> bytes:
        """The next 512 bytes. Raises ``Refusal`` (stream-cut)."""
        return self.take(BLOCK)

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes, all of them. Raises ``Refusal`` (stream-cut)."""
        place = self.place
        end = place + count
        if end <= len(self.data):
            self.place = end
            return self.data[place:end]
        data = self.take_up_to(count)
        if len(data) < count:
            raise self.cut()
        return data

    def take_up_to(self, count: int) -> bytes:
        """The next ``count`` bytes; fewer at the end of the input."""
        if count > PIECE:
            return self._take_long(count)
        if self.place + count > len(self.data):
            self._fill(count)
        data = self.data[self.place : self.place + count]
        self.place += len(data)
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
        place = self._before + len(self.data)
        return Refusal("stream-cut", place=f"byte {place}", offset=place)

    def accept(self) -> None:
        """Say that all that was taken is checked."""
        self._checked = self.place

    def pass_accepted(self) -> None:
        """Pass on what was accepted, though nothing more will be read."""
        self._pass_on()

    def _fill(self, count: int) -> None:
        """Have up to 1 MiB ready to be taken, or all that is left of the input."""
        self._pass_on()
        missing = count - (len(self.data) - self.place)
        read = 0
        while read < missing and (more := self._read_into(self._view[read:])):
            read += more
        self.data = b"".join((memoryview(self.data)[self._checked :], self._view[:read]))
        self._before += self._checked
        self.place -= self._checked
        self._checked = 0

    def _pass_on(self) -> None:
        if self._passthrough is not None and self._checked:
            whole = self._checked == len(self.data)
            self._passthrough.write(self.data if whole else memoryview(self.data)[: self._checked])
            self._before += self._checked
            self.data = self.data[self._checked :]
            self.place -= self._checked
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
                    offset=self._max_bytes,
                )
        return count

    # -- long content goes around the buffer

    def rest(self, count: int) -> bytes:
        """Up to ``count`` bytes of what is in the buffer already."""
        data = self.data[self.place : self.place + count]
        self.place += len(data)
        return data

    def read_direct(self, view: memoryview) -> int:
        """Read into ``view`` with the buffer empty; 0 at the end. The caller passes it on."""
        self.accept()
        self._pass_on()
        self._before += self.place
        self.data = b""
        self.place = self._checked = 0
        count = self._read_into(view)
        self._before += count
        return count

    def pass_direct(self, view: memoryview) -> None:
        """Pass on what ``read_direct`` gave."""
        if self._passthrough is not None:
            self._passthrough.write(view)

    # -- the beginning and the end

    def head(self, count: int) -> bytes:
        """Up to ``count`` of the input's first bytes, as long as nothing was accepted."""
        if len(self.data) < count:
            self._fill(count - self.place)
        return self.data[:count]

    def finish(self) -> None:
        """See that only zeros come to the end of the input, and pass the end on.

        Raises ``Refusal`` (stream-after-end).
        """
        self._pass_on()
        held = self.data
        self._check_zeros(held[self.place :], self.offset)
        zeros = 0
        while count := self._read_into(self._view):
            self._check_zeros(bytes(self._view[:count]), self._before + len(held) + zeros)
            zeros += count
        if self._passthrough is not None:
            self._passthrough.write(held)
            nothing = memoryview(bytes(min(zeros, PIECE)))
            while zeros:
                self._passthrough.write(nothing[:zeros])
                zeros -= min(zeros, PIECE)
        self._before += len(held)
        self.data = b""
        self.place = self._checked = 0

    def _check_zeros(self, data: bytes, start: int) -> None:
        other = data.lstrip(b"\0")
        if other:
            place = start + len(data) - len(other)
            raise Refusal(
                "stream-after-end",
                "something other than zeros follows it",
                place=f"byte {place}",
                offset=place,
            )
