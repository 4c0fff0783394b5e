from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
from pathlib import Path

import pytest

from agentmove_tools.envelope.key_files import read_identity
from agentmove_tools.envelope.keys import Identity
from agentmove_tools.envelope.unseal import unseal
from agentmove_tools.refusals import MachineError
from tests.conftest import VECTORS, lacking
from tests.envelope.streams import FULL, FULL_RECORD, HEADER_END, Chunked, apart, sealed, unsealed

IDENTITY = Identity(bytes(range(32)))
TO = IDENTITY.recipient
PLAIN = b"".join(bytes([number]) * FULL for number in range(6)) + b"the rest"
HEAD, RECORDS = apart(sealed(PLAIN, TO))
INDEX = VECTORS / "envelope" / "index.json"
ROWS = json.loads(INDEX.read_text()) if INDEX.exists() else []


def joined(records: list[bytes]) -> bytes:
    return HEAD + b"".join(records)


def test_there_are_vectors(vectors: Path) -> None:
    """The tests below are not empty."""
    assert len(json.loads((vectors / "envelope" / "index.json").read_text())) > 25


@pytest.mark.parametrize("chunk", [1, 77, FULL, 10 * FULL])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_a_vector_holds(row: dict[str, str | int], chunk: int) -> None:
    """It opens to its bytes, or is refused with its code, and releases no more than it may."""
    folder = VECTORS / "envelope"
    identity = read_identity((folder / "identity.txt").read_bytes())
    released, refusal = unsealed((folder / str(row["file"])).read_bytes(), identity, [chunk])
    if "refusal" in row:
        assert refusal is not None
        assert refusal.code == row["refusal"]
        assert len(released) <= int(row["plaintext_bytes_released_at_most"])
    else:
        assert refusal is None
        assert len(released) == row["plaintext_length"]
        assert hashlib.sha256(released).hexdigest() == row["plaintext_sha256"]


def test_the_other_identity_of_the_vectors_opens_what_is_its_own() -> None:
    """``bad-other-recipient`` is bad for its recipient only."""
    folder = VECTORS / "envelope"
    if not folder.exists():
        lacking("the conformance vectors are not there")
    other = read_identity((folder / "other-identity.txt").read_bytes())
    _, refusal = unsealed((folder / "bad-other-recipient.sealed").read_bytes(), other)
    assert refusal is None


@pytest.mark.parametrize("count", range(len(RECORDS)))
def test_of_a_stream_cut_between_records_the_last_record_stays_inside(count: int) -> None:
    """A record comes out only once the next one authenticates."""
    released, refusal = unsealed(joined(RECORDS[:count]), IDENTITY)
    assert released == PLAIN[: max(0, count - 1) * FULL]
    assert refusal is not None
    assert refusal.code == "envelope-truncated"
    assert refusal.details["byte"] == HEADER_END + count * FULL_RECORD - (
        FULL - len(b"the rest") if count == 7 else 0
    )


def test_the_last_record_waits_for_the_end_of_the_input() -> None:
    """Not even the final record releases it."""
    released, refusal = unsealed(joined(RECORDS) + b"!", IDENTITY)
    assert released == PLAIN[: 6 * FULL]
    assert refusal is not None
    assert refusal.code == "envelope-trailing"
    assert refusal.details["byte"] == len(joined(RECORDS))


@pytest.mark.parametrize("number", range(len(RECORDS)))
@pytest.mark.parametrize("place", [4, -1])
def test_an_altered_record_stays_inside_with_the_one_before(number: int, place: int) -> None:
    """The error names the record and the byte where it starts, and no byte of it is released."""
    records = [bytearray(record) for record in RECORDS]
    records[number][place] ^= 0x80
    released, refusal = unsealed(joined([bytes(record) for record in records]), IDENTITY)
    assert released == PLAIN[: max(0, number - 1) * FULL]
    assert refusal is not None
    assert refusal.code == "envelope-record"
    assert refusal.details["record"] == number
    assert refusal.details["byte"] == len(joined(RECORDS[:number]))
    assert refusal.place == f"record {number}, byte {refusal.details['byte']}"


