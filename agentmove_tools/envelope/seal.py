"""Seal any bytes to a recipient (Move Stream, section 8)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from agentmove_tools.envelope.header import HEADER_LENGTH, HEADER_START, write_header
from agentmove_tools.envelope.keys import KEY_LENGTH
from agentmove_tools.envelope.records import BATCH, RECORD_EXTRA, RECORD_LIMIT, RecordKey
from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from agentmove_tools.envelope.keys import Recipient
    from agentmove_tools.streams import ByteSink, ByteSource

_PLAIN_SIZE: Final = BATCH * RECORD_LIMIT
# The header goes out with the first batch, and the final record with the last.
_SEALED_SIZE: Final = HEADER_START + HEADER_LENGTH + _PLAIN_SIZE + (BATCH + 1) * RECORD_EXTRA

_State: TypeAlias = Literal["open", "failed", "finished"]


class Sealer:
    """Writes one sealed envelope to a sink, 128 KiB at a time.

    A failure to write a record whole, or to number it, makes it unusable: every later call
    raises ``MachineError``, so no envelope with a gap in it can ever look finished.
    """

    def __init__(self, sink: ByteSink, recipient: Recipient) -> None:
        stream_key = os.urandom(KEY_LENGTH)
        self._sink = sink
        self._records = RecordKey(stream_key)
        self._plain = memoryview(bytearray(_PLAIN_SIZE))
        self._filled = 0
        self._sealed = memoryview(bytearray(_SEALED_SIZE))
        header = write_header(recipient, stream_key)
        self._sealed[: len(header)] = header
        self._ready = len(header)
        self._state: _State = "open"

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Seal all of ``data``; give its length in bytes.

        Records are filled, so bytes may wait for ``finish``. Raises ``MachineError`` once the
        sealer is unusable, and what the sink raises.
        """
        self._check_open()
        rest = memoryview(data).cast("B")
        length = len(rest)
        while rest:
            count = min(len(rest), _PLAIN_SIZE - self._filled)
            self._plain[self._filled : self._filled + count] = rest[:count]
            rest = rest[count:]
            self._take(count)
        return length

    def write_from(self, source: ByteSource) -> int:
        """Seal all that ``source`` gives up to its end, without a copy; give the count of bytes.

        Raises as ``write`` does, and what the source raises.
        """
        self._check_open()
        total = 0
        while count := source.readinto(self._plain[self._filled :]):
            total += count
            self._take(count)
        return total

    def finish(self) -> None:
        """Write what waits, and the final record. No call may follow.

        Raises as ``write`` does.
        """
        self._check_open()
        self._emit(final=True)
        self._state = "finished"

    def _check_open(self) -> None:
        if self._state == "failed":
            raise MachineError("the envelope could not be written whole: it stays unfinished")
        if self._state == "finished":
            raise MachineError("the envelope is finished: nothing can follow its final record")

    def _take(self, count: int) -> None:
        self._filled += count
        if self._filled == _PLAIN_SIZE:
            self._emit(final=False)

    def _emit(self, *, final: bool) -> None:
        # Failed until all is written, whatever is raised in between, an interrupt included.
        self._state = "failed"
        for start in range(0, self._filled, RECORD_LIMIT):
            self._seal_record(self._plain[start : min(start + RECORD_LIMIT, self._filled)])
        if final:
            self._seal_record(self._plain[:0])
        written = self._sink.write(self._sealed[: self._ready])
        if written != self._ready:
            raise MachineError(f"only {written} of {self._ready} bytes could be written")
        self._filled = 0
        self._ready = 0
        self._state = "open"

    def _seal_record(self, plain: memoryview) -> None:
        self._ready += self._records.seal(plain, self._sealed[self._ready :])


def seal(source: ByteSource, sink: ByteSink, recipient: Recipient) -> int:
    """Seal all that ``source`` gives to ``recipient``, into ``sink`` (Move Stream, section 8).

    Gives the plaintext's length in bytes. Memory does not grow with it. Raises what the source
    and the sink raise, and ``MachineError`` when a record could not be written whole.
    """
    sealer = Sealer(sink, recipient)
    length = sealer.write_from(source)
    sealer.finish()
    return length
