from __future__ import annotations

import io
import tracemalloc

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from agentmove_tools.envelope.header import open_header
from agentmove_tools.envelope.keys import Identity
from agentmove_tools.envelope.records import COUNTER_END
from agentmove_tools.envelope.seal import Sealer, seal
from agentmove_tools.refusals import MachineError
from tests.envelope.streams import FULL, Chunked, apart, sealed, unsealed

IDENTITY = Identity(bytes(range(32)))
TO = IDENTITY.recipient


class Sink:
    """A sink that fails at one call, in a way that is given."""

    def __init__(self, failing_call: int, failure: BaseException | int) -> None:
        self.data = b""
        self._left = failing_call
        self._failure = failure

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        self._left -= 1
        if self._left:
            self.data += data
            return len(data)
        if isinstance(self._failure, BaseException):
            raise self._failure
        self.data += data[: self._failure]
        return self._failure


def test_the_records_are_what_the_format_says() -> None:
    """Each part is rebuilt here by hand: nonce, authenticated data, lengths, the final record."""
    plain = bytes(range(256)) * 600
    head, records = apart(sealed(plain, TO))
    cipher = ChaCha20Poly1305(open_header(IDENTITY, head[12:]))
    parts = [plain[:FULL], plain[FULL : 2 * FULL], plain[2 * FULL :], b""]
    assert len(records) == 4
    for number, (record, part) in enumerate(zip(records, parts, strict=True)):
        counter = number.to_bytes(8, "big")
        length = len(part).to_bytes(4, "big")
        assert record[:4] == length
        assert cipher.decrypt(bytes(4) + counter, record[4:], counter + length) == part


@pytest.mark.parametrize("size", [0, 1, FULL - 1, FULL, FULL + 1, 2 * FULL, 2 * FULL + 1, 5 * FULL])
@pytest.mark.parametrize("chunk", [1000, FULL - 1, FULL, 10 * FULL])
def test_records_are_filled_whatever_short_reads_it_gets(size: int, chunk: int) -> None:
    """All but the last have 65536 bytes, and the final one none."""
    plain = b"\xa5" * size
    _, records = apart(sealed(plain, TO, [chunk]))
    lengths = [len(record) - 20 for record in records]
    full, rest = divmod(size, FULL)
    assert lengths == [FULL] * full + ([rest] if rest else []) + [0]


def test_two_envelopes_of_the_same_bytes_differ() -> None:
    """The stream key is fresh."""
    assert sealed(b"x", TO)[92:] != sealed(b"x", TO)[92:]


def test_written_in_pieces_it_is_one_envelope() -> None:
    """``write`` takes any pieces, and ``finish`` ends it."""
    out = io.BytesIO()
    sealer = Sealer(out, TO)
    pieces: list[bytes | bytearray | memoryview] = [
        b"",
        b"a",
        bytearray(b"b" * 200_000),
        memoryview(b"c" * 65536),
        b"d",
    ]
    for piece in pieces:
        assert sealer.write(piece) == len(piece)
    sealer.finish()
    assert unsealed(out.getvalue(), IDENTITY) == (b"".join(pieces), None)


def test_after_the_end_nothing_can_be_written() -> None:
    """A second final record would be no envelope."""
    out = io.BytesIO()
    sealer = Sealer(out, TO)
    sealer.finish()
    length = len(out.getvalue())
    for call in (lambda: sealer.write(b"x"), sealer.finish, lambda: sealer.write_from(out)):
        with pytest.raises(MachineError, match="finished"):
            call()
    assert len(out.getvalue()) == length


@pytest.mark.parametrize(
    "failure", [OSError(28, "No space left on device"), KeyboardInterrupt(), 0, 5, 100]
)
def test_a_record_that_is_not_written_whole_makes_it_unusable(
    failure: BaseException | int,
) -> None:
    """Every later call fails, and adds nothing: there is never an envelope with a gap in it."""
    sink = Sink(2, failure)
    sealer = Sealer(sink, TO)
    sealer.write(bytes(2 * FULL))
    expected = type(failure) if isinstance(failure, BaseException) else MachineError
    with pytest.raises(expected):
        sealer.write(bytes(2 * FULL))
    left = sink.data
    for call in (
        lambda: sealer.write(b""),
        lambda: sealer.write(b"x"),
        lambda: sealer.write_from(io.BytesIO(b"x")),
        sealer.finish,
        sealer.finish,
    ):
        with pytest.raises(MachineError, match="could not be written whole"):
            call()
    assert sink.data == left
    _, refusal = unsealed(left, IDENTITY)
    assert refusal is not None
    assert refusal.code == "envelope-truncated"


def test_a_failure_at_the_very_end_is_told() -> None:
    """``seal`` does not end well when the final record did not get out."""
    with pytest.raises(OSError, match="gone"):
        seal(io.BytesIO(b"x"), Sink(1, OSError("gone")), TO)


def test_a_source_that_fails_is_told_and_leaves_no_whole_envelope() -> None:
    """What came so far must not look finished."""

    class Failing:
        def readinto(self, buffer: memoryview | bytearray, /) -> int:
            if self.calls == 3:
                raise OSError(5, "Input/output error")
            self.calls += 1
            return len(buffer)

        calls = 0

    out = io.BytesIO()
    with pytest.raises(OSError, match="Input/output"):
        seal(Failing(), out, TO)
    released, refusal = unsealed(out.getvalue(), IDENTITY)
    assert len(released) < 3 * 2 * FULL
    assert refusal is not None
    assert refusal.code == "envelope-truncated"


def test_the_last_counter_is_used_and_none_after_it() -> None:
    """A nonce is never used twice: the sealer fails, and so does every later call."""
    out = io.BytesIO()
    sealer = Sealer(out, TO)
    sealer._records.counter = COUNTER_END - 2
    sealer.write(bytes(2 * FULL))
    assert len(out.getvalue()) == 92 + 2 * (FULL + 20)
    for _ in range(2):
        with pytest.raises(MachineError):
            sealer.finish()
    with pytest.raises(MachineError, match="could not be written whole"):
        sealer.write(b"x")
    assert len(out.getvalue()) == 92 + 2 * (FULL + 20)


def test_the_counter_may_end_with_the_final_record() -> None:
    """The last number is as good as the others."""
    out = io.BytesIO()
    sealer = Sealer(out, TO)
    sealer._records.counter = COUNTER_END - 1
    sealer.finish()
    assert len(out.getvalue()) == 92 + 20


def test_memory_does_not_grow_with_the_stream() -> None:
    """Nothing of a long stream is kept."""

    class Nowhere:
        def write(self, data: bytes | bytearray | memoryview, /) -> int:
            return len(data)

    class Endless:
        left = 64 * 2 * FULL

        def readinto(self, buffer: memoryview | bytearray, /) -> int:
            count = min(self.left, len(buffer))
            self.left -= count
            return count

    seal(Chunked(b"x", [1]), Nowhere(), TO)
    tracemalloc.start()
    try:
        assert seal(Endless(), Nowhere(), TO) == 64 * 2 * FULL
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
