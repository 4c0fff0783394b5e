"""Unseal an envelope (Move Stream, section 8).

A record's plaintext is released once the next record authenticates too, and the last once the
final record and the end of the input were seen. So the end of what was cut or altered never
comes out, and whoever reads on from here sees it as cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag

from agentmove_tools.accidents import hint_for, hint_of_damage
from agentmove_tools.envelope.header import (
    HEADER_LENGTH,
    HEADER_LIMIT,
    HEADER_START,
    LENGTH_BYTES,
    MAGIC,
    open_header,
)
from agentmove_tools.envelope.records import BATCH, RECORD_EXTRA, RECORD_LIMIT, RecordKey
from agentmove_tools.refusals import MachineError, Refusal

if TYPE_CHECKING:
    from agentmove_tools.envelope.keys import Identity
    from agentmove_tools.streams import ByteSink, ByteSource

# A batch of full records, with room for the header before them: so each later batch ends as far
# behind a record's start as the header is long, and no more than that is moved to the front.
_INPUT_SIZE: Final = HEADER_START + HEADER_LENGTH + BATCH * (RECORD_LIMIT + RECORD_EXTRA)
# The record that is held back, and two batches: it is moved to the front each second time.
_PLAIN_SIZE: Final = RECORD_LIMIT + 2 * _INPUT_SIZE
_HEAD_SIZE: Final = 4096  # bytes that are looked at to tell what happened to the input


def unseal(source: ByteSource, sink: ByteSink, identity: Identity) -> int:
    """Open the envelope that ``source`` gives, into ``sink`` (Move Stream, section 8).

    Gives the plaintext's length in bytes. Memory does not grow with it. Raises ``Refusal`` with
    an ``envelope-*`` code and the byte offset, once all that may be released is written; and what
    the source and the sink raise.
    """
    window = _Window(source)
    key = RecordKey(_read_stream_key(window, identity))
    return _Opener(window, key, sink).run()


class _Window:
    """The part of the input that is not parsed yet, and where in the input it starts."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._buffer = memoryview(bytearray(_INPUT_SIZE))
        self._start = 0
        self._end = 0
        self._offset = 0  # of the buffer's first byte in the input
        self._ended = False

    @property
    def offset(self) -> int:
        """How many bytes of the input lie before the window."""
        return self._offset + self._start

    @property
    def view(self) -> memoryview:
        """The bytes at hand; what it gives is good until the next ``fill`` or ``want``."""
        return self._buffer[self._start : self._end]

    def skip(self, count: int) -> None:
        """Step over ``count`` of the bytes at hand."""
        self._start += count

    def want(self, count: int) -> bool:
        """Read until ``count`` bytes are at hand; false when the input ends before."""
        while len(self.view) < count and not self._ended:
            self._read()
        return len(self.view) >= count

    def starts_with(self, start: bytes) -> bool:
        """Say whether the input goes on with ``start``."""
        return self.want(len(start)) and bytes(self.view[: len(start)]) == start

    def fill(self) -> None:
        """Read until the buffer is full or the input ends."""
        self._to_front()
        while self._end < _INPUT_SIZE and not self._ended:
            self._read()

    def _read(self) -> None:
        if self._end == _INPUT_SIZE:
            self._to_front()
        count = self._source.readinto(self._buffer[self._end :])
        if count:
            self._end += count
        else:
            self._ended = True

    def _to_front(self) -> None:
        rest = self.view
        self._buffer[: len(rest)] = rest
        self._offset += self._start
        self._start, self._end = 0, len(rest)