def test_a_record_that_says_it_is_too_long_is_not_waited_for() -> None:
    """The length is refused before anything of the record is read."""
    _, refusal = unsealed(HEAD + (FULL + 1).to_bytes(4, "big"), IDENTITY)
    assert refusal is not None
    assert refusal.code == "envelope-record-length"
    assert refusal.details["record"] == 0
    assert "65537" in refusal.message


def test_a_header_that_says_it_is_too_long_is_not_waited_for() -> None:
    """4096 is taken for a length that may be, and 4097 is not."""
    for length, code in [(4096, "envelope-truncated"), (4097, "envelope-header-length")]:
        _, refusal = unsealed(HEAD[:8] + length.to_bytes(4, "big"), IDENTITY)
        assert refusal is not None
        assert refusal.code == code
    _, refusal = unsealed(HEAD[:8] + (4096).to_bytes(4, "big") + bytes(4096), IDENTITY)
    assert refusal is not None
    assert refusal.code == "envelope-key"


@pytest.mark.parametrize("count", range(HEADER_END))
def test_a_stream_cut_in_its_header_is_refused(count: int) -> None:
    """Short of its magic it is no envelope, and after that it was cut."""
    released, refusal = unsealed(HEAD[:count], IDENTITY)
    assert released == b""
    assert refusal is not None
    assert refusal.code == ("envelope-magic" if count < 8 else "envelope-truncated")
    assert refusal.details["byte"] == (0 if count < 8 else count)


def test_the_wrong_identity_is_told_by_its_recipient() -> None:
    """It says whose identity was tried, which is no secret, and nothing of the identity."""
    other = Identity(bytes(32))
    _, refusal = unsealed(joined(RECORDS), other)
    assert refusal is not None
    assert refusal.code == "envelope-key"
    assert str(other.recipient) in refusal.message
    assert other.reveal()[16:] not in refusal.message


def test_a_second_envelope_gets_a_hint() -> None:
    """``cat a.sealed b.sealed`` is a known accident."""
    _, refusal = unsealed(joined(RECORDS) * 2, IDENTITY)
    assert refusal is not None
    assert refusal.code == "envelope-trailing"
    assert refusal.hint is not None
    assert "second envelope" in refusal.hint


def test_line_ends_that_a_terminal_rewrote_get_a_hint() -> None:
    """Wherever the damage is noticed first: in the header or in the first record."""
    plain = bytes(30_000)
    codes = set()
    for _ in range(200):
        mangled = sealed(plain, TO).replace(b"\n", b"\r\n")
        released, refusal = unsealed(mangled, IDENTITY)
        assert released == b""
        assert refusal is not None
        assert refusal.hint is not None
        assert "ssh -T" in refusal.hint
        codes.add(refusal.code)
    assert codes == {"envelope-key", "envelope-record"}


def test_a_banner_before_the_magic_gets_a_hint() -> None:
    """It is found also when it comes in a read of its own."""
    banner = b"Welcome to the box!\n"
    for counts in ([len(banner)], [1], [10_000]):
        _, refusal = unsealed(banner + joined(RECORDS), IDENTITY, counts)
        assert refusal is not None
        assert refusal.code == "envelope-magic"
        assert refusal.hint is not None
        assert refusal.hint.startswith("20 bytes of text come first: a login banner?")


def test_a_sink_that_takes_less_is_an_error() -> None:
    """What is not written is not passed over."""

    class Short:
        def write(self, data: bytes | bytearray | memoryview, /) -> int:
            return len(data) - 1

    with pytest.raises(MachineError, match="could be written"):
        unseal(io.BytesIO(joined(RECORDS)), Short(), IDENTITY)


def test_memory_does_not_grow_with_the_stream() -> None:
    """Nothing of a long stream is kept, be its records long or short."""
    plain = bytes(100 * FULL)
    envelope = sealed(plain, TO)

    class Nowhere:
        def write(self, data: bytes | bytearray | memoryview, /) -> int:
            return len(data)

    unseal(io.BytesIO(envelope), Nowhere(), IDENTITY)
    source = Chunked(envelope, [FULL])
    tracemalloc.start()
    try:
        unseal(source, Nowhere(), IDENTITY)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
