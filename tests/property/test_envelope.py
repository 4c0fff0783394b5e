from __future__ import annotations

import io
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from agentmove_tools.envelope import bech32
from agentmove_tools.envelope.keys import (
    Identity,
    parse_identity,
    parse_recipient,
)
from agentmove_tools.envelope.records import RecordKey
from agentmove_tools.envelope.seal import Sealer
from agentmove_tools.refusals import UsageError
from tests.envelope.streams import FULL, apart, sealed, unsealed

IDENTITY = Identity(bytes(range(32)))
TO = IDENTITY.recipient

untimed = settings(deadline=None)

# Lengths around a record's and a batch's end, and chunks of all sizes.
lengths = st.integers(0, 300) | st.sampled_from([FULL, 2 * FULL, 4 * FULL]).flatmap(
    lambda length: st.integers(length - 2, length + 2)
)
# A few short reads, or one, and then longer ones.
chunks = st.tuples(
    st.lists(st.integers(1, 3 * FULL), max_size=20), st.integers(FULL // 8, 3 * FULL)
).map(lambda drawn: [*drawn[0], drawn[1]])


def content(length: int) -> bytes:
    """Give bytes of which no two records are the same."""
    return b"".join(number.to_bytes(4, "big") for number in range(length // 4 + 1))[:length]


def in_records(sizes: list[int]) -> tuple[bytes, bytes]:
    """Seal into records of these sizes, as another writer may; give plaintext and envelope."""
    out = io.BytesIO()
    sealer = Sealer(out, TO)
    key: RecordKey = sealer._records
    plain = content(sum(sizes))
    out.write(sealer._sealed[: sealer._ready])
    at = 0
    for size in [*sizes, 0]:
        record = memoryview(bytearray(size + 20))
        key.seal(memoryview(plain)[at : at + size], record)
        out.write(record)
        at += size
    return plain, out.getvalue()


@untimed
@given(lengths, chunks, chunks)
def test_what_is_sealed_opens_again(length: int, writing: list[int], reading: list[int]) -> None:
    """Any bytes, whatever short reads either end gets."""
    plain = content(length)
    assert unsealed(sealed(plain, TO, writing), IDENTITY, reading) == (plain, None)


@untimed
@given(st.binary(max_size=2000), chunks)
def test_any_bytes_open_again(plain: bytes, reading: list[int]) -> None:
    """An envelope in an envelope too."""
    once = sealed(plain, TO)
    assert unsealed(sealed(once, TO), IDENTITY, reading) == (once, None)
    assert unsealed(once, IDENTITY, reading) == (plain, None)


@untimed
@given(st.lists(st.integers(1, 40) | st.integers(FULL - 2, FULL), max_size=12), chunks)
def test_records_of_any_size_are_read(sizes: list[int], reading: list[int]) -> None:
    """A writer fills records, but a reader takes them from one byte on."""
    plain, envelope = in_records(sizes)
    assert unsealed(envelope, IDENTITY, reading) == (plain, None)


sizes_of_some = st.lists(st.integers(1, 40) | st.just(FULL), min_size=1, max_size=8)


def assert_refused(plain: bytes, envelope: bytes, reading: list[int]) -> None:
    """Hold that it is refused, and that a true prefix is released, without the last record."""
    released, refusal = unsealed(envelope, IDENTITY, reading)
    assert refusal is not None
    assert refusal.code.startswith("envelope-")
    assert plain.startswith(released)
    assert len(released) < len(plain)


@untimed
@given(sizes_of_some, st.data(), chunks)
def test_every_altered_byte_is_found(
    sizes: list[int], data: st.DataObject, reading: list[int]
) -> None:
    """Wherever it is, and whatever the length of what it breaks."""
    plain, envelope = in_records(sizes)
    place = data.draw(
        st.integers(0, len(envelope) - 1) | st.integers(0, min(200, len(envelope) - 1))
    )
    altered = bytearray(envelope)
    altered[place] ^= data.draw(st.integers(1, 255))
    assert_refused(plain, bytes(altered), reading)


@untimed
@given(sizes_of_some, st.data(), chunks)
def test_every_cut_is_found(sizes: list[int], data: st.DataObject, reading: list[int]) -> None:
    """What came before it is released only as far as it authenticates twice."""
    plain, envelope = in_records(sizes)
    end = data.draw(st.integers(0, len(envelope) - 1))
    assert_refused(plain, envelope[:end], reading)


@untimed
@given(sizes_of_some, st.binary(min_size=1, max_size=100), chunks)
def test_every_byte_too_many_is_found(sizes: list[int], more: bytes, reading: list[int]) -> None:
    """Behind the final record nothing may come."""
    plain, envelope = in_records(sizes)
    assert_refused(plain, envelope + more, reading)


@untimed
@given(sizes_of_some, st.data(), chunks)
def test_records_in_another_order_are_found(
    sizes: list[int], data: st.DataObject, reading: list[int]
) -> None:
    """One that is moved, left out or repeated, also where two have the same length."""
    plain, envelope = in_records(sizes)
    head, records = apart(envelope)
    one = data.draw(st.integers(0, len(records) - 1))
    other = data.draw(st.integers(0, len(records) - 1).filter(lambda n: n != one))
    changed = list(records)
    how = data.draw(st.sampled_from(["swap", "drop", "repeat", "replace"]))
    if how == "swap":
        changed[one], changed[other] = changed[other], changed[one]
    elif how == "drop":
        del changed[one]
    elif how == "repeat":
        changed.insert(one, changed[one])
    else:
        changed[one] = changed[other]
    assert_refused(plain, head + b"".join(changed), reading)


@untimed
@given(sizes_of_some, sizes_of_some)
def test_a_record_of_another_envelope_is_found(ours: list[int], theirs: list[int]) -> None:
    """The same recipient's, at the same place, of the same length."""
    plain, envelope = in_records(ours)
    head, records = apart(envelope)
    _, others = apart(in_records(theirs)[1])
    assert_refused(plain, head + b"".join([others[0], *records[1:]]), [FULL])
    assert_refused(plain, head + b"".join([*records[:-1], others[-1]]), [FULL])


@untimed
@given(st.binary(max_size=300), chunks)
def test_anything_else_is_refused(envelope: bytes, reading: list[int]) -> None:
    """No bytes bring an error that is not a refusal, behind a magic either."""
    for start in (b"", b"LNKSEAL1", b"LNKSEAL1\x00\x00\x00\x50", sealed(b"", TO)[:92]):
        released, refusal = unsealed(start + envelope, IDENTITY, reading)
        assert released == b""
        assert refusal is not None
        assert refusal.code.startswith("envelope-")


@untimed
@given(st.binary(max_size=100))
def test_bech32_comes_back(data: bytes) -> None:
    """In both cases."""
    text = bech32.encode("lnk", data)
    assert bech32.decode(text) == bech32.decode(text.upper()) == ("lnk", data)


@untimed
@given(st.binary(min_size=32, max_size=32))
def test_keys_come_back_from_their_text(raw: bytes) -> None:
    """Any 32 bytes are an identity, and its recipient is a good one."""
    identity = Identity(raw)
    assert parse_identity(identity.reveal()) == identity
    assert parse_recipient(str(identity.recipient)) == identity.recipient
    assert parse_recipient(identity.recipient.raw.hex()) == identity.recipient


@untimed
@given(st.text() | st.text("lnkLNK1-qpzry9x8gf2tvdw0s3jn54khce6mua7lb\u212a\r ", max_size=70))
def test_any_other_text_is_a_usage_error(text: str) -> None:
    """No text brings another error, with any prefix."""
    for start in ("", "lnk1", "LNK-SECRET-KEY-1"):
        for parse in (parse_recipient, parse_identity):
            with suppress(UsageError):
                assert len(parse(start + text).raw) == 32