def _read_stream_key(window: _Window, identity: Identity) -> bytes:
    """Read the magic and the header, and open the stream key."""
    if not window.starts_with(MAGIC):
        # What comes is no envelope, so reading on only serves to say what it is.
        window.want(_HEAD_SIZE)
        head = bytes(window.view[:_HEAD_SIZE])
        why = ""
        if MAGIC.startswith(head):
            why = f"only {len(head)} bytes came" if head else "the input is empty"
        raise Refusal("envelope-magic", why, place="byte 0", hint=hint_for(head, "sealed"), byte=0)
    if not window.want(HEADER_START):
        raise _cut(window, "inside its header's length")
    length = int.from_bytes(window.view[len(MAGIC) : HEADER_START], "big")
    if length > HEADER_LIMIT:
        at = len(MAGIC)
        why = f"it says {length}"
        raise Refusal("envelope-header-length", why, place=f"byte {at}", byte=at)
    if not window.want(HEADER_START + length):
        raise _cut(window, "inside its header")
    try:
        stream_key = open_header(identity, bytes(window.view[HEADER_START : HEADER_START + length]))
    except Refusal as refusal:
        window.want(HEADER_START + length + _HEAD_SIZE)
        refusal.hint = hint_of_damage(bytes(window.view))
        raise
    window.skip(HEADER_START + length)
    return stream_key


def _cut(window: _Window, where: str) -> Refusal:
    end = window.offset + len(window.view)
    return Refusal("envelope-truncated", f"it ends {where}", place=f"byte {end}", byte=end)


class _Opener:
    """Opens the records of a window into a sink, and holds back the last one opened."""

    def __init__(self, window: _Window, key: RecordKey, sink: ByteSink) -> None:
        self._window = window
        self._key = key
        self._sink = sink
        self._plain = memoryview(bytearray(_PLAIN_SIZE))
        self._start = 0  # of what is opened and not released
        self._held = 0  # where the last of it, the record that is held back, starts
        self._end = 0
        self._released = 0

    def run(self) -> int:
        """Open all up to the final record and the end of the input; give the count of bytes."""
        try:
            while not self._open_batch():
                self._release()
            self._check_end()
        except Refusal:
            self._release()
            raise
        # Every record authenticated, and nothing follows the last.
        self._held = self._end
        self._release()
        return self._released

    def _open_batch(self) -> bool:
        """Open the records that are at hand; true once the final one was opened."""
        window = self._window
        window.fill()
        view = window.view
        at = 0
        try:
            while len(view) - at >= LENGTH_BYTES:
                length = int.from_bytes(view[at : at + LENGTH_BYTES], "big")
                if length > RECORD_LIMIT:
                    raise self._damage("envelope-record-length", at, f"it says {length}")
                end = at + RECORD_EXTRA + length
                if end > len(view):
                    break
                out = self._plain[self._end : self._end + length]
                try:
                    self._key.open(view[at + LENGTH_BYTES : end], out)
                except InvalidTag:
                    raise self._damage("envelope-record", at) from None
                at = end
                if not length:
                    # It is no record that the one held back may be released for: see run.
                    return True
                self._held = self._end
                self._end += length
        finally:
            window.skip(at)
        if at == 0:
            # The buffer holds more than a record, so it is the input that ends here.
            where = f"inside record {self._key.counter}" if view else "between two records"
            raise _cut(window, where)
        return False

    def _damage(self, code: str, at: int, why: str = "") -> Refusal:
        """Make the refusal of the next record, which starts ``at`` bytes into the window."""
        offset, record = self._window.offset + at, self._key.counter
        return Refusal(
            code,
            why,
            place=f"record {record}, byte {offset}",
            hint=hint_of_damage(bytes(self._window.view[at:])),
            record=record,
            byte=offset,
        )

    def _check_end(self) -> None:
        # The final record is empty: what is held back is still the last one with content.
        if self._window.want(1):
            at = self._window.offset
            second = self._window.starts_with(MAGIC)
            hint = "a second envelope follows: unseal one at a time" if second else None
            raise Refusal("envelope-trailing", place=f"byte {at}", hint=hint, byte=at)

    def _release(self) -> None:
        """Write all but the record that is held back, and make room for the next batch."""
        count = self._held - self._start
        if count:
            written = self._sink.write(self._plain[self._start : self._held])
            if written != count:
                raise MachineError(f"only {written} of {count} bytes could be written")
            self._released += count
            self._start = self._held
        if _PLAIN_SIZE - self._end < _INPUT_SIZE:
            rest = self._plain[self._start : self._end]
            self._plain[: len(rest)] = rest
            self._start, self._held, self._end = 0, 0, len(rest)
