"""One record of the envelope, as it is sealed and opened (Move Stream, section 8).

A record is its plaintext's length, the ciphertext and the tag. The counter is in the nonce and
in the authenticated data, so a record opens at its own place only.
"""

from __future__ import annotations

import struct
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from agentmove_tools.envelope.header import LENGTH_BYTES, TAG_LENGTH
from agentmove_tools.refusals import MachineError

RECORD_LIMIT: Final = 65536  # bytes of plaintext in one record
RECORD_EXTRA: Final = LENGTH_BYTES + TAG_LENGTH  # what a record is longer than its plaintext
# Records that are read or written at once. Small enough to stay in a processor's own cache on the
# way from one pipe through the cipher to the other: 1 MiB at once takes half as long again.
BATCH: Final = 2
COUNTER_END: Final = 2**64

_PLACE: Final = struct.Struct(">QI")  # the counter and the plaintext's length
_NONCE_START: Final = bytes(4)


class RecordKey:
    """The stream key and the counter of the next record, from 0."""

    __slots__ = ("_cipher", "counter")

    def __init__(self, stream_key: bytes) -> None:
        self._cipher = ChaCha20Poly1305(stream_key)
        self.counter = 0

    def seal(self, plain: memoryview, out: memoryview) -> int:
        """Seal one record of at most ``RECORD_LIMIT`` bytes into the start of ``out``.

        Gives the record's length. Raises ``MachineError`` when the counter is used up.
        """
        if self.counter >= COUNTER_END:
            raise MachineError("the counter of records is used up: seal the rest as a second one")
        length = len(plain)
        end = length + RECORD_EXTRA
        place = _PLACE.pack(self.counter, length)
        out[:LENGTH_BYTES] = place[8:]
        self._cipher.encrypt_into(_NONCE_START + place[:8], plain, place, out[LENGTH_BYTES:end])
        self.counter += 1
        return end

    def open(self, sealed: memoryview, out: memoryview) -> None:
        """Open one record's ciphertext and tag into ``out``, which has the plaintext's length.

        Raises ``cryptography.exceptions.InvalidTag``; ``out`` then holds what nobody may see.
        """
        place = _PLACE.pack(self.counter, len(out))
        self._cipher.decrypt_into(_NONCE_START + place[:8], sealed, place, out)
        self.counter += 1
