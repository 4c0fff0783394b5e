"""Sources and sinks of the envelope's tests, and an envelope taken apart."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import chain, repeat
from typing import Final

from agentmove_tools.envelope.keys import Identity, Recipient
from agentmove_tools.envelope.seal import seal
from agentmove_tools.envelope.unseal import unseal
from agentmove_tools.refusals import Refusal

HEADER_END: Final = 92
FULL: Final = 65536
FULL_RECORD: Final = FULL + 20


class Chunked:
    """A source that gives at most as many bytes a call as it is told, the last count for ever."""

    def __init__(self, data: bytes, counts: Iterable[int]) -> None:
        self._data = io.BytesIO(data)
        given = list(counts) or [FULL]
        self._counts = chain(given, repeat(given[-1]))

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        view = memoryview(buffer)
        return self._data.readinto(view[: next(self._counts)])


def sealed(plain: bytes, to: Recipient, counts: Iterable[int] = ()) -> bytes:
    """Seal bytes that come in chunks of these sizes."""
    out = io.BytesIO()
    assert seal(Chunked(plain, counts), out, to) == len(plain)
    return out.getvalue()


def unsealed(
    envelope: bytes, identity: Identity, counts: Iterable[int] = ()
) -> tuple[bytes, Refusal | None]:
    """Give what an envelope releases, and its refusal if there is one."""
    out = io.BytesIO()
    try:
        length = unseal(Chunked(envelope, counts), out, identity)
    except Refusal as refusal:
        return out.getvalue(), refusal
    assert length == len(out.getvalue())
    return out.getvalue(), None


def apart(envelope: bytes) -> tuple[bytes, list[bytes]]:
    """Take an envelope apart: all before the first record, and the records."""
    records = []
    at = HEADER_END
    while at < len(envelope):
        end = at + 20 + int.from_bytes(envelope[at : at + 4], "big")
        records.append(envelope[at:end])
        at = end
    return envelope[:HEADER_END], records
